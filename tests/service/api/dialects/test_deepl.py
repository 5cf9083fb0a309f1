import pytest

from service.engine.errors import DeadlineExceeded, QueueFull
from tests.service.fake_tokenizer import upper

KEY = {"Authorization": "DeepL-Auth-Key secret"}
HELLO = {"text": ["Hello."], "target_lang": "FR"}


@pytest.fixture(autouse=True)
def shouting(engine):
    engine.translate = upper


def message_of(response, status=400):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    assert list(answer) == ["message"]
    return answer["message"]


def texts_of(response):
    assert response.status_code == 200, response.text
    return [item["text"] for item in response.json()["translations"]]


@pytest.mark.parametrize("way", ["json", "data", "params"])
def test_texts_are_translated_whichever_way_they_are_sent(client, way):
    response = client.post(
        "/v2/translate", headers=KEY, **{way: HELLO | {"text": ["Hello.", "", "Où ?"], "source_lang": "EN"}}
    )
    assert (response.status_code, response.json()) == (
        200,
        {
            "translations": [
                {"detected_source_language": "EN", "text": "HELLO.", "billed_characters": 6},
                {"detected_source_language": "EN", "text": "", "billed_characters": 0},
                {"detected_source_language": "EN", "text": "OÙ?", "billed_characters": 4},
            ]
        },
    )


def test_without_a_source_language_each_text_s_own_is_found(client):
    texts = ["Where is the train station?", "Où se trouve la gare, et quand part le prochain train ?"]
    response = client.post("/v2/translate", json=HELLO | {"text": texts}, headers=KEY)
    assert [(item["detected_source_language"], item["text"]) for item in response.json()["translations"]] == [
        ("EN", "WHERE IS THE TRAIN STATION?"),
        ("FR", texts[1]),
    ]
    texts = ["Wo ist der Bahnhof, und wann fährt der nächste Zug?"]
    message = message_of(client.post("/v2/translate", json=HELLO | {"text": texts}, headers=KEY))
    assert message.startswith("text[0] looks like German (DE)")
    assert "can be translated to FR (EN)" in message


def test_a_form_may_name_one_text_only(client):
    assert texts_of(client.post("/v2/translate", data={"text": "Hello.", "target_lang": "fr"})) == ["HELLO."]


@pytest.mark.parametrize("target", ["FR", "fr", "FR-CA", "fr-fr"])
@pytest.mark.parametrize("source", [None, "", "EN", "en-gb"])
def test_languages_may_have_variants_in_any_case(client, source, target):
    body = HELLO | {"source_lang": source, "target_lang": target}
    assert texts_of(client.post("/v2/translate", json=body, headers=KEY)) == ["HELLO."]


def test_options_without_effect_on_this_text_are_taken_as_strings_numbers_and_booleans(client):
    for options in (
        {
            "split_sentences": "1",
            "preserve_formatting": "1",
            "outline_detection": "0",
            "show_billed_characters": "true",
        },
        {"split_sentences": 1, "preserve_formatting": True, "outline_detection": False, "show_billed_characters": 0},
        {"split_sentences": True, "context": "A greeting.", "formality": "prefer_more", "what_comes_next": [1]},
        {"formality": "default", "tag_handling_version": "v2", "enable_beta_languages": True},
    ):
        assert texts_of(client.post("/v2/translate", json=HELLO | options, headers=KEY)) == ["HELLO."]


def texts_with(client, text, **options):
    body = {"text": [text], "target_lang": "FR", "source_lang": "EN"} | options
    return texts_of(client.post("/v2/translate", json=body, headers=KEY))[0]


def test_sentences_are_split_as_asked(client, engine):
    text = "One here. Two\nthere.\n\nThree."

    def shown(**options):
        engine.requests.clear()
        result = texts_with(client, text, **options)
        return result, sum(len(request.sequences) for request in engine.requests)

    assert shown() == shown(split_sentences="1") == ("ONE HERE. TWO\nTHERE.\n\nTHREE.", 4)
    assert shown(split_sentences="nonewlines") == ("ONE HERE. TWO THERE.\n\nTHREE.", 3)
    assert shown(split_sentences=0) == ("ONE HERE. TWO\nTHERE.\n\nTHREE.", 3)


XML = "<doc><title>A title</title><par>The <b>red</b> car <keep>as is</keep>.</par></doc>"


def test_xml_keeps_its_elements_and_bills_its_words_only(client):
    body = HELLO | {"text": [XML], "tag_handling": "xml", "source_lang": "EN", "ignore_tags": ["keep"]}
    (answer,) = client.post("/v2/translate", json=body, headers=KEY).json()["translations"]
    assert answer["text"] == "<doc><title>A TITLE</title><par>THE <b>RED</b> CAR <keep>as is</keep>.</par></doc>"
    assert 20 <= answer["billed_characters"] <= 30


@pytest.mark.parametrize("tags", [["keep", "x"], "keep,x", "x, keep"])
def test_names_of_elements_are_a_list_or_parted_by_commas(client, tags):
    assert "<keep>as is</keep>" in texts_with(client, XML, tag_handling="xml", ignore_tags=tags)
    body = {"text": XML, "target_lang": "FR", "source_lang": "EN", "tag_handling": "xml", "ignore_tags": tags}
    assert "<keep>as is</keep>" in texts_of(client.post("/v2/translate", data=body, headers=KEY))[0]


def test_elements_part_texts_or_do_not_as_asked(client, engine):
    def sources(**options):
        engine.requests.clear()
        texts_with(client, "<a>one two</a><b>three four</b>", tag_handling="xml", **options)
        ids = [sequence.source_ids for request in engine.requests for sequence in request.sequences]
        return ["".join(chr(token - 4) for token in each[:-1]) for each in ids]

    assert sources() == ["one two", "three four"]
    assert sources(outline_detection=False) == ["one twothree four"]
    assert sources(outline_detection="0", splitting_tags="b") == ["one two", "three four"]
    assert sources(non_splitting_tags=["a", "b"]) == ["one twothree four"]


def test_html_keeps_its_tags(client):
    html = "<p>Hello <b>you</b>.</p><script>var a;</script>"
    assert texts_with(client, html, tag_handling="html") == html.replace("Hello", "HELLO").replace("you", "YOU")


def test_broken_xml_is_refused(client):
    body = HELLO | {"text": ["<a/>", "<a>"], "tag_handling": "xml", "source_lang": "EN"}
    said = message_of(client.post("/v2/translate", json=body, headers=KEY))
    assert said.startswith("text[1] is not well-formed XML: ")


def test_terms_are_forced_between_tags_too(client):
    made = {"name": "a", "source_lang": "EN", "target_lang": "FR", "entries_format": "tsv", "entries": "red car\tauto"}
    glossary = client.post("/v2/glossaries", json=made, headers=KEY).json()["glossary_id"]
    text = texts_with(client, "<p>The red car.</p><p>A <i>car</i>.</p>", tag_handling="html", glossary_id=glossary)
    assert text == "<p>THE auto.</p><p>A <i>CAR</i>.</p>"
    # A term with a tag in it is one all the same.
    text = texts_with(client, "<p>The <b>red</b> car.</p>", tag_handling="html", glossary_id=glossary)
    assert text.replace("<b>", "").replace("</b>", "") == "<p>THE auto.</p>"
    assert texts_with(client, "<p>Red car</p>", tag_handling="html", glossary_id=glossary) == "<p>Auto</p>"


def test_the_kind_of_model_chooses_the_search_and_is_named(client, engine):
    for asked, used, beam_size in (
        ("latency_optimized", "latency_optimized", 1),
        ("quality_optimized", "quality_optimized", 4),
        ("prefer_quality_optimized", "quality_optimized", 4),
    ):
        response = client.post("/v2/translate", json=HELLO | {"model_type": asked}, headers=KEY)
        assert response.json()["translations"][0]["model_type_used"] == used
        assert engine.requests[-1].sequences[0].options.beam_size == beam_size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": None}, "Parameter 'text' not specified."),
        ({"text": []}, "Parameter 'text' not specified."),
        ({"text": [1]}, "Invalid request: text[0] must be a string, not a number"),
        ({"text": {}}, "Invalid request: text must be a string, not an object"),
        ({"target_lang": None}, "Parameter 'target_lang' not specified."),
        ({"target_lang": "XX"}, "Value for 'target_lang' not supported. There is: FR"),
        ({"target_lang": 5}, "Invalid request: target_lang must be a string, not a number"),
        ({"source_lang": "DE"}, "Value for 'source_lang' not supported. There is: EN"),
        ({"split_sentences": "2"}, "Value for 'split_sentences' not supported. Allowed: 0, 1, nonewlines"),
        ({"formality": "more"}, "'formality' is not supported for given 'target_lang'."),
        ({"formality": "less"}, "'formality' is not supported for given 'target_lang'."),
        ({"formality": "polite"}, None),
        ({"preserve_formatting": "maybe"}, None),
        ({"tag_handling": "markdown"}, "Value for 'tag_handling' not supported. Allowed: xml, html"),
        ({"context": 5}, "Invalid request: context must be a string, not a number"),
        ({"model_type": "best"}, None),
        ({"style_id": "a"}, "Parameter 'style_id' not supported."),
        ({"custom_instructions": ["a"]}, "Parameter 'custom_instructions' not supported."),
    ],
)
def test_what_is_wrong_is_said_in_deepl_s_shape(client, change, message):
    said = message_of(client.post("/v2/translate", json=HELLO | change, headers=KEY))
    assert said == message or message is None


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"{", "application/json"), (b"[]", "application/json"), (b"\xff", "application/x-www-form-urlencoded")],
)
def test_bodies_that_cannot_be_read_are_refused(client, body, content_type):
    message_of(client.post("/v2/translate", content=body, headers=KEY | {"content-type": content_type}))


def test_no_body_is_none_whatever_its_content_type(client):
    headers = KEY | {"content-type": "application/json"}
    assert client.get("/v2/usage", headers=headers).status_code == 200
    assert client.get("/v2/languages", headers=headers).status_code == 200
    answer = client.get("/v2/translate", params={"text": "Hello.", "target_lang": "FR"}, headers=headers)
    assert answer.json()["translations"][0]["text"] == "HELLO."
    body = {"name": "g", "source_lang": "en", "target_lang": "fr", "entries": "a\tb", "entries_format": "tsv"}
    place = "/v2/glossaries/" + client.post("/v2/glossaries", json=body, headers=KEY).json()["glossary_id"]
    assert client.delete(place, headers=headers).status_code == 204


def test_a_byte_order_mark_before_json_is_no_fault(client):
    content = b'\xef\xbb\xbf{"text": ["Hello."], "target_lang": "FR"}'
    answer = client.post("/v2/translate", content=content, headers=KEY | {"content-type": "application/json"})
    assert answer.json()["translations"][0]["text"] == "HELLO."


def test_limits_name_both_numbers(make_client):
    client = make_client(max_texts=2, max_text_bytes=10, max_body_bytes=1024)
    for text, status in ((["a"] * 3, 413), (["a" * 11], 413), (["a" * 2000], 413)):
        said = message_of(client.post("/v2/translate", json=HELLO | {"text": text}, headers=KEY), status)
        assert "at most" in said


def test_the_engine_s_errors_and_wrong_paths_have_the_shape_too(client, engine):
    message_of(client.get("/v2/nothing"), 404)
    message_of(client.delete("/v2/usage"), 405)
    engine.error = QueueFull(9, 9, 3.0)
    response = client.post("/v2/translate", json=HELLO, headers=KEY)
    message_of(response, 503)
    assert response.headers["retry-after"] == "3"
    engine.error = DeadlineExceeded("a")
    response = client.post("/v2/translate", json=HELLO, headers=KEY)
    assert "it was given 60 s, the most that is allowed: send less text at once" in message_of(response, 504)
    assert response.headers["retry-after"] == "1"


def test_languages_are_listed_for_both_sides(client):
    assert client.get("/v2/languages", headers=KEY).json() == [{"language": "EN", "name": "English"}]
    targets = [{"language": "FR", "name": "French", "supports_formality": False}]
    for response in (
        client.get("/v2/languages", params={"type": "target"}, headers=KEY),
        client.post("/v2/languages", data={"type": "target"}, headers=KEY),
        client.request("GET", "/v2/languages", data={"type": "target"}, headers=KEY),  # as the Python client does
    ):
        assert response.json() == targets
    message_of(client.get("/v2/languages", params={"type": "both"}, headers=KEY))


def test_a_target_that_deepl_knows_with_countries_only_is_listed_with_them(engine, make_client):
    (info,) = engine.model_infos
    fields = {name: getattr(info, name) for name in info.__dataclass_fields__}
    engine.model_infos = (type(info)(**fields | {"source_language": "fr", "target_language": "en"}),)
    client = make_client()
    response = client.get("/v2/languages", params={"type": "target"}, headers=KEY)
    assert [item["language"] for item in response.json()] == ["EN-GB", "EN-US"]
    for body in (HELLO | {"target_lang": "DE"}, HELLO | {"source_lang": "FR"}):
        message = message_of(client.post("/v2/translate", json=body, headers=KEY))
        assert message == "Value for 'target_lang' not supported. There is: EN-GB, EN-US"


def test_usage_counts_the_characters_of_what_was_translated(client, engine):
    assert client.get("/v2/usage", headers=KEY).json()["character_count"] == 0
    client.post("/v2/translate", json=HELLO | {"text": ["abc", "🙂é"]}, headers=KEY)
    message_of(client.post("/v2/translate", json=HELLO | {"target_lang": "XX"}, headers=KEY))
    usage = client.get("/v2/usage", headers=KEY).json()
    assert usage["character_count"] == 5
    assert usage["character_limit"] > 10**9


@pytest.mark.parametrize("name", ["target_lang", "source_lang", "glossary_id", "formality", "context", "tag_handling"])
def test_a_list_where_one_value_belongs_is_refused_in_json_and_its_first_taken_in_a_form(client, name):
    value = {"target_lang": "FR", "source_lang": "EN", "formality": "default", "tag_handling": "xml"}.get(name, "x")
    message = message_of(client.post("/v2/translate", json=HELLO | {name: [value]}, headers=KEY))
    assert message == f"Invalid request: {name} must be a string, not a list"
    if name != "glossary_id":
        assert texts_of(client.post("/v2/translate", data=HELLO | {name: [value, "?"]}, headers=KEY)) == ["HELLO."]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"ignore_tags": 5}, "Invalid request: ignore_tags must be a string, not a number"),
        ({"splitting_tags": [None]}, "Invalid request: splitting_tags[0] must be a string, not null"),
        ({"tag_handling_version": "v3"}, "Value for 'tag_handling_version' not supported. Allowed: v1, v2"),
        ({"preserve_formatting": {"a": None}}, "not an object with 1 field"),
        ({"outline_detection": "maybe"}, 'must be true or false (1 or 0), not "maybe"'),
        ({"target_lang": "FR-"}, "Value for 'target_lang' not supported. There is: FR"),
        ({"source_lang": "en-!", "text": ["x"]}, "Value for 'source_lang' not supported. There is: EN"),
    ],
)
def test_a_wrong_value_is_refused_also_where_it_would_have_no_effect(client, option, message):
    assert message in message_of(client.post("/v2/translate", json=HELLO | option, headers=KEY))


def test_a_body_that_is_a_string_is_called_one(client):
    assert message_of(client.post("/v2/translate", json="text", headers=KEY)).endswith("an object, not a string")
