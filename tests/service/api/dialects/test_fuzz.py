"""Whatever is sent, the answer is the dialect's own, and never a fault of the server."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
GOOD = {
    "q": ["Hello <b>you</b> & me.", ["One.", "", "\ud7ff🙂"], "a\r\n\r\nb"],
    "text": [["Hello <b>you</b> & me."], ["<a>x</a>", ""], "a\nb"],
    "source": ["en", "auto"],
    "target": ["fr"],
    "source_lang": ["EN", None],
    "target_lang": ["FR"],
    "format": ["text", "html"],
    "alternatives": [0, 2, "3"],
    "tag_handling": ["xml", "html", None],
    "split_sentences": ["0", "1", "nonewlines", 0],
    "outline_detection": [True, "0"],
    "ignore_tags": ["a,b", ["b"]],
    "splitting_tags": ["a", [""]],
    "non_splitting_tags": ["b"],
    "formality": ["default", "prefer_less"],
    "entries": ["web\ttoile"],
    "entries_format": ["tsv", "csv"],
    "name": ["a"],
    "glossary_id": [None],
    "document_key": ["A" * 64],
    "type": ["source", "target"],
}
FIELDS = {
    "/translate": ("q", "source", "target", "format", "alternatives", "api_key"),
    "/detect": ("q", "api_key"),
    "/translate_file": ("file", "source", "target", "api_key"),
    "/v2/translate": (
        *("text", "source_lang", "target_lang", "split_sentences", "tag_handling", "outline_detection", "ignore_tags"),
        *("splitting_tags", "non_splitting_tags", "formality", "glossary_id", "glossary_ids", "model_type", "context"),
    ),
    "/v2/languages": ("type", "auth_key"),
    "/v2/usage": ("auth_key",),
    "/v2/glossaries": ("name", "source_lang", "target_lang", "entries", "entries_format"),
    "/v2/document": ("file", "source_lang", "target_lang", "glossary_id"),
    "/v2/document/A": ("document_key",),
    "/v2/document/A/result": ("document_key",),
}


@st.composite
def requests(draw):
    path = draw(st.sampled_from(sorted(FIELDS)))
    body = {}
    for name in FIELDS[path]:
        good = st.sampled_from(GOOD.get(name, [None]))
        body[name] = draw(st.one_of(good, good, good, VALUES))
    return path, body


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=requests(), as_form=st.booleans())
def test_no_field_is_answered_with_a_fault_of_the_server(client, request, as_form):
    path, body = request
    if as_form:
        form = {
            name: value if isinstance(value, list) else str(value) for name, value in body.items() if value is not None
        }
        response = client.post(
            path,
            data={
                name: [str(item) for item in value] if isinstance(value, list) else value
                for name, value in form.items()
            },
        )
    else:
        response = client.post(path, json=body)
    assert response.status_code < 500, (path, body, response.text)
    assert response.headers["content-type"] == "application/json"
    if response.status_code >= 400:
        assert list(response.json()) == ["message" if path.startswith("/v2/") else "error"]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ending=st.sampled_from([".txt", ".html", ".srt", ".docx", ".pptx", ".odt", ".epub"]),
    content=st.binary(max_size=300) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")),
)
def test_no_file_is_answered_with_a_fault_of_the_server(client, ending, content):
    fields = {"source": "en", "target": "fr"}
    response = client.post("/translate_file", data=fields, files={"file": ("a" + ending, content)})
    assert response.status_code in (200, 400), response.text


@pytest.mark.parametrize(
    "body", [b"", b"\x00" * 100, b"--x\r\n", b"--x--", b"--x\r\nContent-Disposition: form-data\r\n\r\n"]
)
def test_broken_multipart_is_refused(client, body):
    for path in ("/translate_file", "/v2/document", "/translate", "/v2/translate"):
        response = client.post(path, content=body, headers={"content-type": "multipart/form-data; boundary=x"})
        assert response.status_code == 400
