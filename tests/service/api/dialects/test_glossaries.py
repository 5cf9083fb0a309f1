import re
import uuid
from dataclasses import replace

import pytest

from tests.service.fake_tokenizer import upper
from tests.service.fakes import FAKE_MODEL

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
        ({"entries": "caf\u00e9\tb\ncafe\u0301\tc"}, "Invalid glossary entries provided: line 2: "),
        ({"entries": "we\u200bb\tc"}, "Invalid glossary entries provided: line 1: the source term has an invisible"),
        ({"entries": "a\tb\n\u0301e\tc"}, "Invalid glossary entries provided: line 2: the source term begins with an"),
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


@pytest.mark.parametrize(
    "term", ["naïve", "nai\u0308ve", "C++", "c++", "C#", ".NET", "node.js", "x@y.org", "R&D", "42 km"]
)
def test_any_term_is_found(client, term):
    glossary = make(client, f"\ufeff{term}\tZut").json()["glossary_id"]
    for text in (f"We like {term} here.", f"We like ({term}), too."):
        assert translate(client, text, glossary_id=glossary) == text.upper().replace(term.upper(), "Zut")
    page = translate(client, f"<p>We like <b>{term}</b> here.</p>", glossary_id=glossary, tag_handling="html")
    assert page == "<p>WE LIKE <b>Zut</b> HERE.</p>"


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


# --- the third version: several dictionaries --------------------------------------------------------------------------

WEB = {"source_lang": "en", "target_lang": "fr", "entries": "web\ttoile", "entries_format": "tsv"}
PAIR = {"source_lang": "EN", "target_lang": "fr-CA"}


@pytest.fixture
def bilingual(engine, make_client):
    """A client of models of both directions."""
    back = replace(FAKE_MODEL, name="fr-en", source_language="fr", target_language="en")
    engine.model_infos = (FAKE_MODEL, back)
    return make_client()


def make_multilingual(client, *dictionaries, **changes):
    return client.post("/v3/glossaries", json={"name": "Spiders", "dictionaries": dictionaries} | changes, headers=KEY)


def entries_of(client, address, **pair):
    return client.get(f"{address}/entries", params=PAIR | pair, headers=KEY)


def test_a_glossary_has_dictionaries_for_several_languages(bilingual):
    client = bilingual
    back = {"source_lang": "FR", "target_lang": "EN-GB", "entries": "toile,web\nsoie,silk", "entries_format": "csv"}
    response = make_multilingual(client, WEB, back)
    made = response.json()
    assert response.status_code == 201
    assert list(made) == ["glossary_id", "name", "dictionaries", "creation_time"]
    assert made["dictionaries"] == [
        {"source_lang": "en", "target_lang": "fr", "entry_count": 1},
        {"source_lang": "fr", "target_lang": "en", "entry_count": 2},
    ]
    address = f"/v3/glossaries/{made['glossary_id']}"
    assert client.get(address, headers=KEY).json() == made
    assert client.get("/v3/glossaries", headers=KEY).json() == {"glossaries": [made]}
    assert client.get("/v2/glossaries", headers=KEY).json() == {"glossaries": []}
    assert "has 2 dictionaries" in message_of(client.get(address.replace("v3", "v2"), headers=KEY))
    glossary = made["glossary_id"]
    assert translate(client, "The web.", glossary_id=glossary) == "THE toile."
    assert translate(client, "La soie.", glossary_id=glossary, source_lang="fr", target_lang="en-US") == "LA silk."
    assert entries_of(client, address).json() == {"dictionaries": [WEB]}
    fields = {"source_lang": "fr", "target_lang": "en"}
    assert client.delete(f"{address}/dictionaries", params=fields, headers=KEY).status_code == 204
    assert message_of(entries_of(client, address, **fields), 404) == "Glossary dictionary not found"
    assert client.get(address.replace("v3", "v2"), headers=KEY).json()["entry_count"] == 1
    body = {"text": ["a"], "glossary_id": glossary} | fields
    assert "The glossary is for en to fr, which" in message_of(client.post("/v2/translate", json=body, headers=KEY))
    assert client.delete(address, headers=KEY).status_code == 204
    assert message_of(client.get(address, headers=KEY), 404) == "Glossary not found"


@pytest.mark.parametrize("way", ["json", "data"])
def test_names_and_entries_are_changed_by_json_and_as_a_form(client, way):
    dictionary = WEB | {"entries": "web\tréseau\nspider\taraignée"}
    form = {f"dictionaries[0].{name}": value for name, value in dictionary.items()}
    first = WEB | {"entries": "web\ttoile\nsilk\tsoie"}
    address = f"/v3/glossaries/{make_multilingual(client, first).json()['glossary_id']}"

    def changed(**fields):
        response = client.patch(address, headers=KEY, **{way: fields})
        assert response.status_code == 200, response.text
        return response.json()

    assert changed(name="Other")["name"] == "Other"
    more = changed(**(form if way == "data" else {"dictionaries": [dictionary]}))
    assert (more["name"], more["dictionaries"][0]["entry_count"]) == ("Other", 3)
    (dictionary,) = entries_of(client, address).json()["dictionaries"]
    assert dictionary["entries"] == "web\tréseau\nsilk\tsoie\nspider\taraignée"
    replaced = client.put(f"{address}/dictionaries", headers=KEY, **{way: WEB})
    assert (replaced.status_code, replaced.json()) == (
        200,
        {"source_lang": "en", "target_lang": "fr", "entry_count": 1},
    )
    assert entries_of(client, address).json() == {"dictionaries": [WEB]}


@pytest.mark.parametrize(
    ("dictionaries", "message"),
    [
        ([], "Parameter 'dictionaries' not specified."),
        ("x", "Invalid request: dictionaries must be a list of objects, not a string"),
        ([1], "Invalid request: dictionaries[0] must be an object, not a number"),
        ([WEB, {}], "Parameter 'dictionaries[1].source_lang' not specified."),
        ([WEB | {"entries": [1]}], "Invalid request: dictionaries[0].entries must be a string, not a list"),
        ([WEB | {"entries_format": "xml"}], "Value for 'dictionaries[0].entries_format' not supported. Allowed: tsv"),
        ([WEB | {"target_lang": "xx"}], "Unsupported glossary source and target language pair"),
        ([WEB, WEB | {"target_lang": "FR-CA"}], "dictionaries[1] is another one for en to fr"),
        ([WEB | {"entries": "\tx"}], "Invalid glossary entries provided: line 1: the source term is empty"),
    ],
)
def test_what_is_wrong_with_dictionaries_is_said(client, dictionaries, message):
    assert message_of(make_multilingual(client, dictionaries=dictionaries)).startswith(message)
    assert client.get("/v3/glossaries", headers=KEY).json() == {"glossaries": []}


def test_what_would_be_too_much_changes_nothing(client, monkeypatch):
    made = make_multilingual(client, WEB).json()
    address = f"/v3/glossaries/{made['glossary_id']}"
    monkeypatch.setattr("service.api.dialects.glossaries.MAX_TOTAL_CHARACTERS", 9)
    body = WEB | {"entries": "another\tmot"}
    assert "all glossaries" in message_of(client.patch(address, json={"dictionaries": [body]}, headers=KEY), 456)
    assert "all glossaries" in message_of(client.put(f"{address}/dictionaries", json=body, headers=KEY), 456)
    monkeypatch.setattr("service.api.dialects.deepl_glossaries.MAX_ENTRIES", 1)
    assert "more than 1 entries" in message_of(client.patch(address, json={"dictionaries": [body]}, headers=KEY))
    assert "'name' or 'dictionaries'" in message_of(client.patch(address, json={}, headers=KEY))
    assert client.get(address, headers=KEY).json() == made


@pytest.mark.parametrize("path", ["/v3/style_rules", "/v3/translation_memories", "/v3/glossaries/x/y", "/v2/write"])
def test_what_there_is_not_is_told_as_deepl_would(client, path):
    assert "there is nothing at" in message_of(client.get(path, headers=KEY), 404)
