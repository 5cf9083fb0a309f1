"""Every field of every route gets values of every wrong kind: no fault of ours, and each refusal says what is wrong."""

import json
import logging

import pytest

WRONG = [True, 2**64, 1.5, "x\0", [None], {"x": {"y": []}}]
STRANGE = [*WRONG, None, -1, 1e308, "", "é" * 200, [], ["x"], [{}], {}]

NATIVE = {"text": "Hello you.", "source": "en", "target": "fr"}
LIBRE = {"q": "Hello you.", "source": "en", "target": "fr"}
DEEPL = {"text": ["Hello you."], "source_lang": "EN", "target_lang": "FR"}
GLOSSARY = {"name": "a", "source_lang": "en", "target_lang": "fr", "entries": "a\tb", "entries_format": "tsv"}
DICTIONARIES = {"name": "a", "dictionaries": [GLOSSARY]}

DIALECTS = [
    ("/translate", LIBRE, ["q", "source", "target", "format", "alternatives", "api_key"]),
    ("/detect", LIBRE, ["q", "api_key"]),
    (
        "/v2/translate",
        DEEPL,
        "text target_lang source_lang split_sentences preserve_formatting formality tag_handling tag_handling_version "
        "outline_detection non_splitting_tags splitting_tags ignore_tags glossary_id glossary_ids context model_type "
        "show_billed_characters style_id custom_instructions".split(),
    ),
    ("/v2/languages", {}, ["type"]),
    ("/v2/glossaries", GLOSSARY, list(GLOSSARY)),
    ("/v3/glossaries", DICTIONARIES, list(DICTIONARIES)),
]


def native_fields(openapi):
    """Of the document's POST routes each field once, with a path that takes it; those of objects within objects too."""
    schemas, seen = openapi["components"]["schemas"], set()

    def fields_of(ref):
        for name, rule in schemas[ref.rpartition("/")[2]].get("properties", {}).items():
            yield (name,), rule
            if ref.endswith("Request"):
                inner = [each["$ref"] for each in (rule, *rule.get("anyOf", ())) if "$ref" in each]
                yield from (((name, *field), rule) for ref in inner for field, rule in fields_of(ref))

    for path, operations in openapi["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {})
        if content:
            for field, rule in fields_of(content["application/json"]["schema"]["$ref"]):
                key = field, json.dumps(rule)
                if key not in seen:
                    seen.add(key)
                    yield path, field


def with_value(body, field, value):
    return {**body, field[0]: value if len(field) == 1 else {field[1]: value}}


def test_native_fields(client):
    num_refused = 0
    fields = list(native_fields(client.get("/openapi.json").json()))
    assert len({path for path, _ in fields}) >= 6 and len(fields) > 60, fields
    for path, field in fields:
        for value in WRONG:
            body = with_value(NATIVE if path != "/v1/detect" else {"text": "Hello."}, field, value)
            response = client.post(path, json=body)
            where = (path, field, value, response.text[:300])
            # Nothing can be looked into here: there is no model.
            is_inside = path not in ("/v1/translate", "/v1/detect") or field[0] == "attention"
            assert response.status_code in (200, 404, 413, 422, *((503,) if is_inside else ())), where
            if response.status_code != 422:
                continue
            num_refused += 1
            problem = response.json()
            assert problem["errors"] and all(fault["allowed"] for fault in problem["errors"]), where
            assert not any(words in problem["detail"] for words in ("not allowed", "Input should", "None")), where
            named = {part.partition("[")[0] for fault in problem["errors"] for part in fault["field"].split(".")}
            assert named & {*field, "target", "model", "source", "target_text"}, where
    assert num_refused > 250


@pytest.mark.parametrize(("path", "body", "fields"), DIALECTS, ids=[path for path, _, _ in DIALECTS])
@pytest.mark.parametrize("way", ["json", "form"])
def test_the_dialects_fields(client, path, body, fields, way):
    num_refused = 0
    for field in fields:
        for value in STRANGE:
            sent = {**body, field: value}
            if way == "json":
                response = client.post(path, content=json.dumps(sent), headers={"Content-Type": "application/json"})
            elif path == "/v3/glossaries":
                pytest.skip("a form has other names for objects in objects")
            else:
                form = {name: each if isinstance(each, str) else json.dumps(each) for name, each in sent.items()}
                response = client.post(path, data=form)
            where = (path, field, value, response.text[:300])
            assert response.status_code in (200, 201, 400, 404, 456), where
            if response.status_code == 400:
                num_refused += 1
                (message,) = response.json().values()
                said = (field, field.removesuffix("_lang"), "supported", "glossary", "lossaries", "There is")
                assert any(word in message for word in said), where
    assert num_refused or (path, way) == ("/detect", "form")


@pytest.fixture(autouse=True)
def nothing_in_the_log(caplog):
    """Whatever a client sends, there is no place of ours to be told of; what ends unraised is an error of pytest's."""
    yield
    assert [
        record.getMessage() for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR
    ] == []


DEEP = [(b"[%b]", 1), (b'{"a":%b}', 1), (b'[{"a":%b}]', 2), (b'{"a":[1,%b,2]}', 2)]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *[(path, NATIVE) for path in ("/v1/translate", "/v1/attention", "/v1/trace")],
        ("/translate", LIBRE),
        ("/v2/translate", DEEPL),
        ("/v3/glossaries", DICTIONARIES),
    ],
)
@pytest.mark.parametrize(("shape", "step"), DEEP)
def test_json_that_is_nested_deeply(client, path, body, shape, step):
    for field in [*body, "unknown"]:
        for depth in (63 // step, 64 // step + 1, 1_000 // step, 1_100 // step):
            value = b"1"
            for _ in range(depth):
                value = shape % value
            rest = json.dumps({name: each for name, each in body.items() if name != field})[:-1].encode()
            content = b"%b, %b: %b}" % (rest, json.dumps(field).encode(), value)
            response = client.post(path, content=content, headers={"Content-Type": "application/json"})
            where = (path, field, depth, response.text[:300])
            is_told = "in more than 64 levels; at most 64 are allowed" in response.text
            assert is_told == (depth * step > 63), where
            assert response.status_code in ((400,) if is_told else (200, 201, 400, 404, 422, 503)), where
    wide = json.dumps({"text": "Hello.", "unknown": [[[]], {"a": {}}] * 1_000})
    assert "levels" not in client.post(path, content=wide, headers={"Content-Type": "application/json"}).text


ODD_NUMBERS = ["+-5", "--5", "- 5", "1_0", "1.5", "1e1", "²", "9" * 5_000, "0x1", "NaN"]


@pytest.mark.parametrize("given", [*ODD_NUMBERS, 1.5, 1e300, [], {}, True])
def test_numbers_that_are_no_whole_ones_are_told(client, given):
    way = {"data" if isinstance(given, str) else "json": {**LIBRE, "alternatives": given}}
    response = client.post("/translate", **way)
    assert response.status_code == 400
    message = response.json()["error"]
    assert message.startswith("Invalid request: alternatives parameter must be a whole number, not ")
    assert len(message) < 300


ODD_BODIES = [
    b"", b"null", b"[]", b"1", b'"x"', b"{", b"}", b"{}x", b"\xff\xfe", b"\x00", b'{"text": NaN}',
    b'{"text": Infinity}',
    b'{"text": "\\ud800"}', b'{"text": "\xed\xa0\x80"}', b'{"text": "a\x01b"}',
    b'{"text": 1e999}', b'{"text":}',
    b'{"q": "x", "q": "y"}', b"[" * 100_000, b'{"a":' * 2_000 + b"1" + b"}" * 2_000, b'{"text": ' + b"9" * 5_000 + b"}",
    b"\xef\xbb\xbf{}", b"text=%ff&q=%ff", b"&&&&=", b"text=a;b", b"%", b"--x\r\n\r\n--x--",
]  # fmt: skip
TYPES = [
    "application/json", "application/json; charset=utf-16", "application/JSON; charset=\"", "text/plain", "", ";", "/",
    "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=x", "a/b/c", "é/ü",
    "application/x-www-form-urlencoded; charset=latin-1",
]  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/detect", "/v1/attention", "/translate", "/v2/translate"])
def test_odd_bodies_and_types(client, path):
    cases = [(kind, body) for kind in TYPES for body in ODD_BODIES[:3]]
    cases += [(kind, body) for kind in (TYPES[0], TYPES[9], TYPES[12]) for body in ODD_BODIES]
    for kind, body in cases:
        response = client.post(path, content=body, headers=[(b"content-type", kind.encode())])
        where = (path, kind, body[:40], response.text[:300])
        assert 400 <= response.status_code < 500, where
        answer = response.json()
        message = answer.get("detail") or answer.get("message") or answer.get("error")
        assert message and len(message) < 1_000, where


HEADERS = [
    ("authorization", b"\xff\xff"), ("authorization", b"Bearer"), ("authorization", b"DeepL-Auth-Key"),
    ("x-api-key", b"\xc3\xa9" * 100), ("accept", b"*/*;q=x,,;"), ("accept", b"\xff"), ("x-request-id", b"\xff" * 100),
    ("x-request-timeout", b"nan"), ("x-request-timeout", b"1e9"), ("x-request-timeout", b"-1"),
    ("if-none-match", b"\xff"),
    ("content-encoding", b"gzip"), ("content-encoding", b"\xff"), ("content-length", b"+1"), ("traceparent", b"00-x"),
    ("accept-encoding", b"\xff"), ("origin", b"\xff"), ("range", b"bytes=5-1"), ("expect", b"nothing"),
]  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/attention", "/translate", "/v2/translate", "/v2/usage"])
def test_odd_headers(client, path):
    for name, value in HEADERS:
        body = json.dumps({**NATIVE} if path.startswith("/v1") else {**LIBRE, **DEEPL}).encode()
        headers = [(b"content-type", b"application/json"), (name.encode(), value)]
        response = client.post(path, content=body, headers=headers)
        is_inside = path == "/v1/attention" and response.status_code == 503  # there is no model
        assert response.status_code < 500 or is_inside, (path, name, value, response.text[:300])
        assert response.json() is not None


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "X" * 50])
def test_odd_methods_and_paths(client, method):
    paths = [
        "/v1/translate",
        "/v1/models",
        "/translate",
        "/v2/translate",
        "/v2/document/%00/result",
        "/v3/glossaries/%ff",
    ]
    for path in [
        *paths,
        "/v1/models/" + "x" * 5_000,
        "/download_file/..%2f..%2fetc%2fpasswd",
        "/v2/%2e%2e/",
        "//",
        "/%",
    ]:
        response = client.request(method, path)
        assert response.status_code < 500, (method, path, response.text[:300])
