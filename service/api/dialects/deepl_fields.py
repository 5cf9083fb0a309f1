"""Fields as DeepL words what is wrong with them."""

from __future__ import annotations

from typing import TypeVar

from service.api.dialects.fields import BadField, Fields

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
