"""Which source words a target word comes from: cross-attention maps -> word alignment.

Attention was not trained to align; a recipe says which heads of which layers are trusted, on which row, and how a link
is decided. A recipe is tuned per model on sentences aligned by hand (``model/training/tune_alignment.py``), is stored
with the checkpoint, and is part of every answer.

Letters: L layers, H heads, T decoder rows, S source pieces; W target words, U source words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from model.config import TransformerConfig
from model.maps import merge_words
from model.selection import Selection, SelectionError, TraceError
from model.tokenizer import TextTokenizer
from model.trace import Measure, Replay, no_pause, replay_batch
from model.transformer import Transformer
from model.words import TokenText, Word, decode_with_spans

Method = Literal["argmax", "threshold", "intersection"]
Row = Literal["predicted", "input"]
METHODS: tuple[Method, ...] = get_args(Method)

TRAINING_KEY = "alignment_recipe"
"""Where a checkpoint's ``training`` facts hold its recipe."""


class RecipeError(ValueError):
    """An alignment recipe that cannot be followed; the message names the field."""


@dataclass(frozen=True)
class AlignmentRecipe:
    """How maps become links.

    Attributes:
        heads: (layer, head) of cross-attention, zero-based; their mean is used.
        row: ``predicted``: a target token's row is the one that predicted it. ``input``: the one that has read it, one
            later (Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine Translation", section 4).
            Which is right differs from model to model, and the other one is far off: tune it.
        method: ``argmax``: each target word's best source word. ``threshold``: every pair of at least ``threshold``.
            ``intersection``: pairs that are the best for both of their words.
        threshold: Least score of a link, with every method; from 0 to 1.
        special: ``keep``: a target word whose best source token is the end of the sentence stays unaligned, for many
            heads rest there. ``renormalise``: that column is left out and rows sum to 1 again.
        measure: ``weights``, or ``value_norm`` (Kobayashi et al. 2020), each row divided by its sum.
    """

    heads: tuple[tuple[int, int], ...]
    row: Row = "predicted"
    method: Method = "argmax"
    threshold: float = 0.0
    special: Literal["keep", "renormalise"] = "renormalise"
    measure: Measure = "weights"

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            RecipeError: Naming the field.
        """
        choices = {"row": ("predicted", "input"), "method": METHODS, "special": ("keep", "renormalise")}
        choices["measure"] = ("weights", "value_norm")
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise RecipeError(f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(allowed)}")
        if not self.heads:
            raise RecipeError("heads is empty; it must name at least one (layer, head)")
        if not 0.0 <= self.threshold <= 1.0:
            raise RecipeError(f"threshold is {self.threshold}; it must be from 0 to 1")

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that its heads are in, each once."""
        return tuple(sorted({layer for layer, _ in self.heads}))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self) | {"heads": [list(pair) for pair in self.heads]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AlignmentRecipe:
        """Read what ``to_dict`` wrote.

        Raises:
            RecipeError: For an unknown, missing or impossible field.
        """
        unknown = sorted(set(values) - {field.name for field in dataclasses.fields(cls)})
        if unknown or "heads" not in values:
            raise RecipeError(f"unknown field(s) {', '.join(unknown)}" if unknown else "heads is missing")
        try:
            heads = tuple((int(layer), int(head)) for layer, head in values["heads"])
            return cls(**{**values, "heads": heads})
        except (TypeError, ValueError) as error:
            raise RecipeError(f"not an alignment recipe: {error}") from error

    def fitting(self, config: TransformerConfig) -> AlignmentRecipe:
        """Itself, if the model has these heads.

        Raises:
            RecipeError: When it does not.
        """
        for layer, head in self.heads:
            if not (0 <= layer < config.num_decoder_layers and 0 <= head < config.num_heads):
                raise RecipeError(
                    f"heads names ({layer}, {head}); the model has decoder layers 0 to "
                    f"{config.num_decoder_layers - 1} and heads 0 to {config.num_heads - 1}"
                )
        return self


def default_recipe(config: TransformerConfig) -> AlignmentRecipe:
    """For a model that was not tuned: the mean of all heads, pairs that are the best for both of their words."""
    heads = tuple((layer, head) for layer in range(config.num_decoder_layers) for head in range(config.num_heads))
    return AlignmentRecipe(heads=heads, method="intersection")


def stored_recipe(training: Mapping[str, Any], config: TransformerConfig) -> AlignmentRecipe:
    """The recipe in a checkpoint's ``training`` facts, else the default one.

    Raises:
        RecipeError: When what is stored cannot be followed.
    """
    if TRAINING_KEY not in training:
        return default_recipe(config)
    return AlignmentRecipe.from_dict(training[TRAINING_KEY]).fitting(config)


@dataclass(frozen=True)
class Link:
    """Two words that belong together.

    Attributes:
        source: Index into the source words.
        target: Index into the target words.
        score: The share of the target word's attention that went to the source word, 0 to 1.
    """

    source: int
    target: int
    score: float


@dataclass(frozen=True)
class Alignment:
    """One aligned pair. Special tokens (end of sentence) are no words here.

    Attributes:
        source_words: With their pieces and spans.
        target_words: Likewise.
        links: By target word, then source word.
        unaligned_source: Indices of source words without a link.
        unaligned_target: Likewise of target words.
        matrix: What the links were decided on, (W, U) float32.
        recipe: How.
    """

    source_words: tuple[Word, ...]
    target_words: tuple[Word, ...]
    links: tuple[Link, ...]
    unaligned_source: tuple[int, ...]
    unaligned_target: tuple[int, ...]
    matrix: NDArray[np.float32]
    recipe: AlignmentRecipe


def align(
    model: Transformer,
    source_ids: Sequence[int],
    source: TokenText,
    target_ids: Sequence[int],
    target: TokenText,
    recipe: AlignmentRecipe,
) -> Alignment:
    """Align a pair with one replay.

    Args:
        model: In evaluation mode.
        source_ids: Ended by ``eos_id``.
        source: Their text: ``model.words.source_text(encoding)``.
        target_ids: Without the start token, with or without ``eos_id`` at the end.
        target: Their text: ``decode_with_spans(tokenizer, target_ids)``, or ``source_text`` of an encoded reference.
        recipe: How to align.

    Raises:
        RecipeError: When the model lacks the recipe's heads.
        TraceError: As for ``model.trace.replay``.
    """
    return align_replay(replay_for(model, source_ids, target_ids, recipe), source, target, recipe)


def align_text(
    model: Transformer,
    tokenizer: TextTokenizer,
    source_ids: Sequence[int],
    source: TokenText,
    target_ids: Sequence[int],
    recipe: AlignmentRecipe,
) -> Alignment:
    """As :func:`align`, for a target that the model wrote."""
    return align(model, source_ids, source, target_ids, decode_with_spans(tokenizer, target_ids), recipe)


def replay_for(
    model: Transformer, source_ids: Sequence[int], target_ids: Sequence[int], recipe: AlignmentRecipe
) -> Replay:
    """A replay that holds what a recipe needs, and the row that has read the last token."""
    return replays_for(model, [(source_ids, target_ids)], recipe)[0]


def replays_for(
    model: Transformer,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    recipe: AlignmentRecipe,
    pause: Callable[[], None] = no_pause,
) -> list[Replay]:
    """As :func:`replay_for`, for several pairs in one pass; ``pause`` as in :func:`model.trace.replay`."""
    recipe.fitting(model.config)
    selection = Selection({"cross": recipe.layers}, tuple(range(model.config.num_heads)))
    return replay_batch(
        model,
        pairs,
        selection=selection,
        measure=recipe.measure,
        logits=False,
        memory=False,
        open_end=True,
        pause=pause,
    )


def align_replay(found: Replay, source: TokenText, target: TokenText, recipe: AlignmentRecipe) -> Alignment:
    """Align from a replay's cross-attention maps.

    Args:
        found: Made with ``open_end`` and the recipe's measure; its selection holds the recipe's heads.
        source: The text of the source ids.
        target: The text of the target ids.
        recipe: How to align.
    """
    if found.measure != recipe.measure:
        raise TraceError(f"the maps hold {found.measure}; the recipe asks for {recipe.measure}")
    if len(found.input_ids) != len(found.target_ids) + 1:
        raise TraceError("the replay was made without open_end, so that no row has read the last target token")
    for side, ids, text in (("source", found.source_ids, source), ("target", found.target_ids, target)):
        if len(ids) != len(text.pieces):
            raise TraceError(f"{len(ids)} {side} ids, but a text of {len(text.pieces)} pieces")
    matrix = recipe_matrix(found, recipe)
    all_source, all_target = source.words(), target.words()
    merged = merge_words(matrix[None, None], all_target, all_source)[0, 0] if all_target else matrix[:0]
    return link_words(merged, all_source, all_target, recipe)


def recipe_matrix(found: Replay, recipe: AlignmentRecipe) -> NDArray[np.float32]:
    """What the recipe looks at, piece by piece: a row for each target token, (T, S); rows sum to 1.

    Args:
        found: As for :func:`align_replay`.
        recipe: Which heads, and on which row.
    """
    matrix = _mean_of_heads(found, recipe)
    return matrix[1:] if recipe.row == "input" else matrix[:-1]


def _mean_of_heads(found: Replay, recipe: AlignmentRecipe) -> NDArray[np.float32]:
    """(T, S) of the recipe's heads, rows summing to 1."""
    layers, heads = found.selection.layers.get("cross", ()), found.selection.heads
    maps = found.maps("cross")
    try:
        chosen = np.stack([maps[layers.index(layer), heads.index(head)] for layer, head in recipe.heads])
    except ValueError:
        raise SelectionError(f"the replay holds layers {layers}, heads {heads}; not all of the recipe's") from None
    chosen = chosen / np.maximum(chosen.sum(axis=-1, keepdims=True), 1e-30)
    mean: NDArray[np.float32] = chosen.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def link_words(
    merged: NDArray[np.float32], all_source: Sequence[Word], all_target: Sequence[Word], recipe: AlignmentRecipe
) -> Alignment:
    """Decide on a matrix (target words, source words), special words included; rows sum to 1."""
    rows = [index for index, word in enumerate(all_target) if not word.is_special]
    columns = [index for index, word in enumerate(all_source) if not word.is_special]
    others = [index for index, word in enumerate(all_source) if word.is_special]
    matrix = merged[np.ix_(rows, columns)] if rows and columns else np.zeros((len(rows), len(columns)), np.float32)
    if recipe.special == "renormalise":
        matrix = matrix / np.maximum(matrix.sum(axis=-1, keepdims=True), 1e-30)
    elif others and matrix.size:
        resting = merged[np.ix_(rows, others)].max(axis=1, keepdims=True)
        matrix = np.where(matrix > resting, matrix, 0).astype(np.float32)
    is_link = decide(matrix, recipe.method, recipe.threshold)
    return Alignment(
        source_words=tuple(all_source[index] for index in columns),
        target_words=tuple(all_target[index] for index in rows),
        links=tuple(Link(int(u), int(w), float(matrix[w, u])) for w, u in np.argwhere(is_link)),
        unaligned_source=tuple(np.flatnonzero(~is_link.any(axis=0)).tolist()),
        unaligned_target=tuple(np.flatnonzero(~is_link.any(axis=1)).tolist()),
        matrix=matrix,
        recipe=recipe,
    )


def decide(matrix: NDArray[np.float32], method: Method, threshold: float = 0.0) -> NDArray[np.bool_]:
    """Which cells of a (W, U) matrix are links; a cell of 0 never is."""
    permitted = (matrix >= threshold) & (matrix > 0)
    if not matrix.size or method == "threshold":
        return permitted
    best_source = np.zeros_like(permitted)
    best_source[np.arange(len(matrix)), matrix.argmax(axis=1)] = True
    if method == "argmax":
        return permitted & best_source
    best_target = np.zeros_like(permitted)
    best_target[matrix.argmax(axis=0), np.arange(matrix.shape[1])] = True
    return permitted & best_source & best_target


# --- judging ----------------------------------------------------------------------------------------------------------

Pairs = set[tuple[int, int]]


@dataclass(frozen=True)
class GoldAlignment:
    """A pair aligned by hand; links are (source word, target word).

    Attributes:
        source: The text.
        target: Its translation.
        source_words: ``[start, end)`` of each word in code points.
        target_words: Likewise.
        sure: What any translation dictionary would link.
        possible: Those and what is not clear-cut: idioms, free rendering, words that only one language needs.
    """

    source: str
    target: str
    source_words: tuple[tuple[int, int], ...]
    target_words: tuple[tuple[int, int], ...]
    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GoldAlignment:
        """One line of ``tests/data/alignment_gold.jsonl``; ``possible`` there holds only what is not sure."""
        sure = frozenset((source, target) for source, target in values["sure"])
        return cls(
            source=values["source"],
            target=values["target"],
            source_words=tuple((start, end) for start, end in values["source_words"]),
            target_words=tuple((start, end) for start, end in values["target_words"]),
            sure=sure,
            possible=sure | {(source, target) for source, target in values["possible"]},
        )

    def reversed(self) -> GoldAlignment:
        """The same for a model of the other direction: what a hand linked holds both ways."""
        return GoldAlignment(
            source=self.target,
            target=self.source,
            source_words=self.target_words,
            target_words=self.source_words,
            sure=frozenset((target, source) for source, target in self.sure),
            possible=frozenset((target, source) for source, target in self.possible),
        )


def links_between(
    alignment: Alignment, source_words: Sequence[tuple[int, int]], target_words: Sequence[tuple[int, int]]
) -> Pairs:
    """An alignment's links in terms of other words of the same texts: each link counts for all words it touches.

    Args:
        alignment: Its spans count in the same texts.
        source_words: ``[start, end)`` of each word.
        target_words: Likewise.
    """
    pairs: Pairs = set()
    for link in alignment.links:
        sources = _touched(alignment.source_words[link.source].span, source_words)
        targets = _touched(alignment.target_words[link.target].span, target_words)
        pairs |= {(source, target) for source in sources for target in targets}
    return pairs


def _touched(span: tuple[int, int], words: Sequence[tuple[int, int]]) -> list[int]:
    return [index for index, (start, end) in enumerate(words) if start < span[1] and span[0] < end]


def alignment_error_rate(judged: Iterable[tuple[Pairs, GoldAlignment]]) -> float:
    """AER (Och and Ney 2003, section 5): 1 - (|A & S| + |A & P|) / (|A| + |S|), counted over all pairs together.

    0 is perfect. P includes S.

    Args:
        judged: The links of each pair, and its gold alignment.
    """
    in_sure = in_possible = num_links = num_sure = 0
    for links, gold in judged:
        in_sure += len(links & gold.sure)
        in_possible += len(links & gold.possible)
        num_links += len(links)
        num_sure += len(gold.sure)
    total = num_links + num_sure
    return 1 - (in_sure + in_possible) / total if total else 0.0
