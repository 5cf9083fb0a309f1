"""How one sequence is to be decoded, and what comes of it: plain values, free of torch.

The search itself is in `model.search`. A hypothesis is everything the decoder wrote after its start token: a forced
prefix and the end-of-sentence token (eos) belong to it, and count in its length, its log-probability and its score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length"]

MAX_BEAM_SIZE = 16
"""Largest `DecodingOptions.beam_size`."""


class InvalidDecodingOptions(ValueError):
    """A decoding option is out of range, or two of them exclude each other.

    Attributes:
        field: Name of the option.
        value: What was given.
        allowed: What would have been accepted, in words.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field}={value!r} is not allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


def _require_number(
    field: str, value: object, lowest: float, highest: float, *, integer: bool = False, exclusive: bool = False
) -> None:
    """Raises unless `value` is a number in [lowest, highest], or in (lowest, highest] if `exclusive`."""
    kinds = (int,) if integer else (int, float)
    # bool is an int in Python, but `beam_size=True` is a mistake. NaN fails both comparisons.
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if is_number and (lowest < value if exclusive else lowest <= value) and value <= highest:  # type: ignore[operator]
        return
    kind = "an integer" if integer else "a number"
    if math.isinf(highest):
        span = f"above {lowest}" if exclusive else f"of at least {lowest}"
    else:
        span = f"above {lowest} and at most {highest}" if exclusive else f"from {lowest} to {highest}"
    raise InvalidDecodingOptions(field, value, f"must be {kind} {span}")


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
        _require_number("beam_size", self.beam_size, 1, MAX_BEAM_SIZE, integer=True)
        _require_number("length_penalty", self.length_penalty, -10, 10)
        _require_number("num_hypotheses", self.num_hypotheses, 1, MAX_BEAM_SIZE, integer=True)
        _require_number("temperature", self.temperature, 0, 100)
        if self.top_k is not None:
            _require_number("top_k", self.top_k, 1, math.inf, integer=True)
        if self.top_p is not None:
            _require_number("top_p", self.top_p, 0, 1, exclusive=True)
        if self.seed is not None:
            _require_number("seed", self.seed, 0, 2**63 - 1, integer=True)
        _require_number("no_repeat_ngram_size", self.no_repeat_ngram_size, 0, math.inf, integer=True)
        _require_number("repetition_penalty", self.repetition_penalty, 0, 10, exclusive=True)
        if self.max_target_tokens is not None:
            _require_number("max_target_tokens", self.max_target_tokens, 1, math.inf, integer=True)
        _require_number("min_target_tokens", self.min_target_tokens, 0, math.inf, integer=True)
        if not isinstance(self.early_stopping, bool):
            raise InvalidDecodingOptions("early_stopping", self.early_stopping, "must be true or false")
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.num_hypotheses > self.beam_size:
            allowed = f"must be at most beam_size, which is {self.beam_size}"
            raise InvalidDecodingOptions("num_hypotheses", self.num_hypotheses, allowed)
        if self.temperature > 0 and self.beam_size > 1:
            allowed = f"must be 0 with beam_size above 1, which is {self.beam_size}"
            raise InvalidDecodingOptions("temperature", self.temperature, allowed)
        for name, value in (("top_k", self.top_k), ("top_p", self.top_p)):
            if value is not None and self.temperature == 0:
                raise InvalidDecodingOptions(
                    name, value, "needs a temperature above 0, for nothing is drawn without one"
                )
        if self.max_target_tokens is not None and self.min_target_tokens > self.max_target_tokens:
            allowed = f"must be at most max_target_tokens, which is {self.max_target_tokens}"
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
