import numpy as np
import pytest

from model.stations.recipes import file_arrays, recipe_of
from model.stations.registry import STATIONS, Options, take
from model.trace import Tracer
from tests.model.test_trace import SHAPES, TARGET, make_model, source_for
from tests.model.tiny import VARIATIONS, tiny_model


def run(station, tracer, folder, **changes):
    """The recipe's result, and what it must equal, from a file alone."""
    recipe = recipe_of(station, tracer)
    arrays = file_arrays(station)
    np.savez(folder / f"{station.name}.npz", **(arrays | changes))
    names = {}
    code = recipe.code.replace(f'"{station.name}.npz"', repr(str(folder / f"{station.name}.npz")))
    exec(compile(code, station.name, "exec"), names)
    return np.asarray(names["result"]), arrays[recipe.result], recipe.tolerance


@pytest.fixture(params=SHAPES)
def shape(request):
    return request.param


@pytest.fixture(params=["float32", "int8"])
def tracer(request, shape):
    model = make_model(shape, request.param)
    return Tracer(model, source_for(model), TARGET)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_plain_numpy_computes_every_station_again(tracer, kind, tmp_path):
    for name in STATIONS:
        options = Options(kind=kind, layer=-1, head=-1, position=2, temperature=0.7, label_smoothing=0.1)
        result, expected, tolerance = run(take(name, tracer, options), tracer, tmp_path)
        assert result.shape == expected.shape, name
        assert np.abs(result - expected).max() <= tolerance, name


@pytest.mark.parametrize("variation", VARIATIONS)
def test_every_variation_of_the_model_has_its_own_lines(variation, tmp_path):
    model = tiny_model(**VARIATIONS[variation])
    tracer = Tracer(model, source_for(model), TARGET)
    for name in STATIONS:
        result, expected, tolerance = run(take(name, tracer, Options(layer=1, position=2)), tracer, tmp_path)
        assert np.abs(result - expected).max() <= tolerance, name


def test_lines_are_few_and_need_numpy_alone(tracer):
    for name in STATIONS:
        lines = recipe_of(take(name, tracer), tracer).code.splitlines()
        assert 4 <= len(lines) <= 12
        assert [line for line in lines if "import" in line and line not in ("import numpy as np", "import math")] == []


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("tokens", "rows"),
        ("projections", "query_inputs"),
        ("attention", "values"),
        ("softmax", "raw"),
        ("heads", "contexts"),
        ("block", "inputs"),
        ("residual", "gamma"),
        ("ffn", "inputs"),
        ("mask", "unmasked_scores"),
        ("cross", "keys"),
        ("decoding", "logits"),
        ("loss", "logits"),
    ],
)
def test_another_number_in_the_file_gives_another_result(name, array, tmp_path):
    model = make_model("2+6 pre-norm", "float32")
    tracer = Tracer(model, source_for(model), TARGET)
    station = take(name, tracer)
    changed = file_arrays(station)[array].copy()
    changed.flat[-1] += 1
    result, expected, tolerance = run(station, tracer, tmp_path, **{array: changed})
    assert np.abs(result - expected).max() > tolerance
