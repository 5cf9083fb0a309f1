"""Round trips by the clients that people have, against a running server with models of both directions."""

import io
import json
import re
import shutil
import subprocess
import time
import zipfile
from pathlib import Path

import deepl
import docx
import httpx
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
    assert [language["targets"] for language in client.languages()] == [["en", "fr"], ["en", "fr"]]
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
    assert [language.code for language in translator.get_source_languages()] == ["EN", "FR"]
    targets = translator.get_target_languages()
    assert [target.code for target in targets] == ["EN-GB", "EN-US", "FR"]
    assert not any(target.supports_formality for target in targets)
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
        const entries = new deepl.GlossaryEntries({{entries: {{"train station": "gare routière"}}}});
        const glossary = await client.createGlossary("Stations", "en", "fr", entries);
        const listed = await client.listGlossaries();
        const kept = await client.getGlossaryEntries(glossary);
        const forced = await client.translateText({json.dumps(SENTENCE)}, "en", "fr", {{glossary}});
        const html = "<p>I love <b>my sister</b>.</p>";
        const tagged = await client.translateText(html, "en", "fr", {{tagHandling: "html"}});
        await client.deleteGlossary(glossary);
        const there = {{sourceLangCode: "en", targetLangCode: "fr", entries}};
        const both = await client.createMultilingualGlossary("Both", [there]);
        await client.updateMultilingualGlossaryDictionaryWithCsv(both, "fr", "en", "gare,halt");
        const counts = (await client.getMultilingualGlossary(both.glossaryId)).dictionaries;
        const wanted = await client.getMultilingualGlossaryDictionaryEntries(both, "fr", "en");
        await client.replaceMultilingualGlossaryDictionary(both, there);
        await client.updateMultilingualGlossaryName(both, "Other");
        await client.deleteMultilingualGlossaryDictionary(both, "fr", "en");
        const all = (await client.listMultilingualGlossaries()).filter((each) => each.glossaryId === both.glossaryId);
        const forcedToo = await client.translateText({json.dumps(SENTENCE)}, "en", "fr", {{glossary: both}});
        await client.deleteMultilingualGlossary(both);
        require("fs").writeFileSync("in.txt", "Thank you.");
        const status = await client.translateDocument("in.txt", "out.txt", "en", "fr");
        const document = require("fs").readFileSync("out.txt", "utf-8");
        let refusal = null;
        try {{ await client.translateText("Yes.", "en", "ja"); }} catch (error) {{ refusal = error.message; }}
        done({{one, more, sources, targets, usage, refusal, glossary, listed, kept: kept.toTsv(), forced, tagged,
            status, document, counts, wanted: wanted.entries.toTsv(), all, forcedToo}});
        """,
    )
    assert "error" not in found, found
    assert "gare" in found["one"]["text"]
    assert (found["one"]["detectedSourceLang"], found["one"]["billedCharacters"]) == ("en", len(SENTENCE))
    assert "sœur" in found["more"][0]["text"] and "Merci" in found["more"][1]["text"]
    assert found["sources"] == [{"code": "en", "name": "English"}, {"code": "fr", "name": "French"}]
    assert [each["code"] for each in found["targets"]] == ["en-GB", "en-US", "fr"]
    assert {"code": "fr", "name": "French", "supportsFormality": False} in found["targets"]
    assert found["usage"]["character"]["count"] > 0
    assert "target_lang" in found["refusal"]
    assert found["glossary"]["entryCount"] == 1
    assert found["glossary"]["glossaryId"] in [each["glossaryId"] for each in found["listed"]]
    assert found["kept"] == "train station\tgare routière"
    assert "gare routière" in found["forced"]["text"]
    assert re.fullmatch(r"<p>.*<b>ma sœur</b>.*</p>", found["tagged"]["text"])
    assert [each["entryCount"] for each in found["counts"]] == [1, 1]
    assert found["wanted"] == "gare\thalt"
    assert [(each["name"], len(each["dictionaries"])) for each in found["all"]] == [("Other", 1)]
    assert "gare routière" in found["forcedToo"]["text"]
    assert found["status"]["status"] == "done" and found["status"]["billedCharacters"] == 10
    assert "Merci" in found["document"]


ENTRIES = {"train station": "gare routière", "spider": "araignée-loup"}


def test_the_python_client_s_glossaries_force_their_terms(translator):
    glossary = translator.create_glossary("Spiders", "EN", "FR", ENTRIES)
    try:
        assert glossary.entry_count == 2 and glossary.ready
        assert translator.get_glossary_entries(glossary) == ENTRIES
        assert glossary.glossary_id in [each.glossary_id for each in translator.list_glossaries()]
        texts = ["Where is the train station?", "A spider at the train station?", "I love my sister."]
        results = translator.translate_text_with_glossary(texts, glossary)
        assert [result.text.count("gare routière") for result in results] == [1, 1, 0]
        assert "araignée-loup" in results[1].text.lower()
        html = translator.translate_text(
            "<p>The <b>spider</b> is in the <i>train station</i>.</p>",
            source_lang="EN",
            target_lang="FR",
            glossary=glossary,
            tag_handling="html",
        )
        assert "<b>araignée-loup</b>" in html.text.lower() and "<i>gare routière</i>" in html.text
    finally:
        translator.delete_glossary(glossary)
    with pytest.raises(deepl.GlossaryNotFoundException):
        translator.get_glossary(glossary.glossary_id)


def test_the_python_client_s_multilingual_glossaries(translator):
    entries = deepl.api_data.MultilingualGlossaryDictionaryEntries
    back = {"gare routière": "coach station"}
    glossary = translator.create_multilingual_glossary(
        "Both", [entries("EN", "FR", ENTRIES), entries("FR", "EN", back)]
    )
    try:
        assert [(each.source_lang, each.entry_count) for each in glossary.dictionaries] == [("EN", 2), ("FR", 1)]
        found = translator.get_multilingual_glossary_entries(glossary, "EN", "FR")
        assert [each.entries for each in found.dictionaries] == [
            "\n".join(map("\t".join, ENTRIES.items()))
        ]  # its own text
        there = translator.translate_text(SENTENCE, source_lang="EN", target_lang="FR", glossary=glossary)
        again = translator.translate_text("La gare routière.", source_lang="FR", target_lang="EN-GB", glossary=glossary)
        assert "gare routière" in there.text and "coach station" in again.text
        changed = translator.update_multilingual_glossary_dictionary(glossary, entries("EN", "FR", {"red": "écarlate"}))
        assert [each.entry_count for each in changed.dictionaries] == [3, 1]
        assert translator.update_multilingual_glossary_name(glossary, "Other").name == "Other"
        replaced = translator.replace_multilingual_glossary_dictionary(glossary, entries("EN", "FR", {"a": "b"}))
        assert replaced.entry_count == 1
        translator.delete_multilingual_glossary_dictionary(glossary, source_lang="FR", target_lang="EN")
        (listed,) = [
            each for each in translator.list_multilingual_glossaries() if each.glossary_id == glossary.glossary_id
        ]
        assert [each.source_lang for each in listed.dictionaries] == ["EN"]
        assert translator.get_multilingual_glossary(glossary.glossary_id).name == "Other"
    finally:
        translator.delete_multilingual_glossary(glossary)
    with pytest.raises(deepl.GlossaryNotFoundException):
        translator.get_multilingual_glossary(glossary.glossary_id)


def test_the_python_client_handles_tags(translator):
    result = translator.translate_text(
        "<doc><title>The red car</title><par>I love <b>my sister</b>. <code>a = b</code></par></doc>",
        target_lang="FR",
        source_lang="EN",
        tag_handling="xml",
        ignore_tags=["code"],
    )
    tags = re.findall(r"</?\w+>", result.text)
    assert tags == ["<doc>", "<title>", "</title>", "<par>", "<b>", "</b>", "<code>", "</code>", "</par>", "</doc>"]
    assert re.search(r"<b>ma sœur</b>", result.text)
    assert "<code>a = b</code>" in result.text


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """The client asks for a document's status every five seconds."""
    sleep = time.sleep
    monkeypatch.setattr("deepl.translator.time.sleep", lambda seconds: sleep(min(seconds, 0.1)))


def test_the_python_client_translates_a_word_document(translator, tmp_path):
    document = docx.Document()
    document.add_heading("Where is the train station?", 1)
    paragraph = document.add_paragraph("I love ")
    paragraph.add_run("my sister").bold = True
    paragraph.add_run(".")
    document.save(tmp_path / "a.docx")
    status = translator.translate_document_from_filepath(tmp_path / "a.docx", tmp_path / "b.docx", target_lang="FR")
    assert (status.done, status.billed_characters) == (True, 44)
    heading, paragraph = docx.Document(tmp_path / "b.docx").paragraphs
    assert "gare" in heading.text and heading.style.name == "Heading 1"
    assert [run.text for run in paragraph.runs if run.bold] == ["ma sœur"]


def test_the_python_client_is_told_of_documents_that_cannot_be_translated(translator):
    with pytest.raises(deepl.DeepLException, match="no zip archive"):
        translator.translate_document(b"nothing", io.BytesIO(), target_lang="FR", filename="a.docx")


BOOK = {
    "mimetype": "application/epub+zip",
    "META-INF/container.xml": "<container><rootfiles><rootfile full-path='book.opf'/></rootfiles></container>",
    "book.opf": "<package><manifest><item href='a.xhtml' media-type='application/xhtml+xml'/></manifest></package>",
    "a.xhtml": '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>The red car</title></head>'
    "<body><p>I love <b>my sister</b>.<br/><img src='a.png' alt=''/></p><pre>as it is</pre></body></html>",
}
LETTER = {
    "mimetype": "application/vnd.oasis.opendocument.text",
    "content.xml": '<?xml version="1.0"?><office:document-content xmlns:office="urn:o" xmlns:text="urn:t"'
    ' xmlns:style="urn:s"><office:automatic-styles><style:style style:name="T1"/></office:automatic-styles>'
    "<office:body><office:text><text:h>The red car</text:h><text:p>I love <text:span text:style-name='T1'>my sister"
    "</text:span>.<text:tab/>Thank you.</text:p></office:text></office:body></office:document-content>",
}


@pytest.mark.parametrize(
    ("name", "contents", "page", "expected"),
    [
        (
            "a.epub",
            BOOK,
            "a.xhtml",
            r"<p>J'(?:aime|adore) <b>ma sœur</b>\.<br/><img src='a\.png' alt=''/></p><pre>as it is</pre>",
        ),
        (
            "a.odt",
            LETTER,
            "content.xml",
            r"<text:p>J'(?:aime|adore) <text:span text:style-name='T1'>ma sœur</text:span>\.<text:tab/>Merci",
        ),
    ],
)
def test_books_and_letters_keep_everything_but_their_words(running, name, contents, page, expected):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for entry, content in contents.items():
            archive.writestr(entry, content)
    response = httpx.post(
        f"{running}/translate_file",
        data={"source": "en", "target": "fr"},
        files={"file": (name, data.getvalue())},
        timeout=120,
    )
    assert response.status_code == 200, response.text
    translated = httpx.get(response.json()["translatedFileUrl"]).content
    with zipfile.ZipFile(io.BytesIO(translated)) as archive:
        assert archive.namelist() == list(contents)
        text = archive.read(page).decode()
    assert re.search(expected, text), text
    assert "voiture rouge" in text
    # Every tag is there, in its place.
    assert re.findall(r"<[^>]*>", text) == re.findall(r"<[^>]*>", contents[page])
