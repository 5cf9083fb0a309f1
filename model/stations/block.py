"""Stations 8 to 10: a layer's stages in its own order, residual and norm, the feed-forward network.

Letters: T positions of one side, M model width, F the feed-forward network's inner width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from model.attention import causal_mask, explicit_attention
from model.config import Activation
from model.layers import FeedForward, LayerNorm, Residual, Rotary
from model.selection import SelectionError, depth, resolved_index
from model.stations.base import (
    Affine,
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
from model.trace import ResidualTrace, Side, Tracer, decoder_layers, encoder_layers, to_numpy

Role = Literal["mixes", "transforms", "protects"]
Sublayer = Literal["attention", "cross", "ffn"]

# --- 8. the block -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockStage:
    """One stage of a layer.

    Attributes:
        name: Such as ``attention``, ``cross-attention``, ``feed-forward``, ``add``, ``norm``.
        sublayer: Which of them it belongs to.
        role: ``mixes`` positions, ``transforms`` each by itself, or ``protects`` what is there.
        output: What the stage gives, (T, M).
        norms: The length of each of its vectors, (T,).
        change_elsewhere: When one position of what the stage reads is changed (of cross-attention: one of the
            source), how much positions change that are not it. 0 proves that it mixes nothing.
        change_here: How much the changed position itself does; of cross-attention NaN.
    """

    name: str
    sublayer: Sublayer
    role: Role
    output: Floats
    norms: Floats
    change_elsewhere: float
    change_here: float


@dataclass(frozen=True, kw_only=True)
class Block(Station):
    """Station 8: the stages of one layer in the order in which this model has them.

    Attributes:
        side: Encoder or decoder.
        layer: Zero-based.
        norm_placement: ``pre`` or ``post``.
        inputs: The stream that came in, (T, M).
        stages: In order.
    """

    number: ClassVar[int] = 8
    name: ClassVar[str] = "block"
    side: Side
    layer: int
    norm_placement: str
    inputs: Floats
    stages: tuple[BlockStage, ...]


@dataclass(frozen=True)
class _State:
    """Where a layer stands: the stream, and the branch that a sublayer works on; ``memory`` is the encoder's output."""

    stream: Tensor
    branch: Tensor
    memory: Tensor


@dataclass(frozen=True)
class _Step:
    name: str
    sublayer: Sublayer
    role: Role
    run: Callable[[_State], _State]
    shown: Literal["stream", "branch"]


@torch.inference_mode()
def block(tracer: Tracer, side: Side = "encoder", layer: int = 0) -> Block:
    """Walk through one layer stage by stage."""
    layer = resolved_index(layer, depth(tracer.config, side), f"{side} layer")
    stream = tracer.streams(side)[layer]
    state = _State(stream, stream, tracer.memory)
    stages, shapes_kept = [], True
    for step in _steps(tracer, side, layer):
        before, state = state, step.run(state)
        output = getattr(state, step.shown)
        shapes_kept = shapes_kept and output.shape == stream.shape
        stages.append(
            BlockStage(
                name=step.name,
                sublayer=step.sublayer,
                role=step.role,
                output=first(output),
                norms=first(torch.linalg.vector_norm(output.float(), dim=-1)),
                **_perturbed(step, before, output),
            )
        )
    expected = _whole_layer(tracer, side, layer)
    alone = [stage.change_elsewhere for stage in stages if stage.role != "mixes"]
    mixing = [stage.change_elsewhere for stage in stages if stage.role == "mixes"]
    checks = [
        check(
            "stages_chain",
            "The stages one after another give what the layer gives",
            difference(state.stream, expected),
            by_another_path(tracer, 1e-4, expected),
        ),
        check("shape_kept", "Every stage keeps the shape", float(not shapes_kept), 0),
        check(
            "others_unmoved",
            "A stage that does not mix leaves every other position unchanged",
            max(alone),
            exact(tracer, 1e-6, expected),
        ),
    ]
    if stream.shape[1] > 1:  # a single token has nothing to mix with
        still = sum(change == 0 for change in mixing)
        checks.append(check("others_moved", "A stage that mixes changes other positions", still, 0))
    return Block(
        side=side,
        layer=layer,
        norm_placement=tracer.config.norm,
        inputs=first(stream),
        stages=tuple(stages),
        checks=tuple(checks),
    )


def _whole_layer(tracer: Tracer, side: Side, layer: int) -> Tensor:
    """The layer's own forward, by the path that translates."""
    if side == "encoder":
        result: Tensor = encoder_layers(tracer.model)[layer](tracer.encoder_streams[layer], None)[0]
    else:
        module = decoder_layers(tracer.model)[layer]
        result = module(tracer.decoder_streams[layer], tracer.memory, None)[0]
    return result


def _perturbed(step: _Step, state: _State, output: Tensor) -> dict[str, float]:
    """Change what the stage reads at position 0 and see who moves."""

    def nudged(values: Tensor) -> Tensor:
        moved = values.clone()
        moved[:, 0] += 1.0 + moved[:, 0].abs() * torch.linspace(-1, 1, moved.shape[2], device=moved.device)
        return moved

    is_cross = step.sublayer == "cross" and step.role == "mixes"
    if is_cross:
        changed = step.run(_State(state.stream, state.branch, nudged(state.memory)))
    else:
        changed = step.run(_State(nudged(state.stream), nudged(state.branch), state.memory))
    moves = (getattr(changed, step.shown) - output).abs().amax(dim=-1)[0]
    if is_cross:
        return {"change_elsewhere": float(moves.max()), "change_here": float("nan")}
    return {
        "change_elsewhere": float(moves[1:].max()) if len(moves) > 1 else 0.0,
        "change_here": float(moves[0]),
    }


def _steps(tracer: Tracer, side: Side, layer: int) -> list[_Step]:
    """The stages of one layer, in the model's order."""
    module = encoder_layers(tracer.model)[layer] if side == "encoder" else decoder_layers(tracer.model)[layer]
    config = tracer.config
    rotary = Rotary(config.head_width) if config.positions == "rotary" else None

    def attend(state: _State) -> _State:
        queries, keys, values = module.attention.project(state.branch)
        if rotary is not None:
            last = state.branch.shape[1] - 1
            queries, keys = rotary.rotate(queries, None, last), rotary.rotate(keys, None, last)
        mask = causal_mask(queries.shape[2], queries.device) if side == "decoder" else None
        mixed, _ = explicit_attention(queries, keys, values, mask)
        return _State(state.stream, module.attention.combine(mixed), state.memory)

    def think(state: _State) -> _State:
        return _State(state.stream, module.ffn(state.branch), state.memory)

    parts: list[tuple[str, Sublayer, Role, Callable[[_State], _State], Residual]] = [
        ("attention", "attention", "mixes", attend, module.attention_residual)
    ]
    if side == "decoder":
        decoder_module = decoder_layers(tracer.model)[layer]
        across = decoder_module.cross_attention

        def ask(state: _State) -> _State:
            queries = across.project_query(state.branch)
            mixed, _ = explicit_attention(queries, *across.project_memory(state.memory), None)
            return _State(state.stream, across.combine(mixed), state.memory)

        parts.append(("cross-attention", "cross", "mixes", ask, decoder_module.cross_residual))
    parts.append(("feed-forward", "ffn", "transforms", think, module.ffn_residual))

    steps: list[_Step] = []
    for name, sublayer, role, run, residual in parts:
        if config.norm == "pre":
            steps.append(_Step("norm", sublayer, "protects", _norm_branch(residual), "branch"))
            steps.append(_Step(name, sublayer, role, run, "branch"))
            steps.append(_Step("add", sublayer, "protects", _add, "stream"))
        else:
            steps.append(_Step(name, sublayer, role, run, "branch"))
            steps.append(_Step("add", sublayer, "protects", _add, "stream"))
            steps.append(_Step("norm", sublayer, "protects", _norm_stream(residual), "stream"))
    return steps


def _add(state: _State) -> _State:
    total = state.stream + state.branch
    return _State(total, total, state.memory)


def _norm_branch(residual: Residual) -> Callable[[_State], _State]:
    return lambda state: _State(state.stream, residual.norm(state.stream), state.memory)


def _norm_stream(residual: Residual) -> Callable[[_State], _State]:
    def run(state: _State) -> _State:
        normed = residual.norm(state.stream)
        return _State(normed, normed, state.memory)

    return run


# --- 9. residual and norm ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ResidualNorm(Station):
    """Station 9: "Add & Norm" around one sublayer.

    Attributes:
        side: Encoder or decoder.
        layer: Zero-based.
        sublayer: Which of the layer.
        norm_placement: ``post``: output = LayerNorm(stream + update). ``pre``: output = stream + update, and the
            sublayer read LayerNorm(stream).
        stream: x, (T, M).
        update: Sublayer(x), (T, M).
        total: x + update, (T, M).
        norm_inputs: What the norm was taken of: ``total`` (post) or ``stream`` (pre).
        mean: Of each position's ``norm_inputs``, (T,).
        variance: Likewise, without Bessel's correction, (T,).
        epsilon: Added to the variance.
        gamma: (M,).
        beta: (M,).
        standardised: (norm_inputs - mean) / sqrt(variance + epsilon), (T, M).
        normed: gamma * standardised + beta, (T, M).
        output: What goes on, (T, M).
        what_if_alpha: The factor on the update.
        what_if_output: What would go on with it, (T, M).
    """

    number: ClassVar[int] = 9
    name: ClassVar[str] = "residual"
    side: Side
    layer: int
    sublayer: Sublayer
    norm_placement: str
    stream: Floats
    update: Floats
    total: Floats
    norm_inputs: Floats
    mean: Floats
    variance: Floats
    epsilon: float
    gamma: Floats
    beta: Floats
    standardised: Floats
    normed: Floats
    output: Floats
    what_if_alpha: float
    what_if_output: Floats


@torch.inference_mode()
def residual(
    tracer: Tracer, side: Side = "encoder", layer: int = 0, sublayer: Sublayer = "attention", alpha: float = 1.0
) -> ResidualNorm:
    """Open the residual around one sublayer; ``alpha`` scales the sublayer's update (what-if)."""
    layer = resolved_index(layer, depth(tracer.config, side), f"{side} layer")
    trace, norm = _residual_of(tracer, side, layer, sublayer)
    is_pre = tracer.config.norm == "pre"

    def scaled(factor: float) -> Tensor:
        total = trace.stream + factor * trace.update
        result: Tensor = total if is_pre else norm(total)
        return result

    total = trace.stream + trace.update
    norm_inputs = trace.stream if is_pre else total
    mean, variance = norm_inputs.mean(-1), norm_inputs.var(-1, correction=0)
    standardised = functional.layer_norm(norm_inputs, norm.weight.shape, None, None, norm.eps)
    normed = trace.inputs if is_pre else trace.output
    by_hand = _layer_norm(first(norm_inputs), to_numpy(norm.weight), to_numpy(norm.bias), norm.eps)
    nothing = trace.stream if is_pre else norm(trace.stream)
    expected_variance = first(variance) / (first(variance) + norm.eps)
    return ResidualNorm(
        side=side,
        layer=layer,
        sublayer=sublayer,
        norm_placement=tracer.config.norm,
        stream=first(trace.stream),
        update=first(trace.update),
        total=first(total),
        norm_inputs=first(norm_inputs),
        mean=first(mean),
        variance=first(variance),
        epsilon=norm.eps,
        gamma=to_numpy(norm.weight),
        beta=to_numpy(norm.bias),
        standardised=first(standardised),
        normed=first(normed),
        output=first(trace.output),
        what_if_alpha=alpha,
        what_if_output=first(scaled(alpha)),
        checks=(
            check(
                "whole_update",
                "A factor of 1 gives what the model gives",
                difference(scaled(1.0), trace.output),
                exact(tracer, 1e-6, trace.output),
            ),
            check(
                "no_update",
                "A factor of 0 gives x" if is_pre else "A factor of 0 gives LayerNorm(x)",
                difference(scaled(0.0), nothing),
                exact(tracer, 1e-6, nothing),
            ),
            check(
                "mean_zero",
                "Before gamma and beta the mean is 0",
                largest(first(standardised).astype(np.float64).mean(axis=-1)),
                exact(tracer, 1e-6, 1),
            ),
            check(
                "variance_one",
                "Before gamma and beta the variance is 1 (exactly: variance / (variance + epsilon))",
                difference(first(standardised).astype(np.float64).var(axis=-1), expected_variance),
                exact(tracer, 1e-3, 1),
            ),
            check(
                "norm_recomputed",
                "The norm is gamma (x - mean) / sqrt(variance + epsilon) + beta",
                difference(by_hand, first(normed)),
                exact(tracer, 1e-5, normed),
            ),
        ),
    )


def _residual_of(tracer: Tracer, side: Side, layer: int, sublayer: Sublayer) -> tuple[ResidualTrace, LayerNorm]:
    trace = tracer.layer(side, layer)
    module = encoder_layers(tracer.model)[layer] if side == "encoder" else decoder_layers(tracer.model)[layer]
    if sublayer == "attention":
        return trace.attention.residual, module.attention_residual.norm
    if sublayer == "ffn":
        return trace.ffn.residual, module.ffn_residual.norm
    if sublayer != "cross":
        raise SelectionError(f"sublayer {sublayer!r} does not exist; there are attention, cross and ffn")
    if trace.cross is None:
        raise SelectionError("an encoder layer has no cross-attention; its sublayers are attention and ffn")
    return trace.cross.residual, decoder_layers(tracer.model)[layer].cross_residual.norm


def _layer_norm(x: Floats, gamma: Floats, beta: Floats, epsilon: float) -> Doubles:
    """By hand, in float64."""
    values = x.astype(np.float64)
    centred = values - values.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    result: Doubles = gamma * centred / np.sqrt(variance + epsilon) + beta
    return result


# --- 10. the feed-forward network -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FeedForwardNetwork(Station):
    """Station 10: W2 act(W1 x + b1) + b2, for each position by itself.

    Attributes:
        side: Encoder or decoder.
        layer: Zero-based.
        position: The position whose hidden values are shown.
        activation: The model's.
        approximation: Of a GELU: ``none`` or ``tanh``.
        inputs: x of every position, (T, M).
        inner: W1 and b1.
        outer: W2 and b2.
        hidden: Before the activation, at ``position``, (F,).
        activated: After it, (F,).
        top_units: The hidden units with the largest magnitude after it, largest first, (k,).
        top_values: Their values after it, (k,).
        histogram: How many of ``hidden`` lie in each bin, (20,).
        histogram_edges: (21,).
        share_negative: For each position, the share of hidden values below 0 before the activation, (T,).
        share_silent: For each position, the share that is exactly 0 after it, (T,).
        outputs: Of every position, (T, M).
        what_if_activation: As asked for.
        what_if_activated: At ``position``, (F,).
        what_if_output: At ``position``, (M,).
    """

    number: ClassVar[int] = 10
    name: ClassVar[str] = "ffn"
    side: Side
    layer: int
    position: int
    activation: Activation
    approximation: str
    inputs: Floats
    inner: Affine
    outer: Affine
    hidden: Floats
    activated: Floats
    top_units: Ints
    top_values: Floats
    histogram: Ints
    histogram_edges: Doubles
    share_negative: Doubles
    share_silent: Doubles
    outputs: Floats
    what_if_activation: Activation
    what_if_activated: Floats
    what_if_output: Floats


_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "swish": functional.silu,
}


@torch.inference_mode()
def ffn(
    tracer: Tracer,
    side: Side = "encoder",
    layer: int = 0,
    position: int = 0,
    activation: Activation | None = None,
    k: int = 8,
) -> FeedForwardNetwork:
    """Open the feed-forward network of one layer.

    Args:
        tracer: The pair.
        side: Encoder or decoder.
        layer: Which.
        position: Whose hidden values to show.
        activation: What-if: another one; None is the model's. A GELU that is not the model's is the exact one.
        k: How many of the strongest hidden units to name.
    """
    config = tracer.config
    layer = resolved_index(layer, depth(config, side), f"{side} layer")
    module = encoder_layers(tracer.model)[layer].ffn if side == "encoder" else decoder_layers(tracer.model)[layer].ffn
    trace = tracer.layer(side, layer).ffn
    position = resolved_index(position, trace.hidden.shape[1], "position")
    what_if = config.activation if activation is None else activation
    if what_if not in _ACTIVATIONS:
        raise SelectionError(f"activation {what_if!r} does not exist; there are {', '.join(_ACTIVATIONS)}")
    is_real = what_if == config.activation
    what_if_activated = module.activate(trace.hidden) if is_real else _ACTIVATIONS[what_if](trace.hidden)
    what_if_output = module.outer(what_if_activated)
    inner, outer = Affine.of(module.inner), Affine.of(module.outer)
    inputs, hidden, activated = first(trace.residual.inputs), first(trace.hidden), first(trace.activated)
    outputs = first(trace.residual.update)
    strongest = np.argsort(-np.abs(activated[position]), kind="stable")[:k]
    counts, edges = np.histogram(hidden[position].astype(np.float64), bins=20)
    return FeedForwardNetwork(
        side=side,
        layer=layer,
        position=position,
        activation=config.activation,
        approximation=config.gelu_approximation,
        inputs=inputs,
        inner=inner,
        outer=outer,
        hidden=hidden[position],
        activated=activated[position],
        top_units=strongest.astype(np.int64),
        top_values=activated[position][strongest],
        histogram=counts.astype(np.int64),
        histogram_edges=edges,
        share_negative=(hidden < 0).mean(axis=1),
        share_silent=(activated == 0).mean(axis=1),
        outputs=outputs,
        what_if_activation=what_if,
        what_if_activated=first(what_if_activated)[position],
        what_if_output=first(what_if_output)[position],
        checks=(
            check(
                "hidden_recomputed",
                "hidden = W1 x + b1",
                difference(inner.apply(inputs), hidden),
                exact(tracer, 1e-5, hidden),
            ),
            check(
                "activation_recomputed",
                f"activated = {config.activation}(hidden)",
                difference(_activate(hidden, config.activation, config.gelu_approximation), activated),
                exact(tracer, 1e-5, activated),
            ),
            check(
                "output_recomputed",
                "output = W2 activated + b2",
                difference(outer.apply(activated), outputs),
                exact(tracer, 1e-5, outputs),
            ),
            check(
                "others_unmoved",
                "Another vector at one position leaves the outputs of all others unchanged",
                _change_elsewhere(module, trace.residual.inputs, position),
                exact(tracer, 1e-6, outputs),
            ),
        ),
    )


def _activate(hidden: Floats, activation: Activation, approximation: str) -> Doubles:
    """By hand, in float64."""
    x = hidden.astype(np.float64)
    if activation == "relu":
        return np.maximum(x, 0.0)
    if activation == "swish":
        return np.asarray(x / (1 + np.exp(-x)))
    if approximation == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1 + torch.erf(torch.from_numpy(x / np.sqrt(2))).numpy()))


def _change_elsewhere(module: FeedForward, inputs: Tensor, position: int) -> float:
    moved = inputs.clone()
    moved[:, position] = 1.0 - 2.0 * moved[:, position]
    changes = (module(moved) - module(inputs)).abs().amax(dim=-1)[0]
    changes[position] = 0
    return float(changes.max())
