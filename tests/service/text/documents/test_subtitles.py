import re

import pytest

from service.text.documents.formats import open_document
from service.text.documents.parts import InvalidDocument
from tests.service.text.documents.translators import shout, translated

FILM = """\ufeff1
00:00:01,600 --> 00:00:04,200
I went to the store
yesterday.

2
00:00:05,000 --> 00:00:07,000 X1:40 X2:600
- Hi.
- Hello, my
  friend.

3
00:01:05,000 --> 00:01:07,000
<i>{\\an8}Where are you & the others?</i>

4
00:02:00,000 --> 00:02:01,000


5
00:02:02,000 --> 00:02:03,000
Last words"""


def opened(text):
    return open_document("film.srt", text.encode(), max_expanded_bytes=1 << 20)


def test_what_is_said_is_translated_cue_by_cue():
    assert [(part.text, part.format) for part in opened(FILM).parts] == [
        ("I went to the store yesterday.", "text"),
        ("- Hi.", "text"),
        ("- Hello, my friend.", "text"),
        ('<i><img data-style="{\\an8}">Where are you &amp; the others?</i>', "html"),
        ("Last words", "text"),
    ]


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_numbers_times_blank_lines_and_the_number_of_lines_stay(line_break):
    film = FILM.replace("\n", line_break)
    result = translated(opened(film)).decode()
    keep = re.compile(r"^\d+$|-->|^$", re.MULTILINE)
    lines, before = result.split(line_break), film.split(line_break)
    assert len(lines) == len(before)
    for line, old in zip(lines, before, strict=True):
        if keep.search(old) or old == "\ufeff1":
            assert line == old
    assert "I WENT TO THE STORE" not in result  # broken anew, in the middle
    assert f"I WENT TO THE{line_break}STORE YESTERDAY." in result
    assert "<i>{\\an8}WHERE ARE YOU & THE OTHERS?</i>" in result
    assert result.endswith("LAST WORDS")


def test_cues_without_a_blank_line_between_them_are_told_apart():
    film = "1\n00:00:01,000 --> 00:00:02,000\nOne.\n2\n00:00:03,000 --> 00:00:04,000\nTwo 2.\n"
    assert [part.text for part in opened(film).parts] == ["One.", "Two 2."]
    assert translated(opened(film)).decode() == film.replace("One", "ONE").replace("Two", "TWO")


@pytest.mark.parametrize(
    ("translation", "expected"),
    [
        ("un", "un"),
        ("un deux", "un\ndeux"),
        ("a b c d e f", "a b c\nd e f"),
        ("viens ici ! oh", "viens\nici ! oh"),
        ("« oui » ; <i>non</i> !", "« oui » ;\n<i>non</i> !"),
        ("anticonstitutionnellement a b", "anticonstitutionnellement\na b"),
        ('dit <font color="red">un deux</font> trois', 'dit <font color="red">un\ndeux</font> trois'),
    ],
)
def test_lines_are_broken_between_words_and_never_in_a_tag(translation, expected):
    film = opened("1\n00:00:01,000 --> 00:00:02,000\nsome <b>words</b>\nmore\n")
    text = film.parts[0].text
    assert text == "some <b>words</b> more"
    assert film.render([translation]).decode().partition(",000\n")[2] == expected + "\n"


def test_three_lines_stay_three():
    film = opened("1\n00:00:01,000 --> 00:00:02,000\none two\nthree four\nfive six\n")
    assert translated(film, shout).decode().endswith(",000\nONE TWO\nTHREE FOUR\nFIVE SIX\n")


def test_what_is_no_subtitle_file_is_refused():
    with pytest.raises(InvalidDocument, match="no subtitle in it"):
        opened("Just text.\n")
    assert translated(opened("")) == b""


def test_hostile_files_take_linear_time():
    for text in ("0" * 200_000, "00:00:01,000 --> " * 20_000, "1\n00:00:01,000 --> 00:00:02,000\n" + "<i" * 100_000):
        try:
            translated(opened(text))
        except InvalidDocument:
            pass


@pytest.mark.parametrize("blank", ["\n", "\n\n", " \t\n"])
def test_a_cue_in_which_nothing_is_said_stays_and_the_next_one_s_number_is_no_speech(blank):
    film = f"1\n00:00:01,000 --> 00:00:02,000\n{blank}2\n00:00:03,000 --> 00:00:04,000\n{blank}Said late.\n"
    assert [part.text for part in opened(film).parts] == ["Said late."]
    assert translated(opened(film)).decode() == film.replace("Said late", "SAID LATE")
