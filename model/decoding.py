"""How one sequence is to be decoded, and what comes of it: plain values, free of torch.

The search itself is in `model.search`. A hypothesis is everything the decoder wrote after its start token: a forced
prefix and the end-of-sentence token (eos) belong to it, and count in its length, its log-probability and its score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length"]

MAX_BEAM_SIZE = 16
"""Largest `DecodingOptions.beam_size`."""

USUAL_BEAM_THRESHOLD = 2.5
"""`DecodingOptions.beam_threshold` that costs nothing in quality: docs/experiments.md."""


class InvalidDecodingOptions(ValueError):
    """A decoding option is out of range, or two of them exclude each other.

    Attributes:
        field: Name of the option.
        value: What was given.
        allowed: What would have been accepted, in words.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} is {value!r}; allowed is {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


@dataclass(frozen=True)
class _Range:
    """Numbers from `lowest` to `highest`; `lowest` itself is not one of them if `exclusive`."""

    lowest: float
    highest: float
    integer: bool = False
    exclusive: bool = False

    def __contains__(self, value: object) -> bool:
        kinds = (int,) if self.integer else (int, float)
        # bool is an int in Python, but `beam_size=True` is a mistake. NaN fails both comparisons.
        if not isinstance(value, kinds) or isinstance(value, bool):
            return False
        return (self.lowest < value if self.exclusive else self.lowest <= value) and value <= self.highest

    def __str__(self) -> str:
        kind = "an integer" if self.integer else "a number"
        if self.exclusive:
            return f"{kind} above {self.lowest} and at most {self.highest}"
        return f"{kind} from {self.lowest} to {self.highest}"


_LARGEST = 2**63 - 1
"""What a signed integer of 64 bits holds: the most that JSON's readers and other languages agree about."""

_RANGES = {
    "beam_size": _Range(1, MAX_BEAM_SIZE, integer=True),
    "length_penalty": _Range(-10, 10),
    "beam_threshold": _Range(0, 1000),
    "num_hypotheses": _Range(1, MAX_BEAM_SIZE, integer=True),
    "temperature": _Range(0, 100),
    "top_k": _Range(1, _LARGEST, integer=True),
    "top_p": _Range(0, 1, exclusive=True),
    "seed": _Range(0, _LARGEST, integer=True),
    "no_repeat_ngram_size": _Range(0, _LARGEST, integer=True),
    "repetition_penalty": _Range(0, 10, exclusive=True),
    "max_target_tokens": _Range(1, _LARGEST, integer=True),
    "min_target_tokens": _Range(0, _LARGEST, integer=True),
}
_MAY_BE_NONE = ("beam_threshold", "top_k", "top_p", "seed", "max_target_tokens")

ALLOWED: Mapping[str, str] = {name: str(span) for name, span in _RANGES.items()} | {"early_stopping": "true or false"}
"""What each option may be, in words, before other options are looked at."""


@dataclass(frozen=True)
class DecodingOptions:
    """How one sequence is searched. Validates itself.

    Attributes:
        beam_size: Hypotheses kept alive at each step, 1 to 16. With 1 the search is greedy, or sampling if
            `temperature` is set.
        length_penalty: Exponent p of score = log_prob / length ** p, -10 to 10; length counts eos. 0 compares plain
            log-probabilities (short wins), 1 the mean of a token, more favours longer hypotheses. This is the form of
            Hugging Face and Marian. Wu et al. 2016 (eq. 14) divide by ((5 + length) / 6) ** alpha instead, which
            prefers length less strongly while hypotheses are short, and add a coverage term that is left out here.
        beam_threshold: Nats, 0 to 1,000: a running hypothesis is given up when it lies more than that below the best
            one of its step, or below where it had to be now to score like the best finished one (absolute threshold
            pruning, Freitag and Al-Onaizan 2017). Where the model is sure, a beam then costs little more than greedy
            search, and there are fewer hypotheses than `num_hypotheses`. None gives up none, and is
            all there is without a beam.
        num_hypotheses: How many hypotheses are wanted, 1 to `beam_size`.
        temperature: 0 takes the most probable token. Above 0 (up to 100) tokens are drawn from
            softmax(log_probs / temperature).
        top_k: Draw from the k most probable tokens only; None for all.
        top_p: Draw from the smallest set of most probable tokens that holds at least this mass, above 0 to 1
            (nucleus sampling, Holtzman et al. 2020, section 3.1); None for all. After `top_k`, which renormalizes.
        seed: Makes sampling repeatable, 0 to 2**63 - 1; None draws a fresh seed. Without effect when nothing is drawn.
        no_repeat_ngram_size: No n-gram of this size is written twice in a hypothesis (Paulus et al. 2018, section 2.5);
            0 is off.
        repetition_penalty: Multiplies the log-probability of tokens already written; 1 is off, more discourages
            repetition; above 0 to 10. Keskar et al. 2019 (section 4.1) scale logits instead, so that their effect
            changes when a constant is added to all logits. Hugging Face scales log-probabilities in beam search, as
            here, and logits elsewhere.
        max_target_tokens: Most tokens of a hypothesis, eos included; None leaves it to the limit of `start_search`.
        min_target_tokens: Fewest tokens before eos may come.
        early_stopping: Beam search ends as soon as `beam_size` hypotheses are finished, although a running one might
            yet beat them.

    Raises:
        InvalidDecodingOptions: Names the field, its value and what is allowed.
    """

    beam_size: int = 1
    length_penalty: float = 1.0
    beam_threshold: float | None = None
    num_hypotheses: int = 1
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    max_target_tokens: int | None = None
    min_target_tokens: int = 0
    early_stopping: bool = False

    def __post_init__(self) -> None:
        """Checks each field alone, then those that depend on each other."""
        for name, span in _RANGES.items():
            value = getattr(self, name)
            if value not in span and not (value is None and name in _MAY_BE_NONE):
                raise InvalidDecodingOptions(name, value, ALLOWED[name])
        if not isinstance(self.early_stopping, bool):
            raise InvalidDecodingOptions("early_stopping", self.early_stopping, ALLOWED["early_stopping"])
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.num_hypotheses > self.beam_size:
            allowed = f"at most beam_size, which is {self.beam_size}"
            raise InvalidDecodingOptions("num_hypotheses", self.num_hypotheses, allowed)
        if self.temperature > 0 and self.beam_size > 1:
            allowed = f"only 0 with a beam_size above 1, which is {self.beam_size}"
            raise InvalidDecodingOptions("temperature", self.temperature, allowed)
        if self.beam_threshold is not None and self.beam_size == 1:
            allowed = "none with a beam_size of 1, which has nothing to give up"
            raise InvalidDecodingOptions("beam_threshold", self.beam_threshold, allowed)
        for name, value in (("top_k", self.top_k), ("top_p", self.top_p)):
            if value is not None and self.temperature == 0:
                raise InvalidDecodingOptions(name, value, "none without a temperature above 0, for nothing is drawn")
        if self.max_target_tokens is not None and self.min_target_tokens > self.max_target_tokens:
            allowed = f"at most max_target_tokens, which is {self.max_target_tokens}"
            raise InvalidDecodingOptions("min_target_tokens", self.min_target_tokens, allowed)


@dataclass(frozen=True)
class Hypothesis:
    """One finished target.

    Attributes:
        tokens: Everything written, forced prefix and, if `finish_reason` is "stop", the closing eos included.
        finish_reason: "stop": the model wrote eos. "length": cut at the limit, there is no eos.
        token_log_probs: The model's own log-probability of each token, before constraints, temperature and penalties;
            same length as `tokens`. None if the search did not keep them.
        log_prob: Sum of `token_log_probs`; None like them.
        score: What hypotheses are compared by: log_prob / len(tokens) ** length_penalty, where a `repetition_penalty`
            counts in the sum (so that then score and log_prob disagree); None like them.
    """

    tokens: tuple[int, ...]
    finish_reason: FinishReason
    token_log_probs: tuple[float, ...] | None = None
    log_prob: float | None = None
    score: float | None = None

    @property
    def tokens_without_eos(self) -> tuple[int, ...]:
        """The tokens to be turned into text."""
        return self.tokens[:-1] if self.finish_reason == "stop" else self.tokens
