import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from service.text.capitals import in_capitals
from service.text.forms import DIGITS, MASKS, Piece, _exact_places, make_form
from service.text.kept import KeptSpan, kept_spans
from service.text.wording import spoken


def form_of(text, placeholders=MASKS, *, hide_all=False):
    spans = kept_spans(text)
    hidden = [span for span in spans if hide_all or not span.is_soft]
    return make_form(text, spans, hidden, placeholders)


def restored(text, translation, placeholders=MASKS, **options):
    result = form_of(text, placeholders, **options).restore(translation)
    return result and result.text


@pytest.mark.parametrize(
    ("source", "written", "expected"),
    [
        ("Le 14 juillet.", "The \ue000th of July.", "The 14th of July."),
        ("Le 14 juillet.", "The \ue000 th of July.", "The 14th of July."),
        ("le 21 juin", "the \ue000 th of June", "the 21st of June"),
        ("le 12 juin", "the \ue000nd of June", "the 12th of June"),
        ("le 3 mars 1985", "March the \ue000 rd, \ue001", "March the 3rd, 1985"),
        ("5 places", "\ue000 thin places", "5 thin places"),
    ],
)
def test_a_number_that_english_makes_an_ordinal_is_written_as_one(source, written, expected):
    assert restored(source, written, hide_all=True) == expected


def test_a_hidden_span_is_one_character_and_comes_back():
    assert form_of("See https://x.org now.").text == "See \ue000 now."
    assert restored("See https://x.org now.", "Voir \ue000 maintenant.") == "Voir https://x.org maintenant."


def test_spans_may_change_their_order():
    assert restored("{a} of {b}", "\ue001 : \ue000") == "{b} : {a}"


def test_a_mark_between_a_span_and_a_word_gets_no_space():
    assert restored("Set `a`;Bob now.", "Mets \ue000 ;Bob maintenant.") == "Mets `a`;Bob maintenant."
    assert restored("See `a`; go now.", "Vois \ue000 ; va maintenant.") == "Vois `a` ; va maintenant."


@pytest.mark.parametrize("translation", ["Voir.", "Voir \ue000 \ue000.", "Voir \ue000 et https://x.org."])
def test_a_span_that_is_lost_or_doubled_is_noticed(translation):
    assert restored("See https://x.org now.", translation) is None


def form_with_signs(text):
    """With every `&`, `+` and `/` a kept span, as it is for a model that cannot read them."""
    signs = [KeptSpan(place, place + 1, char, "unknown") for place, char in enumerate(text) if char in "&+/"]
    found = spoken(text, signs, "en", "fr")
    hidden = [span for span in signs if all(span is not sign.span for sign in found)]
    return make_form(text, signs, hidden, MASKS, spoken=found)


@pytest.mark.parametrize(
    ("text", "shown", "translation", "expected"),
    [
        ("salt & pepper", "salt and pepper", "du sel et du poivre", "du sel & du poivre"),
        ("you and bread + butter", "you and bread and butter", "toi et pain et beurre", "toi et pain + beurre"),
        ("men/women & boys or girls", "men or women and boys or girls", "hommes ou femmes et fils ou filles",
         "hommes/femmes & fils ou filles"),
        ("SALT & PEPPER", "Salt and pepper", "Sel et poivre", "SEL & POIVRE"),
        ("w/o salt & w/o pepper", "w \ue000 o salt and w \ue001 o pepper", "sans \ue000 sel et sans \ue001 poivre",
         "sans/sel & sans/poivre"),
        # One more or one less: nobody knows which.
        ("salt & pepper", "salt and pepper", "du sel, du poivre", None),
        ("salt & pepper", "salt and pepper", "et du sel et du poivre", None),
        ("you and bread + butter", "you and bread and butter", "toi, pain et beurre", None),
    ],
)  # fmt: skip
def test_a_sign_that_was_shown_as_a_word_takes_that_word_s_place(text, shown, translation, expected):
    form = form_with_signs(text)
    result = form.restore(translation)
    assert (form.text, result and result.text) == (shown, expected)
    assert [form.starts[match.start()] for match in regex.finditer(r"\b(?:and|or)\b", shown)] == [
        match.start() for match in regex.finditer(r"(?<!w)[&+/]|\b(?:and|or)\b", text)
    ]


def test_no_sign_is_a_word_where_what_is_kept_has_the_same():
    spans = [KeptSpan(5, 6, "&", "unknown"), KeptSpan(14, 23, "`ils et`", "code")]
    assert (
        make_form(
            "salt & pepper `ils et`", spans, [spans[1]], MASKS, spoken=spoken("salt & pepper", spans[:1], "en", "fr")
        )
        is None
    )


def test_digits_stand_in_only_where_the_text_has_none():
    form = form_of("See {a} at 7 or 8", DIGITS)
    assert form.text == "See 9 at 7 or 8"
    assert form.restore("Voir 9 à 7 ou 8").text == "Voir {a} à 7 ou 8"
    assert form.restore("Voir 9 à 7 ou 89") is None
    assert form_of("{a} {b}1234 56789", DIGITS) is None


@pytest.mark.parametrize(("placeholders", "mask"), [(DIGITS, "7"), (MASKS, "\ue000")])
def test_a_placeholder_is_parted_from_letters_and_joined_again(placeholders, mask):
    form = form_of("foo{bar}baz", placeholders)
    assert form.text == f"foo {mask} baz"
    assert form.restore(f"fou {mask} bas").text == "fou{bar}bas"
    written = f"fou  {mask} bas"
    for piece in form.restore(written).pieces:
        assert piece.span or piece.text == written[piece.start : piece.end]


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("**Hello** world", "\ue000 Bonjour \ue001 monde", "**Bonjour** monde"),
        ("[link](https://x.org), see", "\ue000 lien \ue001(\ue002), voir", "[lien](https://x.org), voir"),
        ("Open /tmp/a.txt now", "Ouvrez\ue000maintenant", "Ouvrez /tmp/a.txt maintenant"),
        ("{name}, hello!", "\ue000,bonjour !", "{name}, bonjour !"),
        ("{a},b", "\ue000,b", "{a},b"),
        ("Open {a}", "开\ue000吧", "开{a}吧"),
        ("<i>He is.</i>", "\ue000 Il est. \ue001", "<i>Il est.</i>"),
        ('The "{a}" is', "Le « \ue000 » est", "Le « {a} » est"),
        ("3 x 4 y", "3x 4y", "3 x 4 y"),
        ("the file ({a})", "le fichier (\ue000)", "le fichier ({a})"),
    ],
)
def test_letters_beside_what_is_kept_stand_as_close_as_they_did(text, translation, expected):
    assert restored(text, translation) == expected


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("It begins at 10:30.", "Ça commence à 10h30.", "Ça commence à 10:30."),
        ("1,234.5 people", "1 234,5 personnes", "1,234.5 personnes"),
        ("45 000 personnes, 1 234,56 €", "45,000 people, 1,234.56 €", "45 000 people, 1 234,56 €"),
        ("12\u00a0000 personnes", "12000 people", "12\u00a0000 people"),
        ("20% for $5", "20 % pour 5 $", "20% pour $5"),
        ("5 kg and 55 kg", "55 kg et 5 kg", "55 kg et 5 kg"),
        ("5 kg of it", "5kg de ça", "5 kg de ça"),
        ("January 1, the 2", "1er janvier, 2espace", "1er janvier, 2 espace"),
        ("It is -5 today", "Il fait −5 aujourd'hui", "Il fait -5 aujourd'hui"),
    ],
)
def test_numbers_in_another_notation_get_their_own_back(text, translation, expected):
    assert restored(text, translation) == expected


@pytest.mark.parametrize(
    "translation",
    ["J'ai deux chats.", "J'ai 3 chats.", "J'ai 2 chats et 22 chiens.", "J'ai 2 et 2 chats.", "J'ai 2,5 chats."],
)
def test_a_number_that_is_lost_changed_or_doubled_is_noticed(translation):
    assert restored("I have 2 cats.", translation) is None


def test_a_number_for_a_word_is_allowed():
    assert restored("I have 2 cats and thirty dogs.", "J'ai 2 chats et 30 chiens.") == "J'ai 2 chats et 30 chiens."


def test_capitals_are_shown_small_and_given_back():
    form = form_of("SEE {name}, DON'T I?")
    assert form.text == "See \ue000, don't I?"
    assert form.restore("Voir \ue000, n'est-ce pas ?").text == "VOIR {name}, N'EST-CE PAS ?"


@pytest.mark.parametrize("text", ["PLEASE CLOSE THE DOOR.", "WARNING!", "GO ON", "ÉCOLE FERMÉE"])
def test_what_counts_as_capitals(text):
    assert in_capitals(text)


@pytest.mark.parametrize("text", ["NASA", "The NASA", "A", "I", "Please", "123", "USB 3", "A B"])
def test_what_does_not(text):
    assert not in_capitals(text)


def test_places_lead_back_to_the_original():
    text = "See https://x.org now."
    form = form_of(text)
    place = form.text.index("\ue000")
    assert form.source_span(place, place + 1) == (4, 17)
    assert form.source_span(place + 2, place + 5) == (18, 21)
    assert form.source_span(len(form.text), len(form.text)) == (len(text), len(text))


def test_pieces_lead_from_what_the_model_wrote():
    written = "Voir \ue000 !"
    pieces = form_of("See {a}!").restore(written).pieces
    assert [(piece.text, written[piece.start : piece.end]) for piece in pieces] == [
        ("Voir ", "Voir "),
        ("{a}", "\ue000"),
        (" !", " !"),
    ]


@example("11a1a1", "1a1")
@given(st.text("12.,:a²٣", max_size=20), st.text("12.,a²", min_size=1, max_size=3))
def test_exact_places_are_those_of_a_pattern(text, wanted):
    before = r"(?<!\d)(?<!\d[.,])" if wanted[0].isdigit() else ""
    after = r"(?!\d)(?![.,:]\d)" if wanted[-1].isdigit() else ""
    expected = [match.span() for match in regex.finditer(before + regex.escape(wanted) + after, text)]
    found = _exact_places([Piece(text, 0, len(text))], wanted)
    assert [(start, end) for _, start, end in found] == expected
