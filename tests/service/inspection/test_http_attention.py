"""`/v1/attention` and the heatmaps, over HTTP, on real tiny models."""

import csv
import io
import json
import struct
import zlib

import numpy as np
import pytest
from safetensors.numpy import load

from model.trace import replay
from tests.service.inspection.conftest import MODELS

TEXT = "The cat eats an apple."
TARGET = "Le chat mange une pomme rouge dans la maison."


def maps_of(answer, segment=0):
    return {item["kind"]: item for item in answer["segments"][segment]["maps"]}


def values_of(answer, kind, segment=0):
    return np.array(maps_of(answer, segment)[kind]["values"], dtype=float)


@pytest.mark.parametrize("model", MODELS)
def test_maps_have_the_shape_of_the_model_and_rows_that_sum_to_one(server, model):
    answer = server.json("attention", text=TEXT, target_text=TARGET, model=model)
    facts = server.client.get(f"/v1/models/{model}").json()
    (segment,) = answer["segments"]
    num_source, num_target = len(segment["source_tokens"]), len(segment["target_tokens"])
    assert num_source != num_target
    heads, encoder, decoder = (facts[name] for name in ("num_heads", "num_encoder_layers", "num_decoder_layers"))
    assert values_of(answer, "encoder").shape == (encoder, heads, num_source, num_source)
    assert values_of(answer, "decoder").shape == (decoder, heads, num_target, num_target)
    assert values_of(answer, "cross").shape == (decoder, heads, num_target, num_source)
    for kind in ("encoder", "decoder", "cross"):
        values = values_of(answer, kind)
        assert maps_of(answer)[kind]["shape"] == list(values.shape)
        assert np.abs(values.sum(axis=-1) - 1).max() < 1e-5
    assert np.triu(values_of(answer, "decoder"), 1).max() == 0
    assert {check["name"] for check in segment["checks"]} == {"rows_sum_to_one", "future_is_zero"}
    assert all(check["passed"] for check in segment["checks"])
    assert answer["precision"] == facts["precision"]


@pytest.mark.parametrize("model", MODELS)
def test_maps_are_those_of_the_weights(float_server, model):
    answer = float_server.json("attention", text=TEXT, target_text=TARGET, model=model)
    (segment,) = answer["segments"]
    found = replay(
        float_server.checkpoint(model).model.eval(),
        [token["id"] for token in segment["source_tokens"]],
        [token["id"] for token in segment["target_tokens"]],
    )
    for kind in ("encoder", "decoder", "cross"):
        assert np.abs(values_of(answer, kind) - found.maps(kind)).max() < 1e-5


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("decoding", [{"beam_size": 1}, {"beam_size": 4}])
def test_the_replay_is_what_was_decoded(server, model, decoding):
    """With an empty prefix, for the translator gives up what such random models write."""
    body = {"text": TEXT, "prefix": "", "decoding": decoding | {"max_target_tokens": 12}}
    answer = server.json("attention", **body, model=model, kinds=["cross"], layers=-1)
    (segment,) = answer["segments"]
    check = next(check for check in segment["checks"] if check["name"] == "same_log_probs")
    assert check["passed"], check
    assert (segment["hypothesis"], segment["forced"]) == (0, False)
    assert segment["log_prob"] < 0
    assert answer["translation"] == segment["target"]


def test_what_is_looked_at_is_what_was_translated(server):
    text = "The cat eats an apple.\n\n  Where is the station? 🙂"
    translated = server.translate(text)
    answer = server.json("attention", text=text, kinds=["cross"], layers=-1)
    assert answer["translation"] == translated["text"]
    for segment in answer["segments"]:
        theirs = translated["segments"][segment["segment_index"]]
        assert (segment["source"], segment["target"]) == (theirs["source"], theirs["text"])
        assert answer["translation"][segment["target_start"] : segment["target_end"]] == segment["target"]
        if segment["translated"]:
            ids = [token["id"] for token in theirs["hypotheses"][0]["tokens"]]
            assert [token["id"] for token in segment["target_tokens"]] == ids


def test_every_hypothesis_of_a_beam_can_be_looked_at(server):
    seen = []
    for rank in range(4):
        body = {"text": TEXT, "prefix": "", "hypothesis": rank, "decoding": {"beam_size": 4}}
        answer = server.json("attention", **body, kinds=["cross"])
        (segment,) = answer["segments"]
        assert segment["hypothesis"] == rank
        assert all(check["passed"] for check in segment["checks"])
        seen.append(tuple(token["id"] for token in segment["target_tokens"]))
    assert len(set(seen)) == 4


@pytest.mark.parametrize(
    ("layers", "heads", "chosen"),
    [
        (-1, 0, ([5], [0])),
        ("1-2", "0,-1", ([1, 2], [0, 3])),
        ([0, "3-4", -1], "all", ([0, 3, 4, 5], [0, 1, 2, 3])),
    ],
)
def test_layers_and_heads_are_chosen_by_index_range_and_list(float_server, layers, heads, chosen):
    body = {"text": TEXT, "target_text": TARGET, "model": "deep-encoder", "kinds": ["encoder"]}
    whole = values_of(float_server.json("attention", **body), "encoder")
    answer = float_server.json("attention", **body, layers=layers, heads=heads)
    assert answer["selected"] == {"layers": {"encoder": chosen[0]}, "heads": chosen[1]}
    assert np.abs(values_of(answer, "encoder") - whole[chosen[0]][:, chosen[1]]).max() < 1e-6


@pytest.mark.parametrize("dtype", ["f32", "f16", "u8"])
def test_safetensors_hold_the_numbers_of_json(float_server, dtype):
    body = {"text": TEXT, "target_text": TARGET, "dtype": dtype}
    plain = float_server.json("attention", **body)
    response = float_server.post("attention", **body, accept="application/vnd.safetensors")
    assert response.headers["content-type"] == "application/vnd.safetensors"
    tensors = load(response.content)
    header = json.loads(response.content[8 : 8 + struct.unpack("<Q", response.content[:8])[0]])
    described = json.loads(header["__metadata__"]["json"])
    assert described["segments"][0]["source_tokens"] == plain["segments"][0]["source_tokens"]
    for kind in ("encoder", "decoder", "cross"):
        tensor = tensors[f"segments.0.{kind}"]
        assert tensor.dtype == {"f32": np.float32, "f16": np.float16, "u8": np.uint8}[dtype]
        assert np.array_equal(tensor, values_of(plain, kind).astype(tensor.dtype))
    assert plain["num_bytes"] == sum(tensor.nbytes for tensor in tensors.values())


def test_csv_has_a_line_for_each_cell(float_server):
    body = {"text": TEXT, "target_text": TARGET, "kinds": ["cross"], "layers": -1, "decimals": 5}
    plain = float_server.json("attention", **body)
    response = float_server.post("attention", **body, accept="text/csv")
    lines = list(csv.DictReader(io.StringIO(response.text)))
    values = values_of(plain, "cross")
    assert len(lines) == values.size
    segment = plain["segments"][0]
    for line in (lines[0], lines[-1], lines[17]):
        head, query, key = (int(line[name]) for name in ("head", "query", "key"))
        assert (line["kind"], line["layer"]) == ("cross", "1")
        assert float(line["value"]) == values[0, head, query, key]
        assert line["query_token"] == segment["target_tokens"][query]["piece"]
        assert line["key_token"] == segment["source_tokens"][key]["piece"]


def test_an_estimate_is_what_is_sent(float_server):
    body = {"text": TEXT, "target_text": TARGET, "layers": -1}
    for dtype in ("f32", "f16", "u8"):
        estimate = float_server.post("attention?estimate=1", **body, dtype=dtype).json()
        sent = float_server.post("attention", **body, dtype=dtype, accept="application/vnd.safetensors")
        tensors = load(sent.content)
        assert estimate["exact"]
        assert estimate["num_bytes"][dtype] == sum(tensor.nbytes for tensor in tensors.values())
        assert estimate["total_cells"] == sum(tensor.size for tensor in tensors.values())
    assert not float_server.post("attention?estimate=1", text=TEXT).json()["exact"]


def read_png(content):
    """(height, width, 3) of a PNG without filters, by the book."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    place, data, size = 8, b"", None
    while place < len(content):
        length, kind = struct.unpack(">I4s", content[place : place + 8])
        chunk = content[place + 8 : place + 8 + length]
        assert struct.unpack(">I", content[place + 8 + length : place + 12 + length])[0] == zlib.crc32(kind + chunk)
        if kind == b"IHDR":
            size = struct.unpack(">II", chunk[:8])
        data += chunk if kind == b"IDAT" else b""
        place += 12 + length
    width, height = size
    rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_a_picture_s_pixels_stand_for_the_weights(float_server):
    body = {"text": TEXT, "target_text": TARGET, "kinds": ["cross"], "layers": 0, "heads": 1}
    values = values_of(float_server.json("attention", **body), "cross")[0, 0]
    response = float_server.post("attention/heatmap.png", **body, cell=2, cmap="grey", theme="dark")
    assert response.headers["content-type"] == "image/png"
    pixels = read_png(response.content)
    assert pixels.shape == (2 * values.shape[0], 2 * values.shape[1], 3)
    cells = pixels[::2, ::2, 0].astype(float)
    strong = values > 0.4  # below, the colour comes out of the background
    assert np.abs(cells[strong] / 255 - values[strong]).max() < 0.003
    assert np.array_equal(np.argsort(cells[0], kind="stable")[-1:], np.argsort(values[0])[-1:])


def test_a_picture_by_accept_is_that_of_its_own_address(float_server):
    body = {"text": TEXT, "target_text": TARGET, "kinds": ["encoder"]}
    for kind, media_type in (("png", "image/png"), ("svg", "image/svg+xml")):
        there = float_server.post(f"attention/heatmap.{kind}", **body)
        here = float_server.post("attention", **body, accept=media_type)
        assert here.content == there.content
        assert here.headers["content-type"] == media_type


def test_an_estimate_is_made_for_each_segment_and_for_what_is_too_large(float_server):
    response = float_server.post("attention?estimate=1", text="The web.\n\n42\nThe spider waits in the web.")
    estimate = response.json()
    assert [segment["index"] for segment in estimate["segments"]] == [0, 2]
    assert all(segment["num_source"] == segment["num_rows"] for segment in estimate["segments"])
    second = float_server.post("attention?estimate=1", text="The spider waits in the web.").json()
    only = float_server.post("attention?estimate=1", text="The web.\nThe spider waits in the web.", segments=[1]).json()
    assert (only["cells"], only["num_tokens"]) == (second["cells"], second["num_tokens"])
    assert estimate["num_tokens"] > only["num_tokens"]
    huge = float_server.post("attention?estimate=1", text="The spider feels the web and waits. " * 400)
    assert huge.status_code == 200
    assert huge.json()["num_tokens"] > huge.json()["limit_tokens"]
    assert not any(huge.json()["fits"].values())
