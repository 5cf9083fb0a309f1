"""`/v1/trace` over HTTP: every station's checks, and its file with the lines that compute it again."""

import io
import json
import struct

import numpy as np
import pytest
from safetensors.numpy import load

from model.stations.registry import STATIONS
from service.api import inspect_schemas
from tests.service.inspection.conftest import MODELS

TEXT = "The cat eats an apple."
TARGET = "Le chat mange une pomme rouge dans la maison."
BODY = {"text": TEXT, "target_text": TARGET}


def test_the_api_names_the_stations_that_there_are():
    assert inspect_schemas.STATIONS == tuple(STATIONS)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_every_check_of_every_station_passes(server, model, kind):
    answer = server.json("trace", **BODY, model=model, kind=kind, layer=-1, head=-1, position=2)
    assert [station["name"] for station in answer["stations"]] == list(STATIONS)
    assert [station["number"] for station in answer["stations"]] == list(range(1, 16))
    for station in answer["stations"]:
        assert station["checks"]
        failed = [check for check in station["checks"] if not check["passed"]]
        assert station["passed"] and not failed, (station["name"], failed)


@pytest.mark.parametrize("model", ["tiny", "deep-encoder", "marian"])
def test_each_station_s_file_and_lines_give_the_served_numbers(server, model, tmp_path, monkeypatch):
    """What the page's numpy tab offers is downloaded and run, with numpy alone."""
    monkeypatch.chdir(tmp_path)
    options = {"model": model, "kind": "cross", "layer": -1, "head": 1, "position": 2, "label_smoothing": 0.1}
    options["what_if"] = {"temperature": 0.5}
    answer = server.json("trace", **BODY, **options, arrays="all")
    for station in answer["stations"]:
        name, recipe = station["name"], station["numpy"]
        response = server.post("trace", **BODY, **options, stations=[name], accept="application/x-npz")
        assert response.headers["content-type"] == "application/x-npz"
        assert response.headers["content-disposition"] == f'attachment; filename="{recipe["file"]}"'
        (tmp_path / recipe["file"]).write_bytes(response.content)
        names = {}
        exec(compile(recipe["code"], name, "exec"), names)
        served = served_value(station["values"], recipe["result"])
        if served is not None:  # the route's tables are in the file alone
            assert np.shape(names["result"]) == np.shape(served), name
            assert np.abs(names["result"] - np.array(served, dtype=float)).max() <= recipe["tolerance"], name
        with np.load(recipe["file"]) as file:
            assert np.abs(names["result"] - file[recipe["result"]]).max() <= recipe["tolerance"], name


def served_value(values, name):
    for part in name.split("."):
        values = values[int(part)] if isinstance(values, list) else values.get(part)
        if values is None:
            return None
    return values


def test_a_changed_number_in_a_file_does_not_give_the_served_ones(float_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (station,) = float_server.json("trace", **BODY, stations=["attention"])["stations"]
    response = float_server.post("trace", **BODY, stations=["attention"], accept="application/x-npz")
    with np.load(io.BytesIO(response.content)) as file:
        arrays = dict(file)
    arrays["values"] = arrays["values"] + 1
    np.savez("attention.npz", **arrays)
    names = {}
    exec(station["numpy"]["code"], names)
    assert np.abs(names["result"] - np.array(station["values"]["context"])).max() > 0.5


def test_the_route_ends_in_the_translation(server):
    body = {"text": TEXT, "prefix": "", "decoding": {"beam_size": 1}}
    answer = server.json("trace", **body, stations=["route", "decoding"], position=1)
    assert answer["translation"] == server.json("attention", **body, kinds=["cross"])["translation"]
    route, decoding = answer["stations"]
    assert [check["name"] for check in route["checks"]] == ["shapes_chain", "same_logits"]
    assert route["values"]["stages"][-1]["name"] == "softmax"
    # A greedy translation is what is clicked when always the best permitted candidate is taken.
    (segment,) = answer["segments"]
    assert decoding["values"]["next"]["greedy_id"] == segment["target_tokens"][1]["id"]
    assert decoding["values"]["chosen_piece"] == segment["target_tokens"][1]["piece"]


def test_scores_of_the_search_are_checked(server):
    for decoding in ({"beam_size": 1}, {"beam_size": 4, "length_penalty": 0.6}):
        answer = server.json("trace", text=TEXT, prefix="", decoding=decoding, stations=["decoding", "loss"])
        names = [check["name"] for station in answer["stations"] for check in station["checks"] if check["passed"]]
        assert {"beam_score", "hypothesis"} <= set(names)


def test_what_if_values_are_named_and_reset_gives_the_model_s(float_server):
    options = {"stations": ["softmax"], "kind": "cross", "position": 1}
    plain = float_server.json("trace", **BODY, **options)["stations"][0]
    other = float_server.json("trace", **BODY, **options, what_if={"temperature": 3, "d_k": 64})["stations"][0]
    assert plain["what_if"] == other["what_if"]
    assert {"what_if_weights", "what_if_temperature"} <= set(plain["what_if"])
    assert plain["values"]["what_if_weights"] == plain["values"]["weights"] == other["values"]["weights"]
    assert other["values"]["what_if_weights"] != other["values"]["weights"]
    order = np.argsort(other["values"]["weights"], kind="stable")
    assert (np.diff(np.array(other["values"]["what_if_weights"])[order]) >= 0).all()


def test_another_source_can_be_read_in_cross_attention(float_server):
    other = "Where is the station?"
    (station,) = float_server.json("trace", **BODY, stations=["cross"], what_if={"text": other})["stations"]
    num_other = len(float_server.json("score", text=other, target_text="a")["segments"][0]["source_tokens"])
    assert np.array(station["values"]["swapped_weights"]).shape[1] == num_other
    assert station["passed"]


def test_positions_count_from_the_end_and_the_open_row_is_there(float_server):
    answer = float_server.json("trace", **BODY, stations=["decoding"], kind="decoder", position=-1, open_end=True)
    (segment,) = answer["segments"]
    num_rows = len(segment["target_tokens"]) + 1
    assert answer["selected"]["position"] == num_rows - 1
    assert len(segment["rows"]) == num_rows
    assert segment["rows"][-1]["predicted_token"] is None
    assert segment["rows"][-1]["input_id"] == segment["target_tokens"][-1]["id"]
    assert answer["stations"][0]["values"]["chosen_id"] == -1


def test_large_arrays_are_left_out_and_named(float_server):
    small = float_server.json("trace", **BODY, stations=["ffn", "softmax"], arrays="none")
    ffn, softmax = small["stations"]
    assert ffn["omitted"]["inner.weight"] == {"shape": [16, 32], "dtype": "float32"}
    assert "weights" not in softmax["values"] and "weights" in softmax["omitted"]
    whole = float_server.json("trace", **BODY, stations=["ffn"], arrays="all")["stations"][0]
    assert whole["omitted"] == {}
    assert np.array(whole["values"]["inner"]["weight"]).shape == (16, 32)


def test_safetensors_hold_every_array(float_server):
    response = float_server.post("trace", **BODY, stations=["attention", "heads"], accept="application/vnd.safetensors")
    tensors = load(response.content)
    plain = float_server.json("trace", **BODY, stations=["attention", "heads"], arrays="all")
    attention, heads = (station["values"] for station in plain["stations"])
    assert np.array_equal(tensors["attention.weights"], np.array(attention["weights"], dtype=np.float32))
    assert np.array_equal(tensors["heads.maps"], np.array(heads["maps"], dtype=np.float32))
    header = json.loads(response.content[8 : 8 + struct.unpack("<Q", response.content[:8])[0]])
    described = json.loads(header["__metadata__"]["json"])
    assert [station["name"] for station in described["stations"]] == ["attention", "heads"]


def test_maps_of_stations_are_those_of_attention(float_server):
    heads = float_server.json("trace", **BODY, stations=["heads"], kind="cross", layer=1)["stations"][0]["values"]
    mean = float_server.json("attention", **BODY, kinds=["cross"], layers=1, aggregate="mean")
    maps = float_server.json("attention", **BODY, kinds=["cross"], layers=1)
    assert np.abs(np.array(heads["maps"]) - np.array(maps["segments"][0]["maps"][0]["values"])[0]).max() < 1e-6
    assert np.abs(np.array(heads["mean"]) - np.array(mean["segments"][0]["maps"][0]["values"])[0, 0]).max() < 1e-6
