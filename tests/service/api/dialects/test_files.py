import asyncio
import io
import re
import time
import urllib.parse
from dataclasses import replace

import docx
import pytest

from service.api.dialects import files
from service.api.dialects.files import safe_name
from service.api.dialects.store import FileStore, StoreFull
from service.engine.errors import QueueFull
from tests.service.fake_tokenizer import upper
from tests.service.fakes import FakeEngine

KEY = {"Authorization": "DeepL-Auth-Key secret"}
FILM = b"1\r\n00:00:01,000 --> 00:00:02,000\r\nHello there.\r\n"


@pytest.fixture(autouse=True)
def shouting(engine):
    engine.translate = upper


def word_file(text="Hello there."):
    document = docx.Document()
    document.add_paragraph(text)
    data = io.BytesIO()
    document.save(data)
    return data.getvalue()


def send(client, name="a.txt", content=b"Hello there.\n", **fields):
    fields = {"source": "en", "target": "fr"} | fields
    return client.post("/translate_file", data=fields, files={"file": (name, content)})


def error_of(response, status=400):
    assert response.status_code == status, response.text
    answer = response.json()
    assert list(answer) == ["error"]
    return answer["error"]


def message_of(response, status=400):
    assert response.status_code == status, response.text
    answer = response.json()
    assert list(answer) == ["message"]
    return answer["message"]


def fetched(client, response):
    assert response.status_code == 200, response.text
    address = response.json()["translatedFileUrl"]
    assert address.startswith("http://testserver/download_file/")
    return client.get(address)


def test_a_file_is_translated_and_fetched(client):
    answer = fetched(client, send(client, "My talk.srt", FILM))
    assert answer.content == FILM.replace(b"Hello there.", b"HELLO THERE.")
    assert answer.headers["content-disposition"].startswith('attachment; filename="My talk_fr.srt"')
    assert answer.headers["content-type"] == "application/x-subrip"
    # It may be fetched again.
    assert fetched(client, send(client)).content == b"HELLO THERE.\n"


def test_a_word_file_is_translated(client):
    answer = fetched(client, send(client, "report.docx", word_file()))
    assert docx.Document(io.BytesIO(answer.content)).paragraphs[0].text == "HELLO THERE."


def test_a_file_says_which_language_it_is_in_now(client):
    page = b'<html lang="en-US"><body><p>Hello there.</p><p lang="la">Salve.</p></body></html>'
    answer = fetched(client, send(client, "a.html", page))
    assert answer.content == page.replace(b"en-US", b"fr").replace(b"Hello there", b"HELLO THERE").replace(
        b"Salve", b"SALVE"
    )
    written = docx.Document(io.BytesIO(fetched(client, send(client, "a.docx", word_file())).content)).styles.element.xml
    assert '<w:lang w:val="fr"' in written and '<w:lang w:val="en' not in written


def test_the_language_of_a_file_may_be_found_out(client):
    english = b"Where is the train station, and when does the next train leave?\n"
    assert fetched(client, send(client, content=english, source="auto")).content == english.upper()
    french = "Où se trouve la gare, et quand part le prochain train ?\n".encode()
    assert fetched(client, send(client, content=french, source="auto")).content == french
    assert fetched(client, send(client, content=b"42\n", source="auto")).content == b"42\n"
    german = "Wo ist der Bahnhof, und wann fährt der nächste Zug?\n".encode()
    assert "looks like German (de)" in error_of(send(client, content=german, source="auto"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": ""}, "Invalid request: source parameter is empty"),
        ({"target": ""}, "Invalid request: target parameter is empty"),
        ({"source": "zz"}, "zz is not supported; there is: en"),
        ({"target": "zz"}, "zz is not supported; there is: fr"),
        ({"content": b""}, "Invalid request: empty file"),
        ({"content": b"\xff"}, "Invalid file data: the file is not UTF-8"),
        ({"name": "a.pdf"}, "Invalid request: file format not supported"),
        ({"name": "a.docx"}, "Invalid file data: the file is no zip archive"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(client, change, message):
    assert error_of(send(client, **change)).startswith(message)


def test_without_a_file_there_is_an_error(client):
    assert error_of(client.post("/translate_file", data={"source": "en"})) == "Invalid request: missing file parameter"
    message = error_of(client.post("/translate_file", json={"file": "a"}))
    assert message == "Invalid request: file parameter must be a file of a multipart form"


def test_a_file_has_limits_of_its_own(make_client):
    client = make_client(max_file_bytes=5000, max_body_bytes=1024)
    assert fetched(client, send(client, content=b"Hi.\n" * 1000)).status_code == 200
    message = error_of(send(client, content=b"a" * 5001), 413)
    assert message == "the file has 5001 bytes; at most 5000 are allowed"
    assert "at most 6024 are allowed" in error_of(send(client, content=b"a" * 9000), 413)
    # What unpacks to too much is refused before it does.
    assert "at most 50000 are opened" in error_of(send(client, "a.docx", bomb()))


def bomb():
    import zipfile

    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * 100_000)
    return data.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd.txt",
        "..\\..\\boot.txt",
        "a/../b.txt",
        'a"b\r\nX: y.txt',
        "…é😀.txt",
        "." * 300 + ".txt",
        "%2e%2e%2f.txt",
    ],
)
def test_names_are_only_names(client, name):
    # Sent by hand: the client would quote them.
    body = (
        b'--x\r\nContent-Disposition: form-data; name="source"\r\n\r\nen\r\n'
        b'--x\r\nContent-Disposition: form-data; name="target"\r\n\r\nfr\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="'
        + name.replace('"', "%22").replace("\r\n", "%0D%0A").encode()
        + b'"\r\n\r\nHello.\r\n--x--\r\n'
    )
    response = client.post("/translate_file", content=body, headers={"content-type": "multipart/form-data; boundary=x"})
    answer = fetched(client, response)
    assert answer.content == b"HELLO."
    disposition = answer.headers["content-disposition"]
    (encoded,) = re.findall(r"filename\*=UTF-8''(\S+)$", disposition)
    assert re.fullmatch(r"[\w.\- ()\[\]]{1,110}_fr\.txt", urllib.parse.unquote(encoded))
    assert not urllib.parse.unquote(encoded).startswith(".")


def test_safe_names():
    assert safe_name("dir/My report (1).docx", ".docx") == "My report (1).docx"
    assert safe_name("a\x00b\u202ec.txt", ".txt") == "a_b_c.txt"
    assert safe_name("") == safe_name("...") == safe_name("/") == "file"
    assert len(safe_name("é" * 500 + ".txt", ".txt")) == 104


@pytest.mark.parametrize("name", ["none", "none.txt", "%2e%2e", "%2e%2e%2fetc%2fpasswd", "%00", ""])
def test_what_is_not_there_is_not_found(client, name):
    fetched(client, send(client))
    error_of(client.get(f"/download_file/{name}"), 404)


def test_names_cannot_be_guessed(client):
    tokens = {send(client).json()["translatedFileUrl"].rpartition("/")[2].partition(".")[0] for _ in range(5)}
    assert len(tokens) == 5
    assert all(len(token) == 32 for token in tokens)


def test_files_are_gone_after_their_time_and_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def live():
        store = FileStore(0.05, 100)
        file = await store.put(b"a" * 60, "a.txt", "text/plain")
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (await store.get(file.token))[1] == b"a" * 60
        with pytest.raises(StoreFull, match="would take 120 bytes; at most 100"):
            await store.put(b"b" * 60, "b.txt", "text/plain")
        await asyncio.sleep(0.1)
        assert await store.get(file.token) is None
        assert list(folder.iterdir()) == []
        other = await store.put(b"b" * 60, "b.txt", "text/plain")
        (folder / other.token).unlink()
        assert await store.get(other.token) is None
        await store.put(b"c", "c.txt", "text/plain")
        store.close()
        assert list(tmp_path.iterdir()) == []

    asyncio.run(live())


def test_a_full_queue_is_waited_for(client, engine):
    engine.error = QueueFull(9, 9, 1.0)

    async def when_refused():
        while not engine.requests:
            await asyncio.sleep(0.01)
        engine.error = None

    client.portal.start_task_soon(when_refused)
    started = time.monotonic()
    assert fetched(client, send(client)).content == b"HELLO THERE.\n"
    assert time.monotonic() - started > 0.9


def test_a_file_that_takes_too_long_is_refused_at_once(make_client, engine):
    client = make_client(file_timeout_seconds=10)
    engine.current_stats = replace(engine.current_stats, row_tokens_per_second=100.0)
    sentences = b"".join(b"Line %d of a long text. " % index for index in range(300))  # 4 rows each
    error = "the text has 1397 source tokens, which take about 67 s here, and it may take 10 s: about 208 source tokens"
    assert error_of(send(client, content=sentences)).startswith(error)
    status = finished(client, upload(client, content=sentences).json())
    assert (status["status"], status["message"][: len(error)]) == ("error", error)
    assert engine.requests == []
    # What is there many times is translated once.
    assert send(client, content=b"One and two. " * 500).status_code == 200


def test_a_file_that_turns_out_to_take_too_long_is_given_up_early(make_client, engine, monkeypatch):
    monkeypatch.setattr(files, "_SURE_AFTER_SECONDS", 0.1)
    client = make_client(file_timeout_seconds=1.5)

    class SlowEngine(FakeEngine):
        async def stream(self, request):
            await asyncio.sleep(0.2)
            async for event in FakeEngine.stream(self, request):
                yield event

    engine.__class__ = SlowEngine
    text = b"".join(b"Line %d of a long text.\n" % index for index in range(5000))
    assert "send it in parts" in finished(client, upload(client, content=text).json())["message"]
    assert sum(len(request.sequences) for request in engine.requests) < 1000


def test_long_files_go_to_the_engine_in_pieces(client, engine):
    text = b"".join(b"Line %d of a long text.\n" % index for index in range(1000))
    assert fetched(client, send(client, content=text)).content == text.upper()
    assert len(engine.requests) > 3


# DeepL's documents.


def upload(client, name="a.txt", content=b"Hello there.\n", **fields):
    fields = {"target_lang": "FR", "source_lang": "EN"} | fields
    return client.post("/v2/document", data=fields, files={"file": (name, content)}, headers=KEY)


def status_of(client, handle):
    return client.post(
        f"/v2/document/{handle['document_id']}", json={"document_key": handle["document_key"]}, headers=KEY
    ).json()


def finished(client, handle):
    deadline = time.monotonic() + 30
    while (status := status_of(client, handle))["status"] in ("queued", "translating"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return status


def result(client, handle):
    return client.post(
        f"/v2/document/{handle['document_id']}/result", json={"document_key": handle["document_key"]}, headers=KEY
    )


def test_a_document_is_translated_and_fetched_once(client):
    handle = upload(client, "report.docx", word_file()).json()
    assert len(handle["document_id"]) == 32 and len(handle["document_key"]) == 64
    status = finished(client, handle)
    assert status == {
        "document_id": handle["document_id"],
        "status": "done",
        "seconds_remaining": 0,
        "billed_characters": 12,
    }
    answer = result(client, handle)
    assert docx.Document(io.BytesIO(answer.content)).paragraphs[0].text == "HELLO THERE."
    assert 'filename="report.docx"' in answer.headers["content-disposition"]
    message_of(result(client, handle), 404)
    assert client.get("/v2/usage", headers=KEY).json()["character_count"] == 12


def test_to_ask_about_a_result_does_not_fetch_it(client):
    handle = upload(client).json()
    finished(client, handle)
    path = f"/v2/document/{handle['document_id']}/result"
    for _ in range(2):
        answer = client.head(path, params={"document_key": handle["document_key"]}, headers=KEY)
        assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "13")
    assert result(client, handle).content == b"HELLO THERE.\n"
    assert client.head(path, params={"document_key": handle["document_key"]}, headers=KEY).status_code == 404


def test_while_it_is_translated_it_says_so(client, engine):
    engine.hold = asyncio.Event()
    handles = [upload(client).json() for _ in range(3)]
    assert status_of(client, handles[0]) == {
        "document_id": handles[0]["document_id"],
        "status": "translating",
        "seconds_remaining": 1,
    }
    assert status_of(client, handles[2]) == {"document_id": handles[2]["document_id"], "status": "queued"}
    assert message_of(result(client, handles[0]), 503) == "Document translation is not done"
    client.portal.call(engine.hold.set)
    assert [finished(client, handle)["status"] for handle in handles] == ["done"] * 3


def test_a_failure_is_told_as_the_status(client, engine):
    engine.failures[tuple(upper_ids("Hello there."))] = "nan"
    handle = upload(client).json()
    status = finished(client, handle)
    assert status["status"] == "error"
    assert status["message"] == status["error_message"] != ""
    message_of(result(client, handle), 503)


def upper_ids(text):
    from tests.service.fake_tokenizer import EOS_ID, FIRST_ID

    return [*(FIRST_ID + ord(char) for char in text), EOS_ID]


def test_only_who_has_the_key_may_ask(client):
    handle = upload(client).json()
    finished(client, handle)
    for wrong in (
        handle | {"document_key": "0" * 64},
        handle | {"document_key": ""},
        handle | {"document_id": "0" * 32},
    ):
        assert message_of(result(client, wrong), 404) == "Document not found"
    response = client.post(f"/v2/document/{handle['document_id']}", json={}, headers=KEY)
    assert message_of(response, 404) == "Document not found"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_lang": ""}, "Parameter 'target_lang' not specified."),
        ({"target_lang": "XX"}, "Value for 'target_lang' not supported."),
        ({"source_lang": "XX"}, "Value for 'source_lang' not supported."),
        ({"formality": "more"}, "'formality' is not supported for given 'target_lang'."),
        ({"output_format": "pdf"}, "Value for 'output_format' not supported."),
        ({"filename": "a.pdf"}, "Invalid request: file format not supported"),
        ({"content": b"\xff"}, "Invalid file data: the file is not UTF-8"),
        ({"glossary_id": "none", "source_lang": ""}, "Use of a glossary requires the source_lang"),
    ],
)
def test_what_is_wrong_with_a_document_is_said_at_once(client, change, message):
    assert message_of(upload(client, **change)).startswith(message)


def test_too_many_documents_are_refused(client, engine, monkeypatch):
    monkeypatch.setattr("service.api.dialects.documents.MAX_WAITING", 2)
    engine.hold = asyncio.Event()
    handles = [upload(client).json() for _ in range(2)]
    response = upload(client)
    assert "Too many requests" in message_of(response, 429)
    assert int(response.headers["retry-after"]) >= 1
    client.portal.call(engine.hold.set)
    for handle in handles:
        finished(client, handle)
    assert upload(client).status_code == 200
