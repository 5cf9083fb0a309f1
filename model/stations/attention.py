"""Stations 4 to 7, 11 and 12: everything about attention.

Letters: H heads, Q queries, K keys, D head width, M model width, T target, S source positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.attention import SelfAttention, explicit_attention
from model.selection import Kind, TraceError, depth, resolved_index
from model.stations.base import (
    Affine,
    Bools,
    Doubles,
    Floats,
    Ints,
    Station,
    by_another_path,
    check,
    difference,
    exact,
    first,
    largest,
)
from model.trace import AttentionTrace, Tracer, decoder_inputs, decoder_layers, to_numpy

# --- 4. queries, keys and values --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Projections(Station):
    """Station 4: three views of each token, by one head.

    Attributes:
        kind: Of attention.
        layer: Zero-based.
        head: Zero-based.
        query_origin: What queries are made from, in words.
        memory_origin: What keys and values are made from.
        query_inputs: (Q, M).
        memory: (K, M); the same numbers as ``query_inputs`` in self-attention.
        query_map: x -> q, (M, D) and its bias.
        key_map: x -> k.
        value_map: x -> v.
        queries: (Q, D).
        keys: (K, D).
        values: (K, D).
        turned_queries: With rotary positions, ``queries`` as they are compared; else the same.
        turned_keys: Likewise.
    """

    number: ClassVar[int] = 4
    name: ClassVar[str] = "projections"
    kind: Kind
    layer: int
    head: int
    query_origin: str
    memory_origin: str
    query_inputs: Floats
    memory: Floats
    query_map: Affine
    key_map: Affine
    value_map: Affine
    queries: Floats
    keys: Floats
    values: Floats
    turned_queries: Floats
    turned_keys: Floats


@torch.inference_mode()
def projections(tracer: Tracer, kind: Kind = "encoder", layer: int = 0, head: int = 0) -> Projections:
    """Open one head's queries, keys and values."""
    layer, head = _place(tracer, kind, layer, head)
    trace = tracer.attention(kind, layer)
    query_map, key_map, value_map = _maps(tracer, kind, layer, head)
    inputs, memory = first(trace.residual.inputs), first(trace.memory)
    queries, keys, values = (
        _head(tensor, head) for tensor in (trace.projected_queries, trace.projected_keys, trace.values)
    )
    turned_queries, turned_keys = _head(trace.queries, head), _head(trace.keys, head)
    query_origin, memory_origin = origins(tracer, kind, layer)
    # Where the compiled kernels translate, keys and values are kept in 16 bits: right to half of their last step.
    is_half = tracer.attention_module(kind, layer).keeps_half
    kept, step = (", in float16", 2**-11) if is_half else ("", 0.0)
    checks = [
        check(f"{name}_recomputed", says, difference(affine.apply(x), y), exact(tracer, 1e-5 + step, y))
        for name, says, affine, x, y, step in (
            ("queries", "q = x W_Q + b_Q", query_map, inputs, queries, 0.0),
            ("keys", f"k = x W_K + b_K{kept}", key_map, memory, keys, step),
            ("values", f"v = x W_V + b_V{kept}", value_map, memory, values, step),
        )
    ]
    if tracer.config.positions == "rotary" and kind != "cross":
        lengths = np.linalg.norm(keys, axis=-1)
        turned = difference(np.linalg.norm(turned_keys, axis=-1), lengths)
        checks.append(check("turned", "Turning by position keeps lengths", turned, exact(tracer, 1e-5, lengths)))
    return Projections(
        kind=kind,
        layer=layer,
        head=head,
        query_origin=query_origin,
        memory_origin=memory_origin,
        query_inputs=inputs,
        memory=memory,
        query_map=query_map,
        key_map=key_map,
        value_map=value_map,
        queries=queries,
        keys=keys,
        values=values,
        turned_queries=turned_queries,
        turned_keys=turned_keys,
        checks=tuple(checks),
    )


def origins(tracer: Tracer, kind: Kind, layer: int) -> tuple[str, str]:
    """Where the queries come from, and where keys and values do, in words."""
    normed = "LayerNorm of " if tracer.config.norm == "pre" else ""
    if kind == "cross":
        queries = f"{normed}decoder layer {layer}'s stream after its self-attention"
        return queries, "encoder output"
    side = "source" if kind == "encoder" else "target"
    stream = f"embedded {side}" if layer == 0 else f"output of {kind} layer {layer - 1}"
    return normed + stream, normed + stream


def _maps(tracer: Tracer, kind: Kind, layer: int, head: int) -> tuple[Affine, Affine, Affine]:
    """The columns of W_Q, W_K and W_V that one head uses."""
    module = tracer.attention_module(kind, layer)
    width, model_width = tracer.config.head_width, tracer.config.d_model
    start = head * width
    if isinstance(module, SelfAttention):
        starts = (start, model_width + start, 2 * model_width + start)
        query, key, value = (Affine.of(module.qkv, at, at + width) for at in starts)
    else:
        query = Affine.of(module.query, start, start + width)
        key, value = (Affine.of(module.kv, at, at + width) for at in (start, model_width + start))
    return query, key, value


def _place(tracer: Tracer, kind: Kind, layer: int, head: int) -> tuple[int, int]:
    return (
        resolved_index(layer, depth(tracer.config, kind), f"{kind} layer"),
        resolved_index(head, tracer.config.num_heads, "head"),
    )


def _head(values: Tensor, head: int) -> Floats:
    return to_numpy(values[0, head])


# --- 5. scores, weights, context --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AttentionRows(Station):
    """Station 5: from queries and keys to what a head reads.

    Attributes:
        kind: Of attention.
        layer: Zero-based.
        head: Zero-based.
        queries: As compared, (Q, D).
        keys: As compared, (K, D).
        values: (K, D).
        allowed: (Q, K), True = may attend.
        dot_products: Q K^T, (Q, K), of forbidden pairs too.
        scores: Divided by sqrt(D); -inf where forbidden.
        weights: softmax of each row.
        context: weights V, (Q, D).
        top_keys: For each query the keys with the largest weights, largest first, (Q, k).
        top_weights: Their weights, (Q, k).
    """

    number: ClassVar[int] = 5
    name: ClassVar[str] = "attention"
    kind: Kind
    layer: int
    head: int
    queries: Floats
    keys: Floats
    values: Floats
    allowed: Bools
    dot_products: Floats
    scores: Floats
    weights: Floats
    context: Floats
    top_keys: Ints
    top_weights: Floats


@torch.inference_mode()
def attention(tracer: Tracer, kind: Kind = "encoder", layer: int = 0, head: int = 0, k: int = 8) -> AttentionRows:
    """Open one head's arithmetic, with the ``k`` largest contributors of each row."""
    layer, head = _place(tracer, kind, layer, head)
    trace = tracer.attention(kind, layer)
    queries, keys, values = (_head(tensor, head) for tensor in (trace.queries, trace.keys, trace.values))
    weights, context = _head(trace.weights, head), _head(trace.mixed, head)
    allowed = _allowed(trace)
    by_hand = _softmax(queries.astype(np.float64) @ keys.T.astype(np.float64) / math.sqrt(keys.shape[1]), allowed)
    mixed = weights.astype(np.float64) @ values.astype(np.float64)
    order = np.argsort(-weights, axis=1, kind="stable")[:, :k]
    return AttentionRows(
        kind=kind,
        layer=layer,
        head=head,
        queries=queries,
        keys=keys,
        values=values,
        allowed=allowed,
        dot_products=_head(trace.raw_scores(), head),
        scores=_head(trace.scores(), head),
        weights=weights,
        context=context,
        top_keys=order.astype(np.int64),
        top_weights=np.take_along_axis(weights, order, axis=1),
        checks=(
            check(
                "rows_sum_to_one",
                "Each row of weights sums to 1",
                largest(weights.sum(axis=1, dtype=np.float64) - 1),
                exact(tracer, 1e-6, 1),
            ),
            check(
                "softmax_recomputed",
                "The weights are softmax(Q K^T / sqrt(d_k))",
                difference(by_hand, weights),
                exact(tracer, 1e-5, keys),
            ),
            check(
                "context_recomputed",
                "The context is weights x V",
                difference(mixed, context),
                exact(tracer, 1e-5, values),
            ),
            check("forbidden_is_zero", "Forbidden keys have weight exactly 0", largest(weights[~allowed]), 0),
        ),
    )


def _allowed(trace: AttentionTrace) -> Bools:
    """(Q, K) for every head alike."""
    shape = trace.weights.shape[-2:]
    if trace.mask is None:
        return np.ones(shape, dtype=bool)
    allowed: Bools = trace.mask.expand(1, 1, *shape)[0, 0].cpu().numpy().copy()
    return allowed


def _softmax(scores: Doubles, allowed: Bools) -> Doubles:
    """Of each row, over what is allowed, in float64."""
    masked = np.where(allowed, scores, -np.inf)
    exponentials = np.exp(masked - masked.max(axis=-1, keepdims=True))
    result: Doubles = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return result


# --- 6. softmax, temperature, d_k -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Softmax(Station):
    """Station 6: how one row of scores becomes weights, and what other settings would do.

    Attributes:
        kind: Of attention.
        layer: Zero-based.
        head: Zero-based.
        query: The row.
        allowed: (K,).
        raw: q.k, (K,).
        d_k: The head's real width.
        scaled: raw / sqrt(d_k), -inf where forbidden.
        exponentials: exp(scaled - their maximum), (K,).
        exponential_sum: Their sum.
        weights: The model's, (K,).
        entropy_nats: Of the weights.
        what_if_temperature: As asked for.
        what_if_d_k: As asked for.
        what_if_weights: softmax(raw / sqrt(what_if_d_k) / what_if_temperature), (K,); the model's at the real values.
        what_if_entropy_nats: Of those.
    """

    number: ClassVar[int] = 6
    name: ClassVar[str] = "softmax"
    kind: Kind
    layer: int
    head: int
    query: int
    allowed: Bools
    raw: Floats
    d_k: int
    scaled: Floats
    exponentials: Doubles
    exponential_sum: float
    weights: Floats
    entropy_nats: float
    what_if_temperature: float
    what_if_d_k: int
    what_if_weights: Floats
    what_if_entropy_nats: float


@torch.inference_mode()
def softmax(
    tracer: Tracer,
    kind: Kind = "encoder",
    layer: int = 0,
    head: int = 0,
    query: int = 0,
    temperature: float = 1.0,
    d_k: int | None = None,
) -> Softmax:
    """Open one row of scores.

    Args:
        tracer: The pair.
        kind: Of attention.
        layer: Which.
        head: Which.
        query: The row.
        temperature: What-if; above 0.
        d_k: What-if; None is the real one.
    """
    layer, head = _place(tracer, kind, layer, head)
    real_d_k = tracer.config.head_width
    what_if_d_k = real_d_k if d_k is None else d_k
    if temperature <= 0 or what_if_d_k < 1:
        raise TraceError(f"temperature is {temperature} and d_k {what_if_d_k}; both must be above 0")
    trace = tracer.attention(kind, layer)
    query = resolved_index(query, trace.weights.shape[2], "query")
    raw_scores, weights = trace.raw_scores(), _head(trace.weights, head)[query]

    def tempered(at_temperature: float, at_d_k: int) -> Floats:
        # The model's own operations in its own order, so that real settings give the very same bits.
        scores = raw_scores / math.sqrt(at_d_k) / at_temperature
        if trace.mask is not None:
            scores = scores.masked_fill(~trace.mask, float("-inf"))
        row: Floats = _head(scores.softmax(-1), head)[query]
        return row

    raw, allowed = _head(raw_scores, head)[query], _allowed(trace)[query]
    scaled = _head(trace.scores(), head)[query]
    double = raw.astype(np.float64)
    exponentials = np.where(allowed, np.exp(scaled.astype(np.float64) - scaled.max()), 0.0)
    what_if = tempered(temperature, what_if_d_k)
    cold, hot = (_softmax((double - double.max()) / degrees, allowed) for degrees in (1e-9, 1e9))
    at_best = float(cold[allowed & (double == double[allowed].max())].sum())
    order = np.argsort(double[allowed], kind="stable")
    falls = largest(np.minimum(np.diff(what_if[allowed][order].astype(np.float64)), 0))
    return Softmax(
        kind=kind,
        layer=layer,
        head=head,
        query=query,
        allowed=allowed,
        raw=raw,
        d_k=real_d_k,
        scaled=scaled,
        exponentials=exponentials,
        exponential_sum=float(exponentials.sum()),
        weights=weights,
        entropy_nats=float(entropy(weights)),
        what_if_temperature=temperature,
        what_if_d_k=what_if_d_k,
        what_if_weights=what_if,
        what_if_entropy_nats=float(entropy(what_if)),
        checks=(
            check(
                "real_settings",
                "Temperature 1 and the real d_k give the model's weights exactly",
                difference(tempered(1.0, real_d_k), weights),
                0,
            ),
            check(
                "by_exponentials",
                "Each weight is its exponential divided by their sum",
                difference(exponentials / exponentials.sum(), weights),
                exact(tracer, 1e-6, 1),
            ),
            check("order_kept", "No temperature and no d_k changes the order", falls, exact(tracer, 1e-6, 1)),
            check("cold_is_argmax", "Near temperature 0 the largest score takes all", abs(1 - at_best), 1e-6),
            check(
                "hot_is_even",
                "At a very high temperature all weights are 1/n",
                difference(hot[allowed], np.full(int(allowed.sum()), 1 / allowed.sum())),
                1e-6,
            ),
        ),
    )


def entropy(weights: Floats) -> NDArray[np.float64]:
    """In nats, over the last axis; 0 for one certain key, log n for n equal ones."""
    exact_weights = weights.astype(np.float64)
    logs = np.log(exact_weights, out=np.zeros_like(exact_weights), where=exact_weights > 0)
    total: NDArray[np.float64] = -(exact_weights * logs).sum(axis=-1)
    return total


# --- 7. heads ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Heads(Station):
    """Station 7: all heads of one layer, and how they become one vector again.

    Attributes:
        kind: Of attention.
        layer: Zero-based.
        maps: (H, Q, K).
        mean: Over heads, (Q, K).
        entropy_nats: Mean over queries of each head's entropy, (H,).
        relative_entropy: The same divided by the largest possible, from 0 (one key) to 1 (all alike), (H,).
        distance: Mean over queries of the expected |query - key|, in tokens; in cross-attention of the distance from
            the diagonal, in source tokens; (H,).
        share_same: Weight on the query's own position, mean over queries, (H,); in cross-attention on the source token
            nearest to the diagonal.
        share_previous: On the position before, (H,).
        share_next: On the position after, (H,).
        share_first: On the first key, (H,).
        share_last: On the last key (the source's end-of-sentence token), (H,).
        patterns: A word for each head, by the largest share if it is at least half: ``same``, ``previous``, ``next``,
            ``first``, ``last``; else ``broad`` (relative entropy above 0.8), ``focused`` (below 0.4) or ``mixed``.
        contexts: The heads' results side by side, (Q, M).
        out_map: W_O and its bias.
        update: What the sublayer gives, (Q, M).
    """

    number: ClassVar[int] = 7
    name: ClassVar[str] = "heads"
    kind: Kind
    layer: int
    maps: Floats
    mean: Floats
    entropy_nats: Doubles
    relative_entropy: Doubles
    distance: Doubles
    share_same: Doubles
    share_previous: Doubles
    share_next: Doubles
    share_first: Doubles
    share_last: Doubles
    patterns: tuple[str, ...]
    contexts: Floats
    out_map: Affine
    update: Floats


@torch.inference_mode()
def heads(tracer: Tracer, kind: Kind = "encoder", layer: int = 0) -> Heads:
    """Open all heads of one layer."""
    layer, _ = _place(tracer, kind, layer, 0)
    trace = tracer.attention(kind, layer)
    module = tracer.attention_module(kind, layer)
    maps, update = first(trace.weights), first(trace.residual.update)
    contexts = first(trace.mixed.transpose(1, 2).flatten(2))
    out_map = Affine.of(module.out)
    silent = first(module.combine(torch.zeros_like(trace.mixed)))
    mean = first(trace.weights.mean(dim=1))
    statistics = head_statistics(maps, _allowed(trace))
    return Heads(
        kind=kind,
        layer=layer,
        maps=maps,
        mean=mean,
        **statistics,
        patterns=_patterns(statistics),
        contexts=contexts,
        out_map=out_map,
        update=update,
        checks=(
            check(
                "mean_of_maps",
                "The mean map is the mean of the heads' maps",
                difference(mean, maps.astype(np.float64).mean(axis=0)),
                exact(tracer, 1e-6, 1),
            ),
            check(
                "out_recomputed",
                "The sublayer gives concat(heads) W_O + b_O",
                difference(out_map.apply(contexts), update),
                exact(tracer, 1e-5, update),
            ),
            check(
                "silent_heads",
                "With every head silenced, only the bias is left",
                difference(silent, np.broadcast_to(out_map.bias, silent.shape)),
                exact(tracer, 1e-6, out_map.bias),
            ),
        ),
    )


def head_statistics(maps: Floats, allowed: Bools) -> dict[str, Doubles]:
    """What kind of map each head has: the fields of :class:`Heads` by name, (H,) each.

    Args:
        maps: (H, Q, K).
        allowed: (Q, K).
    """
    weights = maps.astype(np.float64)
    num_queries, num_keys = allowed.shape
    # In self-attention the diagonal is the query's own place; across, the same share of the way through the sentence.
    steps = (num_keys - 1) / max(num_queries - 1, 1)
    diagonal = np.arange(num_queries) * (1.0 if num_queries == num_keys else steps)
    nearest = np.rint(diagonal).astype(int)
    distances = np.abs(np.arange(num_keys)[None, :] - diagonal[:, None])
    counts = allowed.sum(axis=1)
    entropies = entropy(maps)

    def share(offset: int) -> Doubles:
        keys = nearest + offset
        inside = (keys >= 0) & (keys < num_keys)
        picked = weights[:, np.arange(num_queries), np.clip(keys, 0, num_keys - 1)]
        mean: Doubles = np.where(inside, picked, 0.0).mean(axis=1)
        return mean

    possible = np.log(np.maximum(counts, 2))
    return {
        "entropy_nats": entropies.mean(axis=1),
        "relative_entropy": (entropies / possible)[:, counts > 1].mean(axis=1)
        if (counts > 1).any()
        else np.zeros(len(maps)),
        "distance": (weights * distances).sum(axis=2).mean(axis=1),
        "share_same": share(0),
        "share_previous": share(-1),
        "share_next": share(1),
        "share_first": weights[:, :, 0].mean(axis=1),
        "share_last": weights[:, :, -1].mean(axis=1),
    }


def _patterns(statistics: dict[str, Doubles]) -> tuple[str, ...]:
    names = ("same", "previous", "next", "first", "last")
    shares = np.stack([statistics[f"share_{name}"] for name in names])
    words = []
    for head, relative in enumerate(statistics["relative_entropy"]):
        best = int(shares[:, head].argmax())
        if shares[best, head] >= 0.5:
            words.append(names[best])
        else:
            words.append("broad" if relative > 0.8 else "focused" if relative < 0.4 else "mixed")
    return tuple(words)


# --- 11. the causal mask ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CausalMask(Station):
    """Station 11: a decoder position sees itself and its past.

    Attributes:
        layer: Zero-based.
        head: Zero-based.
        step: The row looked at.
        input_ids: What each row has read, (T,).
        predicted_ids: What each row predicts; shorter by one where the last row's is not known.
        allowed: (T, T), True on and below the diagonal.
        unmasked_scores: Before the mask, (T, T).
        scores: -inf above the diagonal.
        weights: Exactly 0 above the diagonal.
        peek_weights: What-if: the weights without the mask, as a model that cheats would have them, (T, T).
        peek_share: What-if: how much of ``step``'s weight would go to the future.
    """

    number: ClassVar[int] = 11
    name: ClassVar[str] = "mask"
    layer: int
    head: int
    step: int
    input_ids: Ints
    predicted_ids: Ints
    allowed: Bools
    unmasked_scores: Floats
    scores: Floats
    weights: Floats
    peek_weights: Floats
    peek_share: float


@torch.inference_mode()
def causal(tracer: Tracer, layer: int = 0, head: int = 0, step: int = 0) -> CausalMask:
    """Open the mask of the decoder's self-attention."""
    layer, head = _place(tracer, "decoder", layer, head)
    trace = tracer.attention("decoder", layer)
    step = resolved_index(step, len(tracer.input_ids), "step")
    allowed = _allowed(trace)
    weights, scores = _head(trace.weights, head), _head(trace.scores(), head)
    unmasked = trace.raw_scores() / math.sqrt(trace.queries.shape[-1])
    peek = _head(unmasked.softmax(-1), head)
    prefix, other = _logits_with_another_future(tracer, step)
    future = np.triu(np.ones_like(allowed), 1)
    return CausalMask(
        layer=layer,
        head=head,
        step=step,
        input_ids=np.array(tracer.input_ids, dtype=np.int64),
        predicted_ids=np.array(tracer.target_ids, dtype=np.int64),
        allowed=allowed,
        unmasked_scores=_head(unmasked, head),
        scores=scores,
        weights=weights,
        peek_weights=peek,
        peek_share=float(peek[step, step + 1 :].sum()),
        checks=(
            check("future_is_zero", "Above the diagonal every weight is exactly 0", largest(weights[future]), 0),
            check(
                "future_is_blocked",
                "Above the diagonal every score is minus infinity",
                float(np.isfinite(scores[future]).sum()),
                0,
            ),
            check(
                "future_unseen",
                "Other later tokens change nothing up to this step",
                difference(prefix, other),
                by_another_path(tracer, 1e-5, prefix),
            ),
            check("first_sees_itself", "Row 0 gives itself weight 1", abs(1 - float(weights[0, 0])), 1e-6),
        ),
    )


def _logits_with_another_future(tracer: Tracer, step: int) -> tuple[Floats, Floats]:
    """Logits of the rows up to ``step``, and the same when every later token is another one."""
    model, ids = tracer.model, torch.tensor([tracer.input_ids], device=tracer.logits.device)
    others = ids.clone()
    others[:, step + 1 :] = (others[:, step + 1 :] + 1) % model.config.target_vocab_size
    logits = model.logits(model.decode(others, tracer.memory, None)[:, : step + 1])
    return first(tracer.logits[:, : step + 1]), first(logits)


# --- 12. cross-attention ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cross(Station):
    """Station 12: the decoder asks the encoder.

    Attributes:
        layer: Zero-based.
        head: Zero-based.
        query_origin: In words.
        memory_origin: In words.
        queries: From the decoder's stream, (T, D).
        keys: From the encoder's output, (S, D).
        values: (S, D).
        weights: (T, S).
        memory_norms: The length of each of the encoder's output vectors, (S,).
        swapped_source_ids: What-if: the other source, or empty where the encoder's output was negated instead.
        swapped_weights: What-if: the map when this layer reads that, (T, S').
    """

    number: ClassVar[int] = 12
    name: ClassVar[str] = "cross"
    layer: int
    head: int
    query_origin: str
    memory_origin: str
    queries: Floats
    keys: Floats
    values: Floats
    weights: Floats
    memory_norms: Floats
    swapped_source_ids: tuple[int, ...]
    swapped_weights: Floats


@torch.inference_mode()
def cross(tracer: Tracer, layer: int = -1, head: int = 0, swapped_source_ids: Sequence[int] | None = None) -> Cross:
    """Open one head of cross-attention, and swap what it reads.

    Args:
        tracer: The pair.
        layer: Which.
        head: Which.
        swapped_source_ids: What-if: another source, ended by eos, for this layer to read; None negates the encoder's
            output.
    """
    layer, head = _place(tracer, "cross", layer, head)
    trace = tracer.attention("cross", layer)
    module = decoder_layers(tracer.model)[layer].cross_attention
    residual = decoder_layers(tracer.model)[layer].cross_residual
    if swapped_source_ids is None:
        memory = -tracer.memory
    else:
        decoder_inputs(tracer.model, swapped_source_ids, tracer.target_ids, open_end=True)  # checks the ids
        memory = tracer.model.encode(torch.tensor([list(swapped_source_ids)], device=tracer.logits.device), None)
    stream = trace.residual.stream
    queries = module.project_query(residual.before(stream))
    keys, values = module.project_memory(memory)
    mixed, swapped_weights = explicit_attention(queries, keys, values, None)
    # The same swap, but with keys and values of the true memory put back: nothing of the other one may be left.
    restored_mixed, restored = explicit_attention(queries, *module.project_memory(tracer.memory), None)
    weights = _head(trace.weights, head)
    sizes = (len(tracer.input_ids), len(tracer.source_ids))
    padded, padding = _with_padding(tracer, trace, layer)
    query_origin, memory_origin = origins(tracer, "cross", layer)
    return Cross(
        layer=layer,
        head=head,
        query_origin=query_origin,
        memory_origin=memory_origin,
        queries=_head(trace.queries, head),
        keys=_head(trace.keys, head),
        values=_head(trace.values, head),
        weights=weights,
        memory_norms=first(torch.linalg.vector_norm(tracer.memory.float(), dim=-1)),
        swapped_source_ids=() if swapped_source_ids is None else tuple(swapped_source_ids),
        swapped_weights=_head(swapped_weights, head),
        checks=(
            check(
                "queries_stay",
                "Another encoder output leaves the queries as they are",
                difference(queries, trace.queries),
                0,
            ),
            check(
                "only_through_keys_and_values",
                "With the true keys and values put back, everything is as before",
                max(difference(restored, trace.weights), difference(restored_mixed, trace.mixed)),
                0,
            ),
            check(
                "swap_is_seen",
                "Another encoder output does change what is read",
                float(difference(mixed, trace.mixed) == 0),
                0,
            ),
            check("shape", "The map has target rows and source columns", float(weights.shape != sizes), 0),
            check("padding_is_zero", "Padded source columns have weight exactly 0", largest(padding), 0),
            check(
                "padding_is_unseen",
                "Beside padding the map stays the same",
                difference(padded, trace.weights),
                by_another_path(tracer, 1e-5, 1),
            ),
        ),
    )


def _with_padding(tracer: Tracer, trace: AttentionTrace, layer: int) -> tuple[Tensor, Tensor]:
    """The layer's map when three columns of padding stand behind the source: the true columns, and the padded ones."""
    module = decoder_layers(tracer.model)[layer].cross_attention
    length = tracer.memory.shape[1]
    padded = torch.cat((tracer.memory, torch.full_like(tracer.memory[:, :1], 7.0).expand(-1, 3, -1)), dim=1)
    mask = torch.arange(length + 3, device=padded.device)[None, None, None] < length
    _, weights = explicit_attention(trace.queries, *module.project_memory(padded), mask)
    return weights[..., :length], weights[..., length:]
