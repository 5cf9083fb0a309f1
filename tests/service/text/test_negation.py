import pytest

from service.text.negation import loses_negation


@pytest.mark.parametrize(
    ("source", "target"),
    [("I can't swim.", "Je sais nager."), ("I cant swim", "Je sais nager"), ("He never comes.", "Il vient toujours.")],
)
def test_a_lost_negation_is_noticed(source, target):
    assert loses_negation(source, target, "en", "fr")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("I can't swim.", "Je ne sais pas nager."),
        ("It is not possible.", "C'est impossible."),
        ("I can swim.", "Je sais nager."),
        ("It is cold, isn't it?", "Il fait froid, hein ?"),
        ("Never mind.", "Tant pis."),
        ("Don't worry.", "Rassurez-vous."),
    ],
)
def test_what_denies_in_another_way_is_none(source, target):
    assert not loses_negation(source, target, "en-GB", "fr")


def test_french_is_read_too():
    assert loses_negation("Je ne sais pas nager.", "I can swim.", "fr", "en")
    assert not loses_negation("Je ne sais que nager.", "I can swim.", "fr", "en")
    assert not loses_negation("Je ne sais pas nager.", "I can't swim.", "fr", "en")
    assert not loses_negation("Ich kann nicht.", "I can.", "de", "en")
