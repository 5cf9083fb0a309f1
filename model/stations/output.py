"""Stations 13 to 15: decoding, loss, and what attention costs.

Letters: T target positions, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch.nn import functional

from model.config import TransformerConfig
from model.scoring import NextCandidates, Score, candidates_from_logits, score_logits
from model.search import Constraints
from model.selection import Kind, Selection, TraceError, resolved_index
from model.stations.base import Doubles, Floats, Ints, Station, by_another_path, check, difference, exact, first
from model.trace import Tracer, to_numpy
from model.transformer import pad_sequences

# --- 13. decoding -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Decoding(Station):
    """Station 13: one choice among the whole vocabulary.

    Attributes:
        position: The row looked at: what comes after the first ``position`` target tokens.
        logits: (V,).
        probabilities: softmax of the logits over the whole vocabulary, (V,).
        next: The best candidates, raw and processed.
        chosen_id: The target's token here; -1 on the row after the last one.
        token_log_probs: log p of each target token, (T,).
        length_penalty: Exponent p of the score.
        beam_scores: After each token, the sum of log p so far / length ** p: what beam search compares, (T,).
    """

    number: ClassVar[int] = 13
    name: ClassVar[str] = "decoding"
    position: int
    logits: Floats
    probabilities: Doubles
    next: NextCandidates
    chosen_id: int
    token_log_probs: Doubles
    length_penalty: float
    beam_scores: Doubles


@torch.inference_mode()
def decoding(
    tracer: Tracer,
    position: int = 0,
    k: int = 10,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    constraints: Constraints | None = None,
    length_penalty: float = 1.0,
    hypothesis_score: float | None = None,
) -> Decoding:
    """Open one decision.

    Args:
        tracer: The pair; with ``open_end`` there is a row after the last token.
        position: Which row.
        k: How many candidates.
        temperature: As for ``model.scoring.next_candidates``; likewise the next three.
        top_k: See there.
        top_p: See there.
        constraints: See there.
        length_penalty: Of the beam score.
        hypothesis_score: What the search said the whole target scores, if that is to be checked (it holds where no
            repetition penalty was set).
    """
    position = resolved_index(position, len(tracer.input_ids), "position")
    prefix = tracer.target_ids[:position]
    row = tracer.logits[0, position]
    found = candidates_from_logits(
        row, prefix, k=k, temperature=temperature, top_k=top_k, top_p=top_p, constraints=constraints
    )
    logits = first(tracer.logits[:, position])
    shifted = np.exp(logits.astype(np.float64) - logits.max())
    probabilities = shifted / shifted.sum()
    log_probs = _target_log_probs(tracer)
    lengths = np.arange(1, len(log_probs) + 1)
    scores = np.cumsum(log_probs) / lengths**length_penalty
    checks = [
        check(
            "sums_to_one",
            "Over the whole vocabulary the probabilities sum to 1",
            abs(found.probability_sum - 1),
            exact(tracer, 1e-5, 1),
        ),
        check(
            "softmax_recomputed",
            "p = exp(logit) / sum of exp(logits)",
            max(abs(item.probability - probabilities[item.token_id]) for item in found.candidates),
            exact(tracer, 1e-5, 1),
        ),
        check(
            "processed_at_most_one",
            "What is left after processing is no more than a whole",
            max(0.0, sum(item.processed_probability for item in found.candidates) - 1),
            1e-6,
        ),
    ]
    if hypothesis_score is not None and len(scores):
        says = "The beam score is the sum of log p, divided by length ** penalty"
        tolerance = by_another_path(tracer, 1e-4, scores)
        checks.append(check("beam_score", says, abs(float(scores[-1]) - hypothesis_score), tolerance))
    return Decoding(
        position=position,
        logits=logits,
        probabilities=probabilities,
        next=found,
        chosen_id=tracer.target_ids[position] if position < len(tracer.target_ids) else -1,
        token_log_probs=log_probs,
        length_penalty=length_penalty,
        beam_scores=scores,
        checks=tuple(checks),
    )


def _target_log_probs(tracer: Tracer) -> Doubles:
    if not tracer.target_ids:
        return np.zeros(0)
    return -score_logits(tracer.logits[0, : len(tracer.target_ids)], tracer.target_ids).nats


# --- 14. loss ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Loss(Station):
    """Station 14: how much a target costs.

    Attributes:
        target_ids: The tokens, (T,).
        logits: What each was chosen from, (T, V).
        score: -log p of each token, with totals.
        mean_nats: Over tokens: the cross-entropy.
    """

    number: ClassVar[int] = 14
    name: ClassVar[str] = "loss"
    target_ids: Ints
    logits: Floats
    score: Score
    mean_nats: float


@torch.inference_mode()
def loss(tracer: Tracer, label_smoothing: float = 0.0, hypothesis_log_prob: float | None = None) -> Loss:
    """Open the loss of the target.

    Args:
        tracer: The pair.
        label_smoothing: e of the smoothed loss.
        hypothesis_log_prob: What the search said, if that is to be checked (where no processor masked anything).

    Raises:
        TraceError: For an empty target.
    """
    targets = tracer.target_ids
    if not targets:
        raise TraceError("an empty target has no loss")
    logits = tracer.logits[0, : len(targets)].float()
    score = score_logits(logits, targets, label_smoothing=label_smoothing)
    expected = torch.tensor(targets, device=logits.device)
    plain = float(functional.cross_entropy(logits, expected))
    smoothed = float(functional.cross_entropy(logits, expected, label_smoothing=label_smoothing, reduction="sum"))
    padded = _nats_beside_padding(tracer)
    mean = score.total_nats / len(targets)
    checks = [
        check(
            "cross_entropy",
            "The mean of -log p is the cross-entropy",
            abs(mean - plain),
            exact(tracer, 1e-5, plain),
        ),
        check(
            "smoothed_cross_entropy",
            "The label-smoothed value is that of training",
            abs(score.total_smoothed_nats - smoothed),
            exact(tracer, 1e-5, smoothed),
        ),
        check(
            "padding_unseen",
            "In a batch with padding every token costs the same",
            difference(padded, score.nats),
            by_another_path(tracer, 1e-4, logits),  # of which nats are differences
        ),
    ]
    if hypothesis_log_prob is not None:
        says = "The sum is minus the hypothesis' log-probability"
        tolerance = exact(tracer, 1e-4, hypothesis_log_prob)
        if tracer.model.output.is_quantized:
            # What rounding does to tokens goes up and down, so its sum grows with the root of their number; 0.13 nats
            # were seen over 25 tokens.
            tolerance = max(tolerance, 0.1 * math.sqrt(len(score.nats)))
        checks.append(check("hypothesis", says, abs(score.total_nats + hypothesis_log_prob), tolerance))
    return Loss(
        target_ids=np.array(targets, dtype=np.int64),
        logits=to_numpy(logits),
        score=score,
        mean_nats=mean,
        checks=tuple(checks),
    )


def _nats_beside_padding(tracer: Tracer) -> Doubles:
    """The same target, beside a row that makes both sides longer."""
    config = tracer.config
    pad_by = 3
    if config.max_positions is not None:
        longest = max(len(tracer.source_ids), len(tracer.input_ids))
        pad_by = min(pad_by, config.max_positions - longest)
    filler = config.eos_id
    sources = [list(tracer.source_ids), [filler] * (len(tracer.source_ids) + pad_by)]
    inputs = [list(tracer.input_ids), [filler] * (len(tracer.input_ids) + pad_by)]
    device = tracer.logits.device
    source, mask = pad_sequences(sources, config.pad_id, device)
    padded_inputs, _ = pad_sequences(inputs, config.pad_id, device)
    logits = tracer.model(source, mask, padded_inputs)[0, : len(tracer.target_ids)]
    return score_logits(logits, tracer.target_ids).nats


# --- 15. quadratic cost -----------------------------------------------------------------------------------------------

BYTES_PER_CELL = {"f32": 4, "f16": 2, "u8": 1}


@dataclass(frozen=True)
class Estimate:
    """What a choice of maps will weigh, before anything runs.

    Attributes:
        cells: Numbers of each kind.
        total_cells: Their sum.
        num_bytes: By format: ``f32``, ``f16``, ``u8``; the numbers alone, without names and headers.
    """

    cells: dict[Kind, int]
    total_cells: int
    num_bytes: dict[str, int]


def estimate(config: TransformerConfig, num_source: int, num_rows: int, selection: Selection | None = None) -> Estimate:
    """Count cells: layers x heads x queries x keys.

    Args:
        config: The model.
        num_source: Source tokens, eos included.
        num_rows: Decoder rows.
        selection: Which maps; None counts all.
    """
    selection = selection or Selection.of(config)
    sizes: dict[Kind, int] = {
        "encoder": num_source * num_source,
        "decoder": num_rows * num_rows,
        "cross": num_rows * num_source,
    }
    cells = {kind: len(layers) * len(selection.heads) * sizes[kind] for kind, layers in selection.layers.items()}
    total = sum(cells.values())
    return Estimate(cells, total, {name: total * size for name, size in BYTES_PER_CELL.items()})


@dataclass(frozen=True, kw_only=True)
class Cost(Station):
    """Station 15: lengths and squares.

    Attributes:
        num_source: n of this sentence.
        num_rows: m of this sentence.
        num_encoder_layers: Of the model.
        num_decoder_layers: Of the model.
        num_heads: Of each layer.
        estimate: All maps of this sentence.
        seconds: What reading it took here, by the explicit path: all stages of station 1.
        lengths: Where the curve has points, n = m, (7,).
        curve_cells: All cells at those lengths, (7,).
    """

    number: ClassVar[int] = 15
    name: ClassVar[str] = "cost"
    num_source: int
    num_rows: int
    num_encoder_layers: int
    num_decoder_layers: int
    num_heads: int
    estimate: Estimate
    seconds: float
    lengths: Ints
    curve_cells: Ints


@torch.inference_mode()
def cost(tracer: Tracer) -> Cost:
    """What this sentence costs, and what others would."""
    config, n, m = tracer.config, len(tracer.source_ids), len(tracer.input_ids)
    here, doubled = estimate(config, n, m), estimate(config, 2 * n, 2 * m)
    lengths = np.array([8, 16, 32, 64, 128, 256, 512], dtype=np.int64)
    depths: tuple[tuple[Kind, int], ...] = (
        ("encoder", config.num_encoder_layers),
        ("decoder", config.num_decoder_layers),
        ("cross", config.num_decoder_layers),
    )
    real = sum(tracer.attention(kind, 0).weights.numel() * depth for kind, depth in depths)
    return Cost(
        num_source=n,
        num_rows=m,
        num_encoder_layers=config.num_encoder_layers,
        num_decoder_layers=config.num_decoder_layers,
        num_heads=config.num_heads,
        estimate=here,
        seconds=sum(stage.seconds for stage in tracer.stages),
        lengths=lengths,
        curve_cells=np.array([estimate(config, size, size).total_cells for size in lengths.tolist()], dtype=np.int64),
        checks=(
            check(
                "doubling_quadruples",
                "Twice the length on both sides is exactly four times the cells",
                abs(doubled.total_cells - 4 * here.total_cells),
                0,
            ),
            check("cells_are_real", "The count is that of the maps computed", abs(real - here.total_cells), 0),
        ),
    )
