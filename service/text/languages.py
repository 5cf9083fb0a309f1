"""Codes of languages, and what documents say about the language that they are in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Languages:
    """The two languages of a translation.

    Attributes:
        source: Code of the one that was read.
        target: Of the one that was written.
    """

    source: str
    target: str

    def declared(self, code: str) -> str:
        """What is to be declared where `code` was: the target for the source and its variants; others stay."""
        return self.target if _main(code) == _main(self.source) else code


def base_language(code: str) -> str:
    """The part of a code before its variant, in small letters: `en` of `en-GB`."""
    return code.partition("-")[0].lower()


def _main(code: str) -> str:
    return base_language(code.strip().replace("_", "-"))
