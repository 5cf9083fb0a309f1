"""Which attention maps of a model are meant: kinds, layers and heads, as a request writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from model.config import TransformerConfig

Kind = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_INDEX_OR_RANGE = re.compile(r"(-?\d{1,18})(?:-(-?\d{1,18}))?")  # Python refuses to read thousands of digits


class TraceError(ValueError):
    """A replay that cannot be made; the message says what was given and what is possible."""


class SelectionError(TraceError):
    """A kind, layer, head, position or measure that does not exist."""


@dataclass(frozen=True)
class Selection:
    """Which maps are wanted.

    Attributes:
        layers: Layer numbers of each wanted kind, zero-based, in the order wanted; a kind that is absent is not kept.
        heads: Head numbers, the same for all kinds.
    """

    layers: Mapping[Kind, tuple[int, ...]]
    heads: tuple[int, ...]

    @classmethod
    def of(
        cls,
        config: TransformerConfig,
        kinds: Sequence[str] = KINDS,
        layers: Sequence[int | str] | str | int | None = None,
        heads: Sequence[int | str] | str | int | None = None,
    ) -> Selection:
        """Read a selection as requests write it; see :func:`select_indices`. Layers apply to every kind.

        Raises:
            SelectionError: For a kind, layer or head that the model does not have.
        """
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown:
            raise SelectionError(f"kind {unknown[0]!r} does not exist; kinds are {', '.join(KINDS)}")
        wanted = [kind for kind in KINDS if kind in kinds]
        return cls(
            layers=MappingProxyType(
                {kind: select_indices(layers, depth(config, kind), f"{kind} layer") for kind in wanted}
            ),
            heads=select_indices(heads, config.num_heads, "head"),
        )


def depth(config: TransformerConfig, kind: Kind) -> int:
    """How many layers have this kind of attention."""
    return config.num_encoder_layers if kind == "encoder" else config.num_decoder_layers


def select_indices(wanted: Sequence[int | str] | str | int | None, count: int, name: str) -> tuple[int, ...]:
    """Numbers from 0 to ``count`` - 1, in the order asked for, each once.

    Args:
        wanted: An index, a range with both ends included ("2-4"), a list of them, or those with commas in one text
            ("0,2-4,-1"); negative ones count from the end. None and "all" are all.
        count: How many there are.
        name: What they are, for the message.

    Raises:
        SelectionError: For what is no index, out of range, a falling range, or an empty list.
    """
    if wanted is None or wanted == "all":
        return tuple(range(count))
    parts: Sequence[int | str]
    if isinstance(wanted, str):
        parts = wanted.split(",")
    else:
        parts = [wanted] if isinstance(wanted, int) else wanted
    chosen: dict[int, None] = {}
    for part in parts:
        match = _INDEX_OR_RANGE.fullmatch(str(part).strip()) if not isinstance(part, bool) else None
        if match is None:
            raise SelectionError(f"{name} {part!r} is neither an index nor a range such as 2-4")
        first, last = (resolved_index(int(end), count, name) for end in (match[1], match[2] or match[1]))
        if last < first:
            raise SelectionError(f"{name} range {part} runs backwards")
        chosen.update(dict.fromkeys(range(first, last + 1)))
    if not chosen:
        raise SelectionError(f"no {name} is chosen")
    return tuple(chosen)


def resolved_index(index: int, count: int, name: str) -> int:
    """From 0 to ``count`` - 1, where ``index`` may count from the end.

    Raises:
        SelectionError: When there is no such one.
    """
    if not -count <= index < count:
        raise SelectionError(f"{name} {index} does not exist; there are {count} (0 to {count - 1}, or -1 to {-count})")
    return index % count
