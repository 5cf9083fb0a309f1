import time

import pytest
import sentencex
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.quality.splitters import CASES
from service.text.sentences import MAX_CHUNK_CHARACTERS, sentence_spans


def split(line, language="en"):
    return [line[start:end] for start, end in sentence_spans(line, language)]


@pytest.mark.parametrize(
    "marked",
    [
        "Hello world. |How are you?",
        "Dr. Smith lives at 5 St. James St. in London. |He is 42.",
        "Version 3.11.7 is 1.5 times faster. |Use it.",
        "He paid $3.50. |She laughed.",
        "Use ASP.NET here. |It works.",
        "Call foo.Bar() first. |Then wait.",
        "See https://x.org/a?B=C.D now. |Then go.",
        "See example.Com now. |Then go.",
        "Read Vol. 3 first. |Then Fig. 2 of it.",
        "J. R. R. Tolkien wrote it. |It sold well.",
        "They live in the U.S. now. |It is big.",
        "Wait ... what?! |No way.",
        "I like it.She does not. |We left.",
        '"I am tired." |She sat down.',
        "He left.) She stayed. |We went.",
    ],
)
def test_english_sentences(marked):
    assert split(marked.replace("|", "")) == marked.split("|")


@pytest.mark.parametrize("language", ["fr", "fr-CA", "FR", "fr_FR"])
def test_a_language_is_known_by_any_of_its_codes(language):
    assert split("Il habite av. Foch. Oui.", language) == ["Il habite av. Foch. ", "Oui."]
    assert split("Il habite av. Foch. Oui.", "en") == ["Il habite av. ", "Foch. ", "Oui."]


@pytest.mark.parametrize("language", ["fr", "fr-CA"])
def test_french_titles_do_not_end_a_sentence(language):
    assert split("M. Dupont est là. Mme. Petit aussi.", language) == ["M. Dupont est là. ", "Mme. Petit aussi."]


def test_scripts_without_spaces_are_split():
    assert split("你好。我是谁？", "zh") == ["你好。", "我是谁？"]


def test_unknown_languages_are_split_like_any_other():
    assert split("Hello world. Bye now.", "tlh") == ["Hello world. ", "Bye now."]


def test_sentences_are_found_across_the_borders_of_chunks():
    sentence = "On this day the man bought some apples and went home. "
    line = sentence * (3 * MAX_CHUNK_CHARACTERS // len(sentence))
    assert set(split(line)) == {sentence}


def test_a_quotation_across_the_border_of_chunks_stays_whole():
    filler = "a" * (MAX_CHUNK_CHARACTERS - 25)
    quotation = 'He said "Stop it. Go now. Leave me." and left. '
    assert split(f"{filler}. {quotation}Then he came.") == [f"{filler}. ", quotation, "Then he came."]


def test_lone_surrogates_do_no_harm():
    assert split("One \ud800. Two.") == ["One \ud800. ", "Two."]


def test_a_sentence_longer_than_a_chunk_stays_whole():
    long = "word " * MAX_CHUNK_CHARACTERS
    assert split(long + "ends. Next one.") == [long + "ends. ", "Next one."]


@pytest.mark.parametrize("space", ["\xa0", "\u2009", "\u3000", "\t"])
def test_white_space_of_several_bytes_does_no_harm(space):
    # sentencex alone panics, which is no Exception in Python
    assert split(f"Plan A{space}. Then{space}go.{space}Bye.") == [f"Plan A{space}. ", f"Then{space}go.{space}", "Bye."]


def test_a_panic_or_a_loss_in_the_library_loses_no_text(monkeypatch):
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})

    def broken(language, text):
        raise panic

    monkeypatch.setattr("sentencex.segment", broken)
    assert split("One. Two.") == ["One. Two."]
    monkeypatch.setattr("sentencex.segment", lambda language, text: ["One."])
    assert split("One. Two.") == ["One. Two."]


def test_interrupts_pass_through(monkeypatch):
    def interrupted(language, text):
        raise KeyboardInterrupt

    monkeypatch.setattr("sentencex.segment", interrupted)
    with pytest.raises(KeyboardInterrupt):
        split("One. Two.")


@pytest.mark.parametrize("part", ["\u201c", "'", "(", "a. ", "!?", "[1] ", '". ', '"a. ', '"Go. On." '])
def test_hostile_lines_take_bounded_time(part):
    line = part * (50_000 // len(part))
    started = time.perf_counter()
    sentence_spans(line, "en")
    assert time.perf_counter() - started < 5  # sentencex alone: up to a minute, growing with the square


@pytest.mark.parametrize("part", ["! '\u201d\xab \"A'(! \") \"''\"! ()('bA! )) \u201c", '". ', "a", "a. ", "A b. "])
def test_no_line_is_read_more_than_four_times(monkeypatch, part):
    line = (part * 40_000)[:40_000]
    chunks = []
    segment = sentencex.segment
    monkeypatch.setattr(sentencex, "segment", lambda language, text: chunks.append(text) or segment(language, text))
    sentence_spans(line, "en")
    assert sum(map(len, chunks)) <= 4 * len(line)


def test_a_line_is_read_a_few_times_whatever_the_library_says(monkeypatch):
    line, chunks = "a" * 40_000, []

    def segment(language, text):
        chunks.append(text)
        return [text[:1], text[1:]]

    monkeypatch.setattr(sentencex, "segment", segment)
    sentence_spans(line, "en")
    assert sum(map(len, chunks)) <= 4 * len(line)


def test_a_short_sentence_before_a_long_one_hides_no_other():
    sentences = ["Short one. ", "word " * (MAX_CHUNK_CHARACTERS // 7) + "ends. ", *["Then more. "] * 300, "End."]
    assert split("".join(sentences)) == sentences


@settings(deadline=None)  # machines are shared
@given(
    st.text(st.characters() | st.sampled_from(" .!?'\"\u201c\u201dMr(\xa0\u2009")),
    st.sampled_from(["en", "fr", "zz", ""]),
)
def test_spans_cover_any_line(line, language):
    spans = sentence_spans(line, language)
    assert "".join(line[start:end] for start, end in spans) == line
    assert all(start < end for start, end in spans)


def test_hard_cases_are_split_better_than_by_any_library():
    """docs/experiments.md has what the libraries do: at best 33 of the 40."""
    right = [case for case in CASES if [text.strip() for text in split(" ".join(case))] == list(case)]
    assert len(right) >= 37


@pytest.mark.parametrize(
    "marked",
    [
        "M. Dupont est arrivé. |Mme Martin aussi.",
        "MM. Petit et Grand sont là. |Le Pr. Durand aussi. |Le Gal. de Gaulle. |Le Dr. Roy dort.",
        "J.-C. Lefèvre habite bd. Voltaire, près de l'av. Foch et de St. Denis. |Et toi ?",
        "Il est né en 20 av. J.-C. à Rome. |Puis il est mort en 14 apr. J.-C. |On le pleura.",
        "Env. 20 personnes, c.-à-d. deux fois plus, p. ex. hier. |Cf. le chap. 4, vol. 3.",
        "Le 3 févr. 2024 il part à 8 h. du matin. |Il revient en sept. 2025.",
        "« Bonjour », dit-il. |« Comment allez-vous ? »",
        "« Viens vite ! » cria-t-elle. |Il a dit : « Je ne viendrai pas. » |Puis il est parti.",
        "Quoi\u00a0?! |Non\u202f! |Si : c'est vrai ; regarde.",
        "Il achète des pommes, des poires, etc. pour sa sœur. |Elle rit.",
    ],
)
def test_french_sentences(marked):
    assert split(marked.replace("|", ""), "fr") == marked.split("|")


def test_what_is_short_in_french_may_end_a_sentence_elsewhere():
    assert split("She is in Pr. Paul knows.", "en") == ["She is in Pr. ", "Paul knows."]
