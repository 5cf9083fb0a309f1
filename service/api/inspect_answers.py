"""What the endpoints that look inside give, as JSON. The numbers come as bytes of JSON, or as bytes of a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from model.tokenizer import TextTokenizer
from service.api.inspect_fields import MapFields
from service.api.inspect_schemas import MapsRequest, TraceRequest
from service.engine.inspection import CheckResult, ModelFacts, NextResult, ScoreResult, SegmentAlignment, StationResult
from service.engine.interface import ModelInfo
from service.inspection.files import csv_bytes, json_values, npz_bytes, safetensors_bytes
from service.inspection.inspector import CapturedMaps, CapturedPair, Estimate
from service.inspection.maps import Axis, Format, ShownMap
from service.inspection.pairs import Found, Pair, PlacedWord, Side
from service.inspection.pictures import Look, Picture, png, svg
from service.inspection.values import plain_values
from service.settings import Settings

AXES = ["layer", "head", "query", "key"]


def model_answer(info: ModelInfo, facts: ModelFacts, settings: Settings, stations: Sequence[str]) -> dict[str, Any]:
    """All that is known of a model."""
    config = facts.config
    named = (
        *("num_encoder_layers", "num_decoder_layers", "num_heads", "d_model", "d_ff", "activation"),
        *("gelu_approximation", "norm", "final_norm", "layer_norm_eps", "positions", "sinusoid_layout"),
        *("max_positions", "share_embeddings", "tie_output", "attention_bias", "ffn_bias", "output_bias"),
        *("source_vocab_size", "target_vocab_size"),
    )
    return {
        "name": info.name,
        "revision": info.revision,
        "source": info.source_language,
        "target": info.target_language,
        "precision": facts.precision,
        "parameters": facts.num_parameters,
        **{name: getattr(config, name) for name in named},
        "d_k": config.head_width,
        "embedding_scale": config.embedding_factor,
        "special_ids": {
            "pad": config.pad_id,
            "unk": facts.unk_id,
            "bos": facts.bos_id,
            "eos": config.eos_id,
            "decoder_start": config.decoder_start_id,
        },
        "forbidden_ids": facts.forbidden_ids,
        "alignment_recipe": {**facts.recipe, "is_tuned": facts.has_own_recipe},
        "limits": {
            "max_source_tokens": info.max_source_tokens,
            "max_target_tokens": info.max_target_tokens,
            "max_segment_tokens": min(settings.max_segment_tokens, info.max_source_tokens),
            "max_inspection_tokens": settings.max_inspection_tokens,
            "max_inspection_bytes": settings.max_inspection_bytes,
            "max_text_bytes": settings.max_text_bytes,
        },
        "kinds": ["encoder", "decoder", "cross"],
        "stations": list(stations),
    }


def common(found: Found) -> dict[str, Any]:
    """What every answer about a pair begins with."""
    info = found.ask.model
    return {
        "model": {"name": info.name, "revision": info.revision},
        "model_revision": info.revision,
        "source": info.source_language,
        "target": info.target_language,
        "precision": found.facts.precision,
        "text": found.ask.text,
        "translation": found.translation,
        "num_segments": len(found.pairs),
    }


def segment(found: Found, pair: Pair) -> dict[str, Any]:
    """A segment with its tokens and words."""
    answer: dict[str, Any] = {
        "index": pair.index,
        "segment_index": pair.segment_index,
        "start": pair.start,
        "end": pair.end,
        "source": pair.source_text,
        "target": pair.target_text,
        "target_start": pair.target_start,
        "target_end": pair.target_end,
        "translated": pair.source is not None,
        "windowed": pair.windowed,
        "forced": found.is_forced,
    }
    if pair.hypothesis is not None:
        answer |= {
            "hypothesis": pair.rank,
            "finish_reason": pair.hypothesis.finish_reason,
            "score": pair.hypothesis.score,
            "log_prob": pair.hypothesis.log_prob,
        }
    return answer | tokens_and_words(pair) if pair.source is not None else answer


def tokens_and_words(pair: Pair) -> dict[str, Any]:
    """What the axes of a segment's maps stand for."""
    source, target, inputs = pair.sides
    return {
        "source_tokens": [dataclasses.asdict(token) for token in source.tokens],
        "target_tokens": [dataclasses.asdict(token) for token in target.tokens],
        "rows": rows(inputs, target),
        "source_words": [_word(word) for word in source.placed_words],
        "target_words": [_word(word) for word in target.placed_words],
        "input_words": [_word(word) for word in inputs.placed_words],
    }


def rows(inputs: Side, target: Side) -> list[dict[str, Any]]:
    """Each decoder row has two names: the token it has read, and the one it predicts."""
    return [
        {
            "step": step,
            "input_token": inputs.text.pieces[step],
            "input_id": token_id,
            "predicted_token": target.text.pieces[step] if step < len(target.ids) else None,
            "predicted_id": target.ids[step] if step < len(target.ids) else None,
        }
        for step, token_id in enumerate(inputs.ids)
    ]


def _word(word: PlacedWord) -> dict[str, Any]:
    return dataclasses.asdict(word)


def checks(results: Sequence[CheckResult]) -> list[dict[str, Any]]:
    """Statements about the numbers beside them."""
    return [dataclasses.asdict(result) for result in results]


# --- attention --------------------------------------------------------------------------------------------------------


def attention(found: Found, body: MapsRequest, done: CapturedMaps, format_: Format) -> bytes:
    """The maps in a format; pictures have their own function."""
    answer = common(found) | maps(found, body, done, with_values=format_ == "json")
    if format_ == "csv":
        layers = {kind: _layer_names(body, chosen) for kind, chosen in done.layers.items()}
        shown = [(part.pair, part.maps) for part in done.pairs.values()]
        return csv_bytes(shown, layers, _head_names(body, done.heads), body.decimals)
    if format_ == "json":
        return orjson.dumps(answer)
    tensors = {f"segments.{index}.{item.kind}": item.values for index, part in done.pairs.items() for item in part.maps}
    return safetensors_bytes(tensors, orjson.dumps(answer))


def maps(found: Found, body: MapFields, done: CapturedMaps, *, with_values: bool) -> dict[str, Any]:
    """The maps of every segment, and what they are."""
    return {
        "axes": AXES,
        "measure": body.measure,
        "aggregate": body.aggregate,
        "aggregate_over": body.aggregate_over,
        "granularity": body.granularity,
        "special": body.special,
        "decimals": body.decimals,
        "dtype": body.dtype,
        "selected": {"layers": done.layers, "heads": done.heads},
        "segments": [
            segment(found, pair) | captured(done.pairs.get(pair.index), body.decimals, with_values)
            for pair in found.pairs
        ],
        "num_bytes": done.num_bytes,
    }


def captured(part: CapturedPair | None, decimals: int | None, with_values: bool) -> dict[str, Any]:
    """The maps of one segment; nothing where there are none."""
    if part is None:
        return {}
    return {
        "maps": [_map(item, decimals, with_values) for item in part.maps],
        "checks": checks(part.checks),
    }


def _map(item: ShownMap, decimals: int | None, with_values: bool) -> dict[str, Any]:
    answer = {
        "kind": item.kind,
        "shape": list(item.values.shape),
        "query_axis": item.query.name,
        "key_axis": item.key.name,
        "queries": item.query.shown,
        "keys": item.key.shown,
    }
    return answer | {"values": json_values(item.values, decimals)} if with_values else answer


def _layer_names(body: MapsRequest, layers: Sequence[int]) -> list[object]:
    is_joined = body.aggregate in ("mean", "max") and body.aggregate_over in ("layers", "both")
    return [body.aggregate] if is_joined else list(layers)


def _head_names(body: MapsRequest, heads: Sequence[int]) -> list[object]:
    is_joined = body.aggregate == "rollout" or (
        body.aggregate in ("mean", "max") and body.aggregate_over in ("heads", "both")
    )
    return [body.aggregate] if is_joined else list(heads)


def picture(found: Found, body: MapsRequest, done: CapturedMaps, look: Look, format_: Format) -> bytes:
    """The maps of one kind of one segment as a picture."""
    (part,) = done.pairs.values()
    (item,) = part.maps
    layers = [f"layer {name}" for name in _layer_names(body, done.layers[item.kind])]
    heads = [f"head {name}" for name in _head_names(body, done.heads)]
    names = {"encoder": "Encoder self-attention", "decoder": "Decoder self-attention", "cross": "Cross-attention"}
    title = f"{names[item.kind]}, {body.measure}"
    if len(layers) == len(heads) == 1:
        title += f", {layers[0]}, {heads[0]}"
    drawn = Picture(
        maps=item.values,
        title=f"{title} ({found.ask.model.name} {found.ask.model.revision})",
        layers=tuple(layers),
        heads=tuple(heads),
        rows=tuple(_labels(part.pair, item.query)),
        columns=tuple(_labels(part.pair, item.key)),
    )
    return png(drawn, look) if format_ == "png" else svg(drawn, look)


def _labels(pair: Pair, axis: Axis) -> list[str]:
    source, target, inputs = pair.sides
    side = {"source": source, "target": target, "input": inputs}[axis.side]
    if axis.words is None:
        return [side.text.pieces[index] for index in axis.shown]
    return [
        side.placed_words[index].text or side.text.pieces[side.placed_words[index].tokens[0]] for index in axis.shown
    ]


def estimate(found: Estimate, revision: str) -> dict[str, Any]:
    """What maps would weigh."""
    num_bytes = {name: found.sizes.num_bytes[name] for name in ("f32", "f16", "u8", "json", "csv")}
    return {
        "model_revision": revision,
        "exact": found.exact,
        "segments": [
            {"index": index, "num_source": num_source, "num_rows": num_rows}
            for index, num_source, num_rows in found.lengths
        ],
        "cells": found.sizes.cells,
        "total_cells": found.sizes.total_cells,
        "num_bytes": num_bytes,
        "limit_bytes": found.limit_bytes,
        "num_tokens": found.num_tokens,
        "limit_tokens": found.limit_tokens,
        "fits": {
            name: size <= found.limit_bytes and found.num_tokens <= found.limit_tokens
            for name, size in num_bytes.items()
        },
    }


# --- alignment --------------------------------------------------------------------------------------------------------


def alignment(found: Found, done: Mapping[int, SegmentAlignment], recipe: Mapping[str, Any]) -> bytes:
    """The links of every segment that was aligned."""
    return orjson.dumps(common(found) | aligned(found, done, recipe))


def aligned(found: Found, done: Mapping[int, SegmentAlignment], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The links of every segment, and how they were found."""
    return {
        "recipe": recipe,
        "segments": [
            segment(found, pair) | (links(pair, done[pair.index]) if pair.index in done else {}) for pair in found.pairs
        ],
    }


def links(pair: Pair, done: SegmentAlignment) -> dict[str, Any]:
    """The links of one segment, by the words of its answer."""
    source, target, _ = pair.sides
    source_words = [index for index, word in enumerate(source.placed_words) if not word.is_special]
    target_words = [index for index, word in enumerate(target.placed_words) if not word.is_special]
    return {
        "links": [
            {
                "source_word": source_words[link.source],
                "target_word": target_words[link.target],
                "score": link.score,
                "source": _place(source.placed_words[source_words[link.source]]),
                "target": _place(target.placed_words[target_words[link.target]]),
            }
            for link in done.links
        ],
        "unaligned_source": [source_words[index] for index in done.unaligned_source],
        "unaligned_target": [target_words[index] for index in done.unaligned_target],
        "pharaoh": " ".join(f"{link.source}-{link.target}" for link in done.links),
        "checks": [],
    }


def _place(word: PlacedWord) -> list[int]:
    return [word.start, word.end]


# --- stations ---------------------------------------------------------------------------------------------------------


def trace(
    found: Found,
    body: TraceRequest,
    results: Sequence[StationResult],
    tokenizer: TextTokenizer,
    selected: Mapping[str, Any],
) -> bytes:
    """Stations as JSON."""
    answer = _trace_head(found, body, selected)
    is_joint = found.facts.config.share_embeddings
    answer["stations"] = [_station(result, body, tokenizer, is_joint) for result in results]
    return orjson.dumps(answer)


def trace_tensors(
    found: Found, body: TraceRequest, results: Sequence[StationResult], selected: Mapping[str, Any]
) -> bytes:
    """Every array of every station as safetensors, with the lines of numpy beside them."""
    answer = _trace_head(found, body, selected)
    answer["stations"] = [
        {
            "number": result.number,
            "name": result.name,
            "checks": checks(result.checks),
            "numpy": _recipe(result),
        }
        for result in results
    ]
    tensors = {
        f"{result.name}.{name}": array
        for result in results
        for name, array in result.arrays.items()
        if array.dtype.kind in "fiub"
    }
    return safetensors_bytes(tensors, orjson.dumps(answer))


def trace_file(results: Sequence[StationResult]) -> bytes:
    """One station as a file for numpy."""
    (result,) = results
    return npz_bytes(result.arrays)


def _trace_head(found: Found, body: TraceRequest, selected: Mapping[str, Any]) -> dict[str, Any]:
    pair = found.pair(body.segment)
    answer = common(found) | {"axes": AXES, "selected": selected}
    shown = segment(found, pair)
    if body.open_end:
        shown["rows"].append(_open_row(pair.sides[1]))
    return answer | {"segments": [shown]}


def _open_row(target: Side) -> dict[str, Any]:
    """The row that has read the last token; what it predicts is open."""
    return {
        "step": len(target.ids),
        "input_token": target.text.pieces[-1],
        "input_id": target.ids[-1],
        "predicted_token": None,
        "predicted_id": None,
    }


def _station(result: StationResult, body: TraceRequest, tokenizer: TextTokenizer, is_joint: bool) -> dict[str, Any]:
    values, omitted = plain_values(result.station, body.arrays, body.decimals)
    _name_pieces(result, values, tokenizer, is_joint)
    return {
        "number": result.number,
        "name": result.name,
        "passed": all(check.passed for check in result.checks),
        "values": values,
        "what_if": [name for name in values if name.startswith(_WHAT_IF)],
        "omitted": omitted,
        "checks": checks(result.checks),
        "numpy": _recipe(result),
    }


_WHAT_IF = ("what_if_", "peek_", "swapped_", "shuffled_")


def _recipe(result: StationResult) -> dict[str, Any]:
    return {
        "file": f"{result.name}.npz",
        "code": result.code,
        "result": result.result,
        "tolerance": result.tolerance,
    }


def _name_pieces(result: StationResult, values: dict[str, Any], tokenizer: TextTokenizer, is_joint: bool) -> None:
    """Pieces beside the ids that are found out here; those of the pair stand in its tokens.

    A tokenizer names the ids of the target's vocabulary, so those of another source vocabulary stay without a name.
    """
    station = result.station
    if result.name == "tokens" and (is_joint or station.side == "decoder"):
        values["nearest_pieces"] = [tokenizer.piece(token_id) for token_id in station.nearest_ids.tolist()]
    if result.name == "decoding":
        for candidate in values["next"]["candidates"]:
            candidate["piece"] = tokenizer.piece(candidate["token_id"])
        values["next"]["greedy_piece"] = tokenizer.piece(station.next.greedy_id)
        values["chosen_piece"] = None if station.chosen_id < 0 else tokenizer.piece(station.chosen_id)
    if result.name == "loss":
        values["score"]["pieces"] = [tokenizer.piece(token_id) for token_id in station.score.target_ids]


# --- scores and candidates --------------------------------------------------------------------------------------------


def score(found: Found, result: ScoreResult, label_smoothing: float) -> dict[str, Any]:
    """How probable a target is, token by token."""
    (pair,) = found.pairs
    tokens = [dataclasses.asdict(token) for token in pair.sides[1].tokens]
    columns = {
        "probability": result.probabilities.tolist(),
        "nats": result.nats.tolist(),
        "bits": result.bits.tolist(),
        "rank": result.ranks.tolist(),
        "smoothed_nats": result.smoothed_nats.tolist(),
    }
    for index, token in enumerate(tokens):
        token |= {name: values[index] for name, values in columns.items()}
    return common(found) | {
        "segments": [segment(found, pair)],
        "tokens": tokens,
        "num_tokens": len(tokens),
        "total_nats": result.total_nats,
        "total_bits": result.total_bits,
        "mean_nats": result.total_nats / len(tokens),
        "perplexity": result.perplexity,
        "label_smoothing": label_smoothing,
        "total_smoothed_nats": result.total_smoothed_nats,
    }


def candidates(found: Found, result: NextResult, texts: Sequence[str], tokenizer: TextTokenizer) -> dict[str, Any]:
    """What could come next."""
    (pair,) = found.pairs
    target = pair.sides[1]
    prefix_ids = target.ids
    shown = segment(found, pair)
    if prefix_ids:
        shown["rows"].append(_open_row(target))
    return common(found) | {
        "segments": [shown],
        "prefix_ids": prefix_ids,
        "candidates": [
            {
                "id": candidate["token_id"],
                "piece": tokenizer.piece(candidate["token_id"]),
                "text": text,
                **{name: value for name, value in candidate.items() if name != "token_id"},
                "is_end": candidate["token_id"] == found.ask.model.eos_id,
            }
            for candidate, text in zip(result.candidates, texts, strict=True)
        ],
        "greedy_id": result.greedy_id,
        "probability_sum": result.probability_sum,
        "entropy_nats": result.entropy_nats,
    }
