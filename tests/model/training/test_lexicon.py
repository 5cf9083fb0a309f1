from model.training.data import SentencePair
from model.training.lexicon import make_lexicon

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
