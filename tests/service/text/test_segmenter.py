import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.text.segmenter import has_letter, segment_text


def segment(text, language="en", max_tokens=128):
    return segment_text(text, language, max_tokens=max_tokens, count_tokens=lambda part: len(part.split()) + 1)


def texts(document):
    return [part.text for part in document.segments]


def translated(document):
    return document.join([part.text.upper() if part.translatable else part.text for part in document.segments])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "First line.\n\n\n    Indented line.\n\tTabbed line.\n",
            "FIRST LINE.\n\n\n    INDENTED LINE.\n\tTABBED LINE.\n",
        ),
        ("One line.\r\nAnother line.\r\n", "ONE LINE.\r\nANOTHER LINE.\r\n"),
        ("   Good morning.  ", "   GOOD MORNING.  "),
        ("One.   Two.\tThree.", "ONE.   TWO.\tTHREE."),
        ("a\u2028b\u2029c\x85d\x0be\x0cf\rg", "A\u2028B\u2029C\x85D\x0bE\x0cF\rG"),
        ("\ufeffHello.\u200b", "\ufeffHELLO.\u200b"),
        ("A\x00b the\x07cat \x1b[0m is\x9fhere\x7f", "A\x00B THE\x07CAT \x1b[0M IS\x9fHERE\x7f"),
    ],
)
def test_gaps_come_back_byte_for_byte(text, expected):
    assert translated(segment(text)) == expected


@pytest.mark.parametrize("text", ["", " ", "\n", " \n\t ", "\r\n\r\n", "\u3000", "\ufeff"])
def test_white_space_alone_has_no_segments(text):
    document = segment(text)
    assert document.segments == ()
    assert document.join([]) == text


@pytest.mark.parametrize(
    "marker",
    [
        "- ",
        "* ",
        "• ",
        "1. ",
        "12) ",
        "(3) ",
        "a) ",
        "ii) ",
        "# ",
        "### ",
        "> ",
        "> > ",
        "- [ ] ",
        "  - ",
        "\t1.  ",
        "— ",
    ],
)
def test_list_markers_belong_to_the_gap(marker):
    document = segment(f"{marker}wash the car\n")
    assert texts(document) == ["wash the car"]
    assert document.gaps() == [marker, "\n"]


@pytest.mark.parametrize("text", ["-5 degrees", "3.5 litres", "#hashtag", "a dog", "I. think", "1.5"])
def test_what_only_looks_like_a_marker_stays_in_the_segment(text):
    assert texts(segment(text)) == [text]


@pytest.mark.parametrize(
    "text", ["🙂🙂", "👍 ℹ", "12:30 - 14:00", "***", "1.", "?!", "100 %", "→", "5º", "👨\u200d👩\u200d👧"]
)
def test_what_has_no_letter_is_not_translated(text):
    assert not has_letter(text)
    document = segment(text)
    assert not any(part.translatable for part in document.segments)
    assert translated(document) == text


def test_text_around_emoji_is_translated():
    assert translated(segment("I love this song 🎵 and you. 👍")) == "I LOVE THIS SONG 🎵 AND YOU. 👍"


@pytest.mark.parametrize("line_break", ["\n", "\r\n", *"\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"])
def test_every_kind_of_line_break_ends_a_segment(line_break):
    document = segment(f"one{line_break}two")
    assert texts(document) == ["one", "two"]
    assert document.gaps() == ["", line_break, ""]


def test_lines_are_never_joined():
    assert texts(segment("The train that leaves\nat noon is late.")) == ["The train that leaves", "at noon is late."]


def test_every_one_of_many_sentences_is_there():
    document = segment(" ".join(f"On day {day} the man bought {day} apples and went home." for day in range(1, 41)))
    assert len(document.segments) == 40


def test_a_sentence_that_is_too_long_is_windowed_and_says_so():
    sentence = "the dog was near the house and " * 20
    document = segment(sentence, max_tokens=32)
    assert document.windowed
    assert len(document.segments) > 3
    assert all(part.windowed and len(part.text.split()) < 32 for part in document.segments)
    assert translated(document) == sentence.upper()


def test_a_sentence_that_just_fits_is_not_windowed():
    document = segment("a b c d e f g", max_tokens=8)
    assert not document.windowed
    assert len(document.segments) == 1
    assert segment("a b c d e f g h", max_tokens=8).windowed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Choose: A) Yes B) No C) Maybe", ["Choose:", "Yes", "No", "Maybe"]),
        ("1) Open the door. 2) Close it.", ["Open the door.", "Close it."]),
        ("We 1) open the door and 2) close it", ["We 1) open the door and 2) close it"]),
        ("Plan A) Is good B", ["Plan A) Is good B"]),
        ("The list 4) one 5) two", ["The list 4) one 5) two"]),
        ("(see a) One, f(b) Two", ["(see a) One, f(b) Two"]),
        ("a. tea b. coffee c. milk", ["tea", "coffee", "milk"]),
        ("  i. tea ii. green tea iii. milk", ["tea", "green tea", "milk"]),
        ("A. Tea B. Coffee C. Milk", ["Tea", "Coffee", "Milk"]),
        ("A. Smith and B. Jones", ["A. Smith and B. Jones"]),
        ("Take a. tea or b. coffee", ["Take a. tea or b. coffee"]),
    ],
)
def test_a_list_in_a_line_is_parted_at_its_markers(text, expected):
    document = segment(text)
    assert texts(document) == expected
    assert document.join(expected) == text
    whole = segment_text(text, "en", max_tokens=99, count_tokens=len, split_sentences=False)
    assert len(whole.segments) == 1


def test_segments_say_where_they_stand():
    text = "  - One 🙂 two. Three.\r\n"
    for part in segment(text).segments:
        assert text[part.start : part.end] == part.text


def test_join_refuses_a_wrong_number_of_texts():
    with pytest.raises(ValueError, match="argument"):
        segment("One. Two.").join(["only one"])


@pytest.mark.parametrize(
    "part", ["On day 1 he left. ", "a", "\u201c", "a, ", "\u200b", "a\u0301", "a  \u200b ", "> ", "\n"]
)
def test_a_megabyte_takes_bounded_time(part):
    text = part * (300_000 // len(part))
    started = time.perf_counter()
    document = segment(text)
    assert time.perf_counter() - started < 10
    assert document.join(texts(document)) == text


@settings(deadline=None)  # machines are shared
@given(
    st.text(st.characters() | st.sampled_from("\n\r \t.-1)ab\u200b\ufeff'\u201c🙂"), max_size=300),
    st.sampled_from(["en", "fr"]),
    st.integers(1, 12),
)
def test_any_text_is_its_gaps_and_segments(text, language, max_tokens):
    document = segment(text, language, max_tokens)
    assert document.join(texts(document)) == text
    for part in document.segments:
        assert part.text == text[part.start : part.end]
        assert part.text.strip() == part.text != ""
        assert part.translatable == has_letter(part.text)
    for gap in document.gaps():
        assert not has_letter(gap) or ")" in gap or "\\" in gap  # `a)` is a marker, `\n` an escape


def test_a_control_character_is_in_no_segment():
    document = segment("I see\x07 a dog. The \x00cat is\x02 here.")
    assert texts(document) == ["I see", "a dog.", "The", "cat is", "here."]
    assert [gap for gap in document.gaps() if gap.strip(" ")] == ["\x07 ", " \x00", "\x02 "]
