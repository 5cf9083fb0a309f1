import pytest

from service.engine.errors import DeadlineExceeded, QueueFull, SequenceFailed
from tests.service.fake_tokenizer import upper
from tests.service.fakes import FAKE_MODEL

HELLO = {"q": "Hello.", "source": "en", "target": "fr"}


@pytest.fixture(autouse=True)
def shouting(engine):
    engine.translate = upper


def error_of(response, status=400):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    assert list(answer) == ["error"]
    return answer["error"]


@pytest.mark.parametrize("way", ["json", "data", "params", "files"])
def test_a_text_is_translated_whichever_way_it_is_sent(client, way):
    body = {name: (None, value) for name, value in HELLO.items()} if way == "files" else HELLO
    response = client.post("/translate", **{way: body})
    assert (response.status_code, response.json()) == (200, {"translatedText": "HELLO."})


def test_a_query_alone_may_also_be_fetched(client):
    assert client.get("/translate", params=HELLO).json() == {"translatedText": "HELLO."}


def test_no_body_is_none_whatever_its_content_type(client):
    headers = {"content-type": "application/json"}
    assert client.get("/translate", params=HELLO, headers=headers).json() == {"translatedText": "HELLO."}
    assert client.post("/translate", params=HELLO, headers=headers).json() == {"translatedText": "HELLO."}
    for path in ("/languages", "/frontend/settings", "/health"):
        assert client.get(path, headers=headers).status_code == 200
    assert error_of(client.post("/translate", headers=headers)) == "Invalid request: missing q parameter"


def test_a_byte_order_mark_before_json_is_no_fault(client):
    content = b'\xef\xbb\xbf{"q": "Hello.", "source": "en", "target": "fr"}'
    response = client.post("/translate", content=content, headers={"content-type": "application/json"})
    assert response.json() == {"translatedText": "HELLO."}


@pytest.mark.parametrize("way", ["json", "data", "params"])
def test_a_list_is_answered_with_a_list_in_its_order(client, way):
    response = client.post("/translate", **{way: HELLO | {"q": ["One.", "", "Two."]}})
    assert response.json() == {"translatedText": ["ONE.", "", "TWO."]}


def test_a_list_of_one_stays_a_list(client):
    assert client.post("/translate", json=HELLO | {"q": ["One."]}).json() == {"translatedText": ["ONE."]}
    assert client.post("/translate", json=HELLO | {"q": [""]}).json() == {"translatedText": [""]}


def test_curl_sends_utf8_as_it_is_and_line_breaks_stay(client):
    response = client.post(
        "/translate",
        content="q=Où ça.\r\n\r\nGare\n&source=en&target=fr".encode(),
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert response.json() == {"translatedText": "OÙ ÇA.\r\n\r\nGARE\n"}


def test_alternatives_are_the_next_best_without_repetition(client, engine):
    response = client.post("/translate", json=HELLO | {"alternatives": 3})
    assert response.json() == {"translatedText": "HELLO.", "alternatives": []}  # the fake's hypotheses are all alike
    options = engine.requests[-1].sequences[0].options
    assert (options.num_hypotheses, options.beam_size) == (4, 4)
    response = client.post("/translate", data=HELLO | {"q": ["One.", "Two."], "alternatives": "9"})
    assert response.json() == {"translatedText": ["ONE.", "TWO."], "alternatives": [[], []]}
    assert engine.requests[-1].sequences[0].options.beam_size == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"q": ""}, "Invalid request: q parameter is empty"),
        ({"q": []}, "Invalid request: q parameter is empty"),
        ({"q": 5}, "Invalid request: q must be a string, not a number"),
        ({"q": {"a": 1}}, "Invalid request: q must be a string, not an object"),
        ({"q": ["a", None]}, "Invalid request: q[1] must be a string, not null"),
        ({"source": None}, "Invalid request: missing source parameter"),
        ({"target": ""}, "Invalid request: target parameter is empty"),
        ({"target": ["fr", 2]}, "Invalid request: target must be a string, not a list"),
        ({"target": True}, "Invalid request: target must be a string, not true or false"),
        ({"source": "zz"}, "zz is not supported; there is: en"),
        ({"target": "zz"}, "zz is not supported; there is: fr"),
        ({"source": "fr", "target": "en"}, "fr is not supported; there is: en"),
        ({"source": "zz", "target": "zz"}, "zz is not supported; there is: en"),
        ({"format": "xml"}, "xml format is not supported; there is: text, html"),
        ({"alternatives": "many"}, 'Invalid request: alternatives parameter must be a whole number, not "many"'),
        ({"alternatives": 1.5}, "Invalid request: alternatives parameter must be a whole number, not 1.5"),
        ({"alternatives": 99}, "Invalid request: alternatives parameter must be >= 0 and <= 15, not 99"),
        ({"alternatives": -1}, "Invalid request: alternatives parameter must be >= 0 and <= 15, not -1"),
        ({"api_key": 7}, "Invalid request: api_key must be a string, not a number"),
    ],
)
def test_what_is_wrong_is_said_in_libretranslate_s_shape(client, change, message):
    assert error_of(client.post("/translate", json=HELLO | change)) == message


def test_a_pair_that_is_missing_between_known_languages_is_named_in_words(engine, make_client):
    fields = {name: getattr(FAKE_MODEL, name) for name in FAKE_MODEL.__dataclass_fields__}
    pairs = (("de", "en"), ("es", "it"))
    engine.model_infos = (
        FAKE_MODEL,
        *(
            type(FAKE_MODEL)(**fields | {"name": source, "source_language": source, "target_language": target})
            for source, target in pairs
        ),
    )
    client = make_client()
    message = error_of(client.post("/translate", json=HELLO | {"source": "de", "target": "it"}))
    assert message == "Italian (it) is not available as a target language from German (de); there is: en, fr"
    message = error_of(client.post("/translate", json=HELLO | {"source": "auto", "target": "zz"}))
    assert message == "zz is not supported; there is: en, fr, it"
    message = error_of(client.post("/translate", json=HELLO | {"source": "zz"}))
    assert message == "zz is not supported; there is: de, en, es"
    assert client.post("/translate", json=HELLO | {"source": "de"}).json() == {"translatedText": "HELLO."}
    assert {each["code"]: each["targets"] for each in client.get("/languages").json()} == {
        **{"de": ["de", "en", "fr"], "en": ["en", "fr"], "es": ["es", "it"]},
        **{"fr": ["fr"], "it": ["it"]},
    }


@pytest.mark.parametrize("code", ["en", "fr", "FR"])
def test_a_text_in_the_target_language_comes_back_as_it_is(client, engine, code):
    same = {"source": code, "target": code}
    assert client.post("/translate", json=HELLO | same).json() == {"translatedText": "Hello."}
    listed = client.post(
        "/translate", json=HELLO | same | {"q": ["a", "<b>b</b>"], "format": "html", "alternatives": 2}
    )
    assert listed.json() == {"translatedText": ["a", "<b>b</b>"], "alternatives": [[], []]}
    assert engine.requests == []


def test_two_models_of_one_pair_are_no_obstacle(engine, make_client):
    fields = {name: getattr(FAKE_MODEL, name) for name in FAKE_MODEL.__dataclass_fields__}
    engine.model_infos = (FAKE_MODEL, type(FAKE_MODEL)(**fields | {"name": "other"}))
    assert make_client().post("/translate", json=HELLO).json() == {"translatedText": "HELLO."}
    assert engine.requests[-1].model == "en-fr"


ENGLISH = "Where is the train station, and when does the next train leave?"
FRENCH = "Où se trouve la gare, et quand part le prochain train ?"
GERMAN = "Wo ist der Bahnhof, und wann fährt der nächste Zug?"


def add_german(engine):
    fields = {name: getattr(FAKE_MODEL, name) for name in FAKE_MODEL.__dataclass_fields__}
    engine.model_infos = (FAKE_MODEL, type(FAKE_MODEL)(**fields | {"name": "de-fr", "source_language": "de"}))


def test_auto_says_what_it_found(client):
    answer = client.post("/translate", data=HELLO | {"q": ENGLISH, "source": "auto"}).json()
    assert answer["translatedText"] == ENGLISH.upper()
    assert answer["detectedLanguage"]["language"] == "en"
    assert 90 < answer["detectedLanguage"]["confidence"] <= 100


def test_auto_has_a_language_for_each_text_of_a_list(engine, make_client):
    add_german(engine)
    texts = [GERMAN, "42!", ENGLISH, FRENCH]
    answer = make_client().post("/translate", json=HELLO | {"q": texts, "source": "auto"}).json()
    # French is what it is to be translated to, and has no need of it.
    assert answer["translatedText"] == [GERMAN.upper(), "42!", ENGLISH.upper(), FRENCH]
    assert [found["language"] for found in answer["detectedLanguage"]] == ["de", "de", "en", "fr"]
    assert [found["confidence"] > 90 for found in answer["detectedLanguage"]] == [True, False, True, True]
    assert {request.model for request in engine.requests} == {"en-fr", "de-fr"}


def test_auto_refuses_a_language_that_cannot_be_translated_and_names_it(client):
    message = error_of(client.post("/translate", json=HELLO | {"q": [ENGLISH, GERMAN], "source": "auto"}))
    assert message.startswith(
        "q[1] looks like German (de): not clearly in a language that can be translated to fr (en)"
    )
    message = error_of(client.post("/translate", json=HELLO | {"source": "auto", "target": "zz"}))
    assert message == "zz is not supported; there is: fr"


@pytest.mark.parametrize("word", ["OK", "Menu", "Total", "Table", "Information"])
def test_auto_answers_single_words_that_could_be_either(engine, make_client, word):
    add_german(engine)
    answer = make_client().post("/translate", json=HELLO | {"q": word, "source": "auto"}).json()
    assert answer["translatedText"] == word.upper()
    assert answer["detectedLanguage"]["language"] in ("en", "de")


def test_detect_lists_the_likeliest_first(engine, make_client):
    add_german(engine)
    client = make_client()
    for text, language in ((ENGLISH, "en"), (GERMAN, "de"), (FRENCH, "fr")):
        found = client.post("/detect", data={"q": text}).json()
        assert found[0]["language"] == language
        assert found[0]["confidence"] > 90
        assert [item["confidence"] for item in found] == sorted((item["confidence"] for item in found), reverse=True)
    assert all(item["confidence"] == 0 for item in client.post("/detect", json={"q": "42"}).json())
    assert client.get("/detect", params={"q": [ENGLISH, ENGLISH]}).json()[0]["language"] == "en"
    assert error_of(client.post("/detect", json={})) == "Invalid request: missing q parameter"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b'{"q": "\\ud800"}', "application/json"),
        (b"\xff", "application/json"),
        (b"q=%ff&source=en&target=fr", "application/x-www-form-urlencoded"),
        (b"q=\xff&source=en&target=fr", "application/x-www-form-urlencoded"),
        (b"a&" * 3000, "application/x-www-form-urlencoded"),
        (b"q", "multipart/form-data"),
        (b"q", "multipart/form-data; boundary=x"),
        (b"--x\r\n\r\nq\r\n--x--", "multipart/form-data; boundary=x"),
        (
            b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xe9t\xe9\r\n--x--',
            "multipart/form-data; boundary=x",
        ),
        (b"", "text/plain"),
        (b"\x00\x01", ""),
    ],
)
def test_bodies_that_cannot_be_read_are_refused(client, body, content_type):
    error_of(client.post("/translate", content=body, headers={"content-type": content_type}))
    error_of(client.post("/detect", content=body, headers={"content-type": content_type}))


def test_what_is_wrong_with_a_body_is_said(client):
    def refused(content, content_type):
        return error_of(client.post("/translate", content=content, headers={"content-type": content_type}))

    part = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xe9t\xe9\r\n--x--'
    for charset in ("", "; charset=latin-1"):
        message = refused(part, f"multipart/form-data; boundary=x{charset}")
        assert message == 'Invalid request: "q" is not UTF-8 (invalid continuation byte at byte 0)'
    message = refused(b'{"q": "Hello."}', "application/x-www-form-urlencoded")
    assert message.startswith("Invalid request: the body begins like JSON, but the content type is ")
    assert refused(b"\xff", "application/json") == "Invalid JSON format: it is not UTF-8 (byte 0xff at offset 0)"
    response = client.post("/translate", data={"source": "en", "target": "fr"}, files={"q": ("q.txt", "Hello.")})
    assert error_of(response) == "Invalid request: q parameter must be a text, not a file"


def test_html_keeps_its_tags(client):
    body = HELLO | {"q": "<p>Hello <b>you</b> &amp; me.</p><pre>as it is</pre>", "format": "html"}
    answer = client.post("/translate", data=body)
    assert answer.json() == {"translatedText": "<p>HELLO <b>YOU</b> &amp; ME.</p><pre>as it is</pre>"}
    body = {"q": [f"<p>{ENGLISH}</p>", f"<i>{FRENCH}</i>"], "source": "auto", "target": "fr", "format": "html"}
    answer = client.post("/translate", json=body).json()
    assert answer["translatedText"] == [f"<p>{ENGLISH.upper()}</p>", f"<i>{FRENCH}</i>"]
    assert [found["language"] for found in answer["detectedLanguage"]] == ["en", "fr"]


def test_limits_name_both_numbers(make_client):
    client = make_client(max_texts=2, max_text_bytes=10, max_body_bytes=1024)
    assert "3 items; at most 2" in error_of(client.post("/translate", json=HELLO | {"q": ["a"] * 3}))
    assert "11 bytes in UTF-8; at most 10" in error_of(client.post("/translate", json=HELLO | {"q": "a" * 11}))
    assert "at most 1024" in error_of(client.post("/translate", json=HELLO | {"q": "a" * 2000}), 413)


@pytest.mark.parametrize(
    ("error", "status"), [(QueueFull(9, 9, 3.0), 503), (DeadlineExceeded("a"), 504), (SequenceFailed(0, "nan"), 502)]
)
def test_the_engine_s_errors_have_the_shape_too(client, engine, error, status):
    engine.error = error
    response = client.post("/translate", json=HELLO)
    error_of(response, status)
    assert ("retry-after" in response.headers) == (status != 502)
    assert response.headers["x-request-id"]


def test_a_fault_of_ours_says_nothing_about_the_inside(engine, make_client, monkeypatch):
    client = make_client()
    monkeypatch.setattr(engine, "translate", lambda ids: 1 / 0)
    message = error_of(client.post("/translate", json=HELLO), 500)
    assert "division" not in message


def test_wrong_methods_and_paths_have_the_shape_too(client):
    error_of(client.delete("/translate"), 405)
    error_of(client.get("/download_file/a/b"), 404)
    assert client.head("/suggest").status_code == 405
    # What is not the dialect's stays as it was.
    assert client.get("/nothing").headers["content-type"] == "application/problem+json"


def test_before_the_models_are_loaded_it_is_503(engine, make_client, monkeypatch):
    async def start():
        pass

    monkeypatch.setattr(engine, "start", start)
    client = make_client()
    for path in ("/languages", "/health", "/frontend/settings"):
        assert error_of(client.get(path), 503) == "the engine has not started"
    error_of(client.post("/translate", json=HELLO), 503)


def test_what_a_page_asks_first(client):
    assert client.get("/health").json() == {"status": "ok"}
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 32768
    assert settings["language"]["target"] == {"code": "fr", "name": "French"}
    assert error_of(client.post("/suggest", data={"q": "a"}), 403) == "Suggestions are disabled on this server."


@pytest.mark.parametrize("name", ["source", "target", "format"])
def test_a_list_where_one_value_belongs_is_refused_in_json_and_its_first_taken_in_a_form(client, name):
    value = {"source": "en", "target": "fr", "format": "text"}[name]
    message = error_of(client.post("/translate", json=HELLO | {name: [value]}))
    assert message == f"Invalid request: {name} must be a string, not a list"
    assert client.post("/translate", data=HELLO | {name: [value, "?"]}).json() == {"translatedText": "HELLO."}


@pytest.mark.parametrize("codes", [{"source": "en-!"}, {"target": "fr-"}, {"source": "fr-é", "target": "fr"}])
def test_what_is_no_code_is_not_taken_for_the_language_it_begins_like(client, codes):
    assert "is not supported; there is: " in error_of(client.post("/translate", json=HELLO | codes))
