import pytest

from service.text.forms import Piece
from service.text.kept import KeptSpan
from service.text.quotes import doubled, misplaced, pairs, signs, with_quotes


def quoted(source, target, language="fr"):
    return "".join(piece.text for piece in with_quotes(source, [Piece(target, 0, len(target))], language))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("The 'cat'.", 'The "cat".'),
        ("'Hello' means hi", '"Hello" means hi'),
        ("He said 'I don't know.' and left", 'He said "I don\'t know." and left'),
        ("‘Wait,’ she said", '"Wait," she said'),
        ("('yes' or 'no')", '("yes" or "no")'),
        ("the dogs' house is Tom's", "the dogs' house is Tom's"),
        ("'tis the dogs' house", "'tis the dogs' house"),
        ("rock 'n' roll in the '90s", "rock 'n' roll in the '90s"),
        ("I don't, you can't", "I don't, you can't"),
        ("5' 6' tall", "5' 6' tall"),
        ("give 'em the boys' ball", "give 'em the boys' ball"),
    ],
)
def test_single_quotes_are_shown_as_double_ones(text, shown):
    assert doubled(text) == shown


def test_quotes_that_are_no_pairs_are_none():
    assert pairs('5" wide') == []
    assert pairs('"a" "b"') == [(0, 2), (4, 6)]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("The 'cat'.", 'Le "chat".', "Le 'chat'."),
        ("The 'cat'.", "Le « chat ».", "Le « chat »."),
        ("The “cat”.", 'Le "chat".', "Le “chat”."),
        ("The «cat».", 'Le "chat".', "Le «chat»."),
        ('The "cat".', 'Le "chat".', 'Le "chat".'),
        ('"No..." he said', "« Non. » dit-il", "« Non... » dit-il"),
        ('"No..." he said', '"Non" dit-il', '"Non..." dit-il'),
        ('"Stop!" she cried.', '"Arrête." cria-t-elle.', '"Arrête !" cria-t-elle.'),
        ('"Stop!" she cried.', "« Arrête ! » cria-t-elle.", "« Arrête ! » cria-t-elle."),
        ('"Yes," he said.', "« Oui », dit-il.", "« Oui », dit-il."),
        ('"A..." or "B!"', '"A" ou "B"', '"A..." ou "B !"'),
        ('"A..." he said', "A, dit-il", "A, dit-il"),
    ],
)
def test_a_quotation_ends_as_in_its_source(source, target, expected):
    assert quoted(source, target) == expected


def test_guillemets_are_for_french():
    assert quoted("Le « chat ».", 'The "cat".', "en") == 'The "cat".'
    assert quoted("Le “chat”!", 'The "cat"!', "en") == "The “cat”!"


def test_a_pair_that_is_empty_in_the_source_may_be_so():
    assert not misplaced('The "" sign', 'Le signe ""')
    assert misplaced('The "x" sign', 'Le signe ""')


def test_the_signs_to_part_a_text_around():
    assert [span.text for span in signs('"Wait..." she \'said\', and "no"')] == ['"', '..."', "'", "'", '"', '"']


def test_kept_spans_are_left_alone():
    span = KeptSpan(3, 9, '"code"', "code")
    pieces = [Piece("Le ", 0, 3), Piece('"code"', 3, 4, span)]
    assert with_quotes("Is “code”", pieces, "fr") == pieces
