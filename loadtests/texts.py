"""Inputs of exact lengths, in tokens of the model that reads them, from text that the model was not trained on.

texts = Texts(tokenizer, "en")
texts.sentence(64)      # one sentence of exactly 64 tokens, end of sentence included
texts.sentences(256)    # natural sentences, 256 tokens together
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

from model.tokenizer import TextTokenizer

HELD_OUT = Path(__file__).resolve().parent / "data" / "held_out.en.txt"

_MAX_TRIES = 200
_MARKS = re.compile(r"[.!?:;]+(?=\s|$)")


class NoSuchText(ValueError):
    """No text of that length was found."""


def held_out_sentences(path: Path = HELD_OUT) -> list[str]:
    """The sentences of the file, one a line."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


class Texts:
    """Draws texts; the same seed draws the same."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        language: str,
        sentences: Sequence[str] | None = None,
        seed: int = 1,
        *,
        full_stop: str = ".",
    ) -> None:
        """Takes the material.

        Args:
            tokenizer: What counts.
            language: Of the sentences.
            sentences: Where texts are drawn from; by default the held-out ones.
            seed: Of the drawing.
            full_stop: Ends what is drawn by `sentence`. Empty for a tokenizer that does not know it: what a model
                cannot read is kept by the server in ways of its own, too.
        """
        self._tokenizer, self._language, self._full_stop = tokenizer, language, full_stop
        self._sentences = list(held_out_sentences() if sentences is None else sentences)
        # Numbers, names of files and the like are kept by the server in ways of their own; words are what is measured.
        self._words = [
            word for line in self._sentences for word in line.split() if word.strip(",.;:!?'\"()-").isalpha()
        ]
        self._generator = random.Random(seed)

    def count(self, text: str) -> int:
        """Tokens of a text as one segment, end of sentence included."""
        return len(self._tokenizer.encode(text, self._language, add_eos=True).ids)

    def sentence(self, num_tokens: int) -> str:
        """One sentence: words in their order from a random place on, without full stops inside.

        Raises:
            NoSuchText: If none was found; lengths below 3 have few.
        """
        for _ in range(_MAX_TRIES):
            start = self._generator.randrange(len(self._words))
            chosen = [self._word(start)]
            while self.count(" ".join(chosen) + self._full_stop) < num_tokens:
                chosen.append(self._word(start + len(chosen)).lower())
            for _ in range(8):  # the last words decide: others in their place until the count is right
                text = " ".join(chosen) + self._full_stop
                if self.count(text) == num_tokens:
                    return text
                chosen[-1] = self._word(self._generator.randrange(len(self._words))).lower()
        raise NoSuchText(f"no sentence of {num_tokens} tokens found in {_MAX_TRIES} tries")

    def sentences(self, num_tokens: int) -> str:
        """Natural sentences of exactly so many tokens together; the last one is made to fit.

        Raises:
            NoSuchText: As `sentence`.
        """
        chosen: list[str] = []
        left = num_tokens
        while left:
            line = self._generator.choice(self._sentences)
            count = self.count(line)
            # What is left must again be a sentence.
            if count == left or 8 <= left - count:
                chosen.append(line)
                left -= count
            elif left < 48:
                chosen.append(self.sentence(left))
                left = 0
        return " ".join(chosen)

    def _word(self, place: int) -> str:
        return _MARKS.sub("", self._words[place % len(self._words)])
