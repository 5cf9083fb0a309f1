import pytest

from service.text.markup import read_html
from tests.service.text.markup_documents import Outline
from tests.service.text.test_markup import same_place, translate, upper


@pytest.mark.parametrize(
    ("document", "text", "kept"),
    [
        ("<p>Water is H<sub>2</sub>O.</p>", "Water is H2O.", ["H2O"]),
        ("There are 10<sup>6</sup> people", "There are 106 people", ["106"]),
        ("It is 5 m<sup>2</sup>, or 2.5×10<sup>-3</sup> km<sup>2</sup>.", None, ["m2", "2.5×10-3", "km2"]),
        ("the CO<sub>2</sub>, the SO<sub>4</sub><sup>2&minus;</sup> here", None, ["CO2", "SO42−"]),
        ("<i>x</i><sub>i</sub> and y<sub><i>j</i></sub> are numbers", None, ["xi", "yj"]),
        ("So e<sup>x</sup> and log<sub>2</sub> n", None, ["ex", "log2"]),
        ("sugar, C<sub>6</sub>H<sub>12</sub>O<sub>6</sub>, is sweet", None, ["C6H12O6"]),
        ("NaHCO<sub>3</sub>-based food", None, ["NaHCO3-based"]),
        ("the 1<sup>st</sup> man", "the 1st man", []),
        ("le 3<sup>e</sup> homme, 5<sup>b</sup>", "le 3e homme, 5", []),
        ("M<sup>me</sup> Petit, n<sup>o</sup> 5", "Mme Petit, no 5", []),
        ("The house<sup>1</sup> is red.", "The house is red.", []),
        ("It is<sup>[2]</sup> red.<sup><a href='#3'>3</a></sup> Yes.", "It is red. Yes.", []),
        ("Gossamer<sup>TM</sup> is “good”<sup>*</sup>", "Gossamer is “good”", []),
        ("see <sup>1</sup> there", "see 1 there", []),
        ("a new<sup>beta</sup> word", "a newbeta word", []),
        ("velocity<sub>max</sub> rises", "velocitymax rises", []),
    ],
)
def test_formulas_are_kept_and_notes_are_no_text(document, text, kept):
    (unit,) = read_html(document).units
    if text is not None:
        assert unit.text == text
    assert [unit.text[start:end] for start, end in unit.kept] == kept


@pytest.mark.parametrize(
    ("document", "changed"),
    [
        ("<p>Water is H<sub>2</sub>O.</p>", "<p>. H<sub>2</sub>O IS WATER</p>"),
        ("about 10<sup>6</sup> men", "MEN 10<sup>6</sup> ABOUT"),
        ("<b>x<sub>i</sub></b> is big", "BIG IS <b>x<sub>i</sub></b>"),
        ("<p>H<sub>2</sub>O</p>", "<p>H<sub>2</sub>O</p>"),
        ("<p translate=no>the H<sub>2</sub>O</p>", "<p translate=no>the H<sub>2</sub>O</p>"),
    ],
)
def test_they_go_with_their_words(document, changed):
    assert translate(document) == changed


@pytest.mark.parametrize(
    "document",
    [
        "<p>Water is H<sub>2</sub>O, and CO<sub>2</sub>is a gas.<sup>1</sup> It is.</p>",
        "10<sup>6</sup><sup>7</sup>x<sub>a</sub>",
        "<sup>1</sup>a<sub>b<sup>c</sup></sub>d e",
        "a&eacute;<sup>2</sup>&eacute;b c",
        "a<sup><br></sup> b<sup><img src=x></sup>",
    ],
)
def test_words_that_stay_where_they_are_leave_them_as_they_are(document):
    assert translate(document, change=same_place) == document
    assert Outline(translate(document)).faults == []


def test_a_note_stands_where_its_word_does():
    changed = translate("<p>The house<sup>1</sup> is red.</p>", change=upper)
    assert changed == "<p>THE HOUSE<sup>1</sup> IS RED.</p>"
