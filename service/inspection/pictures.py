"""Maps as pictures: one map with its labels, or an atlas of all layers and heads. No library draws them.

PNG is written with zlib and struct (W3C, "Portable Network Graphics (PNG) Specification", third edition). It has no
letters in it, for there is no font here; SVG has them.
"""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import NDArray

from service.inspection.colours import BACKGROUNDS, Cmap, Pixels, Scale, Theme, colours, scaled

_INKS: dict[Theme, str] = {"light": "#1b1e24", "dark": "#e8e6e1"}
_MAX_SIDE = 4096
_MAX_TITLED_CELLS = 4096
"""A map of more cells is a picture inside the SVG, without a title on each cell."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a picture is drawn.

    Attributes:
        cmap: Colours.
        theme: Of what is around them.
        scale: See `service.inspection.colours.scaled`.
        cell: Pixels of a cell's side; None chooses.
    """

    cmap: Cmap = "cividis"
    theme: Theme = "light"
    scale: Scale = "unit"
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn.

    Attributes:
        maps: (L, H, Q, K).
        title: Above all.
        layers: Name of each layer.
        heads: Name of each head.
        rows: Labels of the queries.
        columns: Labels of the keys.
    """

    maps: NDArray[np.float32]
    title: str
    layers: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def is_single(self) -> bool:
        """One map, or several."""
        return self.maps.shape[:2] == (1, 1)


def png(picture: Picture, look: Look) -> bytes:
    """The maps side by side: a row for each layer, a column for each head, with gaps between them."""
    cell = _cell(picture, look)
    gap = 0 if picture.is_single else max(4, cell)
    pixels = colours(scaled(picture.maps, look.scale), look.cmap, look.theme)  # (L, H, Q, K, 3)
    pixels = pixels.repeat(cell, axis=2).repeat(cell, axis=3)
    num_layers, num_heads, height, width, _ = pixels.shape
    canvas = np.empty((num_layers * (height + gap) + gap, num_heads * (width + gap) + gap, 3), dtype=np.uint8)
    canvas[:] = BACKGROUNDS[look.theme]
    for layer in range(num_layers):
        for head in range(num_heads):
            top, left = gap + layer * (height + gap), gap + head * (width + gap)
            canvas[top : top + height, left : left + width] = pixels[layer, head]
    return png_bytes(canvas, {"Title": picture.title})


def png_bytes(pixels: Pixels, texts: dict[str, str]) -> bytes:
    """A PNG file.

    Args:
        pixels: (height, width, 3), red, green and blue; neither side may be 0.
        texts: Said in the file, by keyword.
    """
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + width * 3), dtype=np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, width * 3)
    parts = [b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))]
    for keyword, text in texts.items():
        parts.append(_chunk(b"iTXt", keyword.encode("latin-1") + b"\0\0\0\0\0" + text.encode()))
    parts += [_chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)), _chunk(b"IEND", b"")]
    return b"".join(parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def svg(picture: Picture, look: Look) -> bytes:
    """The same with labels; a single small map has a title on each cell."""
    return (_svg_map(picture, look) if picture.is_single else _svg_atlas(picture, look)).encode()


def _svg_map(picture: Picture, look: Look) -> str:
    cell = _cell(picture, look)
    num_rows, num_columns = picture.maps.shape[2:]
    letters = max([len(label) for label in (*picture.rows, *picture.columns)], default=0)
    font = min(max(cell - 2, 6), 14)
    left = top = round(letters * font * 0.62) + 16
    top += 24
    width = max(left + num_columns * cell + 8, _text_width(picture.title))
    height = top + num_rows * cell + 8
    values = scaled(picture.maps, look.scale)[0, 0]
    painted = colours(values, look.cmap, look.theme)
    parts = [_svg_head(width, height, picture.title, look)]
    side = cell - 1 if cell >= 8 else cell  # a hair between cells that are large enough for it
    if num_rows * num_columns <= _MAX_TITLED_CELLS:
        for row in range(num_rows):
            for column in range(num_columns):
                says = f"{picture.rows[row]} → {picture.columns[column]}: {float(picture.maps[0, 0, row, column]):.4f}"
                parts.append(
                    f'<rect x="{left + column * cell}" y="{top + row * cell}" width="{side}" height="{side}" '
                    f'fill="{_hex(painted[row, column])}"><title>{escape(says)}</title></rect>'
                )
    elif painted.size:
        parts.append(_svg_image(painted, left, top, num_columns * cell, num_rows * cell))
    for row, label in enumerate(picture.rows):
        parts.append(_svg_text(label, left - 6, top + (row + 0.5) * cell, font, "end"))
    for column, label in enumerate(picture.columns):
        x, y = left + (column + 0.5) * cell, top - 6
        parts.append(_svg_text(label, x, y, font, "start", f' transform="rotate(-90 {x:g} {y})"'))
    return "".join([*parts, "</g></svg>"])


def _svg_atlas(picture: Picture, look: Look) -> str:
    cell = _cell(picture, look)
    num_layers, num_heads, num_rows, num_columns = picture.maps.shape
    width_of, height_of = num_columns * cell, num_rows * cell
    gap, left, top = 10, 56, 48
    width = max(left + num_heads * (width_of + gap), _text_width(picture.title))
    height = top + num_layers * (height_of + gap)
    painted = colours(scaled(picture.maps, look.scale), look.cmap, look.theme)
    parts = [_svg_head(width, height, picture.title, look)]
    for head, name in enumerate(picture.heads):
        parts.append(_svg_text(name, left + head * (width_of + gap) + width_of / 2, top - 10, 11, "middle"))
    for layer, name in enumerate(picture.layers):
        y = top + layer * (height_of + gap)
        parts.append(_svg_text(name, left - 8, y + height_of / 2, 11, "end"))
        for head in range(num_heads):
            x = left + head * (width_of + gap)
            says = escape(f"{name}, {picture.heads[head]}")
            image = _svg_image(painted[layer, head], x, y, width_of, height_of) if painted.size else ""
            parts.append(f"<g><title>{says}</title>{image}</g>")
    return "".join([*parts, "</g></svg>"])


def _text_width(text: str) -> int:
    """Of a title, at most about."""
    return 16 + 8 * len(text)


def _svg_head(width: int, height: int, title: str, look: Look) -> str:
    background = _hex(np.array(BACKGROUNDS[look.theme], dtype=np.uint8))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label={quoteattr(title)}><title>{escape(title)}</title>'
        f'<rect width="{width}" height="{height}" fill="{background}"/>'
        f'<g fill="{_INKS[look.theme]}" font-family="ui-sans-serif, system-ui, sans-serif">'
        f'<text x="8" y="18" font-size="13">{escape(title)}</text>'
    )


def _svg_text(label: str, x: float, y: float, size: float, anchor: str, more: str = "") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" dominant-baseline="central"{more}>'
        f"{escape(label)}</text>"
    )


def _svg_image(pixels: Pixels, x: float, y: float, width: float, height: float) -> str:
    """One pixel a cell, enlarged by whoever shows it."""
    data = base64.b64encode(png_bytes(pixels, {})).decode()
    return (
        f'<image x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" preserveAspectRatio="none" '
        f'image-rendering="pixelated" href="data:image/png;base64,{data}"/>'
    )


def _cell(picture: Picture, look: Look) -> int:
    """As asked for, if the picture stays below 4,096 pixels; else as large as fits well."""
    num_layers, num_heads, num_rows, num_columns = (max(1, size) for size in picture.maps.shape)
    across, down = num_heads * num_columns, num_layers * num_rows
    most = max(1, _MAX_SIDE // max(across + num_heads, down + num_layers))
    wanted = look.cell or (18 if picture.is_single else 4)
    return int(min(wanted, most))


def _hex(colour: NDArray[np.uint8]) -> str:
    red, green, blue = colour.tolist()
    return f"#{red:02x}{green:02x}{blue:02x}"
