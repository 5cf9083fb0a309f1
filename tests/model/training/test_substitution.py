import re
import sys
from collections import Counter

from model.training import substitution
from model.training.data import SentencePair, read_pairs, write_pairs
from model.training.links import word_spans
from model.training.substitution import find_slots, rare_words, substituted_pairs


def pair(first: str, second: str) -> SentencePair:
    return SentencePair("tatoeba", first, second)


def linked(first: str, second: str, *words: tuple[str, str]):
    """A pair, linked by hand: the words of each link, English and French."""
    sides = [[text[start:end] for start, end in word_spans(text)] for text in (first, second)]
    return pair(first, second), {(sides[0].index(english), sides[1].index(french)) for english, french in words}


CORPUS = [
    linked("The cat is on the table.", "Le chat est sur la table.", ("cat", "chat"), ("table", "table")),
    linked("An apple is in a basket.", "Une pomme est dans un panier.", ("apple", "pomme"), ("basket", "panier")),
    linked("I saw two cats.", "J'ai vu deux chats.", ("cats", "chats"), ("saw", "vu")),
    linked("The mill is old.", "Le moulin est vieux.", ("mill", "moulin"), ("old", "vieux")),
    linked("He sold a mill.", "Il a vendu un moulin.", ("mill", "moulin"), ("sold", "vendu")),
    linked("I lost my scarf.", "J'ai perdu mon écharpe.", ("scarf", "écharpe"), ("lost", "perdu")),
    linked("The scarf is warm.", "L'écharpe est chaude.", ("scarf", "écharpe")),
    linked("Her scarf is warm.", "Son écharpe est chaude.", ("scarf", "écharpe")),
    linked("The owl sleeps.", "La chouette dort.", ("owl", "chouette")),
    linked("This owl sleeps.", "Cette chouette dort.", ("owl", "chouette")),
    linked("We want to eat.", "Nous voulons manger.", ("eat", "manger")),
    linked("I began to peel.", "J'ai commencé à éplucher.", ("peel", "éplucher"), ("began", "commencé")),
    linked("I had to peel.", "J'ai dû éplucher.", ("peel", "éplucher")),
    linked("I have to dig.", "Je dois creuser.", ("dig", "creuser")),
    linked("Try to dig.", "Essaie de creuser.", ("dig", "creuser")),
]
SLOTS = [slot for item, links in CORPUS for slot in find_slots(item, links)]
COMMON = {
    ("cat", "chat"),
    ("table", "table"),
    ("apple", "pomme"),
    ("basket", "panier"),
    ("cats", "chats"),
    ("eat", "manger"),
}


def made(each: int = 60) -> set[tuple[str, str]]:
    rare = rare_words(SLOTS, "fr", lowest=2, highest=3)
    return {(new.first, new.second) for new in substituted_pairs(SLOTS, rare, each, seed=1)}


def test_words_that_stand_in_few_places_twice_with_one_translation_are_rare():
    assert set(rare_words(SLOTS, "fr", lowest=2, highest=3)) == {
        ("mill", "moulin"), ("scarf", "écharpe"), ("owl", "chouette"), ("peel", "éplucher"), ("dig", "creuser"),
    }  # fmt: skip
    assert set(rare_words(SLOTS, "fr", lowest=2, highest=2)) == {
        ("mill", "moulin"), ("owl", "chouette"), ("peel", "éplucher"), ("dig", "creuser"),
    }  # fmt: skip


def test_a_word_whose_translations_disagree_is_left_out():
    more = [
        slot
        for english in ("windmill", "factory", "grinder", "miller", "wheel")
        for slot in find_slots(*linked(f"The {english} is old.", "Le moulin est vieux.", (english, "moulin")))
    ]
    assert ("mill", "moulin") in rare_words([*SLOTS, *more[:3]], "fr", lowest=2, highest=9)
    assert ("mill", "moulin") not in rare_words([*SLOTS, *more], "fr", lowest=2, highest=9)


def test_a_rare_noun_stands_where_one_of_its_gender_stood():
    found = made()
    assert ("The mill is on the table.", "Le moulin est sur la table.") in found
    assert ("An apple is in a mill.", "Une pomme est dans un moulin.") in found
    assert ("The cat is on the owl.", "Le chat est sur la chouette.") in found
    assert ("An owl is in a basket.", "Une chouette est dans un panier.") in found
    assert not any(re.search(r"\b(la|une) moulin|\b(le|un) chouette", french, re.IGNORECASE) for _, french in found)


def test_an_elision_before_the_word_stays_right():
    # "mon écharpe" begins with a vowel: it fits neither "un panier" nor "la table".
    assert not any("écharpe" in french for _, french in made())


def test_the_english_article_goes_with_the_word():
    assert not any(re.search(r"\ba [aeiou]|\ban [^aeiou]", english, re.IGNORECASE) for english, _ in made())


def test_infinitives_stand_for_infinitives():
    found = made()
    assert ("We want to dig.", "Nous voulons creuser.") in found
    assert not any("creuser" in french and "manger" not in french and "voulons" not in french for _, french in found)


def test_one_word_of_each_side_is_another_one():
    def plain(text: str) -> list[str]:
        return re.sub(r"\bAn\b|\ban\b", "a", text).lower().split()

    def differing(old: str, new: str) -> int:
        return sum(map(str.__ne__, plain(old), plain(new))) if len(plain(old)) == len(plain(new)) else 99

    assert len(made()) >= 5
    for english, french in made():
        assert any(differing(old.first, english) == differing(old.second, french) == 1 for old, _ in CORPUS)


def test_words_that_are_linked_with_several_or_stand_in_no_known_place_are_no_slots():
    item, links = linked("The big cat", "Le gros chat", ("cat", "chat"), ("big", "gros"))
    assert [slot.words for slot in find_slots(item, links)] == [], "an adjective stands before it"
    item, links = linked("The cat", "Le chat", ("cat", "chat"), ("The", "chat"))
    assert list(find_slots(item, links)) == []
    item, links = linked("The windmill", "Le moulin vent", ("windmill", "moulin"), ("windmill", "vent"))
    assert list(find_slots(item, links)) == []
    item, links = linked("The Cat", "Le Chat", ("Cat", "Chat"))
    assert list(find_slots(item, links)) == []


def test_the_command_aligns_and_writes_what_training_reads(tmp_path, monkeypatch, capsys):
    nouns = [
        ("cat", "chat"),
        ("dog", "chien"),
        ("horse", "cheval"),
        ("tree", "rocher"),
        ("book", "livre"),
        ("mill", "moulin"),
    ]
    places = [("on", "sur"), ("under", "sous"), ("behind", "derrière"), ("near", "vers")]
    pairs = [
        pair(f"I see the {a[0]} {place[0]} the {b[0]}.", f"Je vois le {a[1]} {place[1]} le {b[1]}.")
        for a in nouns
        for b in nouns
        for place in places
        if a != b and "mill" not in (a[0], b[0])
    ]
    pairs += [
        pair(f"I see the mill {first} the cat.", f"Je vois le moulin {second} le chat.") for first, second in places
    ]
    law = SentencePair("law", "I see the law near the cat.", "Je vois le droit vers le chat.")
    write_pairs(tmp_path / "corpus.tsv.gz", [*pairs, law])
    output = tmp_path / "out.tsv.gz"
    arguments = [
        "substitution",
        str(tmp_path / "corpus.tsv.gz"),
        str(output),
        "--read",
        "fr",
        "--highest",
        "8",
        "--each",
        "5",
    ]
    monkeypatch.setattr(sys, "argv", arguments)
    substitution.main()
    found = list(read_pairs(output))
    assert Counter(new.source_name for new in found) == {"tatoeba-substituted": 5}
    assert all("mill" in new.first and "moulin" in new.second for new in found)
    assert "5 pairs, 1 words" in capsys.readouterr().out
