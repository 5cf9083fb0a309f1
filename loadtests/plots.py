"""Line and bar plots as SVG text: logarithmic axes where asked for, bands, a legend, nothing to install."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

_WIDTH, _HEIGHT = 620, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 170, 38, 46
_BAR, _NAMES = 26, 112
_MAX_TICKS = 12
# Distinct also to colour-blind eyes (Okabe and Ito 2008).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999")


@dataclass(frozen=True)
class Line:
    """One line of a plot.

    Attributes:
        name: For the legend.
        points: (x, y), by x.
        band: (x, lowest, highest), drawn pale behind it; may be empty.
        colour: Number of its colour; None = by its place among the lines.
        is_dashed: Drawn with gaps.
    """

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = field(default_factory=tuple)
    colour: int | None = None
    is_dashed: bool = False


@dataclass(frozen=True)
class _Axis:
    lowest: float
    highest: float
    start: float
    end: float
    is_log: bool

    def place(self, value: float) -> float:
        """Where a value stands in the picture."""
        low, high, value = (
            (math.log(self.lowest), math.log(self.highest), math.log(max(value, self.lowest)))
            if self.is_log
            else (self.lowest, self.highest, value)
        )
        return self.start + (self.end - self.start) * ((value - low) / ((high - low) or 1.0))

    def ticks(self) -> list[float]:
        """Round values within."""
        if self.is_log:
            span = math.log10(self.highest / self.lowest)
            steps = (1, 2, 5) if span < 2.5 else (1,)
            first = math.floor(math.log10(self.lowest))
            values = [step * 10.0**power for power in range(first, first + int(span) + 3) for step in steps]
        else:
            raw = (self.highest - self.lowest) / 5 or 1.0
            size = 10 ** math.floor(math.log10(raw))
            step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw)
            values = [step * number for number in range(int(self.lowest / step), int(self.highest / step) + 2)]
        return [value for value in values if self.lowest * 0.999 <= value <= self.highest * 1.001]


def line_plot(
    title: str, x_label: str, y_label: str, lines: Sequence[Line], *, log_x: bool = False, log_y: bool = False
) -> str:
    """One SVG element."""
    lines = [line for line in lines if line.points]
    xs = [x for line in lines for x, _ in line.points] or [1.0]
    ys = [y for line in lines for _, y in line.points]
    ys += [y for line in lines for _, low, high in line.band for y in (low, high)]
    ys = [y for y in ys if not log_y or y > 0] or [1.0]
    x_axis = _Axis(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT, log_x)
    y_axis = _Axis(min(ys) if log_y else 0.0, max(ys) * 1.05, _HEIGHT - _BOTTOM, _TOP, log_y)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(title)}" '
        'font-family="system-ui, sans-serif" font-size="11">',
        _text(0, 18, title, size=15),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, x_label, anchor="middle"),
        f'<text transform="translate(14 {(_TOP + _HEIGHT - _BOTTOM) / 2}) rotate(-90)" text-anchor="middle" '
        f'fill="currentColor">{html.escape(y_label)}</text>',
    ]
    # Where few values were measured, these are the ticks.
    for tick in sorted(set(xs)) if log_x and len(set(xs)) <= _MAX_TICKS else x_axis.ticks():
        x = x_axis.place(tick)
        parts.append(_stroke(f"M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}", "#8884", 1))
        parts.append(_text(x, _HEIGHT - _BOTTOM + 14, _number(tick), anchor="middle"))
    for tick in y_axis.ticks():
        y = y_axis.place(tick)
        parts.append(_stroke(f"M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}", "#8884", 1))
        parts.append(_text(_LEFT - 6, y + 4, _number(tick), anchor="end"))
    for number, line in enumerate(lines):
        colour = _COLOURS[(number if line.colour is None else line.colour) % len(_COLOURS)]
        dash = ' stroke-dasharray="5 4"' if line.is_dashed else ""
        if line.band:
            there = [f"{x_axis.place(x):.1f} {y_axis.place(high):.1f}" for x, _, high in line.band]
            back = [f"{x_axis.place(x):.1f} {y_axis.place(low):.1f}" for x, low, _ in reversed(line.band)]
            parts.append(f'<path d="M{"L".join(there + back)}Z" fill="{colour}" opacity="0.14"/>')
        places = [f"{x_axis.place(x):.1f} {y_axis.place(y):.1f}" for x, y in line.points]
        parts.append(_stroke(f"M{'L'.join(places)}", colour, 2, dash))
        if len(places) <= 40:
            parts += [
                f'<circle cx="{place.split()[0]}" cy="{place.split()[1]}" r="3" fill="{colour}"/>' for place in places
            ]
        y = _TOP + 8 + 16 * number
        parts.append(_stroke(f"M{_WIDTH - _RIGHT + 8} {y}h16", colour, 3, dash))
        parts.append(_text(_WIDTH - _RIGHT + 28, y + 4, line.name))
    return "\n".join([*parts, "</svg>"])


def bar_plot(title: str, unit: str, bars: Sequence[tuple[str, float, int]], note: str = "") -> str:
    """One SVG element of lying bars, each with its number.

    Args:
        title: Above them.
        unit: Of the numbers, below them.
        bars: Name, value (0 or more) and number of the colour of each.
        note: Behind the unit.
    """
    bottom = _TOP + _BAR * len(bars)
    height = bottom + 34
    longest = max((value for _, value, _ in bars), default=0.0) or 1.0
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{html.escape(title)}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        _text(0, 18, title, size=15),
        _text(_NAMES, bottom + 20, f"{unit}{note}", size=11),
    ]
    for number, (name, value, colour) in enumerate(bars):
        y = _TOP + _BAR * number
        length = max(1.0, (_WIDTH - _NAMES - 74) * value / longest)
        parts.append(_text(_NAMES - 8, y + 15, name, anchor="end", size=12))
        parts.append(
            f'<rect x="{_NAMES}" y="{y + 3}" width="{length:.1f}" height="{_BAR - 8}" rx="2" '
            f'fill="{_COLOURS[colour % len(_COLOURS)]}"/>'
        )
        parts.append(_text(_NAMES + length + 6, y + 15, _short(value), size=12))
    return "\n".join([*parts, "</svg>"])


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="currentColor">'
        f"{html.escape(text)}</text>"
    )


def _stroke(path: str, colour: str, width: int, more: str = "") -> str:
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"{more}/>'


def _number(value: float) -> str:
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:g}" if value == 0 or value >= 0.001 else f"{value:.0e}"


def _short(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
