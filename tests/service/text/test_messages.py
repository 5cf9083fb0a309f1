"""Of the lines of files of messages only the texts are translated."""

import json
import time

import pytest

from service.text.messages import message_spans
from service.text.segmenter import segment_text


def found(line):
    spans = message_spans(line)
    return spans if spans is None else [line[slice(*span)] for span in spans]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("key=The door", ["The door"]),
        ("app.title=It's the door, I think.", ["It's the door, I think."]),
        ("TITLE=I am here", ["I am here"]),
        ('name="The door"', ["The door"]),
        ('name = "close the door."', ["close the door."]),
        ('"key" = "The door";', ["The door"]),
        ('{"title": "The door is open.", "n": 3}', ["The door is open."]),
        ('  "title": "The door is open.",', ["The door is open."]),
        ('["The door is open.", "It is late."]', ["The door is open.", "It is late."]),
        ('{"a": "Hello world", "b": "btn btn-primary", "c": {"d": ["Good morning", true, -1.5e3]}}', None),
        (r'{"a": "He said \"no\" to me."}', [r"He said \"no\" to me."]),
        # All of it is a program's.
        ('"n": 3,', []),
        ('  "type": "button",', []),
    ],
)
def test_texts_are_found(line, expected):
    assert found(line) == (["Hello world", "Good morning"] if expected is None else expected)


@pytest.mark.parametrize(
    "line",
    [
        "The door is open.",
        "color=Red",
        "DEBUG=true turns it on.",
        "x = y + 1",
        "love = patience and time",
        "E=mc^2 is a formula",
        'path="/usr/bin/foo bar"',
        "name='The door'",
        '"Hello", she said.',
        '"No": that was all he said.',
        '["quoted" text] is prose',
        "[1, 2]",
        '{"name": "John", "age": 30}',
    ],
)
def test_other_lines_are_none(line):
    assert found(line) is None


def test_all_but_the_texts_stays_byte_for_byte():
    source = json.dumps({"title": "The door\nis open.", "n": 3, "x": {"y": "Come in, please."}}, indent=2)
    source += "\nkey=The door\n"
    document = segment_text(source, "en", max_tokens=128, count_tokens=len)
    french = {"The door": "La porte", "is open.": "est ouverte.", "Come in, please.": "Entrez."}
    assert [part.text for part in document.segments if part.translatable] == [*french, "The door"]
    translated = document.join([french.get(part.text, part.text) for part in document.segments])
    assert translated.endswith("\nkey=La porte\n")
    assert json.loads(translated[: -len("\nkey=La porte\n")]) == {
        "title": "La porte\nest ouverte.",
        "n": 3,
        "x": {"y": "Entrez."},
    }


@pytest.mark.parametrize(
    "part", ['"', '{"a":', '"x" ', '{"a b": "', "\\", "1", "[", 'a="', "A ", 'a="A ', "A, ", "=", "a.", "a,"]
)
@pytest.mark.parametrize("before", ["", '{"', 'a="', "a=", "["])
def test_takes_linear_time(before, part):
    def seconds(times):
        line = before + part * times
        start = time.process_time()
        message_spans(line)
        return time.process_time() - start

    assert seconds(20_000) < max(0.05, 8 * seconds(5_000))
