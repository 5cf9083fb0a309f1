"""Round trips by the clients that people have, against a running server with the bundled model."""

import json
import shutil
import subprocess
from pathlib import Path

import deepl
import pytest
from libretranslatepy import LibreTranslateAPI

SENTENCE = "Where is the train station?"


@pytest.fixture(scope="module")
def translator(running):
    with_key = deepl.DeepLClient("any-key", server_url=running)
    yield with_key
    with_key.close()


def test_libretranslatepy_translates_and_lists_languages(running):
    client = LibreTranslateAPI(running)
    assert "gare" in client.translate(SENTENCE, "en", "fr")
    assert [language["code"] for language in client.languages()] == ["en", "fr"]
    paragraphs = client.translate("Thank you.\n\nI love my sister.\n", "en", "fr")
    assert paragraphs.startswith("Merci") and "sœur" in paragraphs
    assert client.detect("I would like to know where the station is.")[0]["language"] == "en"
    assert "gare" in client.translate(SENTENCE, "auto", "fr")
    assert paragraphs.count("\n") == 3 and paragraphs.endswith("\n")


def test_the_python_client_translates_one_text_and_several(translator):
    result = translator.translate_text(SENTENCE, source_lang="EN", target_lang="FR")
    assert "gare" in result.text
    assert (result.detected_source_lang, result.billed_characters) == ("EN", len(SENTENCE))
    results = translator.translate_text(["I love my sister.", "Thank you."], target_lang="FR", formality="prefer_more")
    assert "sœur" in results[0].text and "Merci" in results[1].text


def test_the_python_client_lists_languages_and_usage(translator):
    assert [language.code for language in translator.get_source_languages()] == ["EN"]
    (target,) = translator.get_target_languages()
    assert (target.code, target.supports_formality) == ("FR", False)
    before = translator.get_usage().character.count
    translator.translate_text("Yes.", target_lang="FR")
    assert translator.get_usage().character.count == before + 4


def test_the_python_client_understands_refusals(translator):
    with pytest.raises(deepl.DeepLException, match="Value for 'target_lang' not supported"):
        translator.translate_text("Yes.", target_lang="JA")
    with pytest.raises(deepl.DeepLException, match="'formality' is not supported for given 'target_lang'"):
        translator.translate_text("Yes.", target_lang="FR", formality="more")


@pytest.fixture(scope="session")
def node_client(tmp_path_factory):
    """A folder with deepl-node; installed once, if npm is there."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("node")
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder, "deepl-node@1.28.0"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm could not install deepl-node: {(error.stderr or b'').decode()[-200:]}")
    return folder


def run_node(folder, address, body):
    """Runs JavaScript in which `client` is the official one, and returns what it gives to `done`."""
    script = f"""
const deepl = require("deepl-node");
const client = new deepl.DeepLClient("any-key", {{serverUrl: {json.dumps(address)}, maxRetries: 0}});
const done = (value) => console.log("RESULT " + JSON.stringify(value));
(async () => {{ {body} }})().catch((error) => done({{error: error.constructor.name, message: error.message}}));
"""
    path = Path(folder) / "script.js"
    path.write_text(script, encoding="utf-8")
    result = subprocess.run(["node", path], cwd=folder, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


def test_the_node_client_translates_and_understands_refusals(node_client, running):
    found = run_node(
        node_client,
        running,
        f"""
        const one = await client.translateText({json.dumps(SENTENCE)}, "en", "fr");
        const texts = ["I love my sister.", "Thank you."];
        const more = await client.translateText(texts, null, "fr", {{splitSentences: "off"}});
        const sources = await client.getSourceLanguages();
        const targets = await client.getTargetLanguages();
        const usage = await client.getUsage();
        let refusal = null;
        try {{ await client.translateText("Yes.", "en", "ja"); }} catch (error) {{ refusal = error.message; }}
        done({{one, more, sources, targets, usage, refusal}});
        """,
    )
    assert "gare" in found["one"]["text"]
    assert (found["one"]["detectedSourceLang"], found["one"]["billedCharacters"]) == ("en", len(SENTENCE))
    assert "sœur" in found["more"][0]["text"] and "Merci" in found["more"][1]["text"]
    assert found["sources"] == [{"code": "en", "name": "English"}]
    assert found["targets"] == [{"code": "fr", "name": "French", "supportsFormality": False}]
    assert found["usage"]["character"]["count"] > 0
    assert "target_lang" in found["refusal"]
