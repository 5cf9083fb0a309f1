"""What goes in and out of the API as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from model.decoding import MAX_BEAM_SIZE
from service.api.inspect_fields import MapFields, Strict
from service.pipeline import WarningCode

Format = Literal["text", "html", "xml"]
ReturnPart = Literal["segments", "scores", "tokens", "alignment"]


def _check_text(value: object) -> object:
    """One message about a string or a list of strings, instead of one for each of the two."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise _field_error("", value, "a string or a list of strings")
    if not value:
        raise _field_error("", value, "a list with at least one string")
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise _field_error(f"[{index}]", item, "a string")
    return value


def _check_return(value: object) -> object:
    if not isinstance(value, list):
        raise _field_error("", value, f"a list of {', '.join(get_args(ReturnPart))}")
    for index, item in enumerate(value):
        if item not in get_args(ReturnPart):
            raise _field_error(f"[{index}]", item, f"one of {', '.join(get_args(ReturnPart))}")
    return value


def _check_format(value: object) -> object:
    if value not in get_args(Format):
        raise _field_error("", value, f"one of {', '.join(get_args(Format))}")
    return value


def _field_error(at: str, given: object, allowed: str) -> PydanticCustomError:
    return PydanticCustomError("field", "not allowed", {"at": at, "given": given, "allowed": allowed})


class Decoding(Strict):
    """How translations are searched. What is left out, or null, has its default."""

    beam_size: int | None = Field(
        default=None,
        description=f"Hypotheses kept alive at each step, 1 to {MAX_BEAM_SIZE}; 1 is greedy. Default: the server's, "
        "4 if it was not changed; 1 for a stream, and with a temperature.",
    )
    length_penalty: float | None = Field(
        default=None, description="Exponent p of score = log-probability / length^p, -10 to 10; default 1."
    )
    beam_threshold: float | None = Field(
        default=None,
        description="Nats below the best hypothesis at which one of a beam is given up, 0 to 1,000; not with a "
        "beam_size of 1. Default: the server's, 2.5 if it was not changed; none is given up where several hypotheses "
        "are wanted.",
    )
    num_hypotheses: int | None = Field(
        default=None,
        description="How many translations are wanted, 1 to beam_size; default 1. More come as `alternatives`.",
    )
    temperature: float | None = Field(
        default=None,
        description="0, the default, takes the most probable token; up to 100 draws, and needs beam_size 1.",
    )
    top_k: int | None = Field(default=None, description="Draw from the k most probable tokens only; at least 1.")
    top_p: float | None = Field(
        default=None, description="Draw from the most probable tokens that hold this mass, above 0 to 1."
    )
    seed: int | None = Field(default=None, description="Makes drawing repeatable; 0 to 2^63 - 1.")
    no_repeat_ngram_size: int | None = Field(
        default=None, description="No n-gram of this many tokens is written twice in a segment; 0, the default, is off."
    )
    repetition_penalty: float | None = Field(
        default=None,
        description="Multiplies the log-probability of tokens already written; above 0 to 10, 1, the default, is off, "
        "more discourages repetition.",
    )
    max_target_tokens: int | None = Field(
        default=None, description="Most tokens written for one segment, end of sentence included; at least 1."
    )

    @property
    def given(self) -> dict[str, Any]:
        """What the request says, as fields of `DecodingOptions`."""
        return self.model_dump(exclude_none=True)


class TranslateRequest(Strict):
    """What `POST /v1/translate` takes."""

    text: Annotated[
        str | list[str],
        BeforeValidator(_check_text),
        Field(description="A text, or a list of texts that are translated together, each on its own."),
    ]
    source: str | None = Field(
        default=None,
        max_length=35,
        description="Language code of the text, as `en`; `auto` finds out the language of each text. "
        "Left out, it is that of the only model that fits, and found out where several do.",
    )
    target: str | None = Field(
        default=None, max_length=35, description="Language code to translate to. May be left out if one model fits."
    )
    model: str | None = Field(
        default=None, max_length=200, description="Name of the model; needed only if several fit."
    )
    format: Annotated[
        Format,
        BeforeValidator(_check_format),
        Field(description="What the text is: `text`; `html`, a fragment or a whole document; `xml`, well-formed."),
    ] = "text"
    decoding: Decoding = Field(default=Decoding(), description="How to search.")
    return_: Annotated[
        list[ReturnPart],
        BeforeValidator(_check_return),
        Field(
            alias="return",
            description="More about each translation: `segments`, with `scores`, with `tokens` (implies segments); "
            "`alignment` of words.",
        ),
    ] = []
    attention: MapFields | None = Field(
        default=None, description="Attention maps beside the translation; fields as in /v1/attention."
    )
    deadline_seconds: float | None = Field(
        default=None, description="Give up after this time; above 0, at most the server's request timeout, the default."
    )
    stream: bool = Field(default=False, description="Answer with server-sent events while the translation is written.")

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts, also where there is one."""
        return (self.text,) if isinstance(self.text, str) else tuple(self.text)


class Problem(BaseModel):
    """An error, as RFC 9457 wants it."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[dict[str, Any]] | None = None


class Model(BaseModel):
    """A model and the languages it knows."""

    name: str
    revision: str
    source: str
    target: str
    targets: list[str] | None = Field(default=None, description="All languages that it writes, if these are several.")
    precision: str
    max_source_tokens: int
    max_target_tokens: int


class RouteAnswer(BaseModel):
    """A pair that no model translates, but two do, one after the other."""

    source: str
    target: str
    via: str
    models: list[str] = Field(description="Their names, in order.")


class Models(BaseModel):
    """What `GET /v1/models` gives."""

    models: list[Model]
    routes: list[RouteAnswer] | None = Field(default=None, description="Pairs that two models translate; if any.")


class UsedModel(BaseModel):
    """Which model translated."""

    name: str
    revision: str


class Via(BaseModel):
    """Which two models translated, one after the other, and through which language."""

    language: str
    models: list[UsedModel]


class Token(BaseModel):
    """A piece of the target."""

    id: int
    piece: str
    log_prob: float | None = Field(default=None, description="The model's own; absent where the search keeps none.")


class SourceToken(BaseModel):
    """A piece of the source, and its place in the text, in code points. The end of sentence has an empty place."""

    id: int
    piece: str
    start: int
    end: int


class Hypothesis(BaseModel):
    """One translation of a segment."""

    text: str
    finish_reason: str = Field(description="`stop`: the model ended by itself; `length`: at the limit of tokens.")
    score: float | None = Field(default=None, description="What hypotheses are compared by.")
    log_prob: float | None = Field(default=None, description="Sum of the log-probabilities of all tokens.")
    tokens: list[Token] | None = None


WARNINGS: dict[WarningCode, str] = {
    "repetition": "The model repeated itself, whatever was tried.",
    "length": "The translation is far longer or shorter than its source.",
    "untranslated": "The translation is the source again, or has words of it that the model could translate.",
    "not_translated": "A part of it is in the source language, because no good translation was found.",
    "negation": "The source denies something, and the translation seems not to.",
    "name": "A name of the source, or a person's title, is not in the translation.",
    "items": "A list of the source has other items in the translation.",
    "number": "A number in words, a month or a day of the source is not in the translation.",
    "parted": "It was translated in pieces, because the model did not keep what stands between them.",
    "redrawn": "What was drawn at this temperature was no translation; it was drawn at a lower one, or searched.",
    "unsure": "For words without a sentence around them the model wrote what it hardly believes itself.",
    "long": "Its sentence is longer than those the model was trained on; it was translated in parts.",
}
"""What each code means, for people."""


class Warning(BaseModel):
    """Something that is wrong with the translation of a segment."""

    segment: int = Field(description="Its index among the text's segments.")
    # A string and no enumeration: programs that were made of the document go on with codes of a later version.
    code: str = Field(description=" ".join(f"`{code}`: {message}" for code, message in WARNINGS.items()))
    message: str = Field(description="The same for people.")


class Segment(BaseModel):
    """A sentence, or a part of one that was too long. Places are in code points of the text."""

    start: int
    end: int
    source: str
    text: str
    translated: bool = Field(description="False for what has no letter: it comes back as it is.")
    windowed: bool
    hypotheses: list[Hypothesis]
    source_tokens: list[SourceToken] | None = None


class DetectedLanguage(BaseModel):
    """What language a text was found to be in."""

    language: str = Field(description="A language that can be translated, or `unknown`.")
    confidence: float = Field(description="Its probability among all languages, 0 to 1; 0 where it is unknown.")


class Detection(DetectedLanguage):
    """What was found out about the language of a text."""

    candidates: list[DetectedLanguage] = Field(description="Each language that can be translated, best first.")
    looks_like: str | None = Field(
        default=None, description="The most probable of all languages, also where it cannot be translated."
    )


class DetectRequest(Strict):
    """What `POST /v1/detect` takes."""

    text: Annotated[str | list[str], BeforeValidator(_check_text), Field(description="A text, or a list of texts.")]
    target: str | None = Field(
        default=None, max_length=35, description="Only languages that can be translated to this one count."
    )

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts, also where there is one."""
        return (self.text,) if isinstance(self.text, str) else tuple(self.text)


class DetectAnswer(BaseModel):
    """What `POST /v1/detect` gives."""

    detections: list[Detection] = Field(description="One for each text, in order.")
    languages: list[str] = Field(description="The languages that were looked for: what the models can read.")


class TextAnswer(BaseModel):
    """The translation of one text."""

    text: str
    detected: DetectedLanguage | None = Field(default=None, description="Where it was found out.")
    model: UsedModel | None = Field(default=None, description="Which model, where the texts did not all have the same.")
    via: Via | None = Field(default=None, description="Like `model`, where two models translated.")
    via_text: str | None = Field(
        default=None, description="The text in the language between, if two models translated; `segments` are its own."
    )
    windowed: bool = Field(description="Whether a sentence was too long for the model, and translated in parts.")
    truncated: bool = Field(description="Whether a translation was stopped by the limit of target tokens.")
    score: float | None = Field(default=None, description="Mean log-probability of a target token.")
    alternatives: list[str] | None = Field(default=None, description="The next best, if `num_hypotheses` is above 1.")
    warnings: list[Warning] | None = Field(default=None, description="What is wrong with it; left out if nothing is.")
    segments: list[Segment] | None = None
    attention: dict[str, Any] | None = Field(default=None, description="As /v1/attention gives it, if asked for.")
    alignment: dict[str, Any] | None = Field(default=None, description="As /v1/alignment gives it, if asked for.")


class Usage(BaseModel):
    """What the request cost, in tokens, ends of sentences included."""

    source_tokens: int
    target_tokens: int


class TimingsAnswer(BaseModel):
    """Where the time went, in seconds. Segments run side by side; parts are those of the slowest segment in each."""

    total_seconds: float
    queue_seconds: float
    encode_seconds: float
    decode_seconds: float


class TranslateAnswer(BaseModel):
    """What `POST /v1/translate` gives."""

    translations: list[TextAnswer] = Field(description="One for each text, in order.")
    source: str = Field(description="The language of the texts; `auto` where they did not all have the same.")
    target: str
    model: UsedModel | None = Field(default=None, description="Absent where the texts did not all have the same.")
    via: Via | None = Field(default=None, description="Instead of `model`, where no model translates this pair.")
    usage: Usage
    timings: TimingsAnswer


def fields_at(schema: type[BaseModel] | None, path: Sequence[object]) -> list[str]:
    """The names that a body of this schema may use inside the field at `path`; none where that is not known."""
    for part in path:
        if schema is not None and not isinstance(part, int):
            named = {field.alias or name: field for name, field in schema.model_fields.items()}
            schema = _schema_in(named[str(part)].annotation) if str(part) in named else None
    return [] if schema is None else [field.alias or name for name, field in schema.model_fields.items()]


def _schema_in(annotation: object) -> type[BaseModel] | None:
    """The model within `Model | None`, `list[Model]` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _schema_in(part)) is not None), None)
