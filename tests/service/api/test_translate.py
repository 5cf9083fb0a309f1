import asyncio
import gzip
import json
import time
from dataclasses import replace

import pytest

from model.decoding import Hypothesis
from service.api.inspect_fields import MapFields
from service.api.schemas import Decoding, TranslateRequest
from service.engine.errors import EngineStopping, InvalidOptions, QueueFull, RequestTooLarge, SequenceFailed
from tests.service.fake_tokenizer import FIRST_ID, FakeTokenizer, upper
from tests.service.fakes import FAKE_MODEL


@pytest.fixture
def engine(engine):
    engine.translate = upper
    return engine


def post(client, **body):
    return client.post("/v1/translate", json=body)


def translated(client, text, **body):
    response = post(client, text=text, **body)
    assert response.status_code == 200, response.text
    return [item["text"] for item in response.json()["translations"]]


def problem(response, status, kind):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    content = response.json()
    assert content["type"] == f"urn:gossamer:problem:{kind}"
    assert content["status"] == status
    assert content["request_id"] == response.headers["x-request-id"]
    return content


def fault(response, kind="invalid-request"):
    (only,) = problem(response, 422, kind)["errors"]
    return only


# --- what works ------------------------------------------------------------------------------------------------------


def test_a_string_is_translated(client):
    answer = post(client, text="Good morning.", source="en", target="fr").json()
    timings = answer.pop("timings")
    assert answer == {
        "translations": [{"text": "GOOD MORNING.", "windowed": False, "truncated": False}],
        "source": "en",
        "target": "fr",
        "model": {"name": "en-fr", "revision": "fake"},
        "usage": {"source_tokens": 14, "target_tokens": 14},
    }
    assert timings["total_seconds"] > 0
    assert (timings["queue_seconds"], timings["encode_seconds"], timings["decode_seconds"]) == (0.001, 0.002, 0.003)


def test_a_list_is_translated_in_order(client, engine):
    texts = [f"text {number}" for number in range(100)]
    assert translated(client, texts) == [text.upper() for text in texts]
    assert len(engine.requests) == 1


def test_paragraphs_keep_every_byte_between_segments(client):
    text = "  First. Second.\r\n\r\n\t- item 🙂\n\n\n"
    assert translated(client, text) == ["  FIRST. SECOND.\r\n\r\n\t- ITEM 🙂\n\n\n"]


@pytest.mark.parametrize("text", ["", " \n\t ", "🙂🙂", "12:30", "\u3000", "\x00"])
def test_what_has_nothing_to_translate_comes_back_as_it_is(client, text):
    assert translated(client, text) == [text]


def test_empty_strings_keep_their_place_in_a_list(client):
    assert translated(client, ["", "Ab", "", " "]) == ["", "AB", "", " "]


def test_without_languages_the_only_model_is_used(client):
    answer = post(client, text="a").json()
    assert (answer["source"], answer["target"]) == ("en", "fr")


def test_null_stands_for_what_is_left_out(client):
    names = [field.alias or name for name, field in TranslateRequest.model_fields.items() if name != "text"]
    assert {"return", "stream", "format", "decoding", "attention"} < set(names)
    answer = post(client, text="a", **dict.fromkeys(names))
    assert answer.status_code == 200, answer.text
    assert post(client, text="a", decoding=dict.fromkeys(Decoding.model_fields)).status_code == 200
    MapFields.model_validate(dict.fromkeys(MapFields.model_fields))
    assert post(client, text="a", sauce=None).status_code == 422


@pytest.mark.parametrize("value", [2, 2.0])
def test_a_number_is_named_as_it_was_given(client, value):
    answer = post(client, text="a", decoding={"top_p": value})
    assert b'"given":2,' in answer.content
    assert b"top_p is 2;" in answer.content


@pytest.mark.parametrize(
    ("body", "beam_size"),
    [
        ({}, 4),
        ({"decoding": {"length_penalty": 2}}, 4),
        ({"decoding": {"beam_size": 1}}, 1),
        ({"decoding": {"temperature": 0.5}}, 1),
        ({"decoding": {"temperature": 0}}, 4),
        ({"stream": True}, 1),
        ({"stream": True, "decoding": {"beam_size": 3}}, 3),
    ],
)
def test_the_beam_is_the_server_s_where_none_is_given(client, engine, body, beam_size):
    client.post("/v1/translate", json={"text": "Hello.", **body})
    assert engine.requests[0].sequences[0].options.beam_size == beam_size


def test_decoding_options_reach_the_engine(client, engine):
    given = {"beam_size": 1, "temperature": 0.5, "top_k": 5, "top_p": 0.9, "seed": 7, "no_repeat_ngram_size": 3}
    post(client, text="a", decoding=given | {"max_target_tokens": 9, "length_penalty": 2, "num_hypotheses": 1})
    options = engine.requests[0].sequences[0].options
    assert {name: getattr(options, name) for name in given} == given
    assert (options.max_target_tokens, options.length_penalty) == (9, 2)


def test_alternatives_come_after_the_best(client, engine):
    def ranked(sequence):
        result = type(engine)._result(engine, sequence)
        ids = (FIRST_ID + ord("x"), 3), (FIRST_ID + ord("y"), 3)
        return replace(result, hypotheses=tuple(Hypothesis(tokens, "stop", (-1, -1), -2.0, -1.0) for tokens in ids))

    engine._result = ranked
    (item,) = post(client, text="a\ni", decoding={"beam_size": 2, "num_hypotheses": 2}).json()["translations"]
    assert item["text"] == "x\nx"
    assert item["alternatives"] == ["y\ny"]


def test_segments_scores_and_tokens_are_returned_when_asked_for(client, engine):
    body = post(client, text=" Hi.\n🙂", **{"return": ["segments", "scores", "tokens"]}).json()
    (item,) = body["translations"]
    first, second = item["segments"]
    assert engine.requests[0].with_log_probs
    assert item["score"] == -0.5
    assert (first["start"], first["end"], first["source"], first["text"]) == (1, 4, "Hi.", "HI.")
    assert first["translated"]
    assert first["hypotheses"][0]["log_prob"] == -2.0
    assert first["source_tokens"][0] == {"id": FIRST_ID + ord("H"), "piece": "H", "start": 1, "end": 2}
    assert [token["piece"] for token in first["hypotheses"][0]["tokens"]] == ["H", "I", ".", "</s>"]
    assert first["hypotheses"][0]["tokens"][0]["log_prob"] == -0.5
    assert second == {
        "start": 5,
        "end": 6,
        "source": "🙂",
        "text": "🙂",
        "translated": False,
        "windowed": False,
        "hypotheses": [],
    }


def test_nothing_more_is_returned_than_asked_for(client, engine):
    (item,) = post(client, text="Hi.", **{"return": ["segments"]}).json()["translations"]
    assert set(item) == {"text", "windowed", "truncated", "segments"}
    assert set(item["segments"][0]["hypotheses"][0]) == {"text", "finish_reason"}
    assert not engine.requests[0].with_log_probs


def test_a_sentence_over_the_limit_is_windowed_and_the_answer_says_so(make_client):
    client = make_client(max_segment_tokens=20)
    (item,) = post(client, text="one two three, four five six seven").json()["translations"]
    warnings = item.pop("warnings")
    assert item == {"text": "ONE TWO THREE, FOUR FIVE SIX SEVEN", "windowed": True, "truncated": False}
    assert [(each["segment"], each["code"]) for each in warnings] == [(0, "long"), (1, "long")]


def test_the_deadline_reaches_the_engine(make_client, engine):
    client = make_client(request_timeout_seconds=50)
    post(client, text="a", deadline_seconds=5)
    post(client, text="a")
    first, second = engine.requests
    assert 40 < second.deadline - first.deadline < 50


def test_tokens_are_counted(client):
    post(client, text="Good morning.")
    metrics = client.get("/metrics").text
    assert 'gossamer_source_tokens_total{model="en-fr"} 14.0' in metrics
    assert 'gossamer_target_tokens_total{model="en-fr"} 14.0' in metrics


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "field", "given", "allowed"),
    [
        ({}, "text", None, "required"),
        ({"text": None}, "text", None, "a string or a list of strings"),
        ({"text": 5}, "text", 5, "a string or a list of strings"),
        ({"text": {"a": 1}}, "text", "an object with 1 field", "a string or a list of strings"),
        ({"text": []}, "text", "a list of 0", "a list with at least one string"),
        ({"text": ["a", 1]}, "text[1]", 1, "a string"),
        ({"text": ["a", None]}, "text[1]", None, "a string"),
        ({"text": [["a"]]}, "text[0]", "a list of 1", "a string"),
        ({"text": "a", "source": 1}, "source", 1, "a string"),
        ({"text": "a", "target": ["fr"]}, "target", "a list of 1", "a string"),
        ({"text": "a", "format": "pdf"}, "format", "pdf", "one of text, html, xml"),
        ({"text": "a", "return": "segments"}, "return", "segments", "a list of segments, scores, tokens, alignment"),
        ({"text": "a", "return": ["map"]}, "return[0]", "map", "one of segments, scores, tokens, alignment"),
        ({"text": "a", "stream": 1}, "stream", 1, "true or false"),
        ({"text": "a", "deadline_seconds": "5"}, "deadline_seconds", "5", "a number"),
        ({"text": "a", "deadline_seconds": 0}, "deadline_seconds", 0, "a number above 0 and at most 60"),
        ({"text": "a", "deadline_seconds": 61}, "deadline_seconds", 61, "a number above 0 and at most 60"),
        ({"text": "a", "decoding": 5}, "decoding", 5, None),
        ({"text": "a", "decoding": {"beam_size": "4"}}, "decoding.beam_size", "4", "an integer from 1 to 16"),
        ({"text": "a", "decoding": {"beam_size": 4.5}}, "decoding.beam_size", 4.5, "an integer from 1 to 16"),
        ({"text": "a", "decoding": {"beam_size": True}}, "decoding.beam_size", True, "an integer from 1 to 16"),
        ({"text": "a", "decoding": {"beam_size": 10**30}}, "decoding.beam_size", 1e30, "an integer from 1 to 16"),
        ({"text": "a", "decoding": {"beam_size": 99}}, "decoding.beam_size", 99, "an integer from 1 to 16"),
        ({"text": "a", "decoding": {"temperature": -1}}, "decoding.temperature", -1, None),
        ({"text": "a", "decoding": {"top_p": 0}}, "decoding.top_p", 0, None),
        ({"text": "a", "decoding": {"top_k": 5}}, "decoding.top_k", 5, None),
        ({"text": "a", "decoding": {"seed": -1}}, "decoding.seed", -1, None),
        ({"text": "a", "decoding": {"beam_size": 1, "num_hypotheses": 2}}, "decoding.num_hypotheses", 2, None),
        ({"text": "a", "decoding": {"max_target_tokens": 0}}, "decoding.max_target_tokens", 0, None),
        ({"text": "a" * 200, "source": "x" * 500}, "source", "x" * 100 + "…", None),
    ],
)
def test_a_field_that_is_not_allowed_is_named_with_what_was_given_and_what_is_allowed(
    client, body, field, given, allowed
):
    found = fault(post(client, **body))
    assert (found["field"], found["given"]) == (field, given)
    if allowed is not None:
        assert found["allowed"] == allowed
    assert found["allowed"]


def test_unknown_fields_are_refused_with_the_nearest_one(client):
    found = problem(post(client, text="a", sorce="en", decoding={"beams": 2}), 422, "invalid-request")["errors"]
    assert {item["field"] for item in found} == {"sorce", "decoding.beams"}
    allowed = {item["field"]: item["allowed"] for item in found}
    assert "did you mean source?" in allowed["sorce"]
    assert "beam_size" in allowed["decoding.beams"]


def test_an_unknown_field_is_called_so_in_words(client):
    detail = problem(post(client, text="a", sorce="en"), 422, "invalid-request")["detail"]
    assert detail.startswith("sorce is an unknown field; did you mean source? (there are: text, source, target, ")
    detail = problem(post(client, text="a", decoding={"zzz": 1}), 422, "invalid-request")["detail"]
    assert detail.startswith("decoding.zzz is an unknown field (there are: beam_size, length_penalty, ")


@pytest.mark.parametrize(
    "body",
    [
        {"x" * 200_000: 1},
        {"decoding": {"x" * 200_000: 1}},
        {"text": "x", "source": "x" * 100_000},
        {"text": "x", "model": "x" * 100_000},
        {"text": "x", "format": "x" * 100_000},
        {"text": "x", "return": ["x" * 100_000]},
        {f"x{number}": "x" * 100 for number in range(2_000)},
    ],
)
def test_no_answer_repeats_more_than_a_little_of_the_request(client, body):
    response = post(client, **body)
    assert response.status_code == 422
    assert len(response.content) < 8_000


def test_only_the_first_faults_are_told_and_the_others_counted(client):
    content = problem(post(client, text="a", **{f"x{number}": 1 for number in range(50)}), 422, "invalid-request")
    assert len(content["errors"]) == 10
    assert content["detail"].endswith("; and 40 more")


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"text": None}, "text is null; allowed is a string or a list of strings"),
        ({"text": True}, "text is true; allowed is a string or a list of strings"),
        ({"text": "a", "source": [None]}, "source is a list of 1; allowed is a string"),
        ({"text": "a", "format": 'x"é'}, 'format is "x\\"é"; allowed is one of text, html, xml'),
        (
            {"text": "a", "decoding": {"seed": False}},
            f"decoding.seed is false; allowed is an integer from 0 to {2**63 - 1}",
        ),
        (
            {"text": "a", "decoding": {"seed": 10**30}},
            f"decoding.seed is 1e+30; allowed is an integer from 0 to {2**63 - 1}",
        ),
        (
            {"text": "a", "decoding": {"seed": 2**63}},
            f"decoding.seed is {2**63}; allowed is an integer from 0 to {2**63 - 1}",
        ),
        ({"text": "a", "decoding": {"top_p": "1"}}, 'decoding.top_p is "1"; allowed is a number above 0 and at most 1'),
        (
            {"text": "a", "decoding": {"beam_size": 2, "num_hypotheses": 3}},
            "decoding.num_hypotheses is 3; allowed is at most beam_size, which is 2",
        ),
        (
            {"text": "a", "decoding": {"beam_size": 2, "temperature": 0.5}},
            "decoding.temperature is 0.5; allowed is only 0 with a beam_size above 1, which is 2",
        ),
        (
            {"text": "a", "decoding": {"top_k": 3}},
            "decoding.top_k is 3; allowed is none without a temperature above 0, for nothing is drawn",
        ),
        ({"text": "a", "source": "x" * 36}, f'source is "{"x" * 36}"; allowed is a string of at most 35 characters'),
    ],
)
def test_values_are_shown_as_json_and_every_refusal_has_the_same_form(client, body, detail):
    assert problem(post(client, **body), 422, "invalid-request")["detail"] == detail


def test_what_the_engine_refuses_has_the_same_form_and_does_not_speak_of_sequences(client, engine):
    engine.error = InvalidOptions(0, "max_target_tokens", 10_000, "at most 512")
    response = post(client, text="a", decoding={"max_target_tokens": 10_000})
    assert problem(response, 422, "invalid-request")["detail"] == (
        "decoding.max_target_tokens is 10000; allowed is at most 512"
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "it is empty"),
        (b'{"text": "\xff"}', "it is not UTF-8 (byte 0xff at offset 10)"),
        (b'{"deadline_seconds": NaN}', "NaN and Infinity are no JSON numbers (line 1 column 22)"),
        (b'{"deadline_seconds": -Infinity}', "NaN and Infinity are no JSON numbers (line 1 column 23)"),
        (b'{"deadline_seconds": ' + b"9" * 400 + b"}", "a number is too large (line 1 column 22)"),
        (b'{"text": "\\ud800"}', "half of a surrogate pair is no character (line 1 column 11)"),
        (b'{"text": "a",}', "trailing comma is not allowed: line 1 column 13 (char 12)"),
    ],
)
def test_what_is_no_json_is_told_in_words(client, body, reason):
    response = client.post("/v1/translate", content=body, headers={"content-type": "application/json"})
    assert reason in problem(response, 400, "invalid-json")["detail"]


def test_a_byte_order_mark_before_json_is_no_fault(client):
    headers = {"content-type": "application/json"}
    assert client.post("/v1/translate", content=b'\xef\xbb\xbf{"text": "Hello."}', headers=headers).status_code == 200
    detail = problem(client.post("/v1/translate", content=b"\xef\xbb\xbf", headers=headers), 400, "invalid-json")[
        "detail"
    ]
    assert "it is empty" in detail


def test_the_field_return_is_not_known_by_its_python_name(client):
    assert fault(post(client, text="a", return_=["scores"]))["field"] == "return_"


@pytest.mark.parametrize("body", [b"[]", b"5", b'"text"', b"null", b"true"])
def test_a_body_that_is_no_object_is_refused(client, body):
    response = client.post("/v1/translate", content=body, headers={"content-type": "application/json"})
    assert fault(response)["field"] == "body"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"text": "a",}',
        b'{"text": NaN}',
        b'{"text": "a", "deadline_seconds": Infinity}',
        b'{"text": "a", "deadline_seconds": 1e999}',
        b'{"text": "\\ud800"}',
        b'{"text": "\\udc00a"}',
        b'{"text": "\xff\xfe"}',
        b'{"text": "\xc3"}',
        b'{"text": "a\nb"}',
        b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        '{"text": "a"}'.encode("utf-16"),
        "text=a",
    ],
)
def test_a_body_that_is_no_json_is_refused(client, body):
    response = client.post("/v1/translate", content=body, headers={"content-type": "application/json"})
    detail = problem(response, 400, "invalid-json")["detail"]
    assert detail.startswith("the body is not valid JSON: ")


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/xml", "json", "application/json; charset=latin-1"],
)
def test_another_content_type_is_refused(client, content_type):
    response = client.post("/v1/translate", content=b'{"text": "a"}', headers={"content-type": content_type})
    problem(response, 415, "unsupported-media-type")


@pytest.mark.parametrize("path", ["/v1/translate", "/translate", "/v2/translate"])
def test_a_compressed_body_is_refused_by_the_encodings_name(client, path):
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    response = client.post(path, content=gzip.compress(b'{"text": "a"}'), headers=headers)
    assert 400 <= response.status_code < 500
    assert "gzip" in response.text
    if path == "/v1/translate":
        problem(response, 415, "unsupported-media-type")


def test_no_content_type_is_refused(client):
    problem(client.post("/v1/translate", content=b'{"text": "a"}'), 415, "unsupported-media-type")


@pytest.mark.parametrize("content_type", ["application/json; charset=UTF-8", "application/problem+json"])
def test_json_under_its_other_names_is_taken(client, content_type):
    response = client.post("/v1/translate", content=b'{"text": "a"}', headers={"content-type": content_type})
    assert response.status_code == 200


def test_too_much_text_is_refused_with_both_numbers(client):
    response = post(client, text=["é" * 65_536, "a"])
    assert problem(response, 413, "text-too-large")["detail"] == (
        "text has 131073 bytes in UTF-8; at most 131072 are allowed in one request"
    )
    assert post(client, text=["1" * 131_072]).status_code == 200


def test_a_megabyte_of_text_is_refused_with_both_numbers(client):
    detail = problem(post(client, text="a" * 1_000_000), 413, "text-too-large")["detail"]
    assert "1000000" in detail
    assert "131072" in detail


def test_too_many_texts_are_refused_with_both_numbers(make_client):
    client = make_client(max_texts=3)
    detail = problem(post(client, text=[""] * 4), 413, "too-many-texts")["detail"]
    assert "4 items; at most 3" in detail


def test_a_body_over_the_limit_is_refused_by_what_is_announced(make_client):
    client = make_client(max_body_bytes=2048)
    response = post(client, text="a" * 2048)
    announced = response.request.headers["content-length"]
    content = problem(response, 413, "body-too-large")
    assert content["detail"] == f"the body has {announced} bytes; at most 2048 are allowed"
    assert response.headers["connection"] == "close"


def test_a_body_over_the_limit_is_refused_by_what_comes(make_client):
    client = make_client(max_body_bytes=2048)

    def chunks():  # without a content-length
        yield b'{"text": "'
        for _ in range(100):
            yield b"a" * 100
        yield b'"}'

    response = client.post("/v1/translate", content=chunks(), headers={"content-type": "application/json"})
    content = problem(response, 413, "body-too-large")
    assert "more than 2048" in content["detail"]


@pytest.mark.parametrize(
    ("body", "field", "allowed"),
    [
        ({"source": "de"}, "source", ["en", "fr"]),
        ({"target": "it"}, "target", ["de", "en", "fr"]),
        ({"source": "fr", "target": "it"}, "target", ["de", "en"]),
    ],
)
def test_an_unknown_pair_is_refused_with_the_codes_there_are(make_client, engine, body, field, allowed):
    pairs = (("en", "fr"), ("en", "de"), ("fr", "en"))
    engine.model_infos = tuple(
        replace(FAKE_MODEL, name=f"{source}-{target}", source_language=source, target_language=target)
        for source, target in pairs
    )
    response = post(make_client(), text="a", **body)
    assert fault(response, "unknown-language-pair") == {"field": field, "given": body[field], "allowed": allowed}
    assert response.json()["detail"].endswith(f"; allowed is {', '.join(allowed)}")


def test_an_unknown_model_is_refused_with_those_there_are(client):
    assert fault(post(client, text="a", model="xx"), "unknown-model") == {
        "field": "model",
        "given": "xx",
        "allowed": ["en-fr"],
    }


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_is_refused_with_retry_after(client, engine, stream):
    engine.error = QueueFull(65_000, 65_536, 2.3)
    response = post(client, text="a", stream=stream)
    problem(response, 503, "queue-full")
    assert response.headers["retry-after"] == "3"


def test_a_request_that_never_fits_is_too_large(client, engine):
    engine.error = RequestTooLarge(70_000, 65_536)
    detail = problem(post(client, text="a"), 413, "text-too-large")["detail"]
    assert detail == "the text has 70000 source tokens; at most 65536 are taken in one request"


def test_a_stopping_engine_is_503_with_retry_after(client, engine):
    engine.error = EngineStopping()
    response = post(client, text="a")
    problem(response, 503, "not-ready")
    assert response.headers["retry-after"] == "1"


def test_a_dead_engine_is_503(client, engine):
    client.portal.call(engine.die)
    problem(post(client, text="a"), 503, "engine-dead")


def test_a_model_that_fails_is_502(client, engine):
    engine.failures = {FakeTokenizer().encode("a", "en", add_eos=True).ids: "NaN"}
    problem(post(client, text="a"), 502, "model-failed")


@pytest.mark.parametrize("stream", [False, True])
def test_a_deadline_that_passes_is_504(client, engine, stream):
    engine.hold = asyncio.Event()
    problem(post(client, text="a", deadline_seconds=0.2, stream=stream), 504, "deadline-exceeded")
    assert engine.aborted


# --- streams ----------------------------------------------------------------------------------------------------------


def events_of(response):
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [event.split("\n") for event in response.text.removesuffix("\n\n").split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]


def test_a_stream_ends_with_the_answer_that_comes_without_it(client):
    events = events_of(post(client, text=["One. Two.", "🙂"], stream=True))
    plain = post(client, text=["One. Two.", "🙂"]).json()
    name, answer = events[-1]
    assert name == "done"
    for timed in (answer, plain):
        del timed["timings"]
    assert answer == plain


def test_a_stream_s_parts_are_those_of_its_segments(client):
    events = events_of(post(client, text="One. Two.", stream=True))
    written = ["", ""]
    for name, data in events:
        if name == "token":
            assert data["translation"] == 0
            written[data["segment"]] += data["delta"]
            assert data["text"] == written[data["segment"]]
    done = [data["text"] for name, data in events if name == "segment"]
    assert written == done == ["ONE.", "TWO."]


def test_an_error_within_a_stream_is_its_last_event(client, engine):
    async def broken(request):
        num_events = 0
        async for event in type(engine).stream(engine, request):
            yield event
            num_events += 1
            if num_events == 4:  # the first word is told by then
                raise SequenceFailed(0, "NaN")

    engine.stream = broken
    events = events_of(post(client, text="One two three.", stream=True))
    assert [name for name, _ in events] == ["token", "error"]
    assert events[-1][1]["type"] == "urn:gossamer:problem:model-failed"
    assert 'gossamer_requests_total{outcome="error",route="/v1/translate"} 1.0' in client.get("/metrics").text


# --- languages that are found out -------------------------------------------------------------------------------------

ENGLISH = "Where is the train station?"
GERMAN = "Wo ist der nächste Bahnhof?"
FRENCH = "Je ne sais pas où se trouve la gare."


def read_german_too(engine):
    (english,) = engine.model_infos
    engine.model_infos = (english, replace(english, name="de-fr", source_language="de"))


def test_auto_finds_the_language_of_each_text(client):
    answer = post(client, text=[ENGLISH, "42", ENGLISH], source="auto", target="fr").json()
    first, number, _ = answer["translations"]
    assert first["text"] == ENGLISH.upper()
    assert first["detected"]["language"] == "en"
    assert 0.9 < first["detected"]["confidence"] <= 1
    assert number["text"] == "42"
    assert number["detected"] == {"language": "unknown", "confidence": 0.0}
    assert (answer["source"], answer["model"]["name"]) == ("en", "en-fr")
    assert "model" not in first


def test_a_named_source_is_believed(client):
    (item,) = post(client, text=FRENCH, source="en").json()["translations"]
    assert item["text"] == FRENCH.upper()
    assert "detected" not in item


def test_every_text_of_an_unknown_language_is_named(client, engine):
    response = post(client, text=[ENGLISH, GERMAN, "🙂", FRENCH], source="auto", target="fr")
    content = problem(response, 422, "unknown-source-language")
    assert content["errors"] == [
        {"field": "text[1]", "given": GERMAN, "allowed": ["en"]},
        {"field": "text[3]", "given": FRENCH, "allowed": ["en"]},
    ]
    assert "(en): text[1] looks like de, text[3] looks like fr; name the source" in content["detail"]
    assert engine.requests == []


def test_a_single_text_of_an_unknown_language_is_the_field_text(client):
    found = fault(post(client, text=GERMAN, source="AUTO"), "unknown-source-language")
    assert found == {"field": "text", "given": GERMAN, "allowed": ["en"]}


def test_of_many_texts_of_an_unknown_language_ten_are_named(client):
    content = problem(post(client, text=[GERMAN] * 1_000, source="auto"), 422, "unknown-source-language")
    assert [found["field"] for found in content["errors"]] == [f"text[{index}]" for index in range(10)]
    assert "text[9] looks like de, 990 more; name" in content["detail"]


@pytest.mark.parametrize("stream", [False, True])
def test_texts_of_several_languages_go_to_the_models_that_read_them(engine, make_client, stream):
    read_german_too(engine)
    other = GERMAN[:-1] + "!"
    response = post(make_client(), text=["1", GERMAN, ENGLISH, other], source="auto", target="fr", stream=stream)
    answer = events_of(response)[-1][1] if stream else response.json()
    items = answer["translations"]
    assert [item["text"] for item in items] == ["1", GERMAN.upper(), ENGLISH.upper(), other.upper()]
    assert [item["model"]["name"] for item in items] == ["de-fr", "de-fr", "en-fr", "de-fr"]
    assert [item["detected"]["language"] for item in items] == ["unknown", "de", "en", "de"]
    assert answer["source"] == "auto"
    assert "model" not in answer
    assert sorted((request.model, len(request.sequences)) for request in engine.requests) == [
        ("de-fr", 2),
        ("en-fr", 1),
    ]
    tokens = sum(len(sequence.source_ids) for request in engine.requests for sequence in request.sequences)
    assert answer["usage"]["source_tokens"] == tokens


def test_events_of_several_models_name_the_texts_of_the_request(engine, make_client):
    read_german_too(engine)
    events = events_of(post(make_client(), text=[ENGLISH, GERMAN], source="auto", target="fr", stream=True))
    written = ["", ""]
    for name, data in events:
        if name == "token":
            written[data["translation"]] += data["delta"]
    assert written == [ENGLISH.upper(), GERMAN.upper()]
    assert {data["translation"]: data["source"] for name, data in events if name == "segment"} == {
        0: ENGLISH,
        1: GERMAN,
    }


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_fails_ends_the_others_too(engine, make_client, stream):
    read_german_too(engine)
    client = make_client()
    submit, running = engine.stream, []

    async def stream_of(request):
        if request.model == "de-fr":
            while not running:
                await asyncio.sleep(0)
            raise QueueFull(65_000, 65_536, 2.3)
        running.append(request.request_id)
        engine.hold = asyncio.Event()
        async for event in submit(request):
            yield event

    engine.stream = stream_of
    problem(post(client, text=[ENGLISH, GERMAN], source="auto", target="fr", stream=stream), 503, "queue-full")
    assert engine.aborted == running


def test_only_languages_that_reach_the_target_count(engine, make_client):
    (english,) = engine.model_infos
    engine.model_infos = (english, replace(english, name="de-es", source_language="de", target_language="es"))
    client = make_client()
    assert fault(post(client, text=GERMAN, source="auto", target="fr"), "unknown-source-language")["allowed"] == ["en"]
    assert translated(client, GERMAN, source="auto", target="es") == [GERMAN.upper()]
    assert fault(post(client, text="a", source="auto", target="it"), "unknown-language-pair")["field"] == "target"
    assert fault(post(client, text="a", source="auto", model="xx"), "unknown-model")["field"] == "model"


def detect(client, **body):
    return client.post("/v1/detect", json=body)


def test_detection_says_what_it_found(client):
    answer = detect(client, text=[ENGLISH, FRENCH, "42"]).json()
    assert answer["languages"] == ["en"]
    english, french, number = answer["detections"]
    assert (english["language"], english["looks_like"]) == ("en", "en")
    assert english["candidates"] == [{"language": "en", "confidence": english["confidence"]}]
    assert (french["language"], french["confidence"], french["looks_like"]) == ("unknown", 0.0, "fr")
    assert number == {
        "language": "unknown",
        "confidence": 0.0,
        "candidates": [{"language": "en", "confidence": 0.0}],
    }


def test_detection_looks_for_the_languages_that_reach_the_target(engine, make_client):
    (english,) = engine.model_infos
    engine.model_infos = (english, replace(english, name="de-es", source_language="de", target_language="es"))
    client = make_client()
    assert detect(client, text=GERMAN).json()["languages"] == ["de", "en"]
    assert detect(client, text=GERMAN, target="fr").json()["detections"][0]["language"] == "unknown"
    assert detect(client, text=GERMAN, target="es").json()["detections"][0]["language"] == "de"


@pytest.mark.parametrize(
    ("body", "field", "given"),
    [
        ({}, "text", None),
        ({"text": 1}, "text", 1),
        ({"text": ["a", None]}, "text[1]", None),
        ({"text": "a", "source": "en"}, "source", "en"),
    ],
)
def test_what_detection_does_not_take_is_named(client, body, field, given):
    found = fault(detect(client, **body))
    assert (found["field"], found["given"]) == (field, given)
    if field == "source":
        assert "text, target" in str(found["allowed"])


def test_detection_has_the_limits_of_a_translation(make_client):
    client = make_client(max_texts=2, max_text_bytes=20)
    problem(detect(client, text=["a", "b", "c"]), 413, "too-many-texts")
    problem(detect(client, text="a" * 21), 413, "text-too-large")


# --- two models, several targets, advice ------------------------------------------------------------------------------


@pytest.fixture
def german(engine):
    """German to English, and English to French or Spanish, which its makers advise to search with a beam of 6."""
    engine.model_infos = (
        replace(FAKE_MODEL, name="de-en", source_language="de", target_language="en"),
        replace(
            FAKE_MODEL,
            name="en-many",
            target_languages=("fr", "es"),
            advised_decoding={"beam_size": 6, "length_penalty": 0.5},
        ),
    )


def test_a_pair_that_two_models_translate_goes_through_the_language_between(german, client, engine):
    answer = post(client, text=["Hallo. Welt!\n", "🙂"], source="de", target="fr").json()
    assert answer["via"] == {
        "language": "en",
        "models": [{"name": "de-en", "revision": "fake"}, {"name": "en-many", "revision": "fake"}],
    }
    assert "model" not in answer
    assert (answer["source"], answer["target"]) == ("de", "fr")
    assert [request.model for request in engine.requests] == ["de-en", "en-many"]
    assert answer["translations"][0]["text"] == answer["translations"][0]["via_text"] == "HALLO. WELT!\n"
    assert answer["translations"][1]["text"] == "🙂"
    tokens = sum(len(sequence.source_ids) for request in engine.requests for sequence in request.sequences)
    assert answer["usage"]["source_tokens"] == tokens
    assert answer["timings"]["decode_seconds"] == 0.006


def test_the_text_between_is_what_the_second_model_reads(german, client, engine):
    engine.translate = lambda ids: (*(token_id + 1 for token_id in ids[:-1]), ids[-1])  # "a" becomes "b"
    (item,) = post(client, text="abcde fgh", source="de", target="fr").json()["translations"]
    assert (item["via_text"], item["text"]) == ("bcdef!ghi", 'cdefg"hij')


def test_alternatives_are_those_of_the_second_step(german, client, engine):
    def ranked(sequence):
        result = type(engine)._result(engine, sequence)
        letters = "xy" if engine.requests[-1].model == "en-many" else "ao"
        return replace(
            result,
            hypotheses=tuple(Hypothesis((FIRST_ID + ord(each), 3), "stop", (-1, -1), -2.0, -1.0) for each in letters),
        )

    engine._result = ranked
    (item,) = post(client, text="a", source="de", target="fr", decoding={"beam_size": 2, "num_hypotheses": 2}).json()[
        "translations"
    ]
    assert (item["via_text"], item["text"], item["alternatives"]) == ("a", "x", ["y"])


def test_a_way_through_a_language_streams_its_last_step(german, client):
    events = events_of(post(client, text="Hallo. Welt.", source="de", target="fr", stream=True))
    written = {data["segment"]: data["text"] for name, data in events if name == "segment"}
    assert written == {0: "HALLO.", 1: "WELT."}
    assert events[-1][1]["via"]["language"] == "en"
    assert events[-1][1]["translations"][0]["via_text"] == "HALLO. WELT."


@pytest.mark.parametrize("body", [{"attention": {}}, {"return": ["alignment"]}])
def test_the_inside_of_two_models_is_not_shown_as_one(german, client, body):
    found = fault(post(client, text="a", source="de", target="fr", **body))
    assert found["field"] == "target"
    assert "via en" in found["allowed"]


def test_markup_takes_no_way_through_a_language(german, client):
    response = post(client, text="<p>Hallo</p>", source="de", target="fr", format="html")
    assert fault(response, "unknown-language-pair")["allowed"] == ["en"]


def test_models_say_their_targets_and_the_ways_there_are(german, client):
    answer = client.get("/v1/models").json()
    assert [info.get("targets") for info in answer["models"]] == [None, ["fr", "es"]]
    assert answer["routes"] == [
        {"source": "de", "target": target, "via": "en", "models": ["de-en", "en-many"]} for target in ("fr", "es")
    ]


def test_the_target_of_a_model_with_several_is_the_one_asked_for(german, client):
    assert post(client, text="a", source="en", target="es").json()["target"] == "es"
    assert post(client, text="a", source="en").json()["target"] == "fr"


@pytest.mark.parametrize(
    ("body", "beam_size", "length_penalty"),
    [
        ({}, 6, 0.5),
        ({"decoding": {"beam_size": 2}}, 2, 0.5),
        ({"decoding": {"length_penalty": 1.5}}, 6, 1.5),
        ({"decoding": {"temperature": 1}}, 1, 0.5),
        ({"stream": True}, 1, 0.5),
    ],
)
def test_a_model_is_searched_as_its_makers_advise_unless_the_request_says(
    german, client, engine, body, beam_size, length_penalty
):
    client.post("/v1/translate", json={"text": "a", "source": "en"} | body)
    options = engine.requests[0].sequences[0].options
    assert (options.beam_size, options.length_penalty) == (beam_size, length_penalty)


def test_the_operator_s_beam_wins_over_advice(german, make_client, engine):
    post(make_client(default_beam_size=2), text="a", source="en")
    options = engine.requests[0].sequences[0].options
    assert (options.beam_size, options.length_penalty) == (2, 0.5)


@pytest.mark.parametrize(
    ("body", "threshold"),
    [
        ({}, 3.0),
        ({"decoding": {"beam_size": 2, "beam_threshold": 7}}, 7.0),
        ({"decoding": {"beam_size": 2, "num_hypotheses": 2}}, None),
        ({"decoding": {"beam_size": 1}}, None),
        ({"stream": True}, None),
    ],
)
def test_a_beam_gives_hypotheses_up_at_the_operator_s_threshold_unless_the_request_says(
    make_client, engine, body, threshold
):
    make_client(default_beam_threshold=3.0).post("/v1/translate", json={"text": "a"} | body)
    assert engine.requests[0].sequences[0].options.beam_threshold == threshold


def test_advice_counts_only_where_all_steps_have_the_same(german, client, engine):
    post(client, text="a", source="de", target="fr")
    assert [request.sequences[0].options.beam_size for request in engine.requests] == [4, 4]


# --- deadlines in a header --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [("5", {}, 5), ("2.5", {"deadline_seconds": 9}, 2.5), ("9", {"deadline_seconds": 2.5}, 2.5), (None, {}, 60)],
)
def test_the_shortest_of_header_and_body_counts(client, engine, header, body, seconds):
    headers = {} if header is None else {"X-Request-Timeout": header}
    started = time.monotonic()
    client.post("/v1/translate", json={"text": "a"} | body, headers=headers)
    assert engine.requests[0].deadline - started == pytest.approx(seconds, abs=1)


@pytest.mark.parametrize("header", ["0", "-1", "61", "soon", "", "1e1", "nan", "5 s", "9" * 5_000])
def test_a_header_that_is_no_time_is_refused(client, header):
    response = client.post("/v1/translate", json={"text": "a"}, headers={"X-Request-Timeout": header})
    found = fault(response)
    assert (found["field"], found["allowed"]) == ("X-Request-Timeout", "a number above 0 and at most 60")
    assert len(response.content) < 1_000
