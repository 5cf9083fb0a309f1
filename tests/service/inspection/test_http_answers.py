"""What all answers about the inside share: places in any text, long texts, names of answers, formats, refusals."""

import json

import numpy as np
import pytest
from safetensors.numpy import load

from service.engine.errors import InspectionBusy
from tests.service.inspection.conftest import start, wait_until_ready

TEXT = "The cat eats an apple."
TARGET = "Le chat mange une pomme rouge dans la maison."
TEXTS = [
    "The cat.  It  eats —\tan “apple”…\r\n\r\n- and\n2. more 🙂 text.",
    "Un café crème, s'il vous plaît! l\u2019\u00e9t\u00e9, e\u0301te\u0301",
    "中文 and العربية and עברית 👨‍👩‍👧‍👦🇫🇷",
    "▁ a ▁▁ b",
    "a",
    "x" * 300,
]


def problem(response, kind):
    content = response.json()
    assert content["type"] == f"urn:gossamer:problem:{kind}"
    assert response.headers["content-type"] == "application/problem+json"
    return content


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["tiny", "marian"])
@pytest.mark.parametrize("text", TEXTS)
def test_every_token_has_its_place_in_the_caller_s_own_text(float_server, model, text):
    """In both directions: as a source, and as a target of the caller's own."""
    body = {"text": text[:60], "target_text": text[:60], "model": model, "kinds": ["cross"], "layers": 0, "heads": 0}
    answer = float_server.json("attention", **body)
    (segment,) = answer["segments"]
    for side, shown in (("source", body["text"]), ("target", answer["translation"])):
        assert shown == body["text"]
        tokens, words = segment[f"{side}_tokens"], segment[f"{side}_words"]
        assert [token["index"] for token in tokens] == list(range(len(tokens)))
        for token in tokens:
            assert 0 <= token["start"] <= token["end"] <= len(shown)
            assert token["index"] in words[token["word"]]["tokens"]
        assert tokens[-1]["is_special"] and tokens[-1]["start"] == tokens[-1]["end"]
        starts = [token["start"] for token in tokens]
        assert starts == sorted(starts)
        covered = set().union(*(range(token["start"], token["end"]) for token in tokens))
        if model == "tiny":  # whose tokenizer leaves nothing out
            lost = [char for index, char in enumerate(shown) if index not in covered and char.isprintable()]
            assert not "".join(lost).strip("\u200d ")
        for word in words:
            assert shown[word["start"] : word["end"]] == word["text"] == word["text"].strip()
    assert [row["predicted_id"] for row in segment["rows"]] == [token["id"] for token in segment["target_tokens"]]
    assert [row["input_id"] for row in segment["rows"][1:]] == [token["id"] for token in segment["target_tokens"][:-1]]


def test_words_keep_the_sums_of_rows(float_server):
    for special in ("keep", "renormalise"):
        answer = float_server.json("attention", text=TEXT, target_text=TARGET, granularity="word", special=special)
        (segment,) = answer["segments"]
        for item in segment["maps"]:
            values = np.array(item["values"])
            assert list(values.shape[2:]) == [len(item["queries"]), len(item["keys"])]
            sums = values.sum(axis=-1)
            # A row whose words saw special keys alone has nothing that could be renormalised.
            assert np.abs(np.where(sums == 0, 1, sums) - 1).max() < 1e-5
            words = segment[item["query_axis"]]
            assert special == "keep" or not any(words[index]["is_special"] for index in item["queries"])


def test_hidden_columns_are_left_out_and_slices_count_in_what_is_shown(float_server):
    body = {"text": TEXT, "target_text": TARGET, "kinds": ["cross"]}
    whole = np.array(float_server.json("attention", **body)["segments"][0]["maps"][0]["values"])
    hidden = float_server.json("attention", **body, special="hide")["segments"][0]["maps"][0]
    assert np.array_equal(np.array(hidden["values"]), whole[:, :, :-1, :-1])
    sliced = float_server.json("attention", **body, special="hide", query=[1, 3], key=[-2, None])
    item = sliced["segments"][0]["maps"][0]
    assert item["queries"] == [1, 2]
    assert item["keys"] == hidden["keys"][-2:]
    assert np.array_equal(np.array(item["values"]), whole[:, :, 1:3, -3:-1])


def test_aggregates_are_what_they_say(float_server):
    body = {"text": TEXT, "target_text": TARGET, "kinds": ["encoder"], "model": "deep-encoder"}

    def values(**options):
        return np.array(float_server.json("attention", **body, **options)["segments"][0]["maps"][0]["values"])

    whole = values()
    assert np.abs(values(aggregate="mean")[:, 0] - whole.mean(axis=1)).max() < 1e-6
    assert np.abs(values(aggregate="max", aggregate_over="both")[0, 0] - whole.max(axis=(0, 1))).max() < 1e-7
    assert np.abs(values(aggregate="mean", aggregate_over="layers")[0] - whole.mean(axis=0)).max() < 1e-6
    rolled = values(aggregate="rollout", layers="2-3")
    assert rolled.shape == (2, 1, *whole.shape[2:])
    expected = np.eye(whole.shape[-1])
    for layer in range(3):
        expected = 0.5 * expected + 0.5 * whole[layer].mean(axis=0) @ expected
    assert np.abs(rolled[0, 0] - expected).max() < 1e-5


def test_scores_are_null_where_the_mask_forbids(float_server):
    body = {"text": TEXT, "target_text": TARGET, "kinds": ["decoder"], "layers": 0, "heads": 0}
    scores = float_server.json("attention", **body, measure="scores")["segments"][0]["maps"][0]["values"][0][0]
    weights = np.array(float_server.json("attention", **body)["segments"][0]["maps"][0]["values"])[0, 0]
    for row, (values, expected) in enumerate(zip(scores, weights, strict=True)):
        assert values[row + 1 :] == [None] * (len(values) - row - 1)
        shifted = np.exp(np.array(values[: row + 1]) - max(values[: row + 1]))
        assert np.abs(shifted / shifted.sum() - expected[: row + 1]).max() < 1e-5


def test_decimals_round_json(float_server):
    body = {"text": TEXT, "target_text": TARGET, "kinds": ["cross"]}
    plain = float_server.post("attention", **body, decimals=3)
    for number in np.array(plain.json()["segments"][0]["maps"][0]["values"]).ravel()[:50]:
        assert number == round(number, 3)


# --- long texts -------------------------------------------------------------------------------------------------------


def test_a_long_text_has_maps_by_segment_and_some_may_be_chosen(server):
    text = "The cat eats an apple.\n\n" * 3 + "🙂"
    body = {"text": text, "kinds": ["cross"], "layers": -1, "heads": 0}
    whole = server.json("attention", **body)
    shown = [segment for segment in whole["segments"] if "maps" in segment]
    assert len(shown) >= 3
    assert whole["num_segments"] == len(whole["segments"])
    assert not whole["segments"][-1]["translated"] and "maps" not in whole["segments"][-1]
    second = shown[1]["index"]
    chosen = server.json("attention", **body, segments=[second])
    assert [segment["index"] for segment in chosen["segments"] if "maps" in segment] == [second]
    tensors = load(server.post("attention", **body, segments=[second], accept="application/octet-stream").content)
    assert list(tensors) == [f"segments.{second}.cross"]
    found = server.post("attention", **body, segments=[99], status=422)
    assert problem(found, "invalid-request")["errors"][0]["field"] == "segments[0]"


@pytest.mark.parametrize("text", ["", "  \n", "🙂", "42"])
def test_what_has_nothing_to_translate_has_no_maps(float_server, text):
    answer = float_server.json("attention", text=text)
    assert answer["translation"] == text
    assert all("maps" not in segment for segment in answer["segments"])
    assert problem(float_server.post("trace", text=text, status=422), "invalid-request")["errors"][0]["field"] == "text"
    # A target of the caller's own is looked at, whatever the source is.
    assert float_server.json("score", text=text, target_text="a")["num_tokens"] >= 1


# --- too much ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def narrow(folders):
    """A server that sends little."""
    with start({"tiny": folders["tiny"]}, "float32", max_inspection_bytes=4096, max_inspection_tokens=400) as client:
        wait_until_ready(client)
        yield client


@pytest.mark.parametrize("accept", ["application/json", "application/vnd.safetensors"])
def test_what_is_too_large_is_refused_with_a_request_that_fits(narrow, accept):
    body = {"text": TEXT, "target_text": TARGET}
    response = narrow.post("/v1/attention", json=body, headers={"Accept": accept})
    assert response.status_code == 413
    found = problem(response, "inspection-too-large")
    assert found["needed_bytes"] > found["limit_bytes"] == 4096
    nearest = found["nearest"]
    fitting = narrow.post("/v1/attention", json=nearest["body"], headers={"Accept": nearest["accept"]})
    assert fitting.status_code == 200, fitting.text
    if nearest["accept"] == "application/vnd.safetensors":
        sent = sum(tensor.nbytes for tensor in load(fitting.content).values())
        assert sent == nearest["needed_bytes"] <= 4096
    estimate = narrow.post("/v1/attention?estimate=1", json=body).json()
    assert estimate["fits"]["json"] is False
    assert estimate["num_bytes"]["json"] == found["needed_bytes"] or accept != "application/json"


def test_too_many_tokens_are_refused_with_segments_that_fit(narrow):
    response = narrow.post("/v1/attention", json={"text": "The cat eats an apple. " * 200, "kinds": ["cross"]})
    assert response.status_code == 413
    found = problem(response, "inspection-too-large")
    assert found["needed_tokens"] > found["limit_tokens"] == 400


def test_the_json_estimate_is_never_too_small(float_server):
    for options in ({}, {"decimals": 3}, {"measure": "scores"}, {"measure": "value_norm"}, {"dtype": "f16"}):
        body = {"text": TEXT, "target_text": TARGET, **options}
        estimate = float_server.post("attention?estimate=1", **body).json()["num_bytes"]["json"]
        maps = float_server.json("attention", **body)["segments"][0]["maps"]
        sent = sum(len(json.dumps(item["values"], separators=(",", ":"))) for item in maps)
        assert sent <= estimate


def test_too_many_at_once_are_refused_with_a_time(float_server, monkeypatch):
    services = float_server.client.app.state.services

    async def refuse(*_arguments):
        raise InspectionBusy(9, 8, 3.2)

    monkeypatch.setattr(services.inspector._inspection, "run", refuse)
    response = float_server.post("attention", text=TEXT, target_text=TARGET, status=429)
    assert response.headers["retry-after"] == "4"
    problem(response, "inspection-busy")
    assert float_server.client.post("/v1/translate", json={"text": "a", "model": "tiny"}).status_code == 200


def test_looking_inside_can_be_turned_off(folders):
    with start({"tiny": folders["tiny"]}, "float32", inspection=False) as client:
        wait_until_ready(client)
        for path in ("attention", "alignment", "trace", "next"):
            response = client.post(f"/v1/{path}", json={"text": "a"})
            assert response.status_code == 404
            problem(response, "inspection-disabled")
        assert client.get("/v1/model").status_code == 404
        response = client.post("/v1/translate", json={"text": "a", "return": ["alignment"]})
        assert response.status_code == 404
        assert client.post("/v1/translate", json={"text": "a"}).status_code == 200


# --- names of answers, formats ----------------------------------------------------------------------------------------


def test_an_answer_that_is_known_is_not_computed_again(float_server, monkeypatch):
    body = {"text": TEXT, "kinds": ["cross"]}
    first = float_server.post("attention", **body)
    tag = first.headers["etag"]
    assert tag.startswith('"') and first.headers["vary"] == "Accept"
    assert float_server.post("attention", **body).content == first.content
    monkeypatch.setattr(float_server.client.app.state.services.inspector, "find", None)  # nothing may run
    known = float_server.post("attention", **body, etag=f'"other", {tag}', status=304)
    assert known.content == b"" and known.headers["etag"] == tag


@pytest.mark.parametrize(
    "changes", [{"text": "The cat"}, {"model": "rotary"}, {"decimals": 3}, {"kinds": ["decoder"]}, {"heads": [0]}]
)
def test_every_change_of_a_request_names_another_answer(float_server, changes):
    body = {"text": TEXT, "target_text": TARGET, "kinds": ["cross"]}
    plain = float_server.post("attention", **body).headers["etag"]
    other = float_server.post("attention", **(body | changes), etag=plain)
    assert other.headers["etag"] != plain
    safetensors = float_server.post("attention", **body, accept="application/vnd.safetensors")
    assert safetensors.headers["etag"] != plain


def test_what_is_drawn_or_measured_has_no_name(float_server):
    drawn = {"text": TEXT, "prefix": "", "decoding": {"temperature": 1.0, "max_target_tokens": 5}, "kinds": ["cross"]}
    assert "etag" not in float_server.post("attention", **drawn).headers
    seeded = drawn | {"decoding": drawn["decoding"] | {"seed": 1}}
    assert "etag" in float_server.post("attention", **seeded).headers
    pair = {"text": TEXT, "target_text": TARGET}
    assert "etag" not in float_server.post("trace", **pair, stations=["cost"]).headers
    assert "etag" in float_server.post("trace", **pair, stations=["softmax"]).headers


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("text/csv;q=0.5, application/json;q=0.9", "application/json"),
        ("text/html, text/*;q=0.3", "text/csv; charset=utf-8"),
        ("image/*", "image/svg+xml"),
        ("*/*", "application/json"),
        ("application/json;q=0, */*;q=0.1", "application/vnd.safetensors"),
    ],
)
def test_the_format_is_what_accept_likes_best(float_server, accept, given):
    response = float_server.post("attention", text=TEXT, target_text=TARGET, kinds=["cross"], accept=accept)
    assert response.headers["content-type"] == given


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "image/webp"])
def test_a_format_that_there_is_not_is_refused(float_server, accept):
    problem(float_server.post("attention", text=TEXT, accept=accept, status=406), "not-acceptable")


# --- bad requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("attention", {"kinds": []}, "kinds"),
        ("attention", {"kinds": ["self"]}, "kinds[0]"),
        ("attention", {"layers": 2, "kinds": ["encoder"]}, "layers"),
        ("attention", {"layers": "3-1"}, "layers"),
        ("attention", {"heads": True}, "heads"),
        ("attention", {"heads": ["x"]}, "heads"),
        ("attention", {"query": [1]}, "query"),
        ("attention", {"decimals": 10}, "decimals"),
        ("attention", {"dtype": "u8", "measure": "scores"}, "dtype"),
        ("attention", {"aggregate": "rollout", "heads": 0}, "heads"),
        ("attention", {"aggregate": "rollout", "measure": "scores"}, "measure"),
        ("attention", {"target_text": "a", "target_ids": [5]}, "target_ids"),
        ("attention", {"target_text": "a", "prefix": "b"}, "prefix"),
        ("attention", {"target_ids": [99999]}, "target_ids[0]"),
        ("attention", {"target_ids": []}, "target_ids"),
        ("attention", {"target_ids": ["a"]}, "target_ids[0]"),
        ("attention", {"prefix_ids": [3]}, "prefix_ids"),
        ("attention", {"prefix_ids": [50] * 12, "decoding": {"max_target_tokens": 12}}, "prefix_ids"),
        ("attention", {"prefix": "a " * 30, "decoding": {"max_target_tokens": 12}}, "prefix"),
        ("attention", {"hypothesis": 4, "decoding": {"beam_size": 4}}, "hypothesis"),
        ("attention", {"hypothesis": 1, "decoding": {"temperature": 0.5}}, "hypothesis"),
        ("attention", {"hypothesis": 1, "target_text": "a"}, "hypothesis"),
        ("alignment", {"hypothesis": 1, "target_ids": [5]}, "hypothesis"),
        ("attention", {"decoding": {"beam_size": 0}}, "decoding.beam_size"),
        ("attention", {"deadline_seconds": 0}, "deadline_seconds"),
        ("attention", {"layer": 1}, "layer"),
        ("attention/heatmap.png", {"kinds": ["cross", "encoder"]}, "kinds"),
        ("attention/heatmap.svg", {"segment": 7}, "segment"),
        ("attention/heatmap.png", {"cmap": "jet"}, "cmap"),
        ("attention/heatmap.png", {"cell": 0}, "cell"),
        ("alignment", {"method": "best"}, "method"),
        ("alignment", {"threshold": 2}, "threshold"),
        ("alignment", {"layer": 5}, "layer"),
        ("alignment", {"layer": "x"}, "layer"),
        ("alignment", {"heads": 99}, "heads"),
        ("trace", {"stations": ["softmaxx"]}, "stations[0]"),
        ("trace", {"stations": [16]}, "stations[0]"),
        ("trace", {"stations": []}, "stations"),
        ("trace", {"layer": 9}, "layer"),
        ("trace", {"head": -5}, "head"),
        ("trace", {"position": 400}, "position"),
        ("trace", {"compared_position": 400}, "compared_position"),
        ("trace", {"sublayer": "cross"}, "sublayer"),
        ("trace", {"segment": 3}, "segment"),
        ("trace", {"what_if": {"temperature": 0}}, "what_if.temperature"),
        ("trace", {"what_if": {"temprature": 2}}, "what_if.temprature"),
        ("trace", {"top_k": 0}, "top_k"),
        ("score", {}, "target_text"),
        ("score", {"target_text": "a", "label_smoothing": 1}, "label_smoothing"),
        ("next", {"num_candidates": 0}, "num_candidates"),
        ("next", {"top_p": 0}, "top_p"),
        ("next", {"prefix_ids": [-1]}, "prefix_ids[0]"),
        ("next", {"source": "xx"}, "source"),
    ],
)
def test_a_field_that_is_not_allowed_is_named(float_server, path, body, field):
    response = float_server.post(path, text=TEXT, **body, status=422)
    faults = response.json()["errors"]
    assert faults[0]["field"] == field, faults
    assert faults[0]["allowed"]


def test_a_hypothesis_that_was_not_found_is_refused(float_server):
    response = float_server.post("attention", text="1 + 1 = 2", hypothesis=1, status=422)
    (fault,) = response.json()["errors"]
    assert (fault["field"], fault["given"]) == ("hypothesis", 1)
    assert fault["allowed"] == "an integer below 1: so many translations were found"


def test_a_source_or_target_longer_than_the_model_s_is_refused(float_server):
    long = "The cat eats an apple. " * 100
    problem(float_server.post("score", text=long, target_text="a", status=413), "text-too-large")
    problem(float_server.post("score", text="a", target_text=long, status=413), "inspection-too-large")
    problem(float_server.post("next", text="a", prefix=long, status=413), "inspection-too-large")


def test_only_one_station_is_in_a_file_for_numpy(float_server):
    response = float_server.post("trace", text=TEXT, target_text="a", accept="application/x-npz", status=422)
    assert response.json()["errors"][0]["field"] == "stations"
