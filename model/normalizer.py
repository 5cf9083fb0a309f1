"""Brings text into the form that the models were trained on, and remembers where every character came from."""

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

# Part of a tokenizer's revision: raise it whenever a rule changes, because ids and offsets change with it.
NORMALIZER_VERSION = "1"

_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")

# Controls that are not white space, soft hyphen, zero-width space and joiner-like format characters, bidi marks,
# annotation marks. Format characters with a visible shape (Arabic number signs) are not among them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0001]+"
)
_MONGOLIAN_VOWEL_SEPARATOR = re.compile("(?<![\u1800-\u18af])\u180e+")
_TAGS = re.compile("[\U000e0020-\U000e007f]+")
_TAG_SEQUENCE = re.compile("[\U000e0020-\U000e007e]+\U000e007f")  # ends in the one CANCEL TAG
_JOINERS = re.compile("[\u200c\u200d]+")

# What can stand beside a joiner inside an emoji. U+2329 and U+232A are left out: NFC replaces them.
_PICTOGRAPH = re.compile(
    "[\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u2328\u232b-\u23ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001fbff\U000e007f]"
)
# Scripts whose spelling uses ZWJ and ZWNJ: Arabic, Syriac, N'Ko, the Indic family, Khmer, Mongolian, Adlam and others.
_JOINING_SCRIPT = re.compile(
    "[\u0600-\u109f\u1780-\u1c8f\ua840-\uabff\ufb50-\ufdff\ufe70-\ufefe\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
)

_ONE_TO_ONE = str.maketrans(
    "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2010\u2011\u2212",
    "''''" + '""""' + "---",
)
_ELLIPSIS = re.compile("…")
_SPACE_RUN = re.compile(r" \s+|[^\S ]\s*")  # a single plain space is already right
_OUTER_SPACE = re.compile(r"\A | \Z")

# What the rules for anything but French may change in ASCII.
_UNTIDY_ASCII = re.compile(r"[\x00-\x1f\x7f]| (?=[ .,;:!?]|\Z)|\A ")

# A mark counts as punctuation only before a space or the end: `.git`, `!=`, `:)` and `10:30` are left alone.
_PUNCTUATION = r"(?:[.,;:]|[!?]++)(?= |\Z)"
_ENGLISH_GUILLEMET = re.compile("« ?| ?»")
_SPACE_BEFORE_PUNCTUATION = re.compile(rf" (?={_PUNCTUATION})")
_FRENCH_SPACE_BEFORE_LOW_PUNCTUATION = re.compile(r"(?<!«) (?=[.,](?: |\Z))")
_FRENCH_OPENING_GUILLEMET = re.compile(r"(?<=«)(?=[^ ])")
_FRENCH_CLOSING_GUILLEMET = re.compile(r"(?<=[^ ])(?=»)")
_FRENCH_HIGH_PUNCTUATION = re.compile(
    r"""&(?:\#\w|[a-z]{2})\w{0,29};  # the end of an HTML entity is not punctuation
    | (?<=[\w)\]}"'»]) (?=(?:[;:]|[!?]++)(?:[ ]|\Z))""",
    re.VERBOSE | re.IGNORECASE,
)
_FRENCH_ELISION = re.compile(r"(?i:(?<![\w'])(?:l|d|qu)') (?=\w)")

_MAX_PLAIN_CLUSTER = 64
_PLACES = array("I", range(1_024))


@dataclass(frozen=True, slots=True)
class NormalizedText:
    """Normalised text with the way back to the text that it was made from.

    Attributes:
        text: The normalised text.
        starts: For every character of `text`, where its span in the original begins (in code points).
        ends: For every character of `text`, where its span in the original ends (exclusive). Both lists never fall.
            Characters that a rule inserted have an empty span; several characters can share one (`…` became `...`).
    """

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def source_span(self, start: int, end: int) -> tuple[int, int]:
        """Translates a span of the normalised text into a span of the original.

        Args:
            start: First character, in code points of `text`.
            end: One past the last character; equal to `start` for an empty span.

        Returns:
            The `[start, end)` span in code points of the original text.

        Raises:
            ValueError: If the span does not lie within `text`.
        """
        if not 0 <= start <= end <= len(self.text):
            raise ValueError(f"span ({start}, {end}) does not lie in a text of {len(self.text)} characters")
        if start < end:
            return self.starts[start], self.ends[end - 1]
        if not self.text:
            return 0, 0
        point = self.ends[start - 1] if start else self.starts[0]
        return point, point


def normalize(text: str, language: str) -> NormalizedText:
    """Normalises text the way the training data was normalised.

    NFC; every run of white space to one plain space, none at the ends; curly quotes to straight ones; `…` to `...`;
    hyphen, no-break hyphen and minus sign to `-`; control, zero-width, soft hyphen and bidi characters removed. Then
    English punctuation without a space before it, or French punctuation and guillemets with their plain spaces.
    ZWJ and ZWNJ stay inside emoji and beside scripts that spell with them; tag characters stay in emoji flags.
    Surrogates that form no pair become U+FFFD. Applying it twice changes nothing more.

    Unlike the data's cleaning it repairs no mojibake and decodes no HTML entities: a caller who sends `&amp;` or
    `Ã©` may mean exactly that.

    Args:
        text: Any text, also with lone surrogates.
        language: Language code of the text (`en`, `fr-CA`); languages without rules of their own get the general ones.

    Returns:
        The normalised text with its mapping to `text`.
    """
    main_language = re.split("[-_]", language, maxsplit=1)[0].lower()
    if main_language != "fr" and text.isascii() and not _UNTIDY_ASCII.search(text):  # most sentences
        return NormalizedText(text, *_own_places(len(text)))
    aligned = _AlignedText(text)
    aligned.replace(_SURROGATE_PAIR, lambda pair: _join_surrogates(pair[0]))
    aligned.text = _SURROGATE.sub("\ufffd", aligned.text)
    if not text.isascii():
        aligned.replace(_MONGOLIAN_VOWEL_SEPARATOR, "")
        aligned.replace(_TAGS, _keep_tags)
    aligned.replace(_INVISIBLE, "")
    if not text.isascii():
        aligned.compose()
        aligned.replace(_JOINERS, _keep_joiners)
        aligned.text = aligned.text.translate(_ONE_TO_ONE)
        aligned.replace(_ELLIPSIS, "...")
    aligned.replace(_SPACE_RUN, " ")
    aligned.replace(_OUTER_SPACE, "")
    match main_language:
        case "en":
            aligned.replace(_ENGLISH_GUILLEMET, '"')
            aligned.replace(_SPACE_BEFORE_PUNCTUATION, "")
        case "fr":
            aligned.replace(_FRENCH_OPENING_GUILLEMET, _space_unless_mark)
            aligned.replace(_FRENCH_CLOSING_GUILLEMET, " ")
            aligned.replace(_FRENCH_SPACE_BEFORE_LOW_PUNCTUATION, "")
            aligned.replace(_FRENCH_HIGH_PUNCTUATION, lambda match: match[0] or " ")
            aligned.replace(_FRENCH_ELISION, _without_last_character)
    return NormalizedText(aligned.text, aligned.starts, aligned.ends)


def _own_places(size: int) -> "tuple[array[int], array[int]]":
    """Where each of so many characters begins and ends, if none has moved."""
    if size < len(_PLACES):
        return _PLACES[:size], _PLACES[1 : size + 1]
    return array("I", range(size)), array("I", range(1, size + 1))


class _AlignedText:
    """Text under change, with the original span of each of its characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts, self.ends = _own_places(len(text))

    def replace(self, pattern: re.Pattern[str], replacement: str | Callable[[re.Match[str]], str]) -> None:
        """Replaces every match; the new characters get the span of the whole match."""
        if callable(replacement):
            self.splice((m.start(), m.end(), replacement(m)) for m in pattern.finditer(self.text))
        else:
            self.splice((m.start(), m.end(), replacement) for m in pattern.finditer(self.text))

    def compose(self) -> None:
        """Brings the text into NFC, cluster by cluster."""
        if not unicodedata.is_normalized("NFC", self.text):
            self.splice(_composed_clusters(self.text))

    def splice(self, edits: Iterable[tuple[int, int, str]]) -> None:
        """Applies edits `(start, end, new text)` that are in order and do not overlap."""
        texts: list[str] = []
        starts, ends = array("I"), array("I")
        done = 0
        for start, end, new in edits:
            if self.text[start:end] == new:
                continue
            texts += self.text[done:start], new
            starts += self.starts[done:start]
            ends += self.ends[done:start]
            if new:
                # An insertion sits directly behind the character before it.
                first = self.starts[start] if start < end else self.ends[start - 1]
                starts.extend([first] * len(new))
                ends.extend([self.ends[end - 1]] * len(new))
            done = end
        if texts:
            self.text = "".join(texts) + self.text[done:]
            self.starts = starts + self.starts[done:]
            self.ends = ends + self.ends[done:]


def _join_surrogates(pair: str) -> str:
    return chr(0x10000 + ((ord(pair[0]) - 0xD800) << 10) + ord(pair[1]) - 0xDC00)


def _keep_tags(tags: re.Match[str]) -> str:
    before = tags.string[tags.start() - 1 : tags.start()]
    keep = _TAG_SEQUENCE.fullmatch(tags[0]) and (_PICTOGRAPH.match(before) or before == "\ufe0f")
    return tags[0] if keep else ""


def _keep_joiners(joiners: re.Match[str]) -> str:
    before = joiners.string[joiners.start() - 1 : joiners.start()]
    after = joiners.string[joiners.end() : joiners.end() + 1]
    # Beside a mark it stays whatever the script: taking it away could let the mark compose with something else.
    beside_script = any(_JOINING_SCRIPT.match(char) or (char and _extends_cluster(char)) for char in (before, after))
    return joiners[0] if beside_script or (_PICTOGRAPH.match(before) and _PICTOGRAPH.match(after)) else ""


def _without_last_character(match: re.Match[str]) -> str:
    return match[0][:-1]


def _space_unless_mark(place: re.Match[str]) -> str:
    return "" if _extends_cluster(place.string[place.end()]) else " "


def _extends_cluster(char: str) -> bool:
    """Whether NFC may join or reorder this character with what stands before it."""
    return "\u1160" <= char <= "\u11ff" or unicodedata.category(char)[0] == "M"


def _composed_clusters(text: str) -> Iterator[tuple[int, int, str]]:
    start = 0
    for position in range(1, len(text) + 1):
        if position < len(text) and text[position] >= "\u0300" and _extends_cluster(text[position]):
            continue
        cluster = text[start:position]
        if not unicodedata.is_normalized("NFC", cluster):
            yield start, position, _compose(cluster)
        start = position


def _compose(cluster: str) -> str:
    """NFC in linear time: `unicodedata` sorts a run of marks by insertion, which takes minutes for a long one."""
    if len(cluster) > _MAX_PLAIN_CLUSTER:
        decomposed = "".join(unicodedata.normalize("NFD", char) for char in cluster)
        runs = groupby(decomposed, key=lambda char: unicodedata.combining(char) > 0)
        cluster = "".join("".join(sorted(run, key=unicodedata.combining) if marks else run) for marks, run in runs)
    return unicodedata.normalize("NFC", cluster)
