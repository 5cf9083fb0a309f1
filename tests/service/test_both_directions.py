"""Two models that are each other's way back, as those that come with Gossamer: nobody has to name one."""

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from service.cli import app
from tests.service.fake_tokenizer import upper
from tests.service.test_server import Server

ENGLISH = "Where is the nearest train station?"
FRENCH = "Je voudrais savoir où se trouve la gare."
GERMAN = "Wo ist der nächste Bahnhof, bitte?"


@pytest.fixture
def client(engine, make_client):
    (there,) = engine.model_infos
    back = replace(there, name="fr-en", source_language="fr", target_language="en")
    engine.model_infos, engine.translate = (there, back), upper
    return make_client()


def post(client, path="/v1/translate", **body):
    return client.post(path, json=body)


def used(response):
    assert response.status_code == 200, response.text
    return response.json()["model"]["name"]


@pytest.mark.parametrize("source", [{}, {"source": "auto"}])
def test_the_text_says_which_model_it_is_for(client, source):
    english, french = post(client, text=ENGLISH, **source), post(client, text=FRENCH, **source)
    assert (used(english), used(french)) == ("en-fr", "fr-en")
    assert english.json()["translations"][0]["detected"]["language"] == "en"
    both = post(client, text=[FRENCH, ENGLISH], **source).json()
    assert [item["model"]["name"] for item in both["translations"]] == ["fr-en", "en-fr"]
    assert (both["source"], [item["text"] for item in both["translations"]]) == (
        "auto",
        [FRENCH.upper(), ENGLISH.upper()],
    )


def test_one_language_that_is_named_is_enough(client):
    # Where something is said nothing is found out, even if the text says otherwise.
    for named in ({"source": "fr"}, {"target": "en-GB"}, {"model": "fr-en"}):
        answer = post(client, text=ENGLISH, **named)
        assert used(answer) == "fr-en"
        assert "detected" not in answer.json()["translations"][0]


def test_what_is_in_neither_language_is_refused(client, engine):
    answer = post(client, text=GERMAN)
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"field": "text", "given": GERMAN, "allowed": ["en", "fr"]}]
    assert engine.requests == []


def test_no_way_leads_back_to_the_language_it_came_from(client):
    assert "routes" not in client.get("/v1/models").json()
    for language in ("en", "fr"):
        answer = post(client, text=ENGLISH, source=language, target=language)
        assert answer.status_code == 422
        (found,) = answer.json()["errors"]
        assert (found["field"], found["allowed"]) == ("target", [{"en": "fr", "fr": "en"}[language]])


def test_libretranslate_has_both_directions(client):
    assert [(each["code"], each["targets"]) for each in client.get("/languages").json()] == [
        ("en", ["en", "fr"]),
        ("fr", ["en", "fr"]),
    ]
    language = client.get("/frontend/settings").json()["language"]
    assert (language["source"]["code"], language["target"]["code"]) == ("en", "fr")
    for text, source, target in ((ENGLISH, "en", "fr"), (FRENCH, "fr", "en")):
        found = post(client, "/translate", q=text, source="auto", target=target).json()
        assert (found["translatedText"], found["detectedLanguage"]["language"]) == (text.upper(), source)
        assert post(client, "/translate", q=text, source=source, target=target).json()["translatedText"] == text.upper()
        # What is in the wanted language already stays.
        assert post(client, "/translate", q=text, source="auto", target=source).json()["translatedText"] == text


@pytest.mark.parametrize("target", ["EN", "EN-GB", "EN-US"])
def test_deepl_has_both_directions(client, target):
    codes = [each["language"] for each in client.get("/v2/languages").json()]
    targets = [each["language"] for each in client.get("/v2/languages?type=target").json()]
    assert (codes, targets) == (["EN", "FR"], ["EN-GB", "EN-US", "FR"])
    for source in ({}, {"source_lang": "FR"}):
        (found,) = post(client, "/v2/translate", text=[FRENCH], target_lang=target, **source).json()["translations"]
        assert (found["text"], found["detected_source_language"]) == (FRENCH.upper(), "FR")


def test_without_scripts_the_page_translates_both(client, engine):
    for text in (ENGLISH, FRENCH):
        assert f">{text.upper()}</output>" in client.post("/", data={"text": text}).text
    assert [request.model for request in engine.requests] == ["en-fr", "fr-en"]


@pytest.fixture
def run(monkeypatch, both_ways):
    monkeypatch.delenv("GOSSAMER_CONFIG", raising=False)
    monkeypatch.setenv("GOSSAMER_MODELS", ":".join(map(str, both_ways)))

    def invoke(*arguments, stdin=None):
        result = CliRunner().invoke(app, ["translate", "-b", "1", *arguments], input=stdin)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    return invoke


def test_the_command_line_finds_the_language_out(run, both_ways):
    there, back = map(str, both_ways)
    assert run(ENGLISH, FRENCH) == run("-m", there, ENGLISH) + run("-m", back, FRENCH)
    assert run("--from", "fr", ENGLISH) == run("--to", "en", ENGLISH) == run("-m", back, ENGLISH)


def test_a_block_that_says_nothing_is_in_the_language_before_it(run, both_ways):
    _, back = map(str, both_ways)
    book = f"{FRENCH}\n" * 128 + "Paris\n"
    assert run(stdin=book) == run("-m", back, stdin=book)


def test_a_server_finds_the_language_out_for_the_command_line(run, both_ways):
    # Its weights are random, and the French sentences of the self-check show it.
    server = Server("-m", both_ways[0], "-m", both_ways[1], GOSSAMER_SELF_CHECK="false")
    try:
        server.wait_until_ready()
        book = f"{FRENCH}\n" * 128 + "Paris\n"
        assert run("--server", server.address, stdin=book) == run("-m", str(both_ways[1]), stdin=book)
        tried = json.loads(re.search(r"-d '(.*)'", server.welcome[3])[1])
        status, answer = server.get("/v1/translate", tried)  # what the welcome says to try
        assert (status, answer["model"]["name"]) == (200, "tiny")
    finally:
        server.stop()
