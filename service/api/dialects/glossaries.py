"""DeepL's glossaries: terms and what they are called in the other language, as tab- or comma-separated lines."""

from __future__ import annotations

import csv
import io
import unicodedata
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from starlette.exceptions import HTTPException

from service.api.errors import shown
from service.routing import main_language
from service.text.terms import Terms, same_term, why_never_found

MAX_GLOSSARIES = 1_000
MAX_ENTRIES = 10_000
MAX_TERM_CHARACTERS = 1_024
MAX_TOTAL_CHARACTERS = 16 * 1024**2
"""Of all glossaries together; they are in memory."""


class BadGlossary(HTTPException):
    """The entries cannot be used; the message says where."""

    def __init__(self, detail: str) -> None:
        super().__init__(400, f"Invalid glossary entries provided: {detail}")


class NoSuchGlossary(HTTPException):
    """There is none of this id, or none in it for these languages."""

    def __init__(self, message: str = "Glossary not found") -> None:
        super().__init__(404, message)


@dataclass(frozen=True)
class Dictionary:
    """Terms of one language, and what they become in another.

    Attributes:
        source: Main code of the language of the terms, in small letters.
        target: Of what they become.
        entries: Both, in the order they came in.
    """

    source: str
    target: str
    entries: Mapping[str, str]

    @cached_property
    def terms(self) -> Terms:
        """The entries, ready to be looked up in."""
        return Terms(self.entries)

    @property
    def pair(self) -> tuple[str, str]:
        """The two languages."""
        return self.source, self.target

    @property
    def num_characters(self) -> int:
        """Of all its terms."""
        return sum(len(term) + len(translation) for term, translation in self.entries.items())

    def info(self) -> dict[str, object]:
        """What DeepL tells of it."""
        return {"source_lang": self.source, "target_lang": self.target, "entry_count": len(self.entries)}

    def tsv(self) -> str:
        """Its entries, one a line."""
        return "\n".join(f"{term}\t{translation}" for term, translation in self.entries.items())


@dataclass(frozen=True, slots=True)
class Glossary:
    """A glossary: one dictionary, or several for different languages.

    Attributes:
        glossary_id: A random UUID.
        owner: Whose key made it; only this one may use it. None without keys.
        name: As the client calls it.
        created: When.
        dictionaries: By their two languages.
    """

    glossary_id: str
    owner: str | None
    name: str
    created: datetime
    dictionaries: Mapping[tuple[str, str], Dictionary]

    @property
    def num_characters(self) -> int:
        """Of all its terms."""
        return sum(dictionary.num_characters for dictionary in self.dictionaries.values())

    @property
    def only(self) -> Dictionary:
        """Its dictionary, for clients that know of one.

        Raises:
            HTTPException: There are none, or several.
        """
        if len(self.dictionaries) != 1:
            raise HTTPException(
                400, f"The glossary has {len(self.dictionaries)} dictionaries, where this path knows one: use /v3"
            )
        return next(iter(self.dictionaries.values()))

    def info(self) -> dict[str, object]:
        """What DeepL tells of a glossary with one dictionary.

        Raises:
            HTTPException: As `only`.
        """
        only = self.only
        return {
            "glossary_id": self.glossary_id,
            "ready": True,
            "name": self.name,
            "source_lang": only.source,
            "target_lang": only.target,
            "creation_time": self._creation_time,
            "entry_count": len(only.entries),
        }

    def multilingual_info(self) -> dict[str, object]:
        """What DeepL tells of any glossary since its third version."""
        return {
            "glossary_id": self.glossary_id,
            "name": self.name,
            "dictionaries": [dictionary.info() for dictionary in self.dictionaries.values()],
            "creation_time": self._creation_time,
        }

    def dictionary(self, source: str, target: str) -> Dictionary:
        """The one for two languages, or variants of them.

        Raises:
            NoSuchGlossary: If there is none.
        """
        found = self.dictionaries.get((main_language(source), main_language(target)))
        if found is None:
            raise NoSuchGlossary("Glossary dictionary not found")
        return found

    @property
    def _creation_time(self) -> str:
        return self.created.isoformat().replace("+00:00", "Z")


class Glossaries:
    """All glossaries, in memory: gone when the server stops."""

    def __init__(self) -> None:
        self._glossaries: dict[str, Glossary] = {}

    def create(self, owner: str | None, name: str, dictionaries: Iterable[Dictionary]) -> Glossary:
        """Makes a glossary.

        Raises:
            HTTPException: If there are too many.
        """
        if len(self._glossaries) >= MAX_GLOSSARIES:
            raise HTTPException(456, f"there are {MAX_GLOSSARIES} glossaries, which is the most; delete one")
        return self.put(
            Glossary(
                str(uuid.uuid4()),
                owner,
                name,
                datetime.now(UTC),
                {dictionary.pair: dictionary for dictionary in dictionaries},
            )
        )

    def put(self, glossary: Glossary) -> Glossary:
        """Keeps a glossary, instead of that of its id.

        Raises:
            HTTPException: If all together are too large.
        """
        others = (each for each in self._glossaries.values() if each.glossary_id != glossary.glossary_id)
        total = sum(each.num_characters for each in others) + glossary.num_characters
        if total > MAX_TOTAL_CHARACTERS:
            raise HTTPException(456, f"all glossaries would have {total} characters; at most {MAX_TOTAL_CHARACTERS}")
        self._glossaries[glossary.glossary_id] = glossary
        return glossary

    def get(self, owner: str | None, glossary_id: str) -> Glossary:
        """A glossary of this owner.

        Raises:
            NoSuchGlossary: If there is none, or it is somebody else's.
        """
        glossary = self._glossaries.get(glossary_id)
        if glossary is None or glossary.owner != owner:
            raise NoSuchGlossary
        return glossary

    def all_of(self, owner: str | None) -> list[Glossary]:
        """All of an owner, the oldest first."""
        return [glossary for glossary in self._glossaries.values() if glossary.owner == owner]

    def delete(self, owner: str | None, glossary_id: str) -> None:
        """Deletes a glossary.

        Raises:
            NoSuchGlossary: As `get`.
        """
        del self._glossaries[self.get(owner, glossary_id).glossary_id]


def parse_entries(text: str, format_: str, source: str, target: str) -> dict[str, str]:
    """Reads entries.

    Args:
        text: Lines.
        format_: `tsv` or `csv`.
        source: Language of the terms; in CSV with four columns the third names it.
        target: The other one, as the fourth does.

    Raises:
        BadGlossary: Names the line and what is wrong with it.
    """
    text = text.removeprefix("\ufeff")  # which files of some programs begin with
    rows = _tsv_rows(text) if format_ == "tsv" else _csv_rows(text, source, target)
    entries: dict[str, str] = {}
    known: set[str] = set()
    for number, (term, translation) in rows:
        for what, value in (("source", term), ("target", translation)):
            if not value:
                raise BadGlossary(f"line {number}: the {what} term is empty")
            if len(value) > MAX_TERM_CHARACTERS:
                raise BadGlossary(
                    f"line {number}: the {what} term has {len(value)} characters; at most 1024 are allowed"
                )
            if any(unicodedata.category(char) in ("Cc", "Zl", "Zp", "Co") for char in value):
                raise BadGlossary(f"line {number}: the {what} term has a control character in it")
        if (fault := why_never_found(term)) is not None:
            raise BadGlossary(f"line {number}: the source term {fault}")
        if (same := same_term(term)) in known:
            raise BadGlossary(f"line {number}: {shown(term)} is there twice")
        known.add(same)
        entries[term] = translation
        if len(entries) > MAX_ENTRIES:
            raise BadGlossary(f"more than {MAX_ENTRIES} entries")
    if not entries:
        raise BadGlossary("there are none")
    return entries


def _tsv_rows(text: str) -> list[tuple[int, tuple[str, str]]]:
    rows = []
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        if not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) != 2:
            raise BadGlossary(f"line {number} has {len(fields)} fields; two are needed, with a tab between them")
        rows.append((number, (fields[0].strip(), fields[1].strip())))
    return rows


def _csv_rows(text: str, source: str, target: str) -> list[tuple[int, tuple[str, str]]]:
    rows = []
    try:
        for fields in (reader := csv.reader(io.StringIO(text), strict=True)):
            if not any(field.strip() for field in fields):
                continue
            if len(fields) not in (2, 4):
                raise BadGlossary(f"line {reader.line_num} has {len(fields)} fields; two or four are needed")
            if len(fields) == 4 and [main_language(code.strip()) for code in fields[2:]] != [
                main_language(source),
                main_language(target),
            ]:
                raise BadGlossary(f"line {reader.line_num} names other languages than the glossary")
            rows.append((reader.line_num, (fields[0].strip(), fields[1].strip())))
    except csv.Error as error:
        raise BadGlossary(f"no CSV ({error})") from error
    return rows
