"""How well kept spans come through a model, by the way they are shown to it, measured on real sentences.

    python -m loadtests.quality.kept_spans --data dev.en-fr.tsv.gz --model model/pretrained/en-fr --limit 200

From pairs in which a name stands once on both sides, the name is replaced by a span (an address, code, a format string,
...) on both sides: the reference then says where the span belongs. Ways:

    plain       the sentence as it is
    masks       the span is one private-use character, U+E000
    digit       the span is a digit that the sentence does not have
    word        the span is XQ1
    alignment   plain, and the words aligned with the span are replaced by it; where none are, it is put at the end
    parts       what stands around the span is translated, and joined
    chain       what the server does (service/pipeline.py)

*kept*: share of sentences with the span exactly once in the best hypothesis; *n-best*: in one of four. *chrF*: of the
translation with its span against the reference with it, all sentences; what is lost costs. *sequences*: that the model
decoded for a sentence. Beam 4.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import sacrebleu
import torch

from loadtests.quality.local import run_rounds
from model.alignment import align_text, stored_recipe
from model.checkpoint import Checkpoint, load_checkpoint
from model.decoding import DecodingOptions
from model.generation import forbidden_outputs, generate
from model.words import decode_with_spans, source_text
from service.pipeline import SegmentWork, Vocabulary

SPANS = (
    "https://example.org/a_b-c/?q=one%20two&x=1#top",
    "jo.doe+news@mail.example.com",
    "/var/log/app/error.log",
    "@sam_42",
    "{user_name}",
    "🎵",
    "`pip install foo`",
    "こんにちは",
    "%1$s",
    "C:\\Temp\\run.bat",
    "2 GB",
)

_OPTIONS = DecodingOptions(beam_size=4, num_hypotheses=4)
_NAME = re.compile(r"\b[A-Z][a-z]{2,}\b")

Way = Callable[[Sequence[tuple[str, str]]], tuple[list[list[str]], int]]


def read_items(path: Path, limit: int) -> list[tuple[str, str, str]]:
    """(source with a NUL for the span, reference likewise, span)."""
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
    items: list[tuple[str, str, str]] = []
    with opened as lines:
        for line in lines:
            source, reference = line.rstrip("\n").split("\t")[-2:]  # a column before them names the corpus
            names = [name for name in set(_NAME.findall(source)) if source.count(name) == reference.count(name) == 1]
            if names and not re.search(r"\d", source) and len(items) < limit:
                span = SPANS[len(items) % len(SPANS)]
                items.append((source.replace(names[0], "\0"), reference.replace(names[0], "\0"), span))
    return items


class Model:
    """A checkpoint with the ways to show it a sentence with a span."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint: Checkpoint = load_checkpoint(folder)
        self.checkpoint.model.set_precision("auto")
        self.vocabulary = Vocabulary(
            self.checkpoint.tokenizer, self.checkpoint.source_language, self.checkpoint.target_language
        )

    def nbest(self, texts: Sequence[str]) -> list[list[str]]:
        """Up to four translations of each text."""
        return [[self.checkpoint.tokenizer.decode(tokens) for tokens in found] for found in self._tokens(texts)]

    def _tokens(self, texts: Sequence[str]) -> list[list[tuple[int, ...]]]:
        checkpoint = self.checkpoint
        sources = [self.vocabulary.encode(text).ids for text in texts]
        forbidden = forbidden_outputs(checkpoint.config, checkpoint.tokenizer)
        found = generate(checkpoint.model, sources, _OPTIONS, forbidden_ids=forbidden)
        return [[hypothesis.tokens_without_eos for hypothesis in hypotheses] for hypotheses in found]

    def shown_as(self, stand_in: str | None) -> Way:
        """Plain, or with something else in the place of the span."""

        def way(items: Sequence[tuple[str, str]]) -> tuple[list[list[str]], int]:
            shown = [stand_in or span for _, span in items]
            found = self.nbest([source.replace("\0", part) for (source, _), part in zip(items, shown, strict=True)])
            put_back = [
                [text.replace(part, span) for text in texts]
                for texts, part, (_, span) in zip(found, shown, items, strict=True)
            ]
            return put_back, len(items)

        return way

    def aligned(self, items: Sequence[tuple[str, str]]) -> tuple[list[list[str]], int]:
        """Plain, with the span put where the model looked at it."""
        recipe = stored_recipe(self.checkpoint.training, self.checkpoint.config)
        texts = []
        for (source, span), best in zip(
            items, self._tokens([source.replace("\0", span) for source, span in items]), strict=True
        ):
            start = source.index("\0")
            end = start + len(span)
            encoding = self.vocabulary.encode(source.replace("\0", span))
            target_ids = (*best[0], self.checkpoint.config.eos_id)
            alignment = align_text(
                self.checkpoint.model,
                self.checkpoint.tokenizer,
                encoding.ids,
                source_text(encoding),
                target_ids,
                recipe,
            )
            inside = {
                index
                for index, word in enumerate(alignment.source_words)
                if encoding.normalized.source_span(*word.span)[0] < end
                and start < encoding.normalized.source_span(*word.span)[1]
            }
            hit = sorted({link.target for link in alignment.links if link.source in inside})
            text = decode_with_spans(self.checkpoint.tokenizer, target_ids).text
            if hit:
                first, last = alignment.target_words[hit[0]].span[0], alignment.target_words[hit[-1]].span[1]
                text = text[:first] + span + text[last:]
            else:
                text = f"{text} {span}"
            texts.append([text])
        return texts, len(items)

    def parts(self, items: Sequence[tuple[str, str]]) -> tuple[list[list[str]], int]:
        """Around the span."""
        pieces = [piece.strip() for source, _ in items for piece in source.split("\0")]
        shown = [piece for piece in pieces if re.search(r"\w", piece)]
        found = dict(zip(shown, (texts[0] for texts in self.nbest(shown)), strict=True)) if shown else {}
        texts = []
        for source, span in items:
            before, after = (part.strip() for part in source.split("\0"))
            texts.append([" ".join(filter(None, [found.get(before, before), span, found.get(after, after)]))])
        return texts, len(shown)

    def chain(self, items: Sequence[tuple[str, str]]) -> tuple[list[list[str]], int]:
        """As the server."""
        work = SegmentWork(self.vocabulary, DecodingOptions(beam_size=4), max_tokens=512)
        for source, span in items:
            work.add(source.replace("\0", span))
        num_sequences = run_rounds(self.checkpoint, work)
        return [[outcome.nth_text(0)] for outcome in work.outcomes()], num_sequences


def main() -> None:
    """Prints a Markdown table for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", required=True)
    parser.add_argument("--data", type=Path, required=True, help="tab-separated pairs, also .gz")
    parser.add_argument("--limit", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    items = read_items(arguments.data, arguments.limit)
    asked = [(source, span) for source, _, span in items]
    references = [reference.replace("\0", span) for _, reference, span in items]
    for folder in arguments.model:
        model = Model(folder)
        ways: dict[str, Way] = {
            "plain": model.shown_as(None),
            "masks": model.shown_as("\ue000"),
            "digit": model.shown_as("7"),
            "word": model.shown_as("XQ1"),
            "alignment": model.aligned,
            "parts": model.parts,
            "chain": model.chain,
        }
        print(f"\n{folder.name}, {len(items)} sentences\n")  # noqa: T201
        print("| way | kept | n-best | chrF | sequences |\n| --- | ---: | ---: | ---: | ---: |")  # noqa: T201
        for name, way in ways.items():
            found, num_sequences = way(asked)
            kept = [[text.count(span) == 1 for text in texts] for texts, (_, span) in zip(found, asked, strict=True)]
            best = [texts[0] for texts in found]
            chrf = sacrebleu.corpus_chrf(best, [references]).score
            print(  # noqa: T201
                f"| {name} | {sum(row[0] for row in kept) / len(kept):.1%} | {sum(map(any, kept)) / len(kept):.1%} "
                f"| {chrf:.1f} | {num_sequences / len(items):.2f} |"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
