"""Colour maps: from a number between 0 and 1 to a colour.

cividis (Nunez et al. 2018, "Optimizing colormaps with consideration for color vision deficiency") and viridis are those
of matplotlib, which puts them in the public domain (CC0): 256 colours of three bytes each.
"""

from __future__ import annotations

import base64
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Cmap = Literal["cividis", "viridis", "grey"]
Theme = Literal["light", "dark"]
Scale = Literal["unit", "row", "gamma"]
Pixels = NDArray[np.uint8]

_CIVIDIS = (
    "ACJOACNPACRRACVTACVUACZWACdYAChZAChbACldACpfACphACtiACxkACxmAC1oAC5qAC5sAC9tADBvADBwADFwADFxATJxBTNxCDNwDDRw"
    "DzVwEjVwFDZwFjdwGDdvGjhvHDlvHjpvIDpvITtuIzxuJDxuJj1uJz5uKT9uKj9tK0BtLUFtLkFtL0JtMUNtMkNtM0RtNEVsNUVsNkZsOEds"
    "OUhsOkhsO0lsPEpsPUpsPktsP0xsQExsQU1sQk5sQ05sRE9sRVBsRlFsR1FsSFJsSVNsSlNsS1RsTFVsTVVsTlZsT1dsUFdsUVhtUlltU1pt"
    "VFptVVttVVxtVlxtV11tWF5tWV5uWl9uW2BuXGFuXWFuXmJuXmNvX2NvYGRvYWVvYmVvY2ZwZGdwZWhwZWhwZmlwZ2pxaGpxaWtxamxxa21y"
    "bG1ybG5ybW9ybm9zb3BzcHFzcXJ0cnJ0cnN0c3R1dHR1dXV1dnZ2d3d2d3d3eHh3eXl3enp4e3p4fHt4fXx4fnx4fn14f354gH94gX94goB5"
    "g4F5hIJ5hYJ5hoN5h4R4iIV4iYV4ioZ4i4d4jIh4jYh4jol4j4p4kIt4kYt4kox4ko14k454lI53lY93lpB3l5F3mJJ3mZJ3mpN2m5R2nJV2"
    "nZV2npZ2n5d1oJh1oZl1opl1o5p0pJt0pZx0ppx0p51zqJ5zqZ9zqqBzq6ByrKFyraJyrqNxr6RxsKVxsaVws6ZwtKdvtahvtqlvt6luuKpu"
    "uattuqxtu61tvK5sva5svq9rv7BrwLFqwbJqwrNpw7NpxLRoxbVoxrZnx7dnyLhmyblly7llzLpkzbtjzrxjz71i0L5i0b9h0sBg08Bf1MFf"
    "1cJe1sNd18Rc2cVc2sZb28da3MhZ3chY3slY38pX4MtW4cxV4s1U5M5T5c9S5tBR59FQ6NJP6dNO6tNM69RL7dVK7tZJ79dI8NhG8dlF8tpE"
    "89tC9dxB9t0/994++N88+eA6++E4/OI2/eM0/uQ0/uU1/uY2/ug4"
)
_VIRIDIS = (
    "RAFURAJWRQRXRQVZRgdaRghcRgpdRgteRw1gRw5hRxBjRxFkRxNlSBRnSBZoSBdpSBhqSBpsSBttSBxuSB1vSB9wSCBxSCFzSCN0SCR1SCV2"
    "SCZ3SCh4SCl5Ryp6Ryx6Ry17Ry58Ry99RjB+RjJ+RjN/RjSARTWBRTeBRTiCRDmDRDqDRDuEQz2EQz6FQj+FQkCGQkGGQUKHQUSHQEWIQEaI"
    "P0eIP0iJPkmJPkqJPkyKPU2KPU6KPE+KPFCLO1GLO1KLOlOLOlSMOVWMOVaMOFiMOFmMN1qMN1uNNlyNNl2NNV6NNV+NNGCNNGGNM2KNM2ON"
    "MmSOMmWOMWaOMWeOMWiOMGmOMGqOL2uOL2yOLm2OLm6OLm+OLXCOLXGOLHGOLHKOLHOOK3SOK3WOKnaOKneOKniOKXmOKXqOKXuOKHyOKH2O"
    "J36OJ3+OJ4COJoGOJoKOJoKOJYOOJYSOJYWOJIaOJIeOI4iOI4mOI4qNIouNIoyNIo2NIY6NIY+NIZCNIZGMIJKMIJKMIJOMH5SMH5WLH5aL"
    "H5eLH5iLH5mKH5qKHpuKHpyJHp2JH56JH5+IH6CIH6GIH6GHH6KHIKOGIKSGIaWFIaaFIqeFIqiEI6mDJKqDJauCJayCJq2BJ62BKK6AKa9/"
    "KrB/LLF+LbJ9LrN8L7R8MbV7MrZ6NLZ5Nbd5N7h4OLl3Orp2O7t1Pbx0P7xzQL1yQr5xRL9wRsBvSMFuSsFtTMJsTsNrUMRqUsVpVMVoVsZn"
    "WMdlWshkXMhjXsliYMpgY8tfZcteZ8xcac1bbM1abs5YcM9Xc9BWddBUd9FTetFRfNJQf9NOgdNNhNRLhtVJidVIi9ZGjtZFkNdDk9dBldhA"
    "mNg+m9k8ndk7oNo5oto3pds2qNs0qtwyrdwwsN0vst0ttd4ruN4put4ovd8mwN8lwt8jxeAhyOAgyuEfzeEd0OEc0uIb1eIa2OIZ2uMZ3eMY"
    "3+MY4uQY5eQZ5+QZ6uUa7OUb7+Uc8eUd9OYe9uYg+OYh++cj/ecl"
)


def _table(encoded: str) -> Pixels:
    return np.frombuffer(base64.b64decode(encoded), dtype=np.uint8).reshape(256, 3)


TABLES: dict[str, Pixels] = {
    "cividis": _table(_CIVIDIS),
    "viridis": _table(_VIRIDIS),
    "grey": np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1),
}
"""Dark for 0, light for 1; (256, 3) each."""

BACKGROUNDS: dict[Theme, tuple[int, int, int]] = {"light": (255, 255, 255), "dark": (18, 20, 24)}
"""What pictures stand on, and what the colour of 0 is."""

_FADE = 80
"""Steps over which the colours come out of the background."""


def palette(cmap: Cmap, theme: Theme) -> Pixels:
    """256 colours from the background, which is 0, to the strongest, which is 1.

    On a light background the table is turned round; its quiet end comes out of the background, so that nothing shines
    where nothing is.
    """
    table = (TABLES[cmap][::-1] if theme == "light" else TABLES[cmap]).astype(np.float64)
    share = np.clip(np.arange(256) / _FADE, 0, 1)[:, None]
    mixed = share * table + (1 - share) * np.array(BACKGROUNDS[theme])
    result: Pixels = np.rint(mixed).astype(np.uint8)
    return result


def colours(values: NDArray[np.float32], cmap: Cmap, theme: Theme) -> Pixels:
    """The colour of each number.

    Args:
        values: Any shape, from 0 to 1; NaN counts as 0.
        cmap: Which table.
        theme: See `palette`.

    Returns:
        The same shape and three bytes more.
    """
    steps = np.rint(np.clip(np.nan_to_num(values, nan=0.0), 0, 1) * 255).astype(np.intp)
    result: Pixels = palette(cmap, theme)[steps]
    return result


def scaled(maps: NDArray[np.float32], scale: Scale) -> NDArray[np.float32]:
    """Numbers from 0 to 1 for a picture.

    What is no weight is first moved between its least and its largest finite number.

    Args:
        maps: (..., Q, K).
        scale: `unit` as it is; `row` divides each row by its largest; `gamma` takes the square root, which lifts small
            ones.
    """
    finite = np.where(np.isfinite(maps), maps, np.nan).astype(np.float32)
    if finite.size and not np.isnan(finite).all() and (np.nanmin(finite) < 0 or np.nanmax(finite) > 1 + 1e-5):
        least, most = np.nanmin(finite), np.nanmax(finite)
        finite = (finite - least) / max(float(most - least), 1e-30)
    finite = np.nan_to_num(finite, nan=0.0)
    if scale == "row":
        result: NDArray[np.float32] = finite / np.maximum(finite.max(axis=-1, keepdims=True), 1e-30)
        return result
    return np.sqrt(np.maximum(finite, 0)) if scale == "gamma" else finite
