import pytest

from service.text.ends import certain, ends, finished
from service.text.forms import Piece
from service.text.kept import KeptSpan


def finish(source, target, language="fr"):
    pieces = finished(source, ends(source), [Piece(target, 0, len(target))], language)
    return "".join(piece.text for piece in pieces)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("Loading...", "."),
        ("Loading…", "."),
        ("Wait....", "."),
        ("No way!!!", "!"),
        ("What?!", "?"),
        ("It is.", "."),
        ("Name:", ":"),
        ("Nothing", ""),
        ("“Wait...”", "."),
        ("I was —", ""),
        ("In the U.S.?", "?"),
        ("Is it 5 p.m.!?", "?"),
        ("It is 5 p.m....", "."),
        ("Tea, etc....", "."),
    ],
)
def test_the_model_is_shown_one_mark(source, shown):
    assert ends(source).shown == shown


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Loading...", "Chargement.....", "Chargement..."),
        ("Loading…", "Chargement.", "Chargement…"),
        ("No way!!!", "Pas question !", "Pas question !!!"),
        ("What?!", "Quoi ?", "Quoi ?!"),
        ("Really?", "Vraiment.", "Vraiment ?"),
        ("Name:", "Nom", "Nom :"),
        ("Loading", "Chargement.", "Chargement"),
        ("red, green", "rouge, vert,", "rouge, vert"),
        ("Loading.", "Chargement", "Chargement."),
        ('"Wait..."', '"Attends."', '"Attends..."'),
        ("(Really?)", "(Vraiment)", "(Vraiment ?)"),
        ("Tea, milk, etc.", "Thé, lait, etc.", "Thé, lait, etc."),
        ("tea and so on", "thé, etc.", "thé, etc."),
        ("in the U.S.", "aux États-Unis", "aux États-Unis"),
        ("Wait...", "等等。", "等等。"),
        ("... and then", "... et puis", "... et puis"),
        ("… and then", ".. et puis", "… et puis"),
        ("— Hello.", "Bonjour.", "— Bonjour."),
        ("In the U.S.?", "Aux États-Unis ?", "Aux États-Unis ?"),
        ("The {x}", "{x}.", "{x}"),
        ("It is 50%", "C'est 50%.", "C'est 50%"),
        ("In the U.S.?", "Aux É.-U.?", "Aux É.-U. ?"),
        ("In the U.S.!", "Aux É.-U.", "Aux É.-U. !"),
        ("The U.S....", "Les É.-U.", "Les É.-U...."),
        ("'Wait...' she said", '"Attends." dit-elle', "'Attends...' dit-elle"),
    ],
)
def test_marks_come_out_as_they_went_in(source, target, expected):
    assert finish(source, target) == expected


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Thursday is good.", "jeudi est bon.", "Jeudi est bon."),
        ("thursday is good.", "Jeudi est bon.", "jeudi est bon."),
        ('"Thursday," he said.', '"jeudi", dit-il.', '"Jeudi", dit-il.'),
        ("iPhone sales", "Ventes", "Ventes"),
        ("our Paris", "Paris à nous", "Paris à nous"),
        ("the UN", "ONU", "ONU"),
        ("3 men came", "3 hommes", "3 hommes"),
        ("Élan.", "élan.", "Élan."),
    ],
)
def test_a_translation_begins_with_a_capital_where_its_source_does(source, target, expected):
    assert finish(source, target) == expected


def test_nouns_keep_their_capital_where_a_language_writes_them_so():
    assert finish("house", "Haus", "de") == "Haus"


def test_only_french_has_a_space_before_high_marks():
    assert finish("¿Qué?", "What", "en") == "What?"


def test_marks_inside_what_is_kept_are_no_ends():
    text = "See a..."
    assert ends(text, [KeptSpan(4, 8, "a...", "code")]).marks == ""


def test_a_mark_is_put_behind_what_is_kept():
    span = KeptSpan(4, 10, "{name}", "format")
    pieces = [Piece("Voir ", 0, 5), Piece("{name}", 5, 6, span)]
    result = finished("See {name}?", ends("See {name}?", [span]), pieces, "fr")
    assert "".join(piece.text for piece in result) == "Voir {name} ?"


def test_the_pieces_of_a_finished_translation_keep_their_places():
    source, target = "Thursday...", "jeudi....."
    pieces = finished(source, ends(source), [Piece(target, 0, len(target))], "fr")
    assert [(piece.text, piece.start, piece.end) for piece in pieces] == [("Jeudi", 0, 5), ("...", 5, 10)]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Thursday...", "jeudi....."),
        ("He said: stop!", "il a dit : « arrête » !"),
        ("the red house", "La maison rouge."),
        ("Wait", "Attendez , dit-il..."),
        ("The US", "les É.-U."),
    ],
)
def test_what_is_certain_of_a_translation_is_how_it_begins(source, target):
    found = ends(source)
    told = ""
    for length in range(1, len(target) + 1):
        certainly = certain(source, found, target[:length], "fr")
        assert certainly.startswith(told)
        told = certainly
    assert told and finish(source, target).startswith(told)
    assert certain(source, found, target[:2], "fr") == ""


def test_a_mark_stands_before_brackets_that_are_kept():
    text = "[Wait...]"
    opening, closing = KeptSpan(0, 1, "[", "symbol"), KeptSpan(8, 9, "]", "symbol")
    found = ends(text, [opening, closing])
    assert (found.marks, found.shown) == ("...", ".")
    pieces = [Piece("[", 0, 1, opening), Piece("Attends..", 1, 10), Piece("]", 10, 11, closing)]
    assert "".join(piece.text for piece in finished(text, found, pieces, "fr")) == "[Attends...]"
    pieces[1:2] = []
    assert "".join(piece.text for piece in finished(text, found, pieces, "fr")) == "[...]"


def test_marks_behind_what_is_kept_are_more_than_its_own():
    text = "Come at 5 p.m...."
    clock = KeptSpan(8, 14, "5 p.m.", "identifier")
    found = ends(text, [clock])
    assert found.marks == "..."
    pieces = [Piece("Viens à ", 0, 8), Piece("5 p.m.", 8, 9, clock), Piece(".", 9, 10)]
    assert "".join(piece.text for piece in finished(text, found, pieces, "fr")) == "Viens à 5 p.m...."
