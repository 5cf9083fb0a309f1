"""The formats `html` and `xml` of `POST /v1/translate`, on an engine that writes capital letters."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.service.api.test_docs import CapitalEngine
from tests.service.api.test_translate import fault, post, problem
from tests.service.fake_tokenizer import upper
from tests.service.text.markup_documents import Maker, Outline


@pytest.fixture
def engine(engine):
    engine.translate = upper
    return engine


def translated(client, text, format="html", **body):
    response = post(client, text=text, format=format, **body)
    assert response.status_code == 200, response.text
    items = [item["text"] for item in response.json()["translations"]]
    return items if isinstance(text, list) else items[0]


@pytest.mark.parametrize(
    ("document", "changed"),
    [
        ("<p>The <b>red</b> car.</p>", "<p>THE <b>RED</b> CAR.</p>"),
        ("Good morning. See you.", "GOOD MORNING. SEE YOU."),
        ('<img src="a.png" alt="A dog">', '<img src="a.png" alt="A DOG">'),
        ("<p>Use <code>run()</code> it.</p>", "<p>USE <code>run()</code> IT.</p>"),
        ("<p>I am <span translate=no>Rose Field</span>.</p>", "<p>I AM <span translate=no>Rose Field</span>.</p>"),
        ("<p>One.<br>\n  Two &amp; three.</p>\r\n", "<p>ONE.<br>\n  TWO &amp; THREE.</p>\r\n"),
        ("<b>12:30</b> 🙂", "<b>12:30</b> 🙂"),
        ("", ""),
    ],
)
def test_html_keeps_its_markup(client, document, changed):
    assert translated(client, document) == changed


def test_xml_keeps_its_markup(client):
    document = '<?xml version="1.0"?>\n<r title="a b"><p>One <i>two</i>.</p><![CDATA[three]]></r>'
    changed = '<?xml version="1.0"?>\n<r title="a b"><p>ONE <i>TWO</i>.</p><![CDATA[THREE]]></r>'
    assert translated(client, document, "xml") == changed


def test_a_hundred_documents_keep_their_tags(client, engine):
    documents = [Maker(seed).document() for seed in range(2_000, 2_100)]
    answers = [text for first in (0, 50) for text in translated(client, documents[first : first + 50])]
    assert len(engine.requests) < 30  # all of a request side by side, not one after the other
    for document, answer in zip(documents, answers, strict=True):
        before, after = Outline(document), Outline(answer)
        assert after.faults == [], (document, answer)
        assert Counter(after.tags) == Counter(before.tags), (document, answer)
        assert sorted(after.paths) == sorted(before.paths), (document, answer)
        assert sorted(after.attributes) == sorted(before.attributes), (document, answer)
        assert Counter(after.others) == Counter(before.others), (document, answer)


def test_segments_have_their_places_in_the_document(client):
    document = "<p>One &amp; <b>two</b>. Three.</p><img alt='four'>"
    (item,) = post(client, text=document, format="html", **{"return": ["segments", "tokens"]}).json()["translations"]
    parts = item["segments"]
    assert [part["source"] for part in parts] == ["One & two.", "Three.", "four"]
    assert [document[part["start"] : part["end"]] for part in parts[:2]] == ["One &amp; <b>two</b>.", "Three."]
    assert [(token["start"], token["end"]) for token in parts[1]["source_tokens"]][:2] == [(0, 1), (1, 2)]
    assert not item["windowed"]


def test_alternatives_are_documents_too(client, engine):
    engine.__class__ = CapitalEngine  # whose hypotheses differ
    body = {"decoding": {"beam_size": 2, "num_hypotheses": 2}}
    (item,) = post(client, text="<p>One <b>two</b>.</p>", format="html", **body).json()["translations"]
    assert item["alternatives"] == ["<p>OONE <b>TWO</b>.</p>"]


def test_long_sentences_are_windowed(make_client):
    client = make_client(max_segment_tokens=20)
    document = "<p>One two three four <b>five six seven eight nine</b> ten eleven twelve</p>"
    (item,) = post(client, text=document, format="html").json()["translations"]
    assert item["windowed"]
    assert {each["code"] for each in item["warnings"]} == {"long"}
    assert item["text"] == document.upper().replace("P>", "p>").replace("B>", "b>")


def test_the_language_is_found_in_the_text_and_not_in_the_markup(client):
    document = "<p class='où est la gare le petit chat de la maison'>Where is the <b>train station</b>, please?</p>"
    (item,) = post(client, text=document, format="html", source="auto").json()["translations"]
    assert item["detected"]["language"] == "en"
    german = "<p title='Where is the train station?'></p><p>Wo ist der nächste Bahnhof, bitte?</p><b>Danke schön</b>"
    found = fault(
        post(client, text=["<p>Good morning, my friend.</p>", german], format="html", source="auto"),
        "unknown-source-language",
    )
    assert found["field"] == "text[1]"


def test_documents_of_several_languages_go_to_the_models_that_read_them(engine, make_client):
    (english,) = engine.model_infos
    engine.model_infos = (english, replace(english, name="de-fr", source_language="de"))
    documents = ["<p>Wo ist <b>der Bahnhof</b>?</p>", "<hr>", "<p>Where is the <i>station</i>, please?</p>"]
    response = post(make_client(), text=documents, format="html", source="auto", target="fr")
    items = response.json()["translations"]
    assert [item["text"] for item in items] == [
        "<p>WO IST <b>DER BAHNHOF</b>?</p>",
        "<hr>",
        "<p>WHERE IS THE <i>STATION</i>, PLEASE?</p>",
    ]
    assert [item["model"]["name"] for item in items] == ["de-fr", "de-fr", "en-fr"]


@pytest.mark.parametrize(
    ("body", "field", "allowed"),
    [
        ({"text": "a", "format": "xhtml"}, "format", "one of text, html, xml"),
        ({"text": "a", "format": "html", "stream": True}, "stream", 'false with the format "html"'),
        ({"text": "a", "format": "html", "return": ["alignment"]}, "return", 'inside with the format "html"'),
        ({"text": "a", "format": "html", "attention": {}}, "attention", 'inside with the format "html"'),
        ({"text": "<a>", "format": "xml"}, "text", "well-formed XML (mismatched tag"),
        ({"text": ["<a/>", "a & b"], "format": "xml"}, "text[1]", "well-formed XML (not well-formed"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_field(client, engine, body, field, allowed):
    found = fault(post(client, **body))
    assert found["field"] == field
    assert allowed in found["allowed"]
    assert engine.requests == []


def test_a_document_has_the_limits_of_a_text(make_client):
    client = make_client(max_texts=2, max_text_bytes=20)
    problem(post(client, text=["a"] * 3, format="html"), 413, "too-many-texts")
    problem(post(client, text="<p>" * 7, format="html"), 413, "text-too-large")


@pytest.mark.parametrize(
    ("document", "changed"),
    [
        ('<html lang="en"><p>One.</p></html>', '<html lang="fr"><p>ONE.</p></html>'),
        ("<html lang='en-GB' dir=ltr><p>One.</p></html>", "<html lang='fr' dir=ltr><p>ONE.</p></html>"),
        ("<HTML LANG=en_US><p>One.</p></HTML>", "<HTML LANG=fr><p>ONE.</p></HTML>"),
        ('<p title="A dog" lang="en">One.</p>', '<p title="A DOG" lang="fr">ONE.</p>'),
        ('<p lang="en" title="A dog" lang="en">One.</p>', '<p lang="fr" title="A DOG" lang="en">ONE.</p>'),
        ('<p>One <i lang="en">two</i> three.</p>', '<p>ONE <i lang="fr">TWO</i> THREE.</p>'),
        (
            '<html xml:lang="en" lang="en"><meta http-equiv="Content-Language" content="en-us"></html>',
            '<html xml:lang="fr" lang="fr"><meta http-equiv="Content-Language" content="fr"></html>',
        ),
        # What is in another language, comes back as it is, or is about something else.
        ('<html lang="de"><p>One.</p></html>', '<html lang="de"><p>ONE.</p></html>'),
        ('<html lang="eng"><p>One.</p></html>', '<html lang="eng"><p>ONE.</p></html>'),
        ('<html lang=""><p>One.</p></html>', '<html lang=""><p>ONE.</p></html>'),
        ("<html lang><p>One.</p></html>", "<html lang><p>ONE.</p></html>"),
        ('<p>One <i lang="la">two</i>.</p>', '<p>ONE <i lang="la">TWO</i>.</p>'),
        ('<p lang="en" translate="no">One.</p>', '<p lang="en" translate="no">One.</p>'),
        ('<p>One <code lang="en">two</code>.</p>', '<p>ONE <code lang="en">two</code>.</p>'),
        ('<pre lang="en">One.</pre>', '<pre lang="en">One.</pre>'),
        ('<p><a hreflang="en" data-lang="en" href="?lang=en">One</a>.</p>', None),
        ('<p>The attribute is lang="en".</p>', '<p>THE ATTRIBUTE IS LANG="EN".</p>'),
    ],
)
def test_what_was_in_the_source_language_says_that_it_is_in_the_target(client, document, changed):
    assert translated(client, document) == (changed or document.replace("One", "ONE"))


@pytest.mark.parametrize(
    ("document", "changed"),
    [
        ('<d xml:lang="en"><p lang="en">One.</p></d>', '<d xml:lang="fr"><p lang="en">ONE.</p></d>'),
        ('<d xml:lang="de"><p xml:lang="en-GB">One.</p></d>', '<d xml:lang="de"><p xml:lang="fr">ONE.</p></d>'),
        ('<d><p translate="no" xml:lang="en">One.</p></d>', '<d><p translate="no" xml:lang="en">One.</p></d>'),
        (
            '<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en"><p lang="en">One.</p></html>',
            '<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="fr"><p lang="fr">ONE.</p></html>',
        ),
    ],
)
def test_so_does_xml(client, document, changed):
    assert translated(client, document, "xml") == changed
