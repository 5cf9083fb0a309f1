"""Texts to translations in this process, on a checkpoint and without an engine: for measurements and tests.

The same pipeline as the server's (`service/pipeline.py`), so both say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.decoding import DecodingOptions, Hypothesis
from service.engine.request import SequenceRequest, SequenceResult, SequenceTimings
from service.pipeline import SegmentWork, Vocabulary
from service.text.segmenter import segment_text

if TYPE_CHECKING:
    from model.checkpoint import Checkpoint


def translate_text(checkpoint: Checkpoint, text: str, options: DecodingOptions, *, max_segment_tokens: int) -> str:
    """Translates a text of any length.

    Args:
        checkpoint: Model, tokenizer and languages.
        text: All of it; its lines are translated side by side.
        options: How to search.
        max_segment_tokens: Longer sentences are parted.

    Returns:
        The translation, with the text's own gaps.
    """
    vocabulary = Vocabulary(checkpoint.tokenizer, checkpoint.source_language, checkpoint.target_language)
    max_positions = checkpoint.config.max_positions or 1 << 30
    work = SegmentWork(vocabulary, options, max_tokens=max_positions)
    document = segment_text(
        text,
        checkpoint.source_language,
        max_tokens=min(max_segment_tokens, max_positions),
        count_tokens=lambda part: len(work.encode(part).ids),
        kept=lambda sentence: [(span.start, span.end) for span in vocabulary.spans(sentence)],
    )
    texts = [segment.text for segment in document.segments]
    places = [index for index, segment in enumerate(document.segments) if segment.translatable]
    for place in places:
        work.add(texts[place])
    run_rounds(checkpoint, work)
    for place, outcome in zip(places, work.outcomes(), strict=True):
        texts[place] = outcome.nth_text(0)
    return document.join(texts)


def run_rounds(checkpoint: Checkpoint, work: SegmentWork) -> int:
    """Does all the work, and says how many sequences that were."""
    num_sequences = 0
    while sequences := work.sequences():
        num_sequences += len(sequences)
        hypotheses: dict[int, list[Hypothesis]] = {}
        for options in dict.fromkeys(sequence.options for sequence in sequences):
            places = [place for place, sequence in enumerate(sequences) if sequence.options == options]
            found = _generate(checkpoint, [sequences[place] for place in places], options)
            hypotheses |= dict(zip(places, found, strict=True))
        work.take([_result(sequence, hypotheses[place]) for place, sequence in enumerate(sequences)])
    return num_sequences


def _generate(
    checkpoint: Checkpoint, sequences: list[SequenceRequest], options: DecodingOptions
) -> list[list[Hypothesis]]:
    from model.generation import forbidden_outputs, generate  # PyTorch takes seconds to import

    return generate(
        checkpoint.model,
        [sequence.source_ids for sequence in sequences],
        options,
        forbidden_ids=forbidden_outputs(checkpoint.config, checkpoint.tokenizer),
    )


def _result(sequence: SequenceRequest, hypotheses: list[Hypothesis]) -> SequenceResult:
    best = hypotheses[0]
    timings = SequenceTimings(0.0, 0.0, 0.0)
    return SequenceResult(tuple(hypotheses), best.finish_reason, timings, len(sequence.source_ids), len(best.tokens))
