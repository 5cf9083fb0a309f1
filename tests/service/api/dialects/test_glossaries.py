import re
import uuid

import pytest

from tests.service.fake_tokenizer import upper

KEY = {"Authorization": "DeepL-Auth-Key secret"}
SPIDERS = {"name": "Spiders", "source_lang": "en", "target_lang": "fr", "entries_format": "tsv"}


@pytest.fixture(autouse=True)
def shouting(engine):
    engine.translate = upper


def make(client, entries="web\ttoile\nspider silk\tsoie d'araignée", **changes):
    return client.post("/v2/glossaries", json=SPIDERS | {"entries": entries} | changes, headers=KEY)


def message_of(response, status=400):
    assert response.status_code == status, response.text
    answer = response.json()
    assert list(answer) == ["message"]
    return answer["message"]


def translate(client, text, **options):
    body = {"text": [text], "target_lang": "FR", "source_lang": "EN"} | options
    response = client.post("/v2/translate", json=body, headers=KEY)
    assert response.status_code == 200, response.text
    return response.json()["translations"][0]["text"]


def test_a_glossary_is_made_listed_read_and_deleted(client):
    response = make(client)
    made = response.json()
    assert response.status_code == 201
    assert uuid.UUID(made["glossary_id"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", made["creation_time"])
    assert made | {"glossary_id": "", "creation_time": ""} == {
        "glossary_id": "",
        "ready": True,
        "name": "Spiders",
        "source_lang": "en",
        "target_lang": "fr",
        "creation_time": "",
        "entry_count": 2,
    }
    address = f"/v2/glossaries/{made['glossary_id']}"
    assert client.get(address, headers=KEY).json() == made
    assert client.get("/v2/glossaries", headers=KEY).json() == {"glossaries": [made]}
    entries = client.get(f"{address}/entries", headers=KEY | {"Accept": "text/tab-separated-values"})
    assert entries.text == "web\ttoile\nspider silk\tsoie d'araignée"
    assert entries.headers["content-type"] == "text/tab-separated-values; charset=utf-8"
    assert message_of(client.get(f"{address}/entries", headers=KEY | {"Accept": "text/csv"}), 415)
    assert client.delete(address, headers=KEY).status_code == 204
    for response in (client.get(address, headers=KEY), client.delete(address, headers=KEY)):
        assert message_of(response, 404) == "Glossary not found"
    assert client.get("/v2/glossaries", headers=KEY).json() == {"glossaries": []}


def test_csv_may_be_quoted_and_name_the_languages(client):
    entries = 'web,toile\r\n"a, b","c ""d""",en,fr\r\n\r\n'
    made = make(client, entries, entries_format="csv").json()
    text = client.get(f"/v2/glossaries/{made['glossary_id']}/entries", headers=KEY).text
    assert text == 'web\ttoile\na, b\tc "d"'


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entries": ""}, "Parameter 'entries' not specified."),
        ({"entries": "  \n"}, "Invalid glossary entries provided: there are none"),
        ({"entries": "web"}, "Invalid glossary entries provided: line 1 has 1 fields; two are needed"),
        ({"entries": "a\tb\nweb\t"}, "Invalid glossary entries provided: line 2: the target term is empty"),
        ({"entries": "\tb"}, "Invalid glossary entries provided: line 1: the source term is empty"),
        ({"entries": "a\tb\na\tc"}, 'Invalid glossary entries provided: line 2: "a" is there twice'),
        ({"entries": "a\tb\x07"}, "Invalid glossary entries provided: line 1: the target term has a control"),
        ({"entries": "a" * 1025 + "\tb"}, "Invalid glossary entries provided: line 1: the source term has 1025"),
        ({"entries": '"a', "entries_format": "csv"}, "Invalid glossary entries provided: no CSV"),
        ({"entries": "a,b,de,fr", "entries_format": "csv"}, "Invalid glossary entries provided: line 1 names other"),
        ({"entries": "a,b,c", "entries_format": "csv"}, "Invalid glossary entries provided: line 1 has 3 fields"),
        ({"entries_format": "xml"}, "Value for 'entries_format' not supported. Allowed: tsv, csv"),
        ({"entries_format": None}, "Parameter 'entries_format' not specified."),
        ({"name": ""}, "Parameter 'name' not specified."),
        ({"target_lang": "xx"}, "Unsupported glossary source and target language pair"),
    ],
)
def test_what_is_wrong_with_a_glossary_is_said(client, changes, message):
    assert message_of(make(client, **changes)).startswith(message)


def test_the_pairs_are_those_of_the_models(client):
    assert client.get("/v2/glossary-language-pairs", headers=KEY).json() == {
        "supported_languages": [{"source_lang": "en", "target_lang": "fr"}]
    }


def test_terms_are_forced_and_the_rest_is_translated(client):
    glossary = make(client).json()["glossary_id"]
    text = translate(client, "The web is made of spider silk. Webs and web.org stay.", glossary_id=glossary)
    assert text == "THE toile IS MADE OF soie d'araignée. WEBS AND web.org STAY."
    assert translate(client, "Web", glossary_id=glossary) == "Toile"
    assert translate(client, "The web.") == "THE WEB."


def test_terms_are_forced_in_documents_too(client):
    glossary = make(client).json()["glossary_id"]
    handle = client.post(
        "/v2/document",
        data={"target_lang": "FR", "source_lang": "EN", "glossary_id": glossary},
        files={"file": ("a.txt", b"The web.\n")},
        headers=KEY,
    ).json()
    key = {"document_key": handle["document_key"]}
    while client.post(f"/v2/document/{handle['document_id']}", json=key, headers=KEY).json()["status"] != "done":
        pass
    result = client.post(f"/v2/document/{handle['document_id']}/result", json=key, headers=KEY)
    assert result.text == "THE toile.\n"


def test_of_several_glossaries_the_first_counts(client):
    one, two = (make(client, entries).json()["glossary_id"] for entries in ("web\ttoile", "web\tréseau\nsilk\tsoie"))
    assert translate(client, "Web silk.", glossary_ids=[one, two]) == "Toile soie."
    assert translate(client, "Web silk.", glossary_ids=[two, one]) == "Réseau soie."


def test_a_glossary_that_does_not_fit_is_refused(client):
    glossary = make(client).json()["glossary_id"]
    body = {"text": ["a"], "target_lang": "FR", "source_lang": "EN"}

    def said(status=400, **changes):
        return message_of(client.post("/v2/translate", json=body | changes, headers=KEY), status)

    assert "requires the source_lang" in said(glossary_id=glossary, source_lang=None)
    assert said(404, glossary_id="none") == "Glossary not found"
    assert "The glossary is for en to fr" in said(glossary_id=glossary, source_lang="DE")
    assert "cannot be used together" in said(glossary_id=glossary, glossary_ids=[glossary])
    assert "at most 5" in said(glossary_ids=[glossary] * 6)


def test_there_is_an_end_to_how_many_there_may_be(client, monkeypatch):
    monkeypatch.setattr("service.api.dialects.glossaries.MAX_GLOSSARIES", 2)
    assert [make(client).status_code for _ in range(3)] == [201, 201, 456]
    monkeypatch.setattr("service.api.dialects.glossaries.MAX_GLOSSARIES", 9)
    monkeypatch.setattr("service.api.dialects.glossaries.MAX_TOTAL_CHARACTERS", 100)
    assert "all glossaries would have" in message_of(make(client), 456)
