"""Teacher-forced replay: a chosen source and target once more through the same weights, with everything visible.

    replay(model, source_ids, target_ids).cross[layer, head, query, key]

Translating captures nothing. When somebody asks, the pair is read again by the explicit attention path, through the
same ``Linear.forward`` (float or int8). The causal mask makes row t of the replay what decode step t computed.
Nothing is stored on a module: intermediate values are made here, from the layers' own parts, and handed out.

Two ways in. :func:`replay` and :func:`replay_batch` give attention maps as numpy arrays, and keep only what was asked
for. :class:`Tracer` holds one pair and gives every number of any layer; ``model.stations`` is written on it.

Letters: B batch, H heads, S source, T target positions, Q queries, K keys, D head width, M model width, V vocabulary.
Masks: True = may attend.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.attention import CrossAttention, SelfAttention, causal_mask, explicit_attention
from model.config import TransformerConfig
from model.decoder import DecoderLayer
from model.encoder import EncoderLayer
from model.layers import FeedForward, Residual, Rotary
from model.linear import Linear
from model.selection import KINDS, Kind, Selection, SelectionError, TraceError, depth, resolved_index
from model.transformer import Transformer, pad_sequences

Floats = NDArray[np.float32]
Side = Literal["encoder", "decoder"]
Measure = Literal["weights", "scores", "value_norm"]
MEASURES: tuple[Measure, ...] = get_args(Measure)


def no_pause() -> None:
    """Goes on at once."""


# --- one layer, opened ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResidualTrace:
    """One sublayer inside its residual; all (B, T, M).

    Attributes:
        stream: x, what came in.
        inputs: What the sublayer read: x itself (post-norm) or LayerNorm(x) (pre-norm).
        update: What the sublayer gave.
        output: What goes on: LayerNorm(x + update) or x + update.
    """

    stream: Tensor
    inputs: Tensor
    update: Tensor
    output: Tensor


@dataclass(frozen=True)
class AttentionTrace:
    """One multi-head attention.

    Attributes:
        residual: The residual around it; its ``inputs`` are what the queries were projected from.
        memory: What keys and values were projected from (B, K, M): the same inputs, or the encoder's output.
        projected_queries: (B, H, Q, D), as projected.
        projected_keys: (B, H, K, D), as projected.
        queries: As compared: turned by their positions where the model has rotary ones, else as projected.
        keys: Likewise.
        values: (B, H, K, D).
        mask: Boolean, broadcastable to (B, H, Q, K); None = all may be attended to.
        weights: (B, H, Q, K).
        mixed: (B, H, Q, D), the weighted values.
    """

    residual: ResidualTrace
    memory: Tensor
    projected_queries: Tensor
    projected_keys: Tensor
    queries: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor | None
    weights: Tensor
    mixed: Tensor

    def raw_scores(self) -> Tensor:
        """Q K^T, neither scaled nor masked, (B, H, Q, K)."""
        return self.queries @ self.keys.transpose(-2, -1)

    def scores(self) -> Tensor:
        """What the softmax is taken of, (B, H, Q, K): scaled, and -inf where the mask forbids."""
        scaled = self.raw_scores() / math.sqrt(self.queries.shape[-1])
        return scaled if self.mask is None else scaled.masked_fill(~self.mask, float("-inf"))

    def value_norms(self, out: Linear) -> Tensor:
        """||weight * v W_O|| of every query and key (Kobayashi et al. 2020, equation 4), (B, H, Q, K).

        v is a head's value with its bias, W_O the rows of the output projection that read that head. In int8 they are
        the rounded rows; the rounding of what they read is left out, for it is done over all heads together.

        Args:
            out: The attention's output projection.
        """
        width = self.values.shape[-1]
        weight = out.effective_weight().to(self.values.dtype)  # (M, H * D)
        by_head = weight.view(weight.shape[0], -1, width).permute(1, 2, 0)  # (H, D, M)
        norms = torch.linalg.vector_norm(self.values @ by_head, dim=-1)  # (B, H, K)
        weighted: Tensor = self.weights * norms.unsqueeze(-2)
        return weighted


@dataclass(frozen=True)
class FeedForwardTrace:
    """One feed-forward network.

    Attributes:
        residual: The residual around it.
        hidden: (B, T, d_ff) before the activation.
        activated: (B, T, d_ff) after it.
    """

    residual: ResidualTrace
    hidden: Tensor
    activated: Tensor


@dataclass(frozen=True)
class LayerTrace:
    """One layer of encoder or decoder; ``cross`` is None in an encoder."""

    attention: AttentionTrace
    cross: AttentionTrace | None
    ffn: FeedForwardTrace

    @property
    def output(self) -> Tensor:
        """The stream after the layer, (B, T, M)."""
        return self.ffn.residual.output


def trace_attention(
    attention: SelfAttention, residual: Residual, stream: Tensor, mask: Tensor | None, rotary: Rotary | None
) -> AttentionTrace:
    """Run self-attention inside its residual."""
    inputs = residual.before(stream)
    projected_queries, projected_keys, values = attention.project(inputs)
    queries, keys = projected_queries, projected_keys
    if rotary is not None:
        last = stream.shape[1] - 1
        queries, keys = rotary.rotate(queries, None, last), rotary.rotate(keys, None, last)
    mixed, weights = explicit_attention(queries, keys, values, mask)
    update = attention.combine(mixed)
    return AttentionTrace(
        ResidualTrace(stream, inputs, update, residual.after(stream, update)),
        *(inputs, projected_queries, projected_keys, queries, keys, values, mask, weights, mixed),
    )


def trace_cross_attention(
    attention: CrossAttention, residual: Residual, stream: Tensor, memory: Tensor, mask: Tensor | None
) -> AttentionTrace:
    """Run cross-attention inside its residual."""
    inputs = residual.before(stream)
    queries = attention.project_query(inputs)
    keys, values = attention.project_memory(memory)
    mixed, weights = explicit_attention(queries, keys, values, mask)
    update = attention.combine(mixed)
    return AttentionTrace(
        ResidualTrace(stream, inputs, update, residual.after(stream, update)),
        *(memory, queries, keys, queries, keys, values, mask, weights, mixed),
    )


def trace_feed_forward(ffn: FeedForward, residual: Residual, stream: Tensor) -> FeedForwardTrace:
    """Run the feed-forward network inside its residual."""
    inputs = residual.before(stream)
    hidden = ffn.inner(inputs)
    activated = ffn.activate(hidden)
    update = ffn.outer(activated)
    return FeedForwardTrace(ResidualTrace(stream, inputs, update, residual.after(stream, update)), hidden, activated)


def trace_encoder_layer(
    layer: EncoderLayer, stream: Tensor, mask: Tensor | None, rotary: Rotary | None = None
) -> LayerTrace:
    """Run one encoder layer; (B, S, M), and a mask (B, 1, 1, S) or None."""
    attention = trace_attention(layer.attention, layer.attention_residual, stream, mask, rotary)
    return LayerTrace(attention, None, trace_feed_forward(layer.ffn, layer.ffn_residual, attention.residual.output))


def trace_decoder_layer(
    layer: DecoderLayer, stream: Tensor, memory: Tensor, cross_mask: Tensor | None, rotary: Rotary | None = None
) -> LayerTrace:
    """Run one decoder layer; (B, T, M), the memory (B, S, M) and its mask (B, 1, 1, S) or None."""
    past = causal_mask(stream.shape[1], stream.device)
    attention = trace_attention(layer.attention, layer.attention_residual, stream, past, rotary)
    cross = trace_cross_attention(
        layer.cross_attention, layer.cross_residual, attention.residual.output, memory, cross_mask
    )
    return LayerTrace(attention, cross, trace_feed_forward(layer.ffn, layer.ffn_residual, cross.residual.output))


def encoder_layers(model: Transformer) -> list[EncoderLayer]:
    """The encoder's layers, as what they are: torch's list hands out plain modules."""
    return [cast(EncoderLayer, layer) for layer in model.encoder.layers]


def decoder_layers(model: Transformer) -> list[DecoderLayer]:
    """The decoder's layers."""
    return [cast(DecoderLayer, layer) for layer in model.decoder.layers]


def _trace_encoder(model: Transformer, stream: Tensor, mask: Tensor | None) -> Iterator[LayerTrace]:
    """Layer after layer; a caller that stops early saves the rest."""
    rotary = _rotary(model.config)
    for layer in encoder_layers(model):
        trace = trace_encoder_layer(layer, stream, mask, rotary)
        stream = trace.output
        yield trace


def _trace_decoder(model: Transformer, stream: Tensor, memory: Tensor, mask: Tensor | None) -> Iterator[LayerTrace]:
    rotary = _rotary(model.config)
    for layer in decoder_layers(model):
        trace = trace_decoder_layer(layer, stream, memory, mask, rotary)
        stream = trace.output
        yield trace


def _rotary(config: TransformerConfig) -> Rotary | None:
    return Rotary(config.head_width) if config.positions == "rotary" else None


# --- maps as arrays ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replay:
    """One pair, read again.

    Row t of ``decoder``, ``cross`` and ``logits`` has two names: the token it read, ``input_ids[t]``, and the token it
    predicts, ``target_ids[t]`` (with ``open_end`` the last row predicts one that is not there).

    Attributes:
        source_ids: As given, S of them.
        input_ids: What the decoder read: the start token and the target shifted by one, T of them.
        target_ids: As given.
        selection: Which layers and heads the maps hold, in this order.
        measure: What the maps hold: ``weights``, whose rows sum to 1; ``scores``, what the softmax is taken of (-inf
            where the mask forbids); ``value_norm``, see :meth:`AttentionTrace.value_norms`.
        encoder: [layer][head][query][key], float32 (layers, heads, S, S); None when not asked for.
        decoder: (layers, heads, T, T); nothing above the diagonal. None when not asked for.
        cross: (layers, heads, T, S); None when not asked for.
        logits: (T, V) float32; None when not asked for.
        memory: The encoder's output (S, M) float32; None when not asked for.
        precision: ``int8``, ``float32``, ``bfloat16`` or ``float16``.
        cross_norms: ``value_norm`` of every head of the cross-attention layers asked for, whatever ``measure`` is;
            (layers, H, T, S). None when not asked for.
    """

    source_ids: tuple[int, ...]
    input_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    selection: Selection
    measure: Measure
    encoder: Floats | None
    decoder: Floats | None
    cross: Floats | None
    logits: Floats | None
    memory: Floats | None
    precision: str
    cross_norms: Floats | None = None

    def maps(self, kind: Kind) -> Floats:
        """The maps of one kind.

        Raises:
            TraceError: When they were not asked for.
        """
        found: Floats | None = getattr(self, kind)
        if found is None:
            raise TraceError(
                f"{kind} maps were not captured; captured are {', '.join(self.selection.layers) or 'none'}"
            )
        return found


def replay(
    model: Transformer,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    *,
    selection: Selection | None = None,
    measure: Measure = "weights",
    logits: bool = True,
    memory: bool = True,
    open_end: bool = False,
    norm_layers: Sequence[int] = (),
    pause: Callable[[], None] = no_pause,
) -> Replay:
    """Read one pair again.

    Args:
        model: In evaluation mode, on any device.
        source_ids: Ended by ``eos_id``.
        target_ids: What the decoder wrote or shall be imagined to have written, eos included if it ended so, without
            the start token.
        selection: Which maps to keep; None keeps all.
        measure: What the maps hold.
        logits: Also return the logits. Without logits, decoder and cross maps the decoder does not run.
        memory: Also return the encoder's output.
        open_end: One row more, which has read the last target token: for what might come next, and for alignment by
            input token. Without it the last token is only predicted.
        norm_layers: Cross-attention layers of which ``cross_norms`` is kept, too.
        pause: Called after each layer; may sleep, where others need the processor more.

    Raises:
        TraceError: For an empty source, or no decoder row, or a model in training mode.
        PositionTooLarge: When source or target is longer than a learned position table.
    """
    pairs = [(source_ids, target_ids)]
    options: dict[str, Any] = {"measure": measure, "logits": logits, "memory": memory, "open_end": open_end}
    options |= {"norm_layers": norm_layers, "pause": pause}
    return replay_batch(model, pairs, selection=selection, **options)[0]


@torch.inference_mode()
def replay_batch(
    model: Transformer,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    selection: Selection | None = None,
    measure: Measure = "weights",
    logits: bool = True,
    memory: bool = True,
    open_end: bool = False,
    norm_layers: Sequence[int] = (),
    pause: Callable[[], None] = no_pause,
) -> list[Replay]:
    """As :func:`replay`, for several pairs in one pass; each result is cut to its own lengths.

    Padding in the batch is masked, and gets weight exactly 0.
    """
    if measure not in MEASURES:
        raise SelectionError(f"measure {measure!r} does not exist; measures are {', '.join(MEASURES)}")
    if not pairs:
        return []
    selection = selection or Selection.of(model.config)
    inputs = [decoder_inputs(model, source, target, open_end) for source, target in pairs]
    batch = _Batch.of(model, [list(source) for source, _ in pairs], inputs)
    found: dict[Kind, dict[int, Tensor]] = {kind: {} for kind in KINDS}
    norms: dict[int, Tensor] = {}

    def keep(kind: Kind, index: int, trace: AttentionTrace, out: Linear) -> None:
        if index in selection.layers.get(kind, ()):
            found[kind][index] = _measured(trace, measure, out)[:, list(selection.heads)]
        if kind == "cross" and index in norm_layers:
            norms[index] = trace.value_norms(out)

    needs_decoder = logits or bool(norm_layers) or "decoder" in selection.layers or "cross" in selection.layers
    encoder_depth = model.config.num_encoder_layers if needs_decoder or memory else _last(selection, "encoder") + 1
    hidden = model.source_embedding(batch.source)
    for index, layer in zip(range(encoder_depth), _trace_encoder(model, hidden, batch.mask), strict=False):
        keep("encoder", index, layer.attention, encoder_layers(model)[index].attention.out)
        hidden = layer.output
        pause()
    encoded = hidden if model.encoder.norm is None else model.encoder.norm(hidden)

    all_logits: Tensor | None = None
    if needs_decoder:
        last = max(_last(selection, "decoder"), _last(selection, "cross"), *norm_layers)
        decoder_depth = model.config.num_decoder_layers if logits else last + 1
        hidden = model.target_embedding(batch.inputs)
        layers = _trace_decoder(model, hidden, encoded, batch.mask)
        for index, layer in zip(range(decoder_depth), layers, strict=False):
            assert layer.cross is not None
            module = decoder_layers(model)[index]
            keep("decoder", index, layer.attention, module.attention.out)
            keep("cross", index, layer.cross, module.cross_attention.out)
            hidden = layer.output
            pause()
        if logits:
            all_logits = model.logits(hidden if model.decoder.norm is None else model.decoder.norm(hidden))

    stacked = {kind: torch.stack([found[kind][index] for index in selection.layers[kind]]) for kind in selection.layers}
    stacked_norms = torch.stack([norms[index] for index in norm_layers]) if norm_layers else None
    results = []
    for row, (source, target) in enumerate(pairs):
        sizes = {"source": len(source), "target": len(inputs[row])}
        maps = {
            kind: to_numpy(stacked[kind][:, row, :, : sizes[queries], : sizes[keys]]) if kind in stacked else None
            for kind, queries, keys in _AXES
        }
        results.append(
            Replay(
                source_ids=tuple(source),
                input_ids=tuple(inputs[row]),
                target_ids=tuple(target),
                selection=selection,
                measure=measure,
                **maps,
                cross_norms=None
                if stacked_norms is None
                else to_numpy(stacked_norms[:, row, :, : sizes["target"], : sizes["source"]]),
                logits=None if all_logits is None else to_numpy(all_logits[row, : sizes["target"]]),
                memory=to_numpy(encoded[row, : sizes["source"]]) if memory else None,
                precision=model.precision,
            )
        )
    return results


_AXES: tuple[tuple[Kind, str, str], ...] = (
    ("encoder", "source", "source"),
    ("decoder", "target", "target"),
    ("cross", "target", "source"),
)


@dataclass(frozen=True)
class _Batch:
    """Padded ids; ``mask`` (B, 1, 1, S), None when no source is padded."""

    source: Tensor
    mask: Tensor | None
    inputs: Tensor

    @classmethod
    def of(cls, model: Transformer, sources: list[list[int]], inputs: list[list[int]]) -> _Batch:
        device, pad_id = model.target_embedding.weight.device, model.config.pad_id
        source, mask = pad_sequences(sources, pad_id, device)
        padded_inputs, _ = pad_sequences(inputs, pad_id, device)
        is_padded = len({len(ids) for ids in sources}) > 1
        return cls(source, mask[:, None, None, :] if is_padded else None, padded_inputs)


def _measured(trace: AttentionTrace, measure: Measure, out: Linear) -> Tensor:
    if measure == "scores":
        return trace.scores()
    return trace.value_norms(out) if measure == "value_norm" else trace.weights


def _last(selection: Selection, kind: Kind) -> int:
    return max(selection.layers.get(kind, ()), default=-1)


def decoder_inputs(
    model: Transformer, source_ids: Sequence[int], target_ids: Sequence[int], open_end: bool
) -> list[int]:
    """What the decoder reads to write ``target_ids``, after checking that the pair can be replayed.

    Raises:
        TraceError: For an empty source, no decoder row, an id outside the vocabulary, or a model in training mode.
    """
    if model.training:
        raise TraceError("the model is in training mode, where dropout makes every pass another one")
    config = model.config
    if not source_ids:
        raise TraceError("the source has no ids; the shortest is the end-of-sentence id alone")
    if not target_ids and not open_end:
        raise TraceError("the target has no ids; without any, only what comes first can be asked for (open_end)")
    sides = (("source", source_ids, config.source_vocab_size), ("target", target_ids, config.target_vocab_size))
    for side, ids, size in sides:
        for token_id in ids:
            if not 0 <= token_id < size:
                raise TraceError(f"{side} id {token_id} is not in the vocabulary (0 to {size - 1})")
    inputs = [config.decoder_start_id, *target_ids]
    return inputs if open_end else inputs[:-1]


def to_numpy(values: Tensor) -> Floats:
    """A float32 copy on the CPU that shares memory with nothing."""
    copied: Floats = values.detach().to(device="cpu", dtype=torch.float32).numpy().copy()
    return copied


# --- one pair, every number -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """One step of the route through the model.

    Attributes:
        name: Such as ``encoder layer 0``.
        reads: Names of the stages whose output it takes.
        input_shapes: The shape of each of those, as it was received.
        output_shape: What it gives; no batch axis.
        seconds: How long it took here, by the explicit path.
    """

    name: str
    reads: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    output_shape: tuple[int, ...]
    seconds: float


class Tracer:
    """One source and target, read once; holds the stream before every layer and opens any layer on demand.

    All tensors have a batch axis of 1. Belongs to the thread that owns the model, and to one request.

    Attributes:
        model: As given.
        source_ids: As given, S of them.
        input_ids: What the decoder read, T of them.
        target_ids: As given.
        encoder_streams: What goes into each encoder layer, and last what comes out of the last one; (1, S, M) each.
        memory: The encoder's output, after the last norm where there is one, (1, S, M).
        decoder_streams: Likewise, (1, T, M) each.
        hidden: What the vocabulary is projected from, (1, T, M).
        logits: (1, T, V).
        stages: The route that was taken, in order, with times.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Transformer,
        source_ids: Sequence[int],
        target_ids: Sequence[int],
        *,
        open_end: bool = False,
        pause: Callable[[], None] = no_pause,
    ) -> None:
        """Read the pair; arguments and errors as for :func:`replay`. Pauses also before a layer is opened."""
        self.model = model
        self._pause = pause
        self.source_ids = tuple(source_ids)
        self.target_ids = tuple(target_ids)
        self.input_ids = tuple(decoder_inputs(model, source_ids, target_ids, open_end))
        self.stages: list[Stage] = []
        device = model.target_embedding.weight.device
        source = torch.tensor([self.source_ids], device=device)
        inputs = torch.tensor([self.input_ids], device=device)
        rotary = _rotary(model.config)

        name = "source embedding"
        stream = self._timed(name, {"source ids": source}, lambda: model.source_embedding(source))
        self.encoder_streams = [stream]
        for index, encoder_layer in enumerate(encoder_layers(model)):
            step = _encoder_step(encoder_layer, stream, rotary)
            before, name = name, f"encoder layer {index}"
            stream = self._timed(name, {before: stream}, step)
            self.encoder_streams.append(stream)
        self.memory = stream
        if model.encoder.norm is not None:
            before, name = name, "encoder norm"
            self.memory = self._timed(name, {before: stream}, partial(model.encoder.norm, stream))
        memory_name = name

        name = "target embedding"
        stream = self._timed(name, {"target ids": inputs}, lambda: model.target_embedding(inputs))
        self.decoder_streams = [stream]
        for index, decoder_layer in enumerate(decoder_layers(model)):
            decoder_step = _decoder_step(decoder_layer, stream, self.memory, rotary)
            before, name = name, f"decoder layer {index}"
            stream = self._timed(name, {before: stream, memory_name: self.memory}, decoder_step)
            self.decoder_streams.append(stream)
        self.hidden = stream
        if model.decoder.norm is not None:
            before, name = name, "decoder norm"
            self.hidden = self._timed(name, {before: stream}, partial(model.decoder.norm, stream))
        before, name = name, "logits"
        self.logits = self._timed(name, {before: self.hidden}, lambda: model.logits(self.hidden))
        self._timed("softmax", {name: self.logits}, lambda: self.logits.softmax(-1))
        self._rotary = rotary

    def _timed(self, name: str, read: Mapping[str, Tensor], run: Callable[[], Tensor]) -> Tensor:
        start = time.perf_counter()
        output = run()
        if output.is_cuda:
            torch.cuda.synchronize(output.device)
        seconds = time.perf_counter() - start
        shapes = tuple(tuple(tensor.shape[1:]) for tensor in read.values())
        self.stages.append(Stage(name, tuple(read), shapes, tuple(output.shape[1:]), seconds))
        self._pause()
        return output

    @property
    def config(self) -> TransformerConfig:
        """The model's configuration."""
        return self.model.config

    def streams(self, side: Side) -> list[Tensor]:
        """``encoder_streams`` or ``decoder_streams``."""
        return self.encoder_streams if side == "encoder" else self.decoder_streams

    @torch.inference_mode()
    def layer(self, side: Side, index: int) -> LayerTrace:
        """Open one layer: it runs again, from the stream that went into it.

        Raises:
            SelectionError: When there is no such layer; negative ones count from the end.
        """
        index = resolved_index(index, depth(self.config, side), f"{side} layer")
        self._pause()
        if side == "encoder":
            layer = encoder_layers(self.model)[index]
            return trace_encoder_layer(layer, self.encoder_streams[index], None, self._rotary)
        stream = self.decoder_streams[index]
        return trace_decoder_layer(decoder_layers(self.model)[index], stream, self.memory, None, self._rotary)

    def attention(self, kind: Kind, index: int) -> AttentionTrace:
        """Open one attention of one layer; as :meth:`layer`."""
        layer = self.layer("encoder" if kind == "encoder" else "decoder", index)
        if kind != "cross":
            return layer.attention
        assert layer.cross is not None
        return layer.cross

    def attention_module(self, kind: Kind, index: int) -> SelfAttention | CrossAttention:
        """The weights of one attention of one layer."""
        index = resolved_index(index, depth(self.config, kind), f"{kind} layer")
        if kind == "encoder":
            return encoder_layers(self.model)[index].attention
        layer = decoder_layers(self.model)[index]
        return layer.attention if kind == "decoder" else layer.cross_attention


def _encoder_step(layer: EncoderLayer, stream: Tensor, rotary: Rotary | None) -> Callable[[], Tensor]:
    return lambda: trace_encoder_layer(layer, stream, None, rotary).output


def _decoder_step(layer: DecoderLayer, stream: Tensor, memory: Tensor, rotary: Rotary | None) -> Callable[[], Tensor]:
    return lambda: trace_decoder_layer(layer, stream, memory, None, rotary).output
