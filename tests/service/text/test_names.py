import pytest

from model.lexicon import Lexicon
from service.text.kept import KeptSpan
from service.text.names import copied_words, is_copied_word, loses_title, missing_names, names, translated_titles

LEXICON = Lexicon(
    frozenset({"chicago", "tom", "saint", "cloud"}),
    frozenset("monday london service hello the he italian jean bank of".split()),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I live in Chicago.", ["Chicago"]),
        ("Chicago is big, said Priya.", ["Chicago", "Priya"]),
        ("Priya is big.", []),  # any word begins a sentence with a capital
        ("He said: Priya is here. Also Bogdan is here.", ["Bogdan"]),
        ("we met on Monday in London", []),
        ("we met (Kowalski) and \"Nakamura\" there", ["Kowalski", "Nakamura"]),
        ("we went to Saint-Cloud with Jean-Luc", ["Saint-Cloud"]),
        ("it is Tom's and O'Brien's, not McDonald or USA", ["Tom", "O'Brien"]),
        ("O'Neil and D’Angelo-Smith met L'Italian, DON'T", ["O'Neil", "D’Angelo-Smith"]),
        ("The Quick Zork", []),  # a heading
        ("The Quick Zork of Chicago", ["Chicago"]),
        ("see Foo_Bar, @Bar, Foo/Bar, Foo.bar", []),
        ("WE WENT TO CHICAGO", []),
        ("we saw Jime\u0301nez and A\u0300gnes", ["Jime\u0301nez", "A\u0300gnes"]),
    ],
)  # fmt: skip
def test_names_of_a_text(text, expected):
    assert [span.text for span in names(text, (), LEXICON)] == expected


def test_what_is_kept_anyway_is_no_name():
    assert list(names("see Chicago now", [KeptSpan(4, 11, "Chicago", "code")], LEXICON)) == []


@pytest.mark.parametrize(
    ("text", "target", "missing"),
    [
        ("I live in Chicago.", "Je vis à David.", ["Chicago"]),
        ("I live in Chicago.", "Je vis à Chicago.", []),
        ("Tom saw Tom.", "Tom a vu Tim.", ["Tom", "Tom"]),
        ("we met Tom", "nous avons vu Tomas", []),
        ("I live in Chicago.", "Je vis à Chicagou-les-bains, Chic.", []),
        ("I live in Chicago.", "Je vis à Chicage.", ["Chicago"]),  # known: it is copied, or it is not there
        ("he is a Somali", "il est somalien", []),
        ("we went to Écosse", "nous allons en ecosse", []),
        ("we met Priya", "nous avons vu Marie", ["Priya"]),
    ],
)
def test_names_that_are_missing(text, target, missing):
    assert [span.text for span in missing_names(text, target, names(text, (), LEXICON), LEXICON)] == missing


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Hello", "Hello", True),
        ("hello!", "Hello !", True),
        ("Hello Tom", "Hello Tom", True),
        ("Hello", "Bonjour", False),
        ("Tom", "Tom", False),
        ("Table", "Table", False),
        ("Hello table", "Hello table", False),
        ("", "", False),
    ],
)
def test_copies_of_ordinary_words(source, target, expected):
    assert is_copied_word(source, target, LEXICON) is expected


@pytest.mark.parametrize(
    ("text", "target", "missing"),
    [
        ("We work with ACMECORP.", "Nous travaillons avec ACECORP.", ["ACMECORP"]),
        ("We work with ACMECORP.", "Nous travaillons avec ACMECORP.", []),
        ("This is WUNDERBAR.", "C'est wunderbar.", []),
        ("Call the SERVICE or NATO", "Appelez-les", []),  # one is a word, the other too short
        ("WE WORK WITH ACMECORP", "NOUS TRAVAILLONS", []),
    ],
)
def test_names_in_capitals_that_are_missing(text, target, missing):
    assert [span.text for span in missing_names(text, target, names(text, (), LEXICON), LEXICON)] == missing


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Hello world!", "Hello !", ["Hello"]),
        ("Say hello London.", "Dites hello, London.", ["hello"]),  # a name, it may be
        ('Say "hello you".', "Dites « hello ».", []),
        ("Say hello to me.", "Dites-moi hello.", []),
        ("The dog", "The chien", []),  # too short
        ("Hello", "Hello", []),  # a copy as a whole is another matter
    ],
)
def test_words_that_were_left_as_they_are(source, target, expected):
    assert copied_words(source, target, LEXICON) == expected


@pytest.mark.parametrize(
    ("target", "loses"),
    [
        ("M. Brown est ici.", True),
        ("M. et M. Brown sont ici.", True),
        ("M. et Mme Brown sont ici.", False),
        ("Les messieurs et dames Brown sont ici.", False),
    ],
)
def test_titles_that_are_lost(target, loses):
    assert loses_title("Mr. and Mrs. Brown are here.", target, "en", "fr") is loses
    assert not loses_title("Mr. Brown and his wife are here.", target, "en", "fr")
    assert not loses_title("Mr. and Mrs. Brown are here.", target, "en", "de")


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Mr. and Mrs. Brown", "Mister et Mrs. Brown", ["M.", "Mme"]),
        ("Ms. Brown is here.", "Ms Brown est ici.", ["Mme"]),
        ("Mrs. Brown is here.", "Mme Brown est ici.", []),
        ("Read it, Mr Brown.", "Lisez Mrs. Dalloway, Mr. Brown.", ["Mme", "M."]),
        ("I have read Mrs Dalloway's book.", "J'ai lu le livre de Mrs.", []),
        ("The book is good.", "Mrs. Dalloway est bon.", []),
    ],
)
def test_titles_of_people_that_were_left_in_english(source, target, expected):
    assert [instead for _, instead in translated_titles(source, target, "en", "fr").values()] == expected
    assert translated_titles(source, target, "en", "de") == {}
