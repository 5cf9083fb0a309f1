"""The page without JavaScript: a form that comes back filled in."""

from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class _Page(HTMLParser):
    """The text of the elements that have an id."""

    def __init__(self, content):
        super().__init__()
        self.texts, self._open = {}, None
        self.feed(content)

    def handle_starttag(self, tag, attributes):
        name = dict(attributes).get("id")
        if name in ("text", "output", "problem"):
            self._open = name
            self.texts[name] = ""

    def handle_endtag(self, tag):
        if tag in ("textarea", "output", "div"):
            self._open = None

    def handle_data(self, data):
        if self._open:
            self.texts[self._open] += data


def post(client, text, headers=FORM):
    return client.post("/", content=urlencode({"text": text}), headers=headers)


@pytest.mark.parametrize("text", ["Good morning.", "\nTwo\nlines.\n", "<b>\"&'</b> é 🙂 </textarea>"])
def test_the_form_comes_back_with_the_text_and_its_translation(client, text):
    expected = client.post("/v1/translate", json={"text": text}).json()["translations"][0]["text"]
    response = post(client, text)
    assert response.status_code == 200
    texts = _Page(response.text).texts
    assert texts["text"].removeprefix("\n") == text
    assert texts["output"] == expected
    assert texts["problem"] == ""
    policy = response.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "form-action 'self'" in policy


def test_line_breaks_of_a_form_are_those_of_the_text(client):
    assert _Page(post(client, "One.\r\nTwo.").text).texts["text"].removeprefix("\n") == "One.\nTwo."


def test_a_text_that_is_too_long_is_refused_in_a_sentence_and_kept(make_client):
    client = make_client(max_text_bytes=20)
    response = post(client, "This text is longer than twenty bytes.")
    assert response.status_code == 413
    texts = _Page(response.text).texts
    assert "20" in texts["problem"]
    assert texts["text"].strip() == "This text is longer than twenty bytes."


def test_what_is_no_form_is_refused(client):
    assert post(client, "x", {"Content-Type": "application/json"}).status_code == 415


def test_what_the_page_says_first_is_the_sentence_of_the_seeds(client):
    sentence = "Ninja moved the plant near the window because it needed more sunlight."
    assert _Page(client.get("/").text).texts["text"] == sentence
