import time

import pytest

from service.text.lists import glue, items, lacks_counted, lacks_items, middle, says_twice


@pytest.mark.parametrize(
    ("source", "target", "lacks"),
    [
        ("red, green, blue", "rouge, vert, bleu", False),
        ("red, green, blue", "rouge, bleu", True),
        ("red, green, blue", "le rouge, le vert, le vert", True),
        ("spoon; fork; knife.", "la cuillère ; le couteau ; un couteau.", True),
        ("Salt, pepper, and oil.", "Le sel, le poivre, l'huile et l'huile.", True),
        ("Bread and butter, milk, tea.", "Le pain et le beurre, le lait, le thé.", False),
        ("Well, well, well!", "Tiens, tiens, tiens !", False),
        ("We sell nails, screws and glue.", "Nous vendons des clous, des vis et de la colle.", False),
        ("We sell nails, screws, and glue.", "Nous vendons des clous et de la colle.", True),
        ("She eats bread, ripe pears, plums or figs here.", "Ici elle mange du pain, des poires ou des figues.", True),
        # No lists.
        ("However, if it rains, we stay at home and read.", "Mais s'il pleut nous restons lire à la maison.", False),
        ("He came, I think.", "Il est venu je crois.", False),
        ("salt &amp; pepper &quot;and&quot; oil", "sel et poivre", False),
        ("It costs 1,000 or 2,000 euros.", "Il coûte entre 1000 et 2000 euros.", False),
    ],
)
def test_lists_that_lost_something(source, target, lacks):
    assert lacks_items(source, target, "en", "fr") is lacks


@pytest.mark.parametrize(
    ("source", "target", "lacks"),
    [
        ("I saw 17 birds, and 1,000 fish.", "J'ai vu 17 oiseaux et 1,000.", True),
        ("I saw 17 birds, and 1,000 fish.", "J'ai vu 17 oiseaux et 1,000 poissons.", False),
        ("3 eggs and 1 lemon are here", "3 et 1 citron sont ici", True),
        ("3 eggs and 1 lemon are here", "3\u00a0œufs et 1 citron sont ici", False),
        ("5 dogs, 5 cats", "5 chiens, 5", False),  # one of the two is there: nobody knows which
        ("I saw 17 birds.", "J'en ai vu 17.", False),
        ("17 birds saw 3 fish", "17 oiseaux en ont vu 3", False),
        ("From 3 to 4, and in 2019 we won", "De 3 à 4, et en 2019, nous avons gagné", False),
        ("2.5 birds and 17 fish", "2.5, 17.2 oiseaux, 17 poissons", True),
    ],
)
def test_what_is_counted_is_not_lost(source, target, lacks):
    assert lacks_counted(source, target, "en", "fr") is lacks
    assert not lacks_counted(source, target, "en", "de")


def test_in_other_languages_only_what_is_nothing_but_a_list_counts():
    assert lacks_items("red, green, blue", "rot, blau", "en", "de")
    assert not lacks_items("We sell nails, screws and glue.", "Wir verkaufen Leim.", "en", "de")


def test_two_items_are_a_list_where_it_is_said_so():
    assert not lacks_items("north, south", "nord", "en", "fr")
    assert lacks_items("north, south", "nord", "en", "fr", min_items=2)


def test_the_middle_of_a_list_parts_it():
    text = "red, dark green; blue, white."
    place = middle(text)
    assert (text[: place[0]], text[slice(*place)], text[place[1] :]) == ("red, dark green", "; ", "blue, white.")
    assert middle("red") is middle("We came, saw all there was to see, and won.") is None
    assert items("red, green. Blue, white") == []


@pytest.mark.parametrize("text", ["a, " * 50_000, "a b, c d; " * 10_000, " , ; " * 20_000, "a " * 100_000 + ","])
def test_takes_linear_time(text):
    begin = time.process_time()
    lacks_items(text, text, "en", "fr")
    assert time.process_time() - begin < 3


@pytest.mark.parametrize(
    ("text", "signs"),
    [
        ("red,green,blue", ",,"),
        ("red;dark green;blue!", ";;"),
        ("Save/Home/Help", "//"),
        ("Save / Home / Go back", "//"),
        ("Save / Home/Help", ""),
        ("apples,pears,plums and figs", ",,"),
        ("and/or", ""),
        ("red, green, blue", ""),
        ("red, green,blue", ",,"),
        ("dark red,green, blue!", ",,"),
        ("red, green", ""),
        ("red,green", ""),
        ("We came, saw,and won all there was", ""),
        ("dog|cat", "|"),
        ("Home>About us>Contact", ">>"),
        ("red→green→blue", "→→"),
        ("Home»Shoes", "»"),
        ("dog|cat>bird", ""),
        ("dog | cat", ""),
        ("5>3", ""),
        ("red,green;blue", ""),
        ("1,2,3", ""),
        ("We came,saw and won all there was", ""),
        ("state-of-the-art", ""),
    ],
)
def test_lists_without_spaces(text, signs):
    assert "".join(text[place] for place in glue(text)) == signs


@pytest.mark.parametrize(
    ("source", "target", "twice"),
    [
        ("First, second and third.", "Tout d'abord, troisième et troisième.", True),
        ("First, second and third.", "Tout d'abord, deuxième et troisième.", False),
        ("Bread, milk, or tea?", "Du pain, du lait, lait ou thé ?", True),
        ("Again and again, and again.", "Encore et encore, et encore.", False),
        ("It gets better all the time.", "C'est de mieux en mieux et encore et encore.", False),  # nothing is joined
        ("Ben and Anna", "Anna et Annabelle", False),
    ],
)
def test_what_is_said_twice_instead_of_two_things(source, target, twice):
    assert says_twice(source, target, "en", "fr") is twice
    assert not says_twice(source, target, "en", "de")
