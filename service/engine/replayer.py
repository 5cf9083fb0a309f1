"""Replays on the models that serve: the `Replayer` over loaded checkpoints. Knows torch, as the runner does.

It shares the runner's modules and only reads them: whatever number format serves is the one that is shown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch

from model.alignment import (
    TRAINING_KEY,
    Alignment,
    AlignmentRecipe,
    align_replay,
    recipe_matrix,
    replays_for,
    stored_recipe,
)
from model.checkpoint import Checkpoint
from model.config import TransformerConfig
from model.generation import forbidden_outputs
from model.linear import Linear
from model.maps import CrossRollout, cross_rollout, rollout
from model.scoring import next_candidates, score, score_logits
from model.search import Constraints
from model.selection import KINDS, Kind, Selection
from model.stations.recipes import file_arrays, recipe_of
from model.stations.registry import Options, take
from model.trace import Measure, Replay, Tracer, replay
from model.transformer import Transformer
from model.words import TokenText, decode_with_spans
from service.aside import breathe
from service.engine.inspection import (
    AlignmentPair,
    Capture,
    CaptureRequest,
    CheckResult,
    Floats,
    ModelFacts,
    NextResult,
    ScoreResult,
    SegmentAlignment,
    StationRequest,
    StationResult,
    WordLink,
)

_MAX_BATCH_TOKENS = 1_024
"""Padded tokens on the longer side of pairs that are aligned in one pass."""


class ModelReplayer:
    """Replays on checkpoints.

    Args:
        checkpoints: Loaded, in the number format that serves.
    """

    def __init__(self, checkpoints: Sequence[Checkpoint]) -> None:
        self._checkpoints = {checkpoint.name: checkpoint for checkpoint in checkpoints}
        self._recipes = {
            checkpoint.name: stored_recipe(checkpoint.training, checkpoint.config) for checkpoint in checkpoints
        }

    def facts(self) -> dict[str, ModelFacts]:
        """Of every model, by name."""
        return {name: self._facts(checkpoint) for name, checkpoint in self._checkpoints.items()}

    def enter_thread(self) -> None:
        """One core for a replay: the others are the engine's. Counts for this thread alone."""
        torch.set_num_threads(1)

    def capture(self, model: str, request: CaptureRequest) -> Capture:
        """Replays a pair and keeps maps; one pass, whatever is asked for."""
        checkpoint, recipe = self._checkpoints[model], self._recipes[model]
        wanted = request.selection
        compares = request.log_probs is not None and bool({"decoder", "cross"} & set(wanted.layers))
        by_norms = request.texts is not None and recipe.measure != request.measure
        found = replay(
            checkpoint.model,
            request.source_ids,
            request.target_ids,
            selection=_widened(checkpoint.config, request, None if request.texts is None or by_norms else recipe),
            measure=cast(Measure, request.measure),
            logits=compares,
            memory=False,
            open_end=request.texts is not None,
            norm_layers=recipe.layers if by_norms else (),
            pause=breathe,
        )
        breathe()
        alignment = None
        if request.texts is not None:
            looked_at = _with_norms(found, recipe, checkpoint.config) if by_norms else found
            source, target = request.texts
            alignment = _segment_alignment(align_replay(looked_at, source, target, recipe), looked_at, source, target)
            found = _without_open_end(found)
        checks = _map_checks(found, request)
        if compares:
            checks.append(_same_log_probs(checkpoint, found, request))
        maps = _rolled_out(found, wanted) if request.rollout else _chosen(found, wanted)
        breathe()
        return Capture(maps, tuple(checks), alignment)

    def stations(self, model: str, request: StationRequest) -> list[StationResult]:
        """Replays a pair and opens stations."""
        checkpoint = self._checkpoints[model]
        tracer = Tracer(
            checkpoint.model, request.source_ids, request.target_ids, open_end=request.open_end, pause=breathe
        )
        constraints = None
        if request.search is not None:
            constraints = Constraints(
                eos_id=checkpoint.config.eos_id,
                forbidden_ids=forbidden_outputs(checkpoint.config, checkpoint.tokenizer),
                min_target_tokens=request.search.min_target_tokens,
                no_repeat_ngram_size=request.search.no_repeat_ngram_size,
                repetition_penalty=request.search.repetition_penalty,
            )
        breathe()
        results = []
        for name, options in request.stations:
            station = take(name, tracer, Options(constraints=constraints, **options))
            recipe = recipe_of(station, tracer)
            results.append(
                StationResult(
                    number=station.number,
                    name=name,
                    station=station,
                    arrays=file_arrays(station),
                    checks=tuple(CheckResult(**dataclasses.asdict(check)) for check in station.checks),
                    code=recipe.code,
                    result=recipe.result,
                    tolerance=recipe.tolerance,
                )
            )
            breathe()
        return results

    def align(
        self, model: str, pairs: Sequence[AlignmentPair], recipe: Mapping[str, Any] | None = None
    ) -> list[SegmentAlignment]:
        """Aligns pairs by the model's recipe, or by another one."""
        checkpoint = self._checkpoints[model]
        followed = self._recipes[model] if recipe is None else AlignmentRecipe.from_dict(recipe)
        results: dict[int, SegmentAlignment] = {}
        for batch in _batches(pairs):
            replays = replays_for(
                checkpoint.model,
                [(pairs[index].source_ids, pairs[index].target_ids) for index in batch],
                followed,
                breathe,
            )
            for index, found in zip(batch, replays, strict=True):
                source = pairs[index].source
                target = pairs[index].target or decode_with_spans(checkpoint.tokenizer, found.target_ids)
                alignment = align_replay(found, source, target, followed)
                results[index] = _segment_alignment(alignment, found, source, target)
            breathe()
        return [results[index] for index in range(len(pairs))]

    def score(
        self, model: str, source_ids: Sequence[int], target_ids: Sequence[int], label_smoothing: float
    ) -> ScoreResult:
        """Says how probable a target is."""
        found = score(self._checkpoints[model].model, source_ids, target_ids, label_smoothing=label_smoothing)
        return ScoreResult(
            **{field.name: getattr(found, field.name) for field in dataclasses.fields(ScoreResult)},
        )

    def next(
        self, model: str, source_ids: Sequence[int], prefix_ids: Sequence[int], options: Mapping[str, Any]
    ) -> NextResult:
        """Says what could come after a prefix; what no search writes counts as forbidden."""
        checkpoint = self._checkpoints[model]
        constraints = Constraints(
            eos_id=checkpoint.config.eos_id, forbidden_ids=forbidden_outputs(checkpoint.config, checkpoint.tokenizer)
        )
        found = next_candidates(checkpoint.model, source_ids, prefix_ids, constraints=constraints, **options)
        return NextResult(
            candidates=tuple(dataclasses.asdict(candidate) for candidate in found.candidates),
            greedy_id=found.greedy_id,
            probability_sum=found.probability_sum,
            entropy_nats=found.entropy_nats,
        )

    def _facts(self, checkpoint: Checkpoint) -> ModelFacts:
        tokenizer = checkpoint.tokenizer
        recipe = self._recipes[checkpoint.name]
        return ModelFacts(
            config=checkpoint.config,
            num_parameters=_num_parameters(checkpoint.model),
            unk_id=tokenizer.unk_id,
            bos_id=tokenizer.bos_id,
            forbidden_ids=forbidden_outputs(checkpoint.config, tokenizer),
            precision=checkpoint.model.precision,
            recipe=recipe.to_dict(),
            has_own_recipe=TRAINING_KEY in checkpoint.training,
        )


def _segment_alignment(alignment: Alignment, found: Replay, source: TokenText, target: TokenText) -> SegmentAlignment:
    return SegmentAlignment(
        source=source,
        target=target,
        source_words=alignment.source_words,
        target_words=alignment.target_words,
        links=tuple(WordLink(link.source, link.target, link.score) for link in alignment.links),
        unaligned_source=alignment.unaligned_source,
        unaligned_target=alignment.unaligned_target,
        token_links=_token_links(found, alignment.recipe, source, target),
        recipe=alignment.recipe.to_dict(),
    )


def _token_links(found: Replay, recipe: AlignmentRecipe, source: TokenText, target: TokenText) -> tuple[WordLink, ...]:
    """The best source piece of each target piece, special ones left out."""
    columns = [index for index, special in enumerate(source.is_special) if not special]
    if not columns:
        return ()
    matrix = recipe_matrix(found, recipe)[:, columns]
    matrix = matrix / np.maximum(matrix.sum(axis=-1, keepdims=True), 1e-30)
    best = matrix.argmax(axis=-1)
    return tuple(
        WordLink(columns[best[row]], row, float(matrix[row, best[row]]))
        for row, special in enumerate(target.is_special)
        if not special
    )


def _batches(pairs: Sequence[AlignmentPair]) -> list[list[int]]:
    """Indices of pairs that are read together: of like length, and not too many at once."""
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(pairs)), key=lambda index: len(pairs[index].source_ids), reverse=True):
        size = max(len(pairs[index].source_ids), len(pairs[index].target_ids))
        if not batches or (len(batches[-1]) + 1) * max(longest, size) > _MAX_BATCH_TOKENS:
            batches.append([])
            longest = 0
        batches[-1].append(index)
        longest = max(longest, size)
    return batches


def _widened(config: TransformerConfig, request: CaptureRequest, recipe: AlignmentRecipe | None) -> Selection:
    """What one pass must keep: for a rollout every head of every layer, for an alignment those of its recipe."""
    wanted = request.selection
    if request.rollout:
        return Selection.of(config, KINDS if "cross" in wanted.layers else tuple(wanted.layers))
    if recipe is None:
        return wanted
    layers = dict(wanted.layers)
    layers["cross"] = tuple(sorted({*layers.get("cross", ()), *recipe.layers}))
    return Selection(layers, tuple(range(config.num_heads)))


def _chosen(found: Replay, wanted: Selection) -> dict[Kind, Floats]:
    """The wanted maps among those that were kept."""
    kept = found.selection
    heads = [kept.heads.index(head) for head in wanted.heads]
    return {
        kind: found.maps(kind)[[kept.layers[kind].index(layer) for layer in layers]][:, heads]
        for kind, layers in wanted.layers.items()
    }


def _with_norms(found: Replay, recipe: AlignmentRecipe, config: TransformerConfig) -> Replay:
    """The replay as if it had measured what the recipe looks at."""
    selection = Selection({"cross": recipe.layers}, tuple(range(config.num_heads)))
    return dataclasses.replace(found, measure="value_norm", cross=found.cross_norms, selection=selection)


def _without_open_end(found: Replay) -> Replay:
    """The replay without the row that has read the last token."""
    num_rows = len(found.target_ids)
    return dataclasses.replace(
        found,
        input_ids=found.input_ids[:num_rows],
        decoder=None if found.decoder is None else found.decoder[:, :, :num_rows, :num_rows],
        cross=None if found.cross is None else found.cross[:, :, :num_rows],
        logits=None if found.logits is None else found.logits[:num_rows],
    )


def _rolled_out(found: Replay, wanted: Selection) -> dict[Kind, Floats]:
    maps: dict[Kind, Floats] = {}
    for kind, layers in wanted.layers.items():
        if kind == "cross":
            through: CrossRollout = cross_rollout(found.maps("encoder"), found.maps("decoder"), found.maps("cross"))
            rolled = through.source_only
        else:
            rolled = rollout(found.maps(kind))
        maps[kind] = rolled[list(layers)]
    return maps


def _map_checks(found: Replay, request: CaptureRequest) -> list[CheckResult]:
    """What must hold for maps as they come out of the model."""
    checks: list[CheckResult] = []
    if request.measure == "weights":
        sums = [found.maps(kind).sum(axis=-1, dtype=np.float64) for kind in found.selection.layers]
        deviation = max(float(np.abs(rows - 1).max()) for rows in sums)
        checks.append(_check("rows_sum_to_one", "Each row of weights sums to 1", deviation, 1e-6))
    if "decoder" in found.selection.layers:
        maps = found.maps("decoder")
        future = maps[..., np.triu(np.ones(maps.shape[-2:], dtype=bool), 1)]
        if request.measure == "scores":
            seen = float(np.isfinite(future).sum())
            checks.append(_check("future_is_blocked", "Scores above the diagonal are minus infinity", seen, 0))
        else:
            seen = float(np.abs(future).max(initial=0))
            checks.append(_check("future_is_zero", "Above the diagonal every weight is exactly 0", seen, 0))
    return checks


def _same_log_probs(checkpoint: Checkpoint, found: Replay, request: CaptureRequest) -> CheckResult:
    """The replay is worth nothing if it is not what was decoded."""
    assert found.logits is not None and request.log_probs is not None
    told = np.array(request.log_probs)
    again = -score_logits(torch.from_numpy(found.logits), request.target_ids).nats
    # In int8 the last bit of a sum, which depends on the batch, may round an activation to the next of its steps.
    tolerance = 0.25 if checkpoint.model.is_quantized else 1e-3 * max(1.0, float(np.abs(told).max()))
    says = "The replay gives each token the log-probability that decoding gave it"
    return _check("same_log_probs", says, float(np.abs(again - told).max()), tolerance)


def _num_parameters(model: Transformer) -> int:
    """Trained numbers, also where matrices are held in int8 and no longer count as parameters."""
    packed = [
        module.effective_weight().numel()
        for module in model.modules()
        if isinstance(module, Linear)
        and module.is_quantized
        and not (model.config.tie_output and module is model.output)
    ]
    return model.num_parameters() + sum(packed)


def _check(name: str, says: str, value: float, tolerance: float) -> CheckResult:
    return CheckResult(name, says, value, tolerance, value <= tolerance)
