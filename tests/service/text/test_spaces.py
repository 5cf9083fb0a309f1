import pytest

from service.text.forms import Piece
from service.text.kept import KeptSpan
from service.text.spaces import with_spaces


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("It costs 5\u00a0euros.", "Ça coûte 5 euros.", "Ça coûte 5\u00a0euros."),
        ("Mr.\u00a0Smith came", "M. Smith est venu", "M.\u00a0Smith est venu"),
        ("a big\u202fhouse", "une grande maison", "une grande maison"),
        ("a\u00a0b\u00a0c", "x y z", "x y z"),
        (
            "Tom\u00a0sees the\u00a0dog, and he has 5\u00a0dogs",
            "Il a 5 chiens et Tom le voit",
            "Il a 5\u00a0chiens et Tom\u00a0le voit",
        ),
        ("Page\u00a05 is 50 of 5\u00a0000", "La page 5 est 50 sur 5 000", "La page\u00a05 est 50 sur 5\u00a0000"),
        ("Well\u00a0! he came", "Eh bien ! il vint", "Eh bien\u00a0! il vint"),
        ("Well\u00a0! he came", "Eh bien! il vint", "Eh bien! il vint"),
        ("a\u2003b 5\u00a0cats", "5 x", "5\u00a0x"),
        ("a\u00a0b", "x", "x"),
        ("a b", "x y", "x y"),
        ("x\u00a0\u00a0y", "x y", "x\u00a0\u00a0y"),
        ("the \u00a0cat \u00a0\u00a0sleeps", "le chat dort", "le \u00a0chat \u00a0\u00a0dort"),
        ("a big\u2003house", "une grande maison", "une grande\u2003maison"),
        ("Mac\xadDonald sleeps", "MacDonald dort", "Mac\xadDonald dort"),
        ("a cat\xadfish", "un chat", "un chat"),
        ("cat\xadfish or catfish", "catfish ou catfish", "cat\xadfish ou catfish"),
    ],
)
def test_unusual_spaces_are_put_back(source, target, expected):
    assert "".join(piece.text for piece in with_spaces(source, (), [Piece(target, 0, len(target))])) == expected


def test_spaces_of_kept_spans_are_there_already():
    span = KeptSpan(3, 7, "10\u00a0€", "amount")
    pieces = [Piece("Ça ", 0, 3), Piece("10\u00a0€", 3, 7, span), Piece(" net", 7, 11)]
    assert with_spaces("It 10\u00a0€ net", [span], pieces) == pieces


def test_the_places_of_longer_spaces_are_those_of_the_single_ones():
    pieces = with_spaces("a\u00a0\u00a0b c", (), [Piece("un deux trois", 0, 13)])
    assert [(piece.text, piece.start, piece.end) for piece in pieces] == [
        ("un", 0, 2),
        ("\u00a0\u00a0", 2, 3),
        ("deux trois", 3, 13),
    ]
