"""Pairs -> rectangles of about equal token counts and few distinct shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.alignment import Row
from model.training.data import Corpus


@dataclass(frozen=True)
class Batch:
    """One micro-batch.

    Attributes:
        source_ids: (B, S) int64, ended by eos, padded.
        source_mask: (B, S) boolean, True = a real token.
        target_inputs: (B, T) int64: the start id and the target.
        target_outputs: (B, T) int64: the target and eos, what each position must predict; pad counts nothing.
        num_target_tokens: Real ids in ``target_outputs``.
        alignment: (B, T, S) float32, where asked for: what share of row t's attention each source token should have.
            A row sums to 1, or to 0 where nothing is known.
    """

    source_ids: Tensor
    source_mask: Tensor
    target_inputs: Tensor
    target_outputs: Tensor
    num_target_tokens: int
    alignment: Tensor | None = None


def bucket_length(length: int) -> int:
    """Round a length up to a bucket: steps of 2 to 16, of 4 to 32, of 8 to 64, then of 16.

    Few distinct shapes matter on a CPU, whose library prepares a kernel for each; steps that grow with
    the length keep the padding below an eighth.
    """
    for limit, step in ((16, 2), (32, 4), (64, 8)):
        if length <= limit:
            return -(-length // step) * step
    return -(-length // 16) * 16


def plan_batches(
    corpus: Corpus, epoch_pairs: NDArray[np.int64], batch_tokens: int, seed: Sequence[int]
) -> list[NDArray[np.int64]]:
    """Group the pairs of an epoch into micro-batches of at most ``batch_tokens`` target positions.

    A bucket of target lengths has one number of rows; inside it, neighbours have like source lengths.
    What a bucket has left over moves up to the next one, so that no batch but the last is small.

    Args:
        corpus: The encoded pairs.
        epoch_pairs: Indices from :meth:`Corpus.sample_epoch`.
        batch_tokens: Largest number of target positions in a batch, padding included; source positions
            are bounded by twice that. A single longer pair is a batch of its own.
        seed: Decides the order of pairs inside buckets and of batches.

    Returns:
        Index arrays, shuffled.
    """
    generator = np.random.default_rng(tuple(seed))
    source_lengths, target_lengths = corpus.sources.lengths, corpus.targets.lengths + 1
    longest = int(max(source_lengths.max(), target_lengths.max()))
    lookup = np.array([0, *(bucket_length(length) for length in range(1, longest + 1))])
    shuffled = generator.permutation(epoch_pairs)
    target_buckets = lookup[target_lengths[shuffled]]
    batches: list[NDArray[np.int64]] = []
    carry = np.empty(0, dtype=np.int64)
    for turn, bucket in enumerate(np.unique(target_buckets)):
        members = shuffled[target_buckets == bucket]
        members = members[np.argsort(source_lengths[members], kind="stable")]
        # Every other bucket runs downwards, so that what is carried over meets its like.
        members = np.concatenate((carry, members[::-1] if turn % 2 else members))
        rows = max(1, batch_tokens // int(bucket))
        start = 0
        while True:
            widest = int(lookup[source_lengths[members[start : start + rows]]].max(initial=1))
            size = max(1, min(rows, 2 * batch_tokens // widest))
            if start + size > len(members):
                break
            batches.append(members[start : start + size])
            start += size
        carry = members[start:]
    if len(carry):
        batches.append(carry)
    return [batches[index] for index in generator.permutation(len(batches))]


def make_batch(
    corpus: Corpus, pairs: NDArray[np.int64], pad_id: int, start_id: int, eos_id: int, alignment_row: Row | None = None
) -> Batch:
    """Cut the pairs' ids into one rectangle; lengths are rounded up to buckets.

    Args:
        corpus: The encoded pairs; with links where ``alignment_row`` is given.
        pairs: Indices.
        pad_id: Fills both sides.
        start_id: Starts every target input.
        eos_id: Ends every target output.
        alignment_row: Which row of a target token is to point at its source tokens; None makes no ``alignment``.
    """
    sources = [corpus.sources[index] for index in pairs]
    targets = [corpus.targets[index] for index in pairs]
    source_ids = np.full((len(pairs), bucket_length(max(map(len, sources)))), pad_id, dtype=np.int64)
    width = bucket_length(max(map(len, targets)) + 1)
    inputs = np.full((len(pairs), width), pad_id, dtype=np.int64)
    outputs = np.full((len(pairs), width), pad_id, dtype=np.int64)
    inputs[:, 0] = start_id
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        source_ids[row, : len(source)] = source
        inputs[row, 1 : len(target) + 1] = target
        outputs[row, : len(target)] = target
        outputs[row, len(target)] = eos_id
    source_tensor = torch.from_numpy(source_ids)
    lengths = torch.tensor([len(source) for source in sources])
    return Batch(
        source_tensor,
        torch.arange(source_tensor.shape[1]) < lengths.unsqueeze(1),
        torch.from_numpy(inputs),
        torch.from_numpy(outputs),
        sum(map(len, targets)) + len(targets),
        None if alignment_row is None else _alignment(corpus, pairs, (width, source_ids.shape[1]), alignment_row),
    )


def _alignment(corpus: Corpus, pairs: NDArray[np.int64], shape: tuple[int, int], row: Row) -> Tensor:
    """(B, T, S) from the pairs' links; position 0 of a target's inputs is the start token, which has no links."""
    assert corpus.links is not None
    alignment = np.zeros((len(pairs), *shape), dtype=np.float32)
    for index, pair in enumerate(pairs):
        sources, targets = corpus.links[pair].reshape(-1, 2).astype(np.int64).T
        alignment[index, targets + (row == "input"), sources] = 1
    alignment /= np.maximum(alignment.sum(axis=2, keepdims=True), 1)
    return torch.from_numpy(alignment)
