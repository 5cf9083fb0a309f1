"""Sentence splitters side by side, on cases that are hard.

    pip install --target elsewhere pysbd syntok sentence-splitter
    PYTHONPATH=elsewhere python -m loadtests.quality.splitters

Each case is the list of its sentences; a splitter gets them joined by a space, and is right if it finds the same ends.
*Lossless*: what it returns, joined, is the text again but for white space. *Seconds*: for 2,000 sentences in one line,
and for 20,000 quotation marks that are never closed.
"""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Callable, Iterable

from service.text.segmenter import segment_text
from service.text.sentences import sentence_spans

CASES: tuple[tuple[str, ...], ...] = (
    ("Dr. Smith lives at 5 St. James St. in London.", "He is 42."),
    ("Mr. and Mrs. Brown met Prof. J. K. Green at 5 p.m. on Monday.", "It rained."),
    ("Version 3.11.7 is 1.5 times faster.", "Use it."),
    ("Well... I do not know... Perhaps tomorrow.",),
    ('"I am tired."', "She sat down.", '"So am I," he said.'),
    ('"Are you coming?" she asked.', "He was not."),
    ("See Fig. 3 and Vol. 12, pp. 5-9.", "Then read No. 7."),
    ("Open https://example.org/a.b?c=D.E and wait.", "It loads."),
    ("Use ASP.NET or Node.js.", "Call foo.Bar() first."),
    ("He works for Acme Inc. and lives in the U.S. now.", "She does not."),
    ("We met in the U.S. Senate yesterday.", "It was full."),
    ("It costs $5.99.", "That is too much!", "Really?"),
    ("Yahoo! bought it.", "Nobody knew why."),
    ("What?!", "No way!!!", "Yes."),
    ("I said no.", "(He did not listen.)", "So it goes."),
    ("The meeting is at 10 a.m. tomorrow.", "Be there."),
    ("Apples, pears, etc. are fruit.", "Cars are not."),
    ("E.g. this one, i.e. the first.", "Not that."),
    ("He was born on Jan. 5, 1990.", "She was born in Feb."),
    ("J. R. R. Tolkien wrote it.", "I read it."),
    ("The U.K. and the E.U. agreed.", "The U.N. did not."),
    ("She has a Ph.D. in physics.", "He has an M.A. in art."),
    ("Read the README.md file.", "Run setup.py."),
    ("Is it 5 ft. 10 in. tall?", "I think so."),
    ("This is it.", "iPhone sales rose."),
    ("One sentence without a stop",),
    ("Wait: what is that?", "A dog."),
    ("I love it! 🎉", "So do you."),
    ("“Stop,” he said.", "“Why?”"),
    ("He said: 'Go away.'", "Then he left."),
    ("Run `make. Test` now.", "Done."),
    ("Send it to a.b@c.org.", "Thanks."),
    ("Gov. Lee met Sen. Ray and Gen. Fox.", "All smiled."),
    ("The temperature is -3.5 °C.", "It is cold."),
    ("Chapter 3.2.1 is short.", "Skip it."),
    ("Approx. 5 km from here, near Mt. Blue, is a lake.", "Swim there."),
    ("He paid 3.000,50 euros.", "It was cheap."),
    ("Press Ctrl+C.", "Press any key..."),
    ("Who is No. 1?", "You are."),
    ("The train leaves at 5.30.", "Do not be late."),
    ("Ph.D. students work hard.", "They sleep little."),
    ("We met at 10 a.m. Monday.", "He left at 5 p.m.", "She stayed."),
    ("The call is at 9 a.m. EST tomorrow.", "Join it."),
    ("It was Smith vs. Jones.", "Smith won."),
    ("It is approx. Five miles.", "Walk."),
    ("Vol. IV and Vol. 5 are here.", "Read them."),
    ("On St. Patrick's Day we sing.", "You too."),
    ("He lives near the U.S. Army base.", "She does not."),
    ("Use e.g. Python, i.e. no Java.", "Try it."),
    ("He paid 3.5.", "She paid 4."),
    ("I said no.", "Then he left."),
    ("Smith et al. found it.", "Others did not."),
)

Splitter = Callable[[str], Iterable[str]]


def _ours(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text, "en")]


def _segmenter(text: str) -> list[str]:
    document = segment_text(text, "en", max_tokens=1 << 30, count_tokens=len)
    return [segment.text for segment in document.segments]


def _splitters() -> dict[str, Splitter]:
    """Those that are installed."""
    found: dict[str, Splitter] = {}

    def add(name: str, module: str, make: Callable[..., Splitter]) -> None:
        try:
            found[name] = make(importlib.import_module(module))
        except ImportError:
            sys.stderr.write(f"{module} is not installed: {name} is left out\n")

    add("sentencex", "sentencex", lambda library: lambda text: library.segment("en", text))
    add("pysbd", "pysbd", lambda library: library.Segmenter(language="en", clean=False).segment)
    add("syntok", "syntok.segmenter", lambda library: lambda text: _syntok(library, text))
    add("sentence-splitter", "sentence_splitter", lambda library: library.SentenceSplitter(language="en").split)
    found["Gossamer: sentencex, corrected"] = _ours
    found["Gossamer: with kept spans"] = _segmenter
    return found


def _syntok(library: object, text: str) -> list[str]:
    paragraphs = library.analyze(text)  # type: ignore[attr-defined]
    return [
        "".join(token.spacing + token.value for token in sentence) for paragraph in paragraphs for sentence in paragraph
    ]


def is_lossless(text: str, sentences: Iterable[str]) -> bool:
    """Whether all of the text but white space is there, in order."""
    return re.sub(r"\s", "", text) == re.sub(r"\s", "", "".join(sentences))


def main() -> None:
    """Prints a Markdown table, and the cases that each splitter gets wrong."""
    long_text = " ".join(" ".join(case) for case in CASES * 25)
    quotes = "“a " * 20_000
    rows, mistakes = [], []
    for name, split in _splitters().items():
        right = lossless = 0
        for case in CASES:
            text = " ".join(case)
            sentences = list(split(text))
            lossless += is_lossless(text, sentences)
            if [sentence.strip() for sentence in sentences if sentence.strip()] == list(case):
                right += 1
            else:
                mistakes.append(f"{name}: {[sentence.strip() for sentence in sentences]}")
        seconds = []
        for text in (long_text, quotes):
            started = time.process_time()
            list(split(text))
            seconds.append(time.process_time() - started)
        rows.append(f"| {name} | {right} | {lossless} | {seconds[0]:.2f} | {seconds[1]:.2f} |")
    header = f"| splitter | right of {len(CASES)} | lossless | seconds, 2,000 sentences | seconds, quotes |"
    sys.stdout.write("\n".join([header, "| --- | ---: | ---: | ---: | ---: |", *rows, "", *mistakes, ""]))


if __name__ == "__main__":
    main()
