"""A segment's way through the model, with models that are written for the purpose."""

from dataclasses import replace

import pytest

from model.decoding import DecodingOptions, Hypothesis
from model.lexicon import Lexicon
from service.engine.request import SequenceResult, SequenceTimings
from service.pipeline import SegmentWork, Vocabulary
from service.text.terms import Terms
from tests.service.fake_tokenizer import EOS_ID, FakeTokenizer

TOKENIZER = FakeTokenizer()


class MaskTokenizer(FakeTokenizer):
    """Has the masks, and spells other private-use characters."""

    def encode(self, text, language, *, add_eos=False):
        encoding = super().encode(text, language, add_eos=add_eos)
        pieces = tuple("<0xEE>" if "\ue010" <= piece <= "\uf8ff" else piece for piece in encoding.pieces)
        return replace(encoding, pieces=pieces)


BEAM = DecodingOptions(beam_size=2)


def run(text, model, *, options=BEAM, tokenizer=TOKENIZER, kept=(), rounds=8, max_tokens=200, target="", lexicon=None):
    """Translates a segment with a function from text to one or several texts; also returns what that was shown."""
    work = SegmentWork(Vocabulary(tokenizer, "en", target, lexicon), options, max_tokens=max_tokens)
    work.add(text, kept)
    shown = []
    for _ in range(rounds):
        sequences = work.sequences()
        if not sequences:
            break
        results = []
        for sequence in sequences:
            source = tokenizer.decode(sequence.source_ids)
            shown.append(source)
            written = model(source)
            written = [written] if isinstance(written, str) else written
            hypotheses = tuple(
                Hypothesis((*tokenizer.encode(target, "fr").ids, EOS_ID), "stop")
                for target in written[: sequence.options.num_hypotheses]
            )
            results.append(SequenceResult(hypotheses, "stop", SequenceTimings(0, 0, 0), len(source) + 1, 1))
        work.take(results)
    assert not work.sequences(), "it does not come to an end"
    return work.outcome(0), shown


def without_signs(text):
    """A model that writes in capitals, and loses every digit and private-use character."""
    return "".join(char for char in text.upper() if not char.isdigit() and not "\ue000" <= char <= "\uf8ff")


class SignlessTokenizer(MaskTokenizer):
    """Spells some signs in bytes, as one does that never saw them."""

    def encode(self, text, language, *, add_eos=False):
        encoding = super().encode(text, language, add_eos=add_eos)
        return replace(encoding, pieces=tuple("<0x26>" if piece in "&+/≈" else piece for piece in encoding.pieces))


def test_a_hidden_span_costs_one_try_where_the_model_keeps_digits():
    outcome, shown = run("See {name} now.", str.upper)
    assert outcome.nth_text(0) == "SEE {name} NOW."
    assert shown == ["See 7 now."]
    assert outcome.warnings == ()


def test_masks_are_used_where_the_tokenizer_has_them():
    _, shown = run("See {name} now.", str.upper, tokenizer=MaskTokenizer())
    assert shown == ["See \ue000 now."]


def test_a_tokenizer_of_all_characters_has_no_masks():
    assert Vocabulary(TOKENIZER, "en").placeholders[0][0].isdigit()


def test_where_masks_are_lost_digits_are_tried_and_then_pieces():
    def loses_masks(text):
        return "".join(char for char in text.upper() if not "\ue000" <= char <= "\uf8ff")

    outcome, shown = run("See {name} now.", loses_masks, tokenizer=MaskTokenizer())
    assert outcome.nth_text(0) == "SEE {name} NOW."
    assert shown == ["See \ue000 now.", "See 7 now."]

    outcome, shown = run("See {name} now.", without_signs, tokenizer=MaskTokenizer())
    assert outcome.nth_text(0) == "SEE {name} NOW."
    assert shown[-2:] == ["See", "now."]
    assert outcome.warnings == ("parted",)
    assert outcome.num_retries == 1


def test_the_next_hypothesis_that_kept_everything_is_taken():
    outcome, shown = run("See {name} now.", lambda text: ["VOIR.", "VOIR 7."])
    assert outcome.nth_text(0) == "VOIR {name}."
    assert len(shown) == 1


def test_numbers_are_seen_then_hidden_then_parted():
    outcome, shown = run("He has 1234 cats.", without_signs)
    assert shown == ["He has 1234 cats.", "He has 7 cats.", "He has", "cats."]
    assert outcome.nth_text(0) == "HE HAS 1234 CATS."


def test_markers_of_a_list_stay_in_their_order():
    source, swapped = "We have a) tea or b) milk now.", "ON A 8 LAIT OU 7 THÉ."
    outcome, shown = run(source, lambda text: [swapped, "ON A 7 THÉ OU 8 LAIT."])
    assert shown == ["We have 7 tea or 8 milk now."]
    assert outcome.nth_text(0) == "ON A a) THÉ OU b) LAIT."

    outcome, _ = run(source, lambda text: swapped if "7" in text else text.upper())
    assert outcome.nth_text(0) == "WE HAVE a) TEA OR b) MILK NOW."
    assert outcome.warnings == ("parted",)


def test_a_marker_that_lost_its_item_is_noticed():
    source = "We have a) tea or b) milk now."
    outcome, shown = run(source, lambda text: "ON A THÉ 7 OU LAIT 8." if "7" in text else text.upper(), target="fr")
    assert outcome.nth_text(0) == "WE HAVE a) TEA OR b) MILK NOW."
    assert shown[-3:] == ["We have", "tea or", "milk now."]


def test_what_is_glued_to_a_kept_span_by_a_mark_is_not_lost():
    outcome, _ = run("Set {a};yes", lambda text: "METS 7." if "7" in text else text.upper())
    assert outcome.nth_text(0) == "SET {a};YES"
    outcome, _ = run("Set {a};yes", lambda text: "METS 7 ; OUI")
    assert outcome.nth_text(0) == "METS {a};OUI"


def test_escaped_quotation_marks_are_shown_as_such_and_else_hidden():
    source = r"He said \"hello\" to me."
    outcome, shown = run(source, lambda text: "IL A DIT « BONJOUR »." if '"' in text else "")
    assert (outcome.nth_text(0), shown) == (r"IL A DIT \"BONJOUR\".", ['He said "hello" to me.'])
    outcome, shown = run(source, lambda text: "IL A DIT BONJOUR." if '"' in text else text.upper())
    assert (outcome.nth_text(0), shown[1:]) == (r"HE SAID \"HELLO\" TO ME.", ["He said 7 hello 8 to me."])


def test_an_ordinal_that_is_lost_is_hidden_with_its_ending():
    def model(text):
        return "L'homme 1 vint." if "1" in text else "Le \ue000 homme vint."

    outcome, shown = run("The 1st man came.", model, target="fr", tokenizer=MaskTokenizer())
    assert shown == ["The 1st man came.", "The \ue000 man came."]
    assert outcome.nth_text(0) == "Le 1er homme vint."
    assert outcome.warnings == ()
    assert [(piece.text, piece.start, piece.end) for piece in outcome.parts[0].pieces[1:3]] == [
        ("1", 3, 4),
        ("er", 4, 4),
    ]
    outcome, _ = run("The 1st man came.", lambda text: "L'homme 1 vint.", target="fr", tokenizer=MaskTokenizer())
    assert outcome.warnings == ("number",)
    outcome, shown = run("He came on 3rd May.", lambda text: "Il vint le 3 mai.", target="fr")
    assert (len(shown), outcome.warnings) == (1, ())


def test_an_escaped_letter_or_apostrophe_is_shown_as_what_it_means_and_written_as_before():
    outcome, shown = run(r"It\'s caf\u00e9.", lambda text: "C'est l'été au café.")
    assert shown == ["It's café."]
    assert outcome.nth_text(0) == r"C\'est l\'\u00e9t\u00e9 au caf\u00e9."
    assert outcome.warnings == ()

    outcome, _ = run(r"caf\u00e9 9", lambda text: "café à 9")
    assert outcome.nth_text(0) == r"caf\u00e9 \u00e0 9"
    assert outcome.num_retries == 0


def swaps_digits(text):
    """A model that writes digits in reverse order, and masks where they belong."""
    digits = iter(reversed([char for char in text if char.isdigit()]))
    return "".join(next(digits) if char.isdigit() else char for char in text.upper())


def test_numbers_that_changed_places_are_hidden_as_numbers_then_parted():
    text = "He has 3 cats and 5 dogs."
    outcome, shown = run(text, swaps_digits, tokenizer=MaskTokenizer())
    assert (outcome.nth_text(0), outcome.warnings) == ("HE HAS 3 CATS AND 5 DOGS.", ())
    assert shown == [text, "He has \ue000 cats and \ue001 dogs."]

    def swaps_and_forgets(shown_text):
        return swaps_digits(shown_text).replace("\ue001", "")

    outcome, shown = run(text, swaps_and_forgets, tokenizer=MaskTokenizer())
    assert (outcome.nth_text(0), outcome.warnings) == ("HE HAS 3 CATS AND 5 DOGS.", ("parted",))
    assert shown[-3:] == ["He has", "cats and", "dogs."]


def test_a_second_hypothesis_with_the_numbers_in_their_places_is_taken():
    outcome, shown = run("He has 3 cats and 5 dogs.", lambda text: ["5 CATS 3 DOGS.", "3 CATS, 5 DOGS."])
    assert outcome.nth_text(0) == "3 CATS, 5 DOGS."
    assert len(shown) == 1


@pytest.mark.parametrize(
    ("text", "lost", "parts"),
    [
        ("He came (too late) home.", ")", ["He came", "too late", "home."]),
        ("Cats and/or dogs sleep.", "/", ["Cats and", "or dogs sleep."]),
    ],
)
def test_a_bracket_or_slash_that_is_lost_again_and_again_parts_the_segment(text, lost, parts):
    outcome, shown = run(text, lambda shown_text: shown_text.upper().replace(lost, ""))
    assert (outcome.nth_text(0), outcome.warnings) == (text.upper(), ("parted",))
    assert shown[-len(parts) :] == parts


def test_a_hypothesis_with_the_source_s_quotes_and_question_mark_comes_first():
    assert run('"So?" he said.', lambda text: ["So? he said.", '"SO?" HE SAID.'])[0].nth_text(0) == '"SO?" HE SAID.'
    assert run("Is he in?", lambda text: ["IS HE IN.", "HE IN?"])[0].nth_text(0) == "HE IN ?"
    outcome, shown = run("Is he in?", lambda text: "HE IS.")
    assert (outcome.nth_text(0), outcome.warnings, len(shown)) == ("HE IS?", (), 1)


def test_a_hypothesis_that_denies_as_its_source_comes_first_and_a_lost_negation_is_told():
    def first_two(written):
        work = SegmentWork(Vocabulary(TOKENIZER, "en", "fr"), BEAM, max_tokens=200)
        work.add("I can't swim.")
        work.sequences()
        found = tuple(Hypothesis((*TOKENIZER.encode(text, "fr").ids, EOS_ID), "stop") for text in written)
        work.take([SequenceResult(found, "stop", SequenceTimings(0, 0, 0), 10, 1)])
        return work.outcome(0).nth_text(0), work.outcome(0).warnings

    assert first_two(["Je sais nager.", "Je ne sais pas nager."]) == ("Je ne sais pas nager.", ())
    assert first_two(["Je sais nager.", "Je nage."]) == ("Je sais nager.", ("negation",))


def test_a_translation_that_is_nothing_but_what_was_kept_is_none():
    outcome, _ = run("{name}, hello!", lambda text: "7 !" if "7" in text else text.upper())
    assert (outcome.nth_text(0), outcome.warnings) == ("{name}, HELLO !", ("parted",))


def test_a_word_lost_between_two_spans_is_noticed():
    outcome, shown = run("Click [there](x.md) now.", lambda text: text.upper().replace("THERE", "", text.count("7")))
    assert (outcome.nth_text(0), outcome.warnings) == ("CLICK [THERE](x.md) NOW.", ("parted",))
    assert shown[-3:] == ["Click", "there", ") now."]


LEXICON = Lexicon(frozenset({"chicago", "boston"}), frozenset({"hello", "monday"}))


def replacing(written):
    """A model that knows no name, and writes another in its place; masks it copies."""
    return lambda text: text.replace("We see", "On voit").replace("Chicago", written).replace("Priya", written)


@pytest.mark.parametrize("name", ["Chicago", "Priya"])
def test_a_name_that_became_another_is_hidden_and_comes_back(name):
    outcome, shown = run(f"We see {name} now.", replacing("David"), tokenizer=MaskTokenizer(), lexicon=LEXICON)
    assert (outcome.nth_text(0), outcome.warnings, outcome.num_retries) == (f"On voit {name} now.", (), 1)
    assert shown == [f"We see {name} now.", "We see \ue000 now."]


def test_a_hypothesis_with_the_name_is_taken_first():
    outcome, shown = run(
        "We see Chicago.",
        lambda text: ["On voit David.", "On voit Chicago."],
        tokenizer=MaskTokenizer(),
        lexicon=LEXICON,
    )
    assert (outcome.nth_text(0), len(shown)) == ("On voit Chicago.", 1)


@pytest.mark.parametrize(
    "bad",
    [
        "We see now.",
        "We see \ue000 \ue000 now.",
        "\ue000 now now now now now now now now now now",
        "(We see \ue000 now.",
    ],
)
def test_a_name_that_cannot_be_had_without_harm_is_told(bad):
    def model(text):
        return bad if "\ue000" in text else text.replace("Chicago", "David")

    outcome, shown = run("We see Chicago now.", model, tokenizer=MaskTokenizer(), lexicon=LEXICON)
    assert (outcome.nth_text(0), outcome.warnings) == ("We see David now.", ("name",))
    assert len(shown) == 2


WORDS = Lexicon(
    frozenset(), frozenset({"mushroom"}), frozenset({"je", "vois", "un", "champignon", "ici", "couleur", "la"}),
    {"mushroom": ("champignon",)}, {"colour": "color"},
)  # fmt: skip


def inventing(text):
    """A model that does not know a word, and copies what is French already."""
    return text.replace("I see a", "Je vois un").replace("here", "ici").replace("mushroom", "mushiron")


def test_an_invented_word_is_shown_as_the_training_data_translates_it():
    outcome, shown = run("I see a mushroom here.", inventing, lexicon=WORDS)
    assert (outcome.nth_text(0), outcome.warnings, outcome.num_retries) == ("Je vois un champignon ici.", (), 1)
    assert shown == ["I see a mushroom here.", "I see a champignon here."]


@pytest.mark.parametrize("bad", ["Je vois ici.", "Je vois un champiron ici ici.", "Je vois un un un un un un un"])
def test_a_word_that_is_lost_when_it_is_shown_changes_nothing(bad):
    outcome, shown = run(
        "I see a mushroom here.", lambda text: bad if "champ" in text else inventing(text), lexicon=WORDS
    )
    assert (outcome.nth_text(0), len(shown)) == ("Je vois un mushiron ici.", 2)


def test_instead_of_an_invented_word_no_other_hypothesis_is_taken_that_has_none():
    outcome, shown = run(
        "I see a mushroom here.", lambda _: ["Je vois un mushiron ici.", "Je vois ici."], lexicon=WORDS
    )
    assert (outcome.nth_text(0), len(shown)) == ("Je vois un mushiron ici.", 2)


def test_a_spelling_that_the_training_data_lacks_is_shown_as_it_has_it():
    outcome, shown = run(
        "The colour here.", lambda text: text.replace("The color here", "La couleur ici"), lexicon=WORDS
    )
    assert (outcome.nth_text(0), shown) == ("La couleur ici.", ["The color here."])


def test_a_spelling_before_another_change_is_shown_too():
    _, shown = run("The colour cant fade.", str.upper, lexicon=WORDS)
    assert shown == ["The color can't fade."]


def test_titles_are_shown_as_words_and_written_as_the_target_has_them():
    outcome, shown = run("Mr. and Mrs. Brown met.", lambda _: "Mister et Mrs. Brown se sont vus.", target="fr")
    assert outcome.nth_text(0) == "M. et Mme Brown se sont vus."
    assert shown == ["Mister and Mrs. Brown met."]


def test_one_thing_twice_instead_of_two_is_told_of_and_the_next_hypothesis_is_better():
    twice, right = "Premier, troisième et troisième.", "Premier, second et troisième."
    outcome, shown = run("First, second and third.", lambda _: [twice, right], target="fr")
    assert (outcome.nth_text(0), outcome.warnings, len(shown)) == (right, (), 1)

    def says_twice(text):
        return "premier" if text == "First" else "troisième et troisième." if text.startswith("s") else twice

    outcome, _ = run("First, second and third.", says_twice, target="fr")
    assert (outcome.nth_text(0), outcome.warnings) == (twice, ("parted", "items"))


def test_a_long_sentence_that_lost_a_clause_is_translated_in_halves():
    sentence = ", and ".join(["the old man went out of his house to see the river"] * 3)
    outcome, shown = run(sentence, lambda text: text.upper()[: 115 if len(text) > 150 else None], target="fr")
    assert outcome.nth_text(0) == sentence.upper()
    assert shown[:2] == [sentence, sentence]
    assert max(map(len, shown[2:])) < 150


def test_a_name_is_not_bought_with_a_negation():
    def model(text):
        return "On voit \ue000." if "\ue000" in text else "On ne voit pas David."

    outcome, _ = run("We do not see Chicago.", model, tokenizer=MaskTokenizer(), target="fr", lexicon=LEXICON)
    assert (outcome.nth_text(0), outcome.warnings) == ("On ne voit pas David.", ("name",))


def test_names_are_only_told_of_where_a_model_has_no_masks():
    outcome, shown = run("We see Chicago now.", replacing("David"), tokenizer=FakeTokenizer(), lexicon=LEXICON)
    assert (outcome.warnings, len(shown)) == (("name",), 1)


def test_without_a_lexicon_no_name_is_looked_for():
    outcome, shown = run("We see Chicago now.", replacing("David"), tokenizer=MaskTokenizer())
    assert (outcome.nth_text(0), outcome.warnings, len(shown)) == ("On voit David now.", (), 1)


def test_a_name_beside_a_sign_is_a_word():
    outcome, _ = run("we + Chicago", replacing("David"), tokenizer=SIGNLESS, lexicon=LEXICON)
    assert (outcome.nth_text(0), outcome.warnings) == ("we + Chicago", ())


def test_nothing_but_names_needs_no_model():
    outcome, shown = run("Chicago, Boston!", str.upper, tokenizer=MaskTokenizer(), lexicon=LEXICON)
    assert (outcome.nth_text(0), shown) == ("Chicago, Boston!", [])


def test_an_ordinary_word_that_was_copied_is_told_and_stands():
    outcome, shown = run("Hello", lambda text: ["Hello", "Collo"], lexicon=LEXICON)
    assert (outcome.nth_text(0), outcome.warnings, len(shown)) == ("Hello", ("untranslated",), 1)
    assert run("Table", str, lexicon=LEXICON)[0].warnings == ()
    assert run("Hello", str)[0].warnings == ()


def test_a_word_that_was_left_in_a_sentence_is_told_of():
    outcome, shown = run("Hello world!", lambda text: ["Hello !"], lexicon=LEXICON)
    assert (outcome.nth_text(0), outcome.warnings, len(shown)) == ("Hello !", ("untranslated",), 1)


@pytest.mark.parametrize(
    ("source", "written", "log_prob", "warnings"),
    [
        ("Log in", "Fonctionnel", -20.0, ("unsure",)),
        ("Log in", "Fonctionnel", -5.0, ()),
        ("Log in", "Fonctionnel", None, ()),
        ("I have to log in", "Je dois y aller", -40.0, ()),
    ],
)
def test_a_guess_for_words_without_a_sentence_is_told_of(source, written, log_prob, warnings):
    work = SegmentWork(Vocabulary(TOKENIZER, "en", "fr"), BEAM, max_tokens=200)
    work.add(source)
    hypothesis = Hypothesis((*TOKENIZER.encode(written, "fr").ids, EOS_ID), "stop", log_prob=log_prob)
    work.take([SequenceResult((hypothesis,), "stop", SequenceTimings(0, 0, 0), 9, 9) for _ in work.sequences()])
    assert work.outcome(0).warnings == warnings


def test_what_is_counted_is_tried_again_if_only_its_number_is_left():
    outcome, shown = run("3 dogs and 2 cats.", lambda text: ["3 CHIENS ET 2.", "3 CHIENS ET 2 CHATS."], target="fr")
    assert (outcome.nth_text(0), outcome.warnings, len(shown)) == ("3 CHIENS ET 2 CHATS.", (), 1)
    outcome, shown = run("3 dogs and 2 cats.", lambda text: ["3 CHIENS ET 2."], target="fr")
    assert (outcome.warnings, len(shown)) == (("items",), 2)


@pytest.mark.parametrize(
    ("apart", "shown"),
    [
        ([(6, 11)], ["Hello", "world!"]),  # the mark alone is nothing to be translated
        ([(0, 5)], ["Hello", "world!"]),
        ([(0, 12)], ["Hello world!"]),
        ([(8, 9)], ["Hello wo", "r", "ld!"]),
    ],
)
def test_what_is_to_be_apart_is_translated_on_its_own(apart, shown):
    work = SegmentWork(Vocabulary(TOKENIZER, "en"), BEAM, max_tokens=200)
    work.add("Hello world!", apart=apart)
    assert [TOKENIZER.decode(sequence.source_ids) for sequence in work.sequences()] == shown


def test_nothing_kept_is_parted():
    work = SegmentWork(Vocabulary(TOKENIZER, "en"), BEAM, max_tokens=200)
    work.add("Hello {big} world", apart=[(8, 17)])
    assert len(work.sequences()) == 1


SIGNLESS = SignlessTokenizer()


def test_a_sign_is_shown_as_a_word_and_comes_back():
    outcome, shown = run("salt & pepper", lambda text: text.replace("and", "et"), tokenizer=SIGNLESS, target="fr")
    assert (outcome.nth_text(0), shown) == ("salt & pepper", ["salt and pepper"])


def test_where_the_word_of_a_sign_is_lost_the_sign_is_hidden_and_then_parts_the_segment():
    def without_word(text):
        return text.upper().replace("AND", "")

    outcome, shown = run("salt & pepper", without_word, tokenizer=SIGNLESS, target="fr")
    assert (outcome.nth_text(0), shown) == ("SALT & PEPPER", ["salt and pepper", "salt \ue000 pepper"])
    outcome, shown = run(
        "salt & pepper", lambda text: without_signs(without_word(text)), tokenizer=SIGNLESS, target="fr"
    )
    assert (outcome.nth_text(0), outcome.warnings) == ("SALT & PEPPER", ("parted",))
    assert shown[-2:] == ["salt", "pepper"]


@pytest.mark.parametrize("lost", ["LOVE", "LIFE"])
@pytest.mark.parametrize("sign", ["≈", "+", "<>", "&"])
def test_a_word_lost_beside_a_sign_is_noticed(lost, sign):
    def model(text):
        return text.upper().replace(lost, "") if "\ue000" in text else text.upper()

    outcome, _ = run(f"love {sign} life", model, tokenizer=SIGNLESS)
    assert outcome.nth_text(0) == f"LOVE {sign} LIFE"


@pytest.mark.parametrize("sign", [">", "=", "~", "<", "*"])
def test_signs_between_words_part_a_segment(sign):
    outcome, shown = run(f"my love {sign} (your) life", str.upper)
    assert (outcome.nth_text(0), outcome.warnings) == (f"MY LOVE {sign} (YOUR) LIFE", ())
    assert shown == ["my love", "( your ) life"]


def test_emphasis_may_come_to_the_end():
    outcome, _ = run("the *red* house", lambda text: "LA MAISON 7ROUGE8" if "7" in text else text.upper())
    assert (outcome.nth_text(0), outcome.warnings) == ("LA MAISON *ROUGE*", ())


@pytest.mark.parametrize("stray", ["\ue004", "\ufffd"])
def test_what_no_translation_may_hold_is_noticed(stray):
    outcome, _ = run("See {name} now.", lambda text: [f"VOIR {stray}\ue000.", "VU \ue000."], tokenizer=MaskTokenizer())
    assert outcome.nth_text(0) == "VU {name}."


def test_what_cannot_be_kept_at_all_stays_in_the_source_language():
    # A model that writes a number into everything.
    outcome, _ = run("He has 3 old cats and dogs.", lambda text: "3 3 3")
    assert outcome.nth_text(0) == "He has 3 old cats and dogs."
    assert "not_translated" in outcome.warnings


@pytest.mark.parametrize("num_spans", [9, 10, 11, 25, 60])
@pytest.mark.parametrize("tokenizer", [TOKENIZER, MaskTokenizer()])
@pytest.mark.parametrize("model", [str.upper, without_signs])
def test_any_number_of_spans_is_kept(num_spans, tokenizer, model):
    text = "Say " + ", then ".join(f"{{field{index}x}}" for index in range(num_spans)) + " again."
    outcome, _ = run(text, model, tokenizer=tokenizer, max_tokens=2000)
    result = outcome.nth_text(0)
    assert all(result.count(f"{{field{index}x}}") == 1 for index in range(num_spans))
    assert result.startswith("SAY") and result.endswith("AGAIN.")


def test_signs_at_the_ends_and_columns_are_not_shown():
    outcome, shown = run("🎉 Open the door | close it 🙂", str.upper)
    assert outcome.nth_text(0) == "🎉 OPEN THE DOOR | CLOSE IT 🙂"
    assert shown == ["Open the door", "close it"]


def test_the_caller_s_spans_are_kept_too():
    outcome, shown = run("My name is Rose Field here.", str.upper, kept=[(11, 21)])
    assert outcome.nth_text(0) == "MY NAME IS Rose Field HERE."
    assert shown == ["My name is 7 here."]


def test_a_loop_is_tried_again_without_repeated_ngrams():
    asked = []

    def loops_once(text):
        asked.append(text)
        return "la la la la la la" if len(asked) == 1 else "la salade"

    outcome, _ = run("the salad", loops_once)
    assert outcome.nth_text(0) == "la salade"
    assert outcome.num_retries == 1
    assert outcome.warnings == ()


def test_a_loop_that_stays_gives_the_source_with_a_warning():
    outcome, shown = run("the salad", lambda text: "la la la la la la")
    assert outcome.nth_text(0) == "the salad"
    assert outcome.warnings == ("repetition", "not_translated")
    assert len(shown) == 2


@pytest.mark.parametrize("sign", [",", ";", "/", "-", ", ", "; ", " "])
def test_the_same_words_many_times_are_shown_once(sign):
    outcome, shown = run(sign.join(["cat"] * 30) + ".", lambda text: text.replace("cat", "chat"))
    assert outcome.nth_text(0) == sign.join(["chat"] * 30) + "."
    assert shown == ["cat."]


@pytest.mark.parametrize("sign", [",", ";", "/"])
def test_a_list_without_spaces_is_translated_item_by_item(sign):
    outcome, shown = run(sign.join(["Save", "Go home", "Help"]), lambda text: text.upper())
    assert outcome.nth_text(0) == sign.join(["SAVE", "GO HOME", "HELP"])
    assert shown == ["Save", "Go home", "Help"]


def test_what_is_too_short_is_translated_in_halves():
    sentence = "the old man went out, and the young man came in"
    outcome, shown = run(sentence, lambda text: text.upper() if len(text) < 30 else "X")
    assert outcome.nth_text(0) == sentence.upper()
    assert len(shown) == 4


def test_a_copy_is_tried_again_and_told():
    outcome, shown = run("the old man", lambda text: text)
    assert outcome.nth_text(0) == "the old man"
    assert outcome.warnings == ("untranslated",)
    assert len(shown) == 2


def test_a_caller_s_limit_of_tokens_is_no_fault():
    def cut(text):
        return "X"

    work = SegmentWork(Vocabulary(TOKENIZER, "en"), DecodingOptions(max_target_tokens=1), max_tokens=100)
    work.add("The old man went out to see the river")
    work.sequences()
    hypothesis = Hypothesis(TOKENIZER.encode("X", "fr").ids, "length")
    work.take([SequenceResult((hypothesis,), "length", SequenceTimings(0, 0, 0), 10, 1)])
    assert work.outcome(0).nth_text(0) == "X"
    assert work.outcome(0).warnings == ()


def test_capitals_come_back_as_capitals():
    outcome, shown = run("CLOSE THE {thing} NOW.", lambda text: text.replace("Close", "Ferme"))
    assert shown == ["Close the 7 now."]
    assert outcome.nth_text(0) == "FERME THE {thing} NOW."


def test_places_of_the_source_are_those_of_the_segment():
    outcome, _ = run("See {name} now.", str.upper)
    (part,) = outcome.parts
    spans = dict(zip(part.encoding.pieces, part.encoding.source_spans, strict=True))
    assert spans["7"] == (4, 10)
    assert spans["."] == (14, 15)
    outcome, _ = run("🎉 See {name} now.", str.upper)
    part = outcome.parts[-1]
    spans = dict(zip(part.encoding.pieces, part.encoding.source_spans, strict=True))
    assert (part.start, spans["S"], spans["7"]) == (2, (2, 3), (6, 12))


def run_with_terms(text, model, terms, kept=()):
    work = SegmentWork(Vocabulary(TOKENIZER, "en"), BEAM, max_tokens=200, terms=Terms(terms))
    work.add(text, kept)
    shown = []
    for _ in range(8):
        sequences = work.sequences()
        results = []
        for sequence in sequences:
            source = TOKENIZER.decode(sequence.source_ids)
            shown.append(source)
            hypothesis = Hypothesis((*TOKENIZER.encode(model(source), "fr").ids, EOS_ID), "stop")
            results.append(SequenceResult((hypothesis,), "stop", SequenceTimings(0, 0, 0), len(source) + 1, 1))
        work.take(results)
    assert not work.sequences()
    return work.outcome(0), shown


def test_a_term_is_hidden_from_the_model_and_comes_back_as_the_glossary_says():
    outcome, shown = run_with_terms("The web is wide.", str.upper, {"web": "toile"})
    assert outcome.nth_text(0) == "THE toile IS WIDE."
    assert shown == ["The 7 is wide."]


def test_a_term_is_there_whatever_the_model_does():
    for model in (without_signs, lambda text: "", lambda text: text * 9):
        outcome, _ = run_with_terms("The web is wide. Webs?", model, {"web": "toile d'araignée", "wide": "large"})
        assert outcome.nth_text(0).count("toile d'araignée") == 1
        assert outcome.nth_text(0).count("large") == 1


def test_a_term_s_translation_may_be_a_word_of_the_model_s_own_too():
    outcome, shown = run_with_terms("A web.", lambda text: text.replace("A", "la toile,"), {"web": "toile"})
    assert outcome.nth_text(0) == "La toile, toile."
    assert len(shown) == 1


def test_places_are_those_of_the_segment_before_its_terms_were_exchanged():
    text = "A web of https://x.org here"
    outcome, _ = run_with_terms(text, str.upper, {"web": "toile d'araignée", "here": "ici"})
    assert outcome.nth_text(0) == "A toile d'araignée OF https://x.org ici"
    (part,) = outcome.parts
    assert (part.start, part.end) == (0, len(text))
    assert [text[slice(*span)] for span in part.encoding.source_spans if span[0] < span[1]][:4] == [
        "A",
        " ",
        "web",
        " ",
    ]
    spans = [(piece.text, text[piece.span.start : piece.span.end]) for piece in part.pieces if piece.span]
    assert spans == [("toile d'araignée", "web"), ("https://x.org", "https://x.org"), ("ici", "here")]


def test_kept_spans_of_the_caller_keep_their_places_beside_terms():
    outcome, _ = run_with_terms("web Kept web", str.upper, {"web": "toile", "kept": "gardé"}, kept=[(4, 8)])
    assert outcome.nth_text(0) == "toile Kept toile"


def test_nothing_but_terms_needs_no_model():
    outcome, shown = run_with_terms("Web", str.upper, {"web": "toile"})
    assert (outcome.nth_text(0), shown) == ("Toile", [])
    (part,) = outcome.parts
    assert (part.start, part.end) == (0, 3)
    assert [(piece.text, piece.span.start, piece.span.end) for piece in part.pieces] == [("Toile", 0, 3)]


def test_a_term_that_comes_to_the_start_gets_the_capital_of_its_source():
    work = SegmentWork(Vocabulary(TOKENIZER, "en"), BEAM, max_tokens=200, terms=Terms({"web": "toile"}))
    for text in ("The web is old.", "the web is old."):
        work.add(text)
    hypothesis = Hypothesis((*TOKENIZER.encode("7 est ancienne.", "fr").ids, EOS_ID), "stop")
    work.take([SequenceResult((hypothesis,), "stop", SequenceTimings(0, 0, 0), 5, 1)] * 2)
    assert [outcome.nth_text(0) for outcome in work.outcomes()] == ["Toile est ancienne.", "toile est ancienne."]


def test_brackets_are_as_close_as_before_and_where_nothing_is_hidden_too():
    outcome, shown = run("He (my brother) met {name} (the king).", str.upper)
    assert outcome.nth_text(0) == "HE (MY BROTHER) MET {name} (THE KING)."
    assert shown == ["He ( my brother ) met 7 ( the king )."]


def test_a_number_is_not_parted_from_the_ending_of_its_ordinal():
    outcome, shown = run("On the 1st, 2020 men met.", without_signs)
    assert "1st" in outcome.nth_text(0)
    assert not any(source.startswith("st") for source in shown)


def written(*texts):
    hypotheses = tuple(Hypothesis((*TOKENIZER.encode(text, "fr").ids, EOS_ID), "stop") for text in texts)
    return SequenceResult(hypotheses, "stop", SequenceTimings(0, 0, 0), 5, 1)


def test_what_was_shown_stands_and_its_rest_is_tried_again():
    work = SegmentWork(Vocabulary(TOKENIZER, "en"), DecodingOptions(), max_tokens=200)
    work.add("the fine old salad")
    begun = TOKENIZER.encode("la salade ", "fr").ids
    assert work.shows_plainly(0)
    work.show(0, begun[:4])
    work.show(0, begun[4:])
    work.take([written("la salade salade salade salade salade salade salade salade")])
    (again,) = work.sequences()
    assert again.forced_prefix == begun
    assert again.options.beam_size > 1
    work.take([written("la salade salade salade salade salade salade salade", "la salade vieille")])
    assert not work.sequences()
    assert work.outcome(0).nth_text(0) == "la salade vieille"
    assert work.outcome(0).warnings == ()


def test_what_was_shown_stands_even_if_nothing_good_begins_with_it():
    work = SegmentWork(Vocabulary(TOKENIZER, "en"), DecodingOptions(), max_tokens=200)
    work.add("the fine old salad")
    loop = "la salade" + 12 * " salade"
    work.show(0, TOKENIZER.encode(loop, "fr").ids)
    for _ in range(2):
        work.take([written(loop)])
    assert not work.sequences()
    assert work.outcome(0).nth_text(0) == loop
    assert work.outcome(0).warnings == ("repetition", "length")


def test_characters_that_no_text_has_are_tried_again_and_never_given_back():
    work = SegmentWork(Vocabulary(TOKENIZER, "en"), DecodingOptions(), max_tokens=200)
    work.add("the fine old salad")
    work.show(0, TOKENIZER.encode("la ", "fr").ids)
    work.take([written("la vieille\ue006 salade\x08")])
    assert len(work.sequences()) == 1
    work.take([written("la \ufffdsalade")])
    assert not work.sequences()
    assert work.outcome(0).nth_text(0) in ("la salade", "la vieille salade")


@pytest.mark.parametrize("text", ["See {name} now.", "I have 3 cats.", "GO HOME NOW"])
def test_what_may_yet_change_is_not_shown(text):
    work = SegmentWork(Vocabulary(TOKENIZER, "en"), DecodingOptions(), max_tokens=200)
    work.add(text)
    assert not work.shows_plainly(0)


def counting(written):
    """A model that knows few numbers in words."""
    return lambda text: text.replace("We see", "On voit").replace("twenty-three", written)


def test_a_number_that_became_another_is_shown_in_digits():
    outcome, shown = run("We see twenty-three.", counting("vingt-quatre"), target="fr")
    assert (outcome.nth_text(0), outcome.warnings, outcome.num_retries) == ("On voit 23.", (), 1)
    assert shown == ["We see twenty-three.", "We see 23."]
    outcome, shown = run("We see twenty-three.", counting("vingt-trois"), target="fr")
    assert (outcome.nth_text(0), len(shown)) == ("On voit vingt-trois.", 1)


def test_a_number_that_stays_wrong_is_told_of():
    outcome, shown = run("We see twenty-three.", lambda text: "On voit dix.", target="fr")
    assert (outcome.nth_text(0), outcome.warnings, len(shown)) == ("On voit dix.", ("number",), 2)


def test_a_number_beside_digits_of_its_own_is_not_taken_for_them():
    outcome, _ = run(
        "We see twenty-three on 2.", lambda text: counting("trois")(text).replace("on", "sur"), target="fr"
    )
    assert (outcome.nth_text(0), outcome.warnings) == ("On voit trois sur 2.", ("number",))


def forgetful(text):
    """A model that knows the colours, and loses what is third in a row."""
    colours = {"red": "rouge", "green": "vert", "blue": "bleu", "white": "blanc"}
    found = [colours.get(word, word) for word in text.split(", ")]
    return ", ".join(found[:2])


def test_a_list_that_lost_something_is_translated_in_halves():
    outcome, shown = run("red, green, blue, white", forgetful, target="fr")
    assert (outcome.nth_text(0), outcome.warnings) == ("rouge, vert, bleu, blanc", ("parted",))
    assert shown[-2:] == ["red, green", "blue, white"]


def test_a_hypothesis_with_all_of_a_list_is_taken_first():
    outcome, shown = run("red, green, blue", lambda _: ["rouge, bleu", "rouge, vert, bleu"], target="fr")
    assert (outcome.nth_text(0), outcome.warnings, len(shown)) == ("rouge, vert, bleu", (), 1)


def test_an_item_that_is_lost_whatever_is_tried_is_told_of():
    outcome, _ = run("We sell ink, and so on, and art.", lambda _: "Encre.", target="fr")
    assert "items" in outcome.warnings or "parted" in outcome.warnings


def test_a_label_keeps_its_word():
    outcome, shown = run("Error 404: not found", lambda text: text.upper().replace("ERROR 404", "404"))
    assert outcome.nth_text(0) == "ERROR 404: NOT FOUND"
    assert shown[-2:] == ["Error", "not found"]
    outcome, shown = run("Note: read this", lambda text: "READ" if ":" in text else text.upper())
    assert (outcome.nth_text(0), shown[-2:]) == ("NOTE: READ THIS", ["Note", "read this"])
    outcome, shown = run("Note: read this", lambda text: "NOTE:" if ":" in text else text.upper())
    assert outcome.nth_text(0) == "NOTE: READ THIS"
    outcome, shown = run("Note: 5", lambda text: "NOTES 5")
    assert (outcome.nth_text(0), len(shown)) == ("NOTES 5", 1)


def test_what_stands_behind_a_number_sign_after_a_sentence_is_translated_apart():
    assert run("It returns.  # note", str.upper)[1] == ["It returns.", "note"]


def test_the_words_beside_an_entity_are_not_lost():
    outcome, shown = run(
        "salt &amp; pepper", lambda text: "sel et poivre" if text == "salt and pepper" else "?", target="fr"
    )
    assert (outcome.nth_text(0), shown) == ("sel &amp; poivre", ["salt and pepper"])


def test_what_stands_behind_a_mark_keeps_the_mark():
    outcome, shown = run("Say {x}: yes, {y}; no", lambda text: without_signs(text).replace(":", "").replace(";", ""))
    assert outcome.nth_text(0) == "SAY {x}: YES, {y}; NO"
    assert shown[-2:] == ["yes,", "no"]


HOT = DecodingOptions(temperature=4.0, seed=7)


def drawn(text, temperatures, options=HOT):
    """A segment's outcome where only draws at these temperatures are any good, and the options of each try."""
    work = SegmentWork(Vocabulary(TOKENIZER, "en"), options, max_tokens=200)
    work.add(text)
    tried = []
    while sequences := work.sequences():
        (sequence,) = sequences
        tried.append(sequence.options)
        good = sequence.options.temperature in temperatures
        written = text.upper() if good else "salad " * 20
        hypothesis = Hypothesis((*TOKENIZER.encode(written, "fr").ids, EOS_ID), "stop")
        work.take([SequenceResult((hypothesis,), "stop", SequenceTimings(0, 0, 0), len(text) + 1, 1)])
    return work.outcome(0), tried


@pytest.mark.parametrize(
    ("good", "tried"), [({4.0}, [4.0]), ({1.0}, [4.0, 1.0]), ({0.5}, [4.0, 1.0, 0.5]), ({0.0}, [4.0, 1.0, 0.5, 0.0])]
)
def test_what_is_drawn_is_drawn_again_before_it_is_searched_and_that_is_told(good, tried):
    outcome, options = drawn("Hello you.", good)
    assert outcome.nth_text(0) == "HELLO YOU."
    assert [each.temperature for each in options] == tried
    assert outcome.warnings == (() if good == {4.0} else ("redrawn",))
    assert {each.seed for each in options} == {7}
    assert [each.beam_size for each in options] == [4 if each == 0.0 else 1 for each in tried]


def test_a_low_temperature_is_halved_too():
    _, options = drawn("Hello you.", {0.0}, options=DecodingOptions(temperature=0.8, top_k=5))
    assert [(each.temperature, each.top_k) for each in options] == [(0.8, 5), (0.4, 5), (0.2, 5), (0.0, None)]


def test_without_is_a_word_even_where_the_model_has_no_slash():
    outcome, shown = run("tea w/o milk", str.upper, tokenizer=SignlessTokenizer())
    assert (outcome.nth_text(0), shown) == ("TEA WITHOUT MILK", ["tea without milk"])


def test_of_hypotheses_that_become_the_same_text_one_is_given():
    written = ["HELLO YOU", "HELLO YOU.", "HI YOU.", "HI YOU!", "HEY YOU."]
    options = DecodingOptions(beam_size=5, num_hypotheses=3)
    outcome, _ = run("Hello you.", lambda _: written, options=options)
    assert [outcome.nth_text(rank) for rank in range(outcome.num_ranks)] == ["HELLO YOU.", "HI YOU.", "HEY YOU."]


@pytest.mark.parametrize("between", [" ", ", ", ",", "\u00a0", "\u202f"])
def test_words_that_come_again_and_again_are_shown_once_whatever_parts_them(between):
    written = {"cat.": "chat.", "cat,": ", chat,"}
    outcome, shown = run(between.join(["cat"] * 5), lambda text: written.get(text, text.replace("cat", "chat")))
    assert outcome.nth_text(0) == between.join(["chat"] * 5)
    assert len(shown) == 1 and shown[0].count("cat") == 1


def test_a_mark_before_the_words_is_not_repeated():
    outcome, shown = run("cat,cat,cat,", lambda _: ", chat,")
    assert outcome.nth_text(0) == "chat,chat,chat,"
