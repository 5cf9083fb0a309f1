import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.text.terms import Terms


def replaced(text, entries, taken=()):
    return Terms(entries).replace(text, taken).text


def test_terms_are_found_as_whole_words():
    entries = {"web": "toile", "train station": "gare"}
    assert replaced("The web of webs: web-page at the train  station.", entries) == (
        "The toile of webs: toile-page at the gare."
    )


def test_small_letters_stand_for_capitals_too_but_not_the_other_way_round():
    assert replaced("Web WEB web", {"web": "toile"}) == "Toile TOILE toile"
    assert replaced("Apple apple APPLE", {"Apple": "Apple Inc."}) == "Apple Inc. apple APPLE"
    assert replaced("US us", {"US": "États-Unis", "us": "nous"}) == "États-Unis nous"


def test_a_term_in_capitals_stays_so_and_one_at_the_start_has_its_capital():
    entries = {"train station": "gare routière", "iphone": "iPhone"}
    assert replaced("Train Station, Train Station", entries) == "Gare routière, gare routière"
    assert replaced('"Train station!"', entries) == '"Gare routière!"'
    assert replaced("THE TRAIN STATION, IPHONE", entries) == "THE GARE ROUTIÈRE, iPhone"


def test_the_longest_term_counts():
    entries = {"heart": "cœur", "heart attack": "infarctus", "attack": "attaque"}
    assert replaced("a heart attack, a heart, an attack", entries) == "a infarctus, a cœur, an attaque"


def test_signs_and_scripts_without_spaces_have_no_bounds():
    assert replaced("C++ and C", {"C++": "C plus plus"}) == "C plus plus and C"
    assert replaced("我爱蜘蛛网", {"蜘蛛": "araignée"}) == "我爱araignée网"
    assert replaced("100% (sure)", {"(sure)": "[sûr]"}) == "100% [sûr]"


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("written", ["NFC", "NFD"])
@pytest.mark.parametrize("term", ["naïve", "Ångström", "한국어", "ề", "c++ façade"])
def test_accents_are_the_same_however_they_are_written(term, form, written):
    text = unicodedata.normalize(written, f"So {term}, ({term})")
    assert replaced(text, {unicodedata.normalize(form, term): "x"}) == "So x, (x)"


def test_so_are_apostrophes_and_hyphens():
    assert replaced("I don’t e‑mail", {"don't": "ne", "e-mail": "courriel"}) == "I ne courriel"


@pytest.mark.parametrize(
    "term", ["C++", "c++", "C#", ".NET", "R&D", "Yahoo!", "(sure)", "$US", "naïve", "l'été", "@home"]
)
def test_terms_with_signs_at_their_edges_are_found_as_whole_words(term):
    for before, after in (("", ""), ("a ", " b"), ("(", ")"), ("“", "”,"), ("", "."), ("", "'s")):
        assert replaced(before + term + after, {term: "%"}) == f"{before}%{after}"
    inside = [f"x{term}"] if not term[0].isalnum() else []
    inside += [f"{term}x", f"{term}17"] if not term[-1].isalnum() else []
    inside += [f"{term}{term[-1]}"] if term[-1] in "+#" else []
    for text in inside:
        assert replaced(text, {term: "%"}) == text


def test_what_would_be_kept_is_a_term_if_the_term_is_all_of_it():
    text = "Ask a@b.org, see b.org"
    name = (text.index("a@"), text.index(","))
    for term, found in (("a@b.org", "Ask nous, see b.org"), ("ask a@b.org", "Nous, see b.org"), ("b.org", None)):
        assert Terms({term: "nous"}).replace(text, (), [name]).text == (found or "Ask a@b.org, see nous")
        if found:
            assert Terms({term: "nous"}).replace(text, [name]).text == text


def test_what_is_taken_is_left_alone():
    text = "the web at web.org"
    assert replaced(text, {"web": "toile"}, [(text.index("web.org"), len(text))]) == "the toile at web.org"


def test_places_lead_back_to_the_original():
    found = Terms({"web": "toile d'araignée"}).replace("A web, a web.")
    assert [found.text[start:end] for start, end in found.kept] == ["toile d'araignée"] * 2
    for start, end in found.kept:
        source = found.source_span(start, end)
        assert "A web, a web."[slice(*source)] == "web"
    assert found.source_span(len(found.text) - 1, len(found.text)) == (12, 13)
    assert found.source_span(len(found.text), len(found.text)) == (13, 13)


WORDS = st.sampled_from(["web", "Web", "spider", "web page", "a.b", "İ", "ß", "x"])


@given(
    st.lists(WORDS | st.text(max_size=4), max_size=12), st.dictionaries(WORDS, st.text("yz é", min_size=1), max_size=4)
)
def test_the_text_is_its_old_parts_and_the_translations(words, entries):
    text = " ".join(words)
    found = Terms(entries).replace(text)
    assert len(found.starts) == len(found.ends) == len(found.text) + 1
    done, rebuilt = 0, ""
    for start, end in found.kept:
        source = found.source_span(start, end)
        assert found.text[start:end].casefold() in {entry.casefold() for entry in entries.values()}
        rebuilt += found.text[done:start] + text[slice(*source)]
        done = end
    assert rebuilt + found.text[done:] == text
