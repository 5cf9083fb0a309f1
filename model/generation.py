"""Translate a list of sequences in one go, for evaluation and the command line.

    checkpoint = load_checkpoint("model/pretrained/en-fr")
    translate_texts(checkpoint, ["Good morning.", "How are you?"], DecodingOptions(beam_size=4))

The server does not use this file: there sequences arrive one by one, and join and leave a running batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch

from model.checkpoint import Checkpoint
from model.config import TransformerConfig
from model.decoding import DecodingOptions, Hypothesis
from model.search import Search, SearchStep, advance_batch, reads_of, start_search
from model.tokenizer import TextTokenizer
from model.transformer import DecodingState, Transformer


def target_limit(config: TransformerConfig, source_length: int) -> int:
    """Most target tokens, eos included, where a caller sets no limit.

    Three times the source and 16 more: no translation is that long, but a model caught in a loop is. A learned
    position table may end sooner.
    """
    limit = 3 * source_length + 16
    return limit if config.max_positions is None else min(limit, config.max_positions)


def forbidden_outputs(config: TransformerConfig, tokenizer: TextTokenizer) -> tuple[int, ...]:
    """Ids that no translation may hold: padding, the decoder's start, unknown and begin of sentence."""
    ids = {config.pad_id, config.decoder_start_id, tokenizer.unk_id, tokenizer.bos_id}
    return tuple(sorted(ids - {config.eos_id}))


def generate(
    model: Transformer,
    source_ids: Sequence[Sequence[int]],
    options: DecodingOptions,
    *,
    forbidden_ids: Iterable[int] = (),
    max_batch_rows: int = 64,
) -> list[list[Hypothesis]]:
    """Decode sources of any lengths, similar ones together; a sequence's rows leave the batch when it has finished.

    Dropout is off during the call.

    Args:
        model: On any device.
        source_ids: Each ended by ``eos_id``.
        options: The same for all; without ``max_target_tokens`` the limit is :func:`target_limit`.
        forbidden_ids: Never written, besides the padding and the start token.
        max_batch_rows: Rows decoded together. A sequence counts ``beam_size`` rows; one is always decoded.

    Returns:
        For each source, in the order given, its hypotheses, best first.

    Raises:
        ValueError: When a source has no ids or ``max_batch_rows`` is below 1.
        PositionTooLarge: When a source is longer than a learned position table.
    """
    if max_batch_rows < 1:
        raise ValueError(f"max_batch_rows is {max_batch_rows}; it must be at least 1")
    for index, ids in enumerate(source_ids):
        if not ids:
            raise ValueError(f"source {index} has no ids; the shortest is the end-of-sentence id alone")
    config = model.config
    forbidden = {config.pad_id, config.decoder_start_id, *forbidden_ids} - {config.eos_id}
    # The longest first: a batch that does not fit the memory shows at once and not after an hour.
    order = sorted(range(len(source_ids)), key=lambda index: -len(source_ids[index]))
    batch_size = max(1, max_batch_rows // options.beam_size)
    results: list[list[Hypothesis]] = [[] for _ in source_ids]
    with _evaluating(model), torch.no_grad():
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size]
            searches = [
                start_search(
                    options,
                    eos_id=config.eos_id,
                    max_tokens=options.max_target_tokens or target_limit(config, len(source_ids[index])),
                    forbidden_ids=forbidden,
                )
                for index in indices
            ]
            _decode(model, [list(source_ids[index]) for index in indices], searches)
            for index, search in zip(indices, searches, strict=True):
                results[index] = search.hypotheses()
    return results


def translate_texts(
    checkpoint: Checkpoint, texts: Sequence[str], options: DecodingOptions, *, max_batch_rows: int = 64
) -> list[str]:
    """Translate each text as one sequence: there is no splitting into sentences here.

    Args:
        checkpoint: Model, tokenizer and languages.
        texts: In the checkpoint's source language; one without a visible character comes back as it is.
        options: How to search.
        max_batch_rows: As for :func:`generate`.

    Returns:
        The best translation of each text, in the order given.
    """
    tokenizer = checkpoint.tokenizer
    encodings = [tokenizer.encode(text, checkpoint.source_language, add_eos=True) for text in texts]
    visible = [index for index, encoding in enumerate(encodings) if len(encoding.ids) > 1]
    generated = generate(
        checkpoint.model,
        [encodings[index].ids for index in visible],
        options,
        forbidden_ids=forbidden_outputs(checkpoint.config, tokenizer),
        max_batch_rows=max_batch_rows,
    )
    translations = list(texts)
    for index, hypotheses in zip(visible, generated, strict=True):
        translations[index] = tokenizer.decode(hypotheses[0].tokens_without_eos)
    return translations


def _decode(model: Transformer, source_ids: list[list[int]], searches: list[Search]) -> None:
    """Run one batch until every search has finished."""
    state = model.prefill(source_ids)
    tokens = [model.config.decoder_start_id] * len(searches)
    running = list(searches)
    while running:
        logits, summary = model.decode_step_summarized(torch.tensor(tokens), state, reads_of(running))
        rows_before = [search.num_rows for search in running]
        steps = advance_batch(running, logits, summary)
        _move_rows(state, rows_before, steps)
        tokens = [token for step in steps for token in step.tokens]
        running = [search for search in running if not search.finished]


def _move_rows(state: DecodingState, rows_before: list[int], steps: list[SearchStep]) -> None:
    """Make the rows of the state those that the searches go on with."""
    rows: list[int] = []
    first_row = 0
    for num_rows, step in zip(rows_before, steps, strict=True):
        rows += [first_row + parent for parent in step.parents]
        first_row += num_rows
    if [len(step.parents) for step in steps] == rows_before:
        state.reorder(rows)  # every sequence keeps its rows, and with them its source
    else:
        state.select(rows)


@contextmanager
def _evaluating(model: Transformer) -> Iterator[None]:
    """Evaluation mode, for a model that may be in the midst of its training."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()
