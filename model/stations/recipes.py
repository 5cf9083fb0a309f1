"""Each station once more, without torch: a file with its numbers, and lines of plain numpy that compute its result.

    np.savez("softmax.npz", **file_arrays(station))
    recipe_of(station, tracer).code      # beside the file, the lines define `result`
    recipe_of(station, tracer).result    # the name of what it must equal, within `tolerance`

The lines are what a reader of the paper would write. An exported station is so a claim that anyone can check.
"""

from __future__ import annotations

import dataclasses
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.stations.attention import AttentionRows, CausalMask, Cross, Heads, Projections, Softmax
from model.stations.base import Station, by_another_path, exact
from model.stations.block import Block, FeedForwardNetwork, ResidualNorm
from model.stations.inputs import Positions, Route, Tokens
from model.stations.output import Cost, Decoding, Loss
from model.trace import Tracer

_AFFINE = """
    def affine(y, name):  # y W + b
        return y @ x[name + ".weight"] + x[name + ".bias"]
"""
_ROUNDED_AFFINE = """
    def affine(y, name):  # y W + b; each row of y is first rounded to steps of its largest magnitude, as int8 does
        top, levels = np.maximum(np.abs(y).max(-1, keepdims=True), np.float32(1e-30)), x[name + ".input_levels"]
        return np.round(y / top * levels.astype("f4")) / levels * top @ x[name + ".weight"] + x[name + ".bias"]
"""
_SOFTMAX = """
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
"""
_ACTIVATIONS = {
    "relu": "np.maximum(hidden, 0)",
    "swish": "hidden / (1 + np.exp(-hidden))",
    "gelu": "0.5 * hidden * (1 + np.vectorize(math.erf)(hidden / np.sqrt(2)))",
    "gelu by tanh": "0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))",
}


@dataclass(frozen=True)
class Recipe:
    """How to compute a station's result by hand.

    Attributes:
        code: Plain numpy; loads ``NAME.npz`` from the working folder and defines ``result``.
        result: The array in the file that ``result`` must equal.
        tolerance: The largest difference.
    """

    code: str
    result: str
    tolerance: float


def file_arrays(station: Station) -> dict[str, NDArray[Any]]:
    """What the file holds: the station's arrays, and its plain numbers and words as arrays without axes."""
    found = station.arrays()
    _collect_scalars(station, "", found)
    if isinstance(station, Route):
        found |= _route_arrays(station)
    return found


def _collect_scalars(value: object, prefix: str, found: dict[str, NDArray[Any]]) -> None:
    for field in dataclasses.fields(value):  # type: ignore[arg-type]  # only called with dataclasses
        name, item = prefix + field.name, getattr(value, field.name)
        if isinstance(item, bool | int | float | str):
            found[name] = np.array(item)
        elif dataclasses.is_dataclass(item):
            _collect_scalars(item, name + ".", found)


def _route_arrays(route: Route) -> dict[str, NDArray[Any]]:
    """Stages as tables; where a stage reads less than two others, the rest is empty."""
    stages = route.stages
    reads = [[*stage.reads, ""][:2] for stage in stages]
    received = [[*stage.input_shapes, (0,)][:2] for stage in stages]
    return {
        "stage_names": np.array([stage.name for stage in stages]),
        "stage_reads": np.array(reads),
        "stage_input_shapes": np.array([[_two(shape) for shape in shapes] for shapes in received]),
        "stage_output_shapes": np.array([_two(stage.output_shape) for stage in stages]),
        "stage_seconds": np.array([stage.seconds for stage in stages]),
    }


def _two(shape: tuple[int, ...]) -> tuple[int, int]:
    return (shape[0], shape[1] if len(shape) > 1 else 0)


def recipe_of(station: Station, tracer: Tracer) -> Recipe:
    """The lines for a station, and how exactly they meet it.

    Args:
        station: Any of the 15.
        tracer: What it was taken from: the number format decides how close two ways of summing are.
    """
    lines, result, loosely = _lines(station, tracer.model.output.is_quantized)
    code = f'import numpy as np\nwith np.load("{station.name}.npz") as file:\n    x = dict(file)\n'
    code += "\n".join(line for line in textwrap.dedent(lines).splitlines() if line.strip())
    if "math." in code:
        code = "import math\n" + code
    reference = file_arrays(station)[result]
    if not np.issubdtype(reference.dtype, np.floating):
        return Recipe(code, result, 0.0)
    tolerance = by_another_path if loosely else exact
    return Recipe(code, result, tolerance(tracer, 1e-5, reference[np.isfinite(reference)]))


def _lines(station: Station, is_quantized: bool) -> tuple[str, str, bool]:
    """Code, the name of its result, and whether it goes through more than one rounding."""
    affine = _ROUNDED_AFFINE if is_quantized else _AFFINE
    match station:
        case Route():
            return (
                """
    given = dict(zip(x["stage_names"].tolist(), x["stage_output_shapes"].tolist()))
    first = {name: shape for names, shapes in zip(x["stage_reads"].tolist(), x["stage_input_shapes"].tolist())
             for name, shape in zip(names, shapes) if name not in given}  # the ids, and nothing
    result = np.array([[(given | first)[name] for name in names] for names in x["stage_reads"].tolist()])
""",
                "stage_input_shapes",
                False,
            )
        case Tokens():
            return (
                """
    a, b = x["rows"][x["index"]], x["rows"][x["compared_index"]]
    result = a @ b / (np.sqrt(a @ a) * np.sqrt(b @ b))
""",
                "cosine",
                False,
            )
        case Positions():
            return _position_lines(station)
        case Projections():
            return affine + '    result = affine(x["query_inputs"], "query_map")\n', "queries", False
        case AttentionRows():
            return (
                """
    scores = x["queries"] @ x["keys"].T / np.sqrt(x["keys"].shape[1])
    scores = np.where(x["allowed"], scores, -np.inf)
"""
                + _SOFTMAX
                + '    result = weights @ x["values"]\n',
                "context",
                False,
            )
        case Softmax():
            return (
                """
    scores = x["raw"] / np.sqrt(x["what_if_d_k"]) / x["what_if_temperature"]
    scores = np.where(x["allowed"], scores, -np.inf)
"""
                + _SOFTMAX
                + "    result = weights\n",
                "what_if_weights",
                False,
            )
        case Heads():
            return affine + '    result = affine(x["contexts"], "out_map")  # heads side by side\n', "update", False
        case Block():
            return _block_lines(station)
        case ResidualNorm():
            return (
                """
    y = x["norm_inputs"]
    mean, variance = y.mean(-1, keepdims=True), y.var(-1, keepdims=True)
    result = x["gamma"] * (y - mean) / np.sqrt(variance + x["epsilon"]) + x["beta"]
""",
                "normed",
                False,
            )
        case FeedForwardNetwork():
            name = station.activation + (" by tanh" if station.approximation == "tanh" else "")
            return (
                affine
                + f"""
    hidden = affine(x["inputs"], "inner")
    activated = {_ACTIVATIONS[name]}
    result = affine(activated.astype("f4"), "outer")
""",
                "outputs",
                True,
            )
        case CausalMask():
            return (
                """
    past = np.tril(np.ones(x["unmasked_scores"].shape, bool))
    scores = np.where(past, x["unmasked_scores"], -np.inf)
"""
                + _SOFTMAX
                + "    result = weights\n",
                "weights",
                False,
            )
        case Cross():
            return (
                """
    scores = x["queries"] @ x["keys"].T / np.sqrt(x["keys"].shape[1])  # from the decoder, from the encoder
"""
                + _SOFTMAX
                + "    result = weights\n",
                "weights",
                False,
            )
        case Decoding():
            return (
                """
    scores = x["logits"].astype(float)
"""
                + _SOFTMAX
                + "    result = weights  # over the whole vocabulary\n",
                "probabilities",
                False,
            )
        case Loss():
            return (
                """
    logits = x["logits"].astype(float)
    logits -= logits.max(axis=1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    nats, e = -log_p[np.arange(len(log_p)), x["target_ids"]], x["score.label_smoothing"]
    result = (1 - e) * nats - e * log_p.mean(axis=1)
""",
                "score.smoothed_nats",
                False,
            )
        case Cost():
            return (
                """
    n = m = x["lengths"]
    encoder = x["num_encoder_layers"] * x["num_heads"] * n**2
    decoder = x["num_decoder_layers"] * x["num_heads"] * (m**2 + m * n)
    result = encoder + decoder
""",
                "curve_cells",
                False,
            )
    raise AssertionError(f"{station.name} has no recipe")


def _position_lines(station: Positions) -> tuple[str, str, bool]:
    if station.kind == "learned":
        lines = """
    unit = x["encodings"] / np.linalg.norm(x["encodings"], axis=1, keepdims=True)
    result = unit @ unit.T
"""
        return lines, "cosines", False
    interleaved = station.kind == "sinusoidal" and station.layout == "interleaved"
    order = (
        "np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(count, width)  # in turn"
        if interleaved
        else "np.concatenate([np.sin(angles), np.cos(angles)], axis=1)  # one half each"
    )
    lines = f"""
    count, width = x["encodings"].shape
    angles = np.arange(count)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    result = {order}
"""
    return lines, "encodings", False


def _block_lines(station: Block) -> tuple[str, str, bool]:
    last = len(station.stages) - 1
    if station.norm_placement == "pre":
        updates = [
            f'x["stages.{index}.output"]' for index, stage in enumerate(station.stages) if stage.role in _UPDATES
        ]
        lines = f'    result = x["inputs"] + {" + ".join(updates)}  # what came in, and what each sublayer adds\n'
        return lines, f"stages.{last}.output", False
    lines = f"""
    before, update = x["stages.{last - 3}.output"], x["stages.{last - 2}.output"]
    result = before + update  # the last residual, before its norm
"""
    return lines, f"stages.{last - 1}.output", False


_UPDATES = ("mixes", "transforms")
