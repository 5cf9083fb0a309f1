"""Requests as Weblate and Mastodon send them, in their bytes, against a running server with models of both directions.

Written from what is public of the two: Weblate's machineries `libretranslate` and `deepl`, Mastodon's
`TranslationService::LibreTranslate` and `TranslationService::DeepL`.
"""

import json
import re
import urllib.parse

import httpx
import pytest

POST = (
    '<p>The train is late again. <span class="h-card" translate="no"><a href="https://a.example/@bob" '
    'class="u-url mention">@<span>bob</span></a></span> is <span translate="no">:tired:</span>.</p>'
    '<p>I love <a href="https://a.example/tags/trains" class="mention hashtag" rel="tag">#<span>trains</span></a>!</p>'
)


def tags(text):
    return sorted(re.findall(r"<[^<>]*>", text))


@pytest.fixture(scope="module")
def http(running):
    with httpx.Client(base_url=running, timeout=240) as client:
        yield client


# --- Mastodon ---------------------------------------------------------------------------------------------------------


def mastodon(http, verb, path, **options):
    """As its `Request` does it: the type of JSON even where there is no body."""
    headers = {"User-Agent": "Mastodon/4.5.0 (http.rb/5.3.1; +https://a.example/)", "Accept-Encoding": "gzip"}
    response = http.request(verb, path, headers=headers | options.pop("headers", {}), **options)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("source", ["en", None])
@pytest.mark.parametrize("key", [None, "", "any"])
def test_mastodon_has_posts_translated_by_libretranslate_s_api(http, source, key):
    texts = [POST, "Late again", "", "Yes, every day"]
    body = {"q": texts, "source": source or "auto", "target": "fr", "format": "html", "api_key": key}
    data = mastodon(
        http, "POST", "/translate", headers={"Content-Type": "application/json"}, content=json.dumps(body).encode()
    )
    translated = data["translatedText"]
    assert [bool(text) for text in translated] == [bool(text) for text in texts]
    assert tags(translated[0]) == tags(POST)
    assert "train" in translated[0] and ":tired:" in translated[0] and "@<span>bob</span>" in translated[0]
    found = [(data.get("detectedLanguage") or [])[index : index + 1] for index in range(len(texts))]
    languages = [item[0]["language"] if item else source for item in found]
    assert languages == ["en"] * len(texts)


def test_mastodon_lists_libretranslate_s_languages(http):
    found = mastodon(http, "GET", "/languages", headers={"Content-Type": "application/json"})
    pairs = {language["code"]: [code for code in language["targets"] if code != language["code"]] for language in found}
    assert pairs == {"en": ["fr"], "fr": ["en"]}


@pytest.mark.parametrize("source", ["source_lang=EN", "source_lang", "source_lang="])
@pytest.mark.parametrize("name", ["text", "text[]"])
def test_mastodon_has_posts_translated_by_deepl_s_api(http, source, name):
    # Ruby's encode_www_form repeats the name of a list, and writes nil without a sign of equality.
    texts = [POST, "Late again", "Yes, every day"]
    name = urllib.parse.quote(name)
    form = "&".join([*(f"{name}={urllib.parse.quote_plus(text)}" for text in texts), source, "target_lang=fr"])
    data = mastodon(
        http,
        "POST",
        "/v2/translate",
        headers={"Content-Type": "application/x-www-form-urlencoded", "Authorization": "DeepL-Auth-Key any"},
        content=f"{form}&tag_handling=html".encode(),
    )
    assert [item["detected_source_language"].lower() for item in data["translations"]] == ["en"] * 3
    assert tags(data["translations"][0]["text"]) == tags(POST)
    assert "train" in data["translations"][0]["text"]


def test_mastodon_lists_deepl_s_languages(http):
    headers = {"Authorization": "DeepL-Auth-Key any"}
    codes = {
        kind: [item["language"] for item in mastodon(http, "GET", f"/v2/languages?type={kind}", headers=headers)]
        for kind in ("source", "target")
    }
    assert codes == {"source": ["EN", "FR"], "target": ["EN-GB", "EN-US", "FR"]}


@pytest.mark.parametrize("target", ["en", "EN-US", "en-GB"])
def test_mastodon_s_targets_are_understood(http, target):
    form = {"text": ["Où est la gare ?"], "source_lang": "FR", "target_lang": target, "tag_handling": "html"}
    data = mastodon(http, "POST", "/v2/translate", headers={"Authorization": "DeepL-Auth-Key any"}, data=form)
    assert data["translations"][0]["text"]
    assert data["translations"][0]["detected_source_language"] == "FR"


# --- Weblate ----------------------------------------------------------------------------------------------------------

STRINGS = ["Where is [X9X]?", "[X0X] files were deleted.", "Hello, [X7X]!", "Save", "Save", "The [X4X] costs [X20X]."]


def weblate(http, verb, path, **options):
    headers = {
        "User-Agent": "Weblate/5.14",
        "Accept": "application/json; charset=utf-8",
        "Referer": "https://w.example/",
    }
    response = http.request(verb, path, headers=headers | options.pop("headers", {}), **options)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("key", [{}, {"api_key": ""}])
def test_weblate_has_strings_translated_by_libretranslate_s_api(http, key):
    assert {item["code"] for item in weblate(http, "GET", "/languages")} == {"en", "fr"}
    data = weblate(http, "POST", "/translate", json={"q": STRINGS, "source": "en", "target": "fr"} | key)
    assert len(data["translatedText"]) == len(STRINGS)
    for text, translated in zip(STRINGS, data["translatedText"], strict=True):
        assert sorted(re.findall(r"\[X\d+X\]", translated)) == sorted(re.findall(r"\[X\d+X\]", text))
        assert re.sub(r"\[X\d+X\]|\W", "", translated)


@pytest.mark.parametrize("target", ["FR", "fr-CA", "fr_FR"])
def test_weblate_has_strings_translated_by_deepl_s_api(http, target):
    headers = {"Authorization": "DeepL-Auth-Key any"}
    for kind in ("source", "target"):
        assert weblate(http, "GET", "/v2/languages", params={"type": kind}, headers=headers)
    texts = [re.sub(r"\[X(\d+)X\]", r'<x id="\1"></x>', text) for text in STRINGS] + [
        "Fish &amp; chips",
        "1 &lt; 2 apples",
    ]
    body = {
        "text": texts,
        "source_lang": "EN",
        "target_lang": target,
        "formality": "default",
        "tag_handling": "xml",
        "ignore_tags": ["x"],
        "context": "",
    }
    data = weblate(http, "POST", "/v2/translate", json=body, headers=headers)
    written = [item["text"] for item in data["translations"]]
    for text, translated in zip(texts, written, strict=True):
        assert tags(translated) == tags(text)
    assert "&amp;" in written[-2] and "&lt;" in written[-1]


def test_weblate_s_glossary_is_made_used_and_deleted(http):
    headers = {"Authorization": "DeepL-Auth-Key any"}
    assert "supported_languages" in weblate(http, "GET", "/v2/glossary-language-pairs", headers=headers)
    weblate(http, "GET", "/v2/glossaries", headers=headers)
    glossary = {"name": "weblate:1:en:fr:0badcafe", "source_lang": "en", "target_lang": "fr"}
    entries = {"entries": "train station\tgare routière", "entries_format": "tsv"}
    response = http.post("/v2/glossaries", json=glossary | entries, headers=headers)
    assert response.status_code in (200, 201), response.text
    made = next(
        item
        for item in weblate(http, "GET", "/v2/glossaries", headers=headers)["glossaries"]
        if item["name"] == glossary["name"]
    )
    body = {"text": ["Where is the train station?"], "source_lang": "EN", "target_lang": "FR", "tag_handling": "xml"}
    data = weblate(http, "POST", "/v2/translate", json=body | {"glossary_id": made["glossary_id"]}, headers=headers)
    assert "gare routière" in data["translations"][0]["text"]
    assert http.delete(f"/v2/glossaries/{made['glossary_id']}", headers=headers).status_code == 204
