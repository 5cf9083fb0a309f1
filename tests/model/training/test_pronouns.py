import gzip
import sys

from model.training import pronouns
from model.training.data import SentencePair, read_pairs


def pair(first, second, source="tatoeba"):
    return SentencePair(source, first, second)


def test_things_that_are_feminine_in_french_are_found_and_people_are_not():
    things = [
        pair("I checked the door to make sure it was locked.", "J'ai vérifié qu'elle était verrouillée."),
        pair("It is in the fridge.", "Elle est dans le réfrigérateur."),
        pair("I think it is full.", "Je pense qu'elle est pleine."),
    ]
    others = [
        pair("It is raining.", "Il pleut."),
        pair("She saw it.", "Elle l'a vu."),
        pair("I know that Mary saw it.", "Je sais qu'elle l'a vu."),
        pair("Mary did it again.", "Elle l'a refait."),
        pair("My mother made it.", "C'est elle qui l'a fait."),
        pair("They did it.", "Elles l'ont fait."),
        pair("He sits here.", "Elle est assise ici."),
    ]
    assert [found.first for found in pronouns.feminine_things([*others, *things])] == [thing.first for thing in things]


def test_the_file_holds_the_wanted_sources_under_a_name_of_their_own(tmp_path, monkeypatch):
    corpus, output = tmp_path / "corpus.tsv.gz", tmp_path / "pronouns.tsv.gz"
    with gzip.open(corpus, "wt", encoding="utf-8") as file:
        file.write("tatoeba\tIt is hot.\tElle est chaude.\nlaws\tIt is void.\tElle est nulle.\n")
    monkeypatch.setattr(sys, "argv", ["pronouns", str(corpus), str(output), "--sources", "tatoeba"])
    pronouns.main()
    assert list(read_pairs(output)) == [pair("It is hot.", "Elle est chaude.", "pronouns")]
