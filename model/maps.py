"""What people ask of attention maps once they have them: one map instead of many, words instead of pieces.

Every map is ``[layer][head][query][key]`` and stays so: what is taken together leaves an axis of length 1.
Letters: L layers, H heads, Q queries, K keys, S source, T target positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from model.selection import SelectionError
from model.words import Word

Floats = NDArray[np.float32]
Aggregate = Literal["none", "mean", "max"]
Special = Literal["keep", "hide", "renormalise"]
AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)
SPECIALS: tuple[Special, ...] = get_args(Special)


def aggregate(maps: Floats, how: Aggregate, over: Literal["heads", "layers", "both"] = "heads") -> Floats:
    """Take heads (or layers, or both) together.

    The mean of rows that sum to 1 sums to 1; the maximum does not. For what flows through several layers, see
    :func:`rollout`.

    Args:
        maps: (L, H, Q, K).
        how: ``none`` returns the maps as they are.
        over: What is taken together.

    Returns:
        (L, 1, Q, K), (1, H, Q, K) or (1, 1, Q, K).
    """
    if how not in AGGREGATES:
        raise SelectionError(f"aggregate {how!r} does not exist; there are {', '.join(AGGREGATES)}")
    if how == "none":
        return maps
    axes = {"heads": (1,), "layers": (0,), "both": (0, 1)}[over]
    if how == "max":
        largest: Floats = maps.max(axis=axes, keepdims=True)
        return largest
    mean: Floats = maps.mean(axis=axes, keepdims=True, dtype=np.float64).astype(np.float32)
    return mean


def rollout(maps: Floats) -> Floats:
    """Attention rollout (Abnar and Zuidema 2020, section 3): how much of each input reaches each position.

    A layer passes on half of its own position (the residual) and half of what the mean of its heads mixes in; layers
    are multiplied.

    Args:
        maps: Weights of self-attention, all heads of layers 0 to L - 1, (L, H, T, T).

    Returns:
        (L, 1, T, T): after each layer, the share of each input position. Rows sum to 1.
    """
    so_far = np.eye(maps.shape[-1])
    result = []
    for weights in maps.mean(axis=1, dtype=np.float64):
        so_far = 0.5 * so_far + 0.5 * weights @ so_far
        result.append(so_far)
    return np.stack(result)[:, None].astype(np.float32)


@dataclass(frozen=True)
class CrossRollout:
    """Rollout through encoder and decoder; for each layer and query the two rows together sum to 1.

    Attributes:
        to_source: (L, 1, T, S), the share of each source token.
        to_target: (L, 1, T, T), the share of each decoder input.
    """

    to_source: Floats
    to_target: Floats

    @property
    def source_only(self) -> Floats:
        """``to_source`` with rows that sum to 1."""
        shares: Floats = self.to_source / self.to_source.sum(axis=-1, keepdims=True)
        return shares


def cross_rollout(encoder: Floats, decoder: Floats, cross: Floats) -> CrossRollout:
    """Rollout for an encoder-decoder model.

    The paper has one stack. Here every residual counts half, as there: a decoder layer first mixes target positions,
    then takes half from the encoder's positions, each of which stands for its own rollout over the source.

    Args:
        encoder: Weights of all heads of all encoder layers, (L_enc, H, S, S).
        decoder: All heads of decoder layers 0 to L - 1, (L, H, T, T).
        cross: Likewise, (L, H, T, S).
    """
    memory = rollout(encoder)[-1, 0].astype(np.float64)  # (S, S)
    to_source = np.zeros(cross.shape[-2:])
    to_target = np.eye(decoder.shape[-1])
    sources, targets = [], []
    for past, across in zip(decoder.mean(axis=1, dtype=np.float64), cross.mean(axis=1, dtype=np.float64), strict=True):
        to_source = 0.5 * to_source + 0.5 * past @ to_source
        to_target = 0.5 * to_target + 0.5 * past @ to_target
        to_source = 0.5 * to_source + 0.5 * across @ memory
        to_target = 0.5 * to_target
        sources.append(to_source)
        targets.append(to_target)
    return CrossRollout(np.stack(sources)[:, None].astype(np.float32), np.stack(targets)[:, None].astype(np.float32))


@dataclass(frozen=True)
class ShownMaps:
    """Maps with some queries and keys left out.

    Attributes:
        maps: (L, H, queries kept, keys kept).
        queries: The indices that are left.
        keys: Likewise.
    """

    maps: Floats
    queries: tuple[int, ...]
    keys: tuple[int, ...]


def treat_special(
    maps: Floats, how: Special, query_is_special: Sequence[bool], key_is_special: Sequence[bool]
) -> ShownMaps:
    """Leave special tokens (end of sentence, start) in, out, or out with the rest scaled up.

    Args:
        maps: (L, H, Q, K).
        how: ``keep`` changes nothing; ``hide`` leaves rows and columns out, so that rows sum to less than 1;
            ``renormalise`` also divides each row by its sum (a row that saw special keys alone becomes all 0).
        query_is_special: For each query.
        key_is_special: For each key.
    """
    if how not in SPECIALS:
        raise SelectionError(f"special {how!r} does not exist; there are {', '.join(SPECIALS)}")
    queries = tuple(index for index, special in enumerate(query_is_special) if how == "keep" or not special)
    keys = tuple(index for index, special in enumerate(key_is_special) if how == "keep" or not special)
    shown = maps[:, :, queries][:, :, :, keys]
    if how == "renormalise":
        sums = shown.sum(axis=-1, keepdims=True)
        shown = np.divide(shown, sums, out=np.zeros_like(shown), where=sums > 0)
    return ShownMaps(shown, queries, keys)


def merge_words(maps: Floats, query_words: Sequence[Word], key_words: Sequence[Word]) -> Floats:
    """From pieces to words: the sum over a word's key pieces, the mean over its query pieces.

    Rows that sum to 1 still do. Where every word is one piece, nothing changes.

    Args:
        maps: Weights (L, H, Q, K).
        query_words: From ``model.words.group_words``; together they hold each query once.
        key_words: Likewise for the keys.

    Returns:
        (L, H, len(query_words), len(key_words)).
    """
    by_key = np.stack([maps[..., word.pieces].sum(axis=-1, dtype=np.float64) for word in key_words], axis=-1)
    by_query = [by_key[:, :, word.pieces].mean(axis=2) for word in query_words]
    return np.stack(by_query, axis=2).astype(np.float32)
