import pytest

from service.text.forms import Piece, make_form
from service.text.kept import KeptSpan, kept_spans
from service.text.wording import changes, close_brackets, spoken


def shown(text, language="en"):
    spans = kept_spans(text)
    return make_form(text, spans, [], ("7",), changes=changes(text, spans, language)).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I cant swim.", "I can't swim."),
        ("Dont go, they wont come", "Don't go, they won't come"),
        ("im here, youre there, ive seen it", "i'm here, you're there, i've seen it"),
        ("Lets go. Thats it.", "Let's go. That's it."),
        ("We cant", "We can't"),
        # What may be meant as it stands.
        ("He lets go of it. Its well, we were ill.", "He lets go of it. Its well, we were ill."),
        ("The students' books, James’ car", "The students's books, James’s car"),
        ("THE GIRLS' ROOM", "The girls's room"),
        ("the 'boys' left; rock 'n' roll, the boys'", "the \"boys\" left; rock 'n' roll, the boys'"),
        ("tea w/o milk, w/ sugar", "tea without milk, w/ sugar"),
        ("as was his wont, the cant of thieves", "as was his wont, the cant of thieves"),
        ("an IM; dont@x.org, #dont, /im/", "an IM; dont@x.org, #dont, /im/"),
        ("I can't swim.", "I can't swim."),
        ("Hello,how are you? (red,green;blue)", "Hello, how are you? ( red, green; blue )"),
        ("x,y 1,000 ;-) e.g.,this &amp;so foo_a,b", "x,y 1,000 ;-) e.g.,this &amp;so foo_a,b"),
        ("Mr. and Mrs. Brown met Mr. Smith", "Mister and Mrs. Brown met Mr. Smith"),
        ("born on the 4th of July", "born on the 4 July"),
        ("on 3rd March 2024", "on 3 March 2024"),
        ("born on December 14th, 1957", "born on December 14, 1957"),
        ("the Marching 14th", "the Marching 14th"),
        ("the 4th of the row", "the 4th of the row"),
    ],
)
def test_what_english_is_shown_as(text, expected):
    assert shown(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The price (in euros) is high.", "The price ( in euros ) is high."),
        ("see [the page], (he came)", "see [ the page ], ( he came )"),
        ("the cat(s), f(x), (a), (5 kg), ( so ), (open", None),
    ],
)
def test_words_in_brackets_are_shown_as_words(text, expected):
    assert shown(text, "fr") == (expected or text)


def test_brackets_close_around_what_is_written_in_them():
    written = "Le prix ( en euros ) [ là ] est"
    pieces = close_brackets([Piece(written, 0, len(written))])
    assert "".join(piece.text for piece in pieces) == "Le prix (en euros) [là] est"
    assert all(written[piece.start : piece.end] == piece.text for piece in pieces)


@pytest.mark.parametrize(
    ("text", "pair", "expected"),
    [
        ("salt & pepper, bread + butter, cats/dogs, men / women", "en-fr", ["and:et", "and:et", "or:ou", "or:ou"]),
        ("sel & poivre, chats/chiens", "fr-en", ["et:and", "ou:or"]),
        ('(wide) & "high"', "en-fr", ["and:et"]),
        ("w/o n/a R&D a + b 5/6 C++ + & x/ y/", "en-fr", []),
        ("salt & pepper", "en-nl", []),
        ("salt & pepper", "nl-en", []),
    ],
)
def test_signs_between_words_have_names(text, pair, expected):
    spans = [KeptSpan(place, place + 1, char, "unknown") for place, char in enumerate(text) if char in "&+/"]
    assert [f"{sign.shown}:{sign.written}" for sign in spoken(text, spans, *pair.split("-"))] == expected


def test_other_languages_are_left_alone():
    assert shown("wont dont", "nl") == "wont dont"


def test_every_character_knows_where_it_comes_from():
    text = "I cant swim on the 4th of July with {name}."
    spans = kept_spans(text)
    hidden = [span for span in spans if not span.is_soft]
    form = make_form(text, spans, hidden, ("7",), changes=changes(text, spans, "en"))
    assert form.text == "I can't swim on the 4 July with 7."
    for word in ("swim", "July", "with"):
        start = form.text.index(word)
        assert text[slice(*form.source_span(start, start + len(word)))] == word
    place = form.text.index("'")
    assert form.source_span(place, place + 1) == (5, 5)
    assert form.source_span(2, 7) == (2, 6)


def test_words_are_shown_as_the_model_knows_them_spelled():
    spellings = {"neighbour": "neighbor", "colour": "color"}
    text = "Neighbour, my COLOUR is colour.txt or #colour or colours."
    assert changes(text, (), "en", spellings) == ((0, 9, "Neighbor"), (14, 20, "COLOR"))
    assert changes(text, [KeptSpan(14, 20, "COLOUR", "code")], "en", spellings) == ((0, 9, "Neighbor"),)


def test_spellings_stand_in_order_with_the_other_changes():
    text = "My neighbour cant see the colour."
    found = changes(text, (), "en", {"neighbour": "neighbor", "colour": "color"})
    assert make_form(text, (), [], ("7",), changes=found).text == "My neighbor can't see the color."
