import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.text.escapes import blank_escapes, shown_escapes, with_escapes
from service.text.forms import Piece
from service.text.kept import kept_spans
from service.text.segmenter import segment_text


def segments(text):
    document = segment_text(text, "en", max_tokens=128, count_tokens=lambda part: len(part.split()) + 1)
    assert document.join([part.text for part in document.segments]) == text
    return [part.text for part in document.segments]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"The file\nnew line", ["The file", "new line"]),
        (r"Hello\tworld", ["Hello", "world"]),
        (r"First line\nSecond line\n", ["First line", "Second line"]),
        (r"Press\r\nenter", ["Press", "enter"]),
        (r"One\n\n\tTwo \n \n Three", ["One", "Two", "Three"]),
        (r"Line one\\nLine two", ["Line one", "Line two"]),
        (r"Hello %s\nGoodbye {name}\n", ["Hello %s", "Goodbye {name}"]),
        (r"See https://x.org/a\nThen name=John\nage=5", ["See https://x.org/a", "Then name=John", "age=5"]),
        (r"\n- one\n- two", ["one", "two"]),
        (r"Error\nC:\Users\bob is gone", ["Error", r"C:\Users\bob is gone"]),
        (r"Copy C:\new\a.txt\nThen docs\data\b.txt\nrun", [r"Copy C:\new\a.txt", r"Then docs\data\b.txt", "run"]),
        (r"Hello.\NIt is me\NI am here", ["Hello.", "It is me", "I am here"]),
        (r"Saved to C:\temp\n", [r"Saved to C:\temp"]),
        (r"Chapter 1.\nThe end..\nDone", ["Chapter 1.", "The end..", "Done"]),
        (r"50%\nnext 30%\nmore", ["50%", "next 30%", "more"]),
        (r"Done. \n next", ["Done.", "next"]),
        (r"{n, plural, other {a\nb}}\nIt is", [r"{n, plural, other {a\nb}}", "It is"]),
        (r"\n", []),
        (r'msgid "Hello\nWorld" is "a" text', ["msgid", "Hello", "World", 'is "a" text']),
    ],
)
def test_escaped_breaks_and_tabs_part_texts_as_real_ones_do(text, expected):
    assert segments(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        r"C:\new\table",
        r"the path C:\new\table is here",
        r"the path C:\\new\\table is here",
        r"\\server\new",
        r".\new\table",
        r"Run ..\test\new now.",
        r"Look in %TEMP%\new\report.",
        r"C:\Program Files (x86)\new folder\table",
        r"D:\n",
        r"The file is in D:\n, I think.",
        r"D:\n and E:\t are drives.",
        r"in docs\data\new or docs\new\readme.txt",
        r"App\Http\new",
        r"CORP\Name and CORP\NSMITH",
        r"the regex \bword\b[^\n]* matches",
        r"\textbf{x} and \nabla, \theta",
        r"$\nu + \rho$",
        r"Use \n for a new line, or (\t) or \r.",
        r'Use "\n" here',
        r"[^\n]+",
        r'print("a\nb")',
        r'{"a": "x\ny"}',
        r"`a\nb` is code",
        "no escape",
    ],
)
def test_what_belongs_to_a_path_or_code_or_is_spoken_of_parts_nothing(text):
    assert segments(text) == [text]
    assert blank_escapes(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"It\'s l\u2019\u00e9t\xe9", ["'", "’", "é", "é"]),
        (r"Stra\u{df}e \U00000153uvre", ["ß", "œ"]),
        (r"\'quoted\' \u201cso\u201d \u00a9 \u00d7 \x41 \n \ud83d\ude00", []),
        ("plain", []),
    ],
)
def test_letters_and_apostrophes_within_words_are_shown(text, expected):
    assert [shown for _, _, shown in shown_escapes(text)] == expected


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (r"It\'s late", "C'est l'heure", r"C\'est l\'heure"),
        (r"It\u2019s late", "C'est tard", r"C\u2019est tard"),
        (r"The caf\u00e9", "L'été au café", r"L'\u00e9t\u00e9 au caf\u00e9"),
        (r"The caf\xe9", "L'œuf été", r"L'\u0153uf \xe9t\xe9"),
        (r"The caf\u{E9}", "été", r"\u{E9}t\u{E9}"),
        (r"The caf\U000000e9", "é", r"\U000000e9"),
        (r"The caf\u00e9 — here", "Le café — ici", r"Le caf\u00e9 — ici"),
        (r"a \n b", "é l'a", "é l'a"),
        (r"in C:\docs\xe9", "été", "été"),
    ],
)
def test_a_translation_is_written_as_its_source_is(source, target, expected):
    pieces = with_escapes(source, kept_spans(source), [Piece(target, 0, len(target))])
    assert "".join(piece.text for piece in pieces) == expected


@settings(deadline=None)
@given(st.lists(st.sampled_from([*"\\ntruxN'u0e9 aB.:/{}$`", "\\n", "\\u00e9", "C:\\"]), max_size=40).map("".join))
def test_every_text_is_its_segments_and_escapes(text):
    segments(text)
    for start, end in blank_escapes(text):
        assert set(text[start:end]) <= set('\\nrtN" ')
    for start, end, shown in shown_escapes(text):
        assert text[start] == "\\" and len(shown) == 1 and end > start
