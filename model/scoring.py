"""How probable a given target is, and what else could come next.

Probabilities are the model's own, over its whole vocabulary. What a search forbids or reshapes is kept apart from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.search import MIN_TEMPERATURE, Constraints, apply_constraints, candidates
from model.selection import TraceError
from model.trace import decoder_inputs
from model.transformer import Transformer

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """A target's probability, token by token; every array has one entry a token.

    Attributes:
        target_ids: The tokens, T of them.
        probabilities: p of each, given the source and the tokens before it.
        nats: -log p.
        bits: -log2 p.
        ranks: 1 = no token was more probable.
        total_nats: Sum of ``nats``; minus the hypothesis' log-probability.
        total_bits: Sum of ``bits``.
        perplexity: exp(total_nats / T).
        label_smoothing: e, as asked for.
        smoothed_nats: (1 - e) * -log p + e * the mean of -log p over the vocabulary: what training minimises.
        total_smoothed_nats: Its sum.
    """

    target_ids: tuple[int, ...]
    probabilities: Doubles
    nats: Doubles
    bits: Doubles
    ranks: NDArray[np.int64]
    total_nats: float
    total_bits: float
    perplexity: float
    label_smoothing: float
    smoothed_nats: Doubles
    total_smoothed_nats: float


@torch.inference_mode()
def score(
    model: Transformer, source_ids: Sequence[int], target_ids: Sequence[int], *, label_smoothing: float = 0.0
) -> Score:
    """Read a pair and say how probable the target is.

    Args:
        model: In evaluation mode, on any device.
        source_ids: Ended by ``eos_id``.
        target_ids: Without the start token; eos counts if it is there.
        label_smoothing: For ``smoothed_nats``, from 0 to below 1.

    Raises:
        TraceError: As for ``model.trace.replay``.
    """
    inputs = decoder_inputs(model, source_ids, target_ids, open_end=False)
    device = model.target_embedding.weight.device
    logits = model(torch.tensor([list(source_ids)], device=device), None, torch.tensor([inputs], device=device))
    return score_logits(logits[0], target_ids, label_smoothing=label_smoothing)


@torch.inference_mode()
def score_logits(logits: Tensor, target_ids: Sequence[int], *, label_smoothing: float = 0.0) -> Score:
    """As :func:`score`, from logits (T, V) that are there already; row t scores ``target_ids[t]``."""
    if not 0.0 <= label_smoothing < 1.0:
        raise TraceError(f"label_smoothing is {label_smoothing}; it must be at least 0 and below 1")
    logits = logits.float()
    targets = torch.tensor(list(target_ids), device=logits.device)
    log_probs = logits.log_softmax(-1)
    chosen = logits.gather(1, targets[:, None])
    nats = -log_probs.gather(1, targets[:, None]).squeeze(1).double().cpu().numpy()
    ranks = 1 + (logits > chosen).sum(-1)
    smoothed = (1 - label_smoothing) * nats - label_smoothing * log_probs.mean(-1).double().cpu().numpy()
    total = float(nats.sum())
    return Score(
        target_ids=tuple(target_ids),
        probabilities=np.exp(-nats),
        nats=nats,
        bits=nats / math.log(2),
        ranks=ranks.cpu().numpy(),
        total_nats=total,
        total_bits=total / math.log(2),
        perplexity=float(np.exp(total / len(nats))),
        label_smoothing=label_smoothing,
        smoothed_nats=smoothed,
        total_smoothed_nats=float(smoothed.sum()),
    )


@dataclass(frozen=True)
class Candidate:
    """One token that could come next.

    Attributes:
        token_id: Its id.
        logit: What the model gave it.
        log_prob: log of ``probability``.
        probability: softmax of the logits over the whole vocabulary.
        processed_probability: What sampling would draw it with: after constraints, temperature, top_k and top_p.
        rank: 1 = the most probable; of equals the lowest id comes first.
        is_permitted: Whether the constraints allow it.
    """

    token_id: int
    logit: float
    log_prob: float
    probability: float
    processed_probability: float
    rank: int
    is_permitted: bool


@dataclass(frozen=True)
class NextCandidates:
    """What could come after a prefix.

    Attributes:
        prefix_ids: What was written so far.
        candidates: The most probable ones by the model, best first, permitted or not. Where constraints forbid the
            best, the best permitted one is added at the end if it is not among them.
        greedy_id: What greedy search takes: the most probable permitted one.
        probability_sum: Sum over the whole vocabulary before any processing.
        entropy_nats: Of the raw distribution.
    """

    prefix_ids: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    greedy_id: int
    probability_sum: float
    entropy_nats: float


@torch.inference_mode()
def next_candidates(
    model: Transformer,
    source_ids: Sequence[int],
    prefix_ids: Sequence[int] = (),
    *,
    k: int = 10,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    constraints: Constraints | None = None,
) -> NextCandidates:
    """Ask the model what it would write after a prefix.

    Args:
        model: In evaluation mode, on any device.
        source_ids: Ended by ``eos_id``.
        prefix_ids: What the decoder has written, without the start token; may be empty.
        k: How many candidates to return, at least 1; V if it is more.
        temperature: Shapes ``processed_probability`` alone; 0 puts all of it on the greedy choice.
        top_k: Likewise: only that many are drawn from.
        top_p: Likewise: only the fewest that hold that mass.
        constraints: What a search may not choose, as the translation had them; None forbids nothing.

    Raises:
        TraceError: As for ``model.trace.replay``, or an option out of range.
    """
    inputs = decoder_inputs(model, source_ids, prefix_ids, open_end=True)
    device = model.target_embedding.weight.device
    memory = model.encode(torch.tensor([list(source_ids)], device=device), None)
    hidden = model.decode(torch.tensor([inputs], device=device), memory, None)
    logits = model.logits(hidden[:, -1])[0]
    return candidates_from_logits(
        logits, prefix_ids, k=k, temperature=temperature, top_k=top_k, top_p=top_p, constraints=constraints
    )


@torch.inference_mode()
def candidates_from_logits(
    logits: Tensor,
    prefix_ids: Sequence[int],
    *,
    k: int = 10,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    constraints: Constraints | None = None,
) -> NextCandidates:
    """As :func:`next_candidates`, from the logits (V,) of the next token."""
    if k < 1 or (top_k is not None and top_k < 1):
        raise TraceError(f"k is {k} and top_k {top_k}; both must be at least 1")
    if not 0.0 <= temperature <= 100.0 or (top_p is not None and not 0.0 < top_p <= 1.0):
        raise TraceError(f"temperature is {temperature} (0 to 100 are allowed) and top_p {top_p} (above 0 to 1)")
    logits = logits.float()
    log_probs = logits.log_softmax(-1)
    permitted = log_probs.clone()
    if constraints is not None:
        apply_constraints(permitted[None], [(constraints, list(prefix_ids))])
    greedy_id = int(candidates(permitted[None], 1)[1])
    processed = _processed(permitted, temperature, top_k, top_p)
    best = candidates(logits[None], k)[1][0].tolist()
    shown = best if greedy_id in best else [*best, greedy_id]
    exact = log_probs.double()
    raw = exact.exp()
    found = [
        Candidate(
            token_id=token_id,
            logit=float(logits[token_id]),
            log_prob=float(exact[token_id]),
            probability=float(raw[token_id]),
            processed_probability=float(processed[token_id]),
            rank=_rank(logits, token_id),
            is_permitted=bool(permitted[token_id] > -math.inf),
        )
        for token_id in shown
    ]
    return NextCandidates(
        prefix_ids=tuple(prefix_ids),
        candidates=tuple(found),
        greedy_id=greedy_id,
        probability_sum=float(raw.sum()),
        entropy_nats=float(-(raw * exact).nan_to_num().sum()),
    )


def _rank(logits: Tensor, token_id: int) -> int:
    """1 for the best; of equals the lowest id first, as the search has it."""
    better = int((logits > logits[token_id]).sum())
    return 1 + better + int((logits[:token_id] == logits[token_id]).sum())


def _processed(log_probs: Tensor, temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
    """The distribution that ``SamplingSearch`` draws from, (V,) float64."""
    tempered = ((log_probs.double() - log_probs.amax()) / max(temperature, MIN_TEMPERATURE)).softmax(-1)
    if temperature == 0:
        top_k = 1
    if top_k is None and top_p is None:
        return tempered
    values, ids = tempered.sort(descending=True, stable=True)
    kept = values[:top_k]
    if top_p is not None:
        cumulative = kept.cumsum(0)
        kept = kept[: 1 + int((cumulative[:-1] < top_p * float(cumulative[-1])).sum())]
    result = torch.zeros_like(tempered)
    result[ids[: len(kept)]] = kept / kept.sum()
    return result
