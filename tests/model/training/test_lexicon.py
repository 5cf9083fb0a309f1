from model.training.data import SentencePair
from model.training.lexicon import make_lexicon, word_translations

PAIRS = [
    SentencePair("test", first, second)
    for first, second in [
        ("I saw Chicago on Monday.", "J'ai vu Chicago lundi."),
        ("Is Chicago big? Big it is.", "Chicago est-il grand ? Il est grand."),
        ("She likes l'Oréal and Will.", "Elle aime l'Oréal et Will."),
        ("He met Will in London.", "Il a rencontré Will à Londres."),
        ("They will see the table.", "Ils verront la table."),
        ("We will see Once.", "Nous verrons Once."),
        ("Our Table is big.", "Notre table est grande."),
    ]
]


def test_words_are_names_if_they_are_copied_and_translated_if_they_are_not():
    lexicon = make_lexicon(PAIRS, min_count=2)
    assert lexicon.is_name("Chicago")
    assert not lexicon.is_name("Will"), "it is a word, too"
    assert not lexicon.is_name("Once"), "seen but once"
    assert lexicon.is_translated("Monday") and lexicon.is_translated("London")
    assert lexicon.is_translated("big") and lexicon.is_translated("see")


def test_what_both_languages_write_alike_is_neither():
    lexicon = make_lexicon(PAIRS, min_count=1)
    assert not lexicon.is_translated("table") and not lexicon.is_name("table")


def test_rare_words_and_first_words_say_nothing():
    lexicon = make_lexicon(PAIRS, min_count=2)
    assert not lexicon.is_translated("likes"), "seen but once"
    assert not lexicon.is_translated("She") and not lexicon.is_name("They")


def test_the_other_side_may_be_the_source():
    lexicon = make_lexicon(PAIRS, reverse=True, min_count=1)
    assert lexicon.is_translated("lundi") and not lexicon.is_translated("Monday")


def test_a_word_is_translated_by_what_it_is_linked_with_one_to_one():
    pairs = [
        SentencePair("daily", "The tap leaks.", "Le robinet fuit."),
        SentencePair("daily", "A tap, a tap!", "Un robinet, un robinet !"),
        SentencePair("manual", "Tap it.", "Appuyez."),
        SentencePair("manual", "Water taps.", "Les robinets."),
    ]
    links = [{(0, 0), (1, 1), (2, 2)}, {(0, 0), (1, 1), (3, 3), (4, 4)}, {(0, 0), (1, 0)}, {(0, 1), (1, 1)}]
    weights = {"daily": 1.0, "manual": 0.01}
    found = word_translations(pairs, links, weights)
    assert found["tap"] == ("robinet",), "both words of *Tap it* are one word, and no translation of either"
    assert "taps" not in found
    assert word_translations(pairs, links, weights, reverse=True)["robinet"] == ("tap",)


def test_what_is_seen_once_in_a_manual_is_no_translation():
    pairs = [SentencePair("manual", "Tap it.", "Touchez ça."), SentencePair("daily", "It.", "Ça.")]
    found = word_translations(pairs, [{(0, 0), (1, 1)}, {(0, 0)}], {"manual": 0.01, "daily": 1.0})
    assert found == {"it": ("ça",)}
