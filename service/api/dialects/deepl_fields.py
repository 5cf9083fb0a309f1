"""Fields as DeepL words what is wrong with them, and languages as it writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from service.api.dialects.fields import BadField, Fields
from service.routing import UnknownLanguagePair, main_language

_VARIANTS = {"en": ("en-GB", "en-US"), "pt": ("pt-BR", "pt-PT")}
"""Targets that DeepL, and its clients with it, know only with a country."""

_Choice = TypeVar("_Choice", bound=str)


def needed(fields: Fields, name: str, where: str = "") -> str:
    """A string that must be there.

    Args:
        fields: Of the request, or of an object in it.
        name: Of the field.
        where: What stands before the name in messages, as `dictionaries[0].`

    Raises:
        BadField: If it is not.
    """
    value = fields.text(name, where)
    if value is None:
        raise BadField(f"Parameter '{where}{name}' not specified.")
    return value


def choice(fields: Fields, name: str, allowed: tuple[_Choice, ...], where: str = "") -> _Choice | None:
    """One of several words; None where it is missing, null or empty.

    Raises:
        BadField: If it is another one.
    """
    value = fields.single(name)
    if isinstance(value, bool | int):  # clients send split_sentences as a number, too
        value = str(int(value))
    elif value is not None:
        value = fields.text(name, where)
    if value is None:
        return None
    for found in allowed:
        if value == found:
            return found
    raise BadField(f"Value for '{where}{name}' not supported. Allowed: {', '.join(allowed)}")


def spelled(code: str) -> str:
    """A language's code as DeepL writes it: `EN`, `PT-BR`."""
    return code.replace("_", "-").upper()


def source_codes(codes: Iterable[str]) -> list[str]:
    """Codes as `source_lang` has them: without variants, each once."""
    return list(dict.fromkeys(spelled(main_language(code)) for code in codes))


def target_codes(codes: Iterable[str]) -> list[str]:
    """Codes as `target_lang` has them: some with variants only."""
    return [spelled(variant) for code in codes for variant in _VARIANTS.get(code, (code,))]


def no_pair(error: UnknownLanguagePair, where: str = "") -> BadField:
    """What DeepL says of languages that are not there, with those that are: targets are those for the source.

    Args:
        error: What the translator found.
        where: As for `needed`.
    """
    codes = source_codes(error.available) if error.field == "source" else target_codes(error.available)
    return BadField(f"Value for '{where}{error.field}_lang' not supported. There is: {', '.join(codes)}")
