"""Stations 1 to 3: the route, tokens and their embeddings, positions.

Letters: n tokens of one side, M model width, V vocabulary, P positions shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from model.layers import Embedding, sinusoids
from model.selection import SelectionError, resolved_index
from model.stations.base import Check, Floats, Ints, Station, by_another_path, check, difference, exact, first
from model.trace import Side, Stage, Tracer, to_numpy
from model.words import TokenText

# --- 1. the route -----------------------------------------------------------------------------------------------------

_LINKS = (
    ("source embedding", "tokens"),
    ("target embedding", "tokens"),
    ("encoder layer", "block"),
    ("decoder layer", "block"),
    ("encoder norm", "residual"),
    ("decoder norm", "residual"),
    ("logits", "decoding"),
    ("softmax", "decoding"),
)


@dataclass(frozen=True, kw_only=True)
class Route(Station):
    """Station 1: every stage with its shapes and its time.

    Attributes:
        stages: In the order in which they ran.
        links: For each stage, the name of the station that opens it.
    """

    number: ClassVar[int] = 1
    name: ClassVar[str] = "route"
    stages: tuple[Stage, ...]
    links: tuple[str, ...]


@torch.inference_mode()
def route(tracer: Tracer) -> Route:
    """The route that the pair took, and that it leads where translating does."""
    shapes: dict[str, tuple[int, ...]] = {
        "source ids": (len(tracer.source_ids),),
        "target ids": (len(tracer.input_ids),),
    }
    shapes |= {stage.name: stage.output_shape for stage in tracer.stages}
    breaks = sum(
        shapes[name] != shape
        for stage in tracer.stages
        for name, shape in zip(stage.reads, stage.input_shapes, strict=True)
    )
    device = tracer.logits.device
    fast = tracer.model(
        torch.tensor([tracer.source_ids], device=device), None, torch.tensor([tracer.input_ids], device=device)
    )
    return Route(
        stages=tuple(tracer.stages),
        links=tuple(next(link for start, link in _LINKS if stage.name.startswith(start)) for stage in tracer.stages),
        checks=(
            check("shapes_chain", "Each stage receives the shape that the stage before it gave", breaks, 0),
            check(
                "same_logits",
                "The route ends in the logits of the path that translates",
                difference(fast, tracer.logits),
                by_another_path(tracer, 1e-4, fast),
            ),
        ),
    )


# --- 2. tokens, ids, embedding ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Tokens(Station):
    """Station 2: one row of the embedding table for each token.

    Attributes:
        side: Whose tokens.
        ids: (n,), of the decoder those that it read.
        rows: E[ids], (n, M), before scaling.
        index: The token chosen.
        nearest_ids: The tokens whose rows point most in its direction, itself first, (k,).
        nearest_cosines: Their cosines, (k,).
        compared_index: A second token.
        cosine: Between the two tokens' rows.
    """

    number: ClassVar[int] = 2
    name: ClassVar[str] = "tokens"
    side: Side
    ids: Ints
    rows: Floats
    index: int
    nearest_ids: Ints
    nearest_cosines: Floats
    compared_index: int
    cosine: float


@torch.inference_mode()
def tokens(
    tracer: Tracer,
    side: Side = "encoder",
    index: int = 0,
    compared_index: int = -1,
    k: int = 8,
    text: TokenText | None = None,
    decoded: str | None = None,
) -> Tokens:
    """Look tokens up.

    Args:
        tracer: The pair.
        side: ``encoder`` for the source's tokens, ``decoder`` for what the decoder read.
        index: The token to look at.
        compared_index: The one to compare it with.
        k: How many neighbours.
        text: The tokens' text and spans, if they are to be checked: ``model.words.source_text(encoding)`` or
            ``decode_with_spans``. The decoder's start token is not in it.
        decoded: What the tokenizer makes of the ids, if that is to be checked.
    """
    ids = tracer.source_ids if side == "encoder" else tracer.input_ids
    index = resolved_index(index, len(ids), "token")
    compared_index = resolved_index(compared_index, len(ids), "token")
    table = _embedding(tracer, side).weight
    rows = functional.embedding(torch.tensor(ids, device=table.device), table)
    row = rows[index].float()
    cosines = functional.cosine_similarity(table.float(), row[None], dim=-1)
    cosines[ids[index]] = 1.0 + 1e-6  # itself first, also where another row is the same
    nearest = cosines.topk(min(k, len(cosines)))
    same_rows = max(difference(rows[place], table[token]) for place, token in enumerate(ids))
    checks = [check("rows_of_table", "Each vector is its row of the embedding table, bit for bit", same_rows, 0)]
    if text is not None:
        checks.append(_spans_check(text))
        if decoded is not None:
            says = "The ids decode to the text that they stand for"
            checks.append(check("decodes", says, float(decoded != text.text), 0))
    return Tokens(
        side=side,
        ids=np.array(ids, dtype=np.int64),
        rows=to_numpy(rows),
        index=index,
        nearest_ids=nearest.indices.cpu().numpy(),
        nearest_cosines=to_numpy(nearest.values.clamp(max=1.0)),
        compared_index=compared_index,
        cosine=float(functional.cosine_similarity(row, rows[compared_index].float(), dim=0)),
        checks=tuple(checks),
    )


def _spans_check(text: TokenText) -> Check:
    """Outside of all spans there is nothing but space, and spans go forward."""
    covered = np.zeros(len(text.text), dtype=bool)
    backwards, last = 0, 0
    for start, end in text.spans:
        covered[start:end] = True
        backwards += start < last
        last = start
    lost = sum(not character.isspace() for character, inside in zip(text.text, covered, strict=True) if not inside)
    says = "The tokens' spans follow one another and together hold every visible character of the text"
    return check("spans_cover_text", says, lost + backwards, 0)


def _embedding(tracer: Tracer, side: Side) -> Embedding:
    return tracer.model.source_embedding if side == "encoder" else tracer.model.target_embedding


# --- 3. position ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Positions(Station):
    """Station 3: what tells a model the order of its tokens.

    Attributes:
        side: Whose tokens.
        kind: ``sinusoidal``, ``learned`` or ``rotary``.
        layout: Of sinusoids.
        scale: What embeddings are multiplied by.
        embeddings: Scaled, (n, M).
        encodings: The first P positions, (P, M). With rotary positions nothing is added here: then these are the sines
            and cosines that queries and keys are turned by, (P, D).
        sums: What the first layer reads, (n, M).
        cosines: Between each two of ``encodings``, (P, P).
        shuffled_change: What-if: the largest change of the encoder's output, seen token by token, when the tokens come
            in reverse order. 0 would mean that order did not matter.
    """

    number: ClassVar[int] = 3
    name: ClassVar[str] = "positions"
    side: Side
    kind: str
    layout: str
    scale: float
    embeddings: Floats
    encodings: Floats
    sums: Floats
    cosines: Floats
    shuffled_change: float


@torch.inference_mode()
def positions(tracer: Tracer, side: Side = "encoder", count: int | None = None) -> Positions:
    """Open what is added to the embeddings.

    Args:
        tracer: The pair.
        side: Whose tokens.
        count: How many positions to show; None shows as many as there are tokens. May go past them.
    """
    config = tracer.config
    ids = tracer.source_ids if side == "encoder" else tracer.input_ids
    count = len(ids) if count is None else count
    if count < 1 or (config.max_positions is not None and count > config.max_positions):
        raise SelectionError(f"{count} positions asked for; the model has 1 to {config.max_positions or 'any number'}")
    embedding = _embedding(tracer, side)
    scaled = functional.embedding(torch.tensor(ids, device=embedding.weight.device), embedding.weight)
    scaled = scaled * config.embedding_factor
    table = _table(tracer, embedding, max(count, len(ids)))
    added = torch.zeros_like(scaled) if config.positions == "rotary" else table[: len(ids)]
    sums = first(tracer.streams(side)[0])
    shown = table[:count].float()
    checks = [
        check(
            "sum",
            "The first layer reads embedding x scale + position",
            difference(scaled + added, sums),
            exact(tracer, 1e-6, sums),
        )
    ]
    if config.positions != "learned":
        width = config.d_model if config.positions == "sinusoidal" else config.head_width
        layout = config.sinusoid_layout if config.positions == "sinusoidal" else "halves"
        says = "Positions are sin and cos of position / 10000^(2i/d)"
        by_formula = _by_formula(count, width, layout)
        checks.append(check("closed_form", says, difference(shown, by_formula), exact(tracer, 1e-6, shown)))
    if config.positions != "rotary":
        plain, shuffled_plain = _encoded_both_ways(tracer, with_positions=False)
        checks.append(
            check(
                "order_unseen",
                "Without positions, shuffled tokens give the same vectors, shuffled",
                difference(plain, shuffled_plain),
                by_another_path(tracer, 1e-4, plain),
            )
        )
    return Positions(
        side=side,
        kind=config.positions,
        layout=config.sinusoid_layout,
        scale=config.embedding_factor,
        embeddings=to_numpy(scaled),
        encodings=to_numpy(shown),
        sums=sums,
        cosines=to_numpy(functional.cosine_similarity(shown[:, None], shown[None], dim=-1)),
        shuffled_change=difference(*_encoded_both_ways(tracer, with_positions=True)),
        checks=tuple(checks),
    )


def _table(tracer: Tracer, embedding: Embedding, count: int) -> Tensor:
    """At least ``count`` rows, or all there are."""
    config = tracer.config
    if embedding.positions is not None:
        return embedding.positions
    if config.positions == "rotary":
        return sinusoids(0, count, config.head_width, "halves")
    rows = sinusoids(0, count, config.d_model, config.sinusoid_layout)
    return rows.to(embedding.weight)


def _by_formula(count: int, width: int, layout: str) -> Floats:
    """Section 3.5 of the paper, written once more: position by position, in float64."""
    angles = np.arange(count)[:, None] / 10_000.0 ** (np.arange(0, width, 2) / width)
    if layout == "halves":
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    table = np.empty((count, width))
    table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
    return table.astype(np.float32)


def _encoded_both_ways(tracer: Tracer, with_positions: bool) -> tuple[Floats, Floats]:
    """The encoder's output of the source, and of the source reversed, put back into the first order."""
    model = tracer.model
    ids = torch.tensor([tracer.source_ids], device=tracer.logits.device)
    outputs = []
    for order in (ids, ids.flip(1)):
        if with_positions:
            hidden = model.source_embedding(order)
        else:
            hidden = functional.embedding(order, model.source_embedding.weight) * tracer.config.embedding_factor
        outputs.append(model.encoder(hidden, None)[0])
    return first(outputs[0]), first(outputs[1].flip(1))
