from model.training.data import SentencePair
from model.training.rare import misleading_pairs, rare_pairs


def test_pairs_with_a_word_that_is_rare_but_not_a_name_are_chosen():
    common = [SentencePair("tatoeba", f"I see a house, number {'x' * index}.", "Je vois.") for index in range(1, 9)]
    rare = [SentencePair("tatoeba", "The plant grows.", "La plante pousse.")] * 2
    names = [SentencePair("tatoeba", "I see a house, Zelda.", "Je vois.")] * 2
    once = [SentencePair("tatoeba", "I see a hosue.", "Je vois.")]
    chosen = list(rare_pairs([*common, *rare, *names, *once], lowest=2, highest=3))
    assert chosen == [SentencePair("tatoeba-rare", "The plant grows.", "La plante pousse.")] * 2


def test_what_is_rare_may_be_asked_of_the_other_side():
    common = [SentencePair("tatoeba", f"The plant {'x' * index}.", "La plante pousse bien.") for index in range(1, 9)]
    rare = [SentencePair("tatoeba", "The plant.", "Le robinet fuit.")] * 2
    assert list(rare_pairs([*common, *rare], lowest=2, highest=3)) == []
    chosen = list(rare_pairs([*common, *rare], lowest=2, highest=3, side="second"))
    assert chosen == [SentencePair("tatoeba-rare", "The plant.", "Le robinet fuit.")] * 2


class _Splitter:
    """Splits "plant" into "plan" and "t", as a small vocabulary does; every other word is one piece."""

    def encode_ids(self, word, language):
        self.words = ["plan", "t"] if word == "plant" else [word]
        return list(range(len(self.words)))

    def decode(self, ids):
        return "".join(self.words[index] for index in ids)


def test_only_words_that_begin_with_a_common_word_s_piece_mislead():
    common = [SentencePair("tatoeba", "we plan it", "on planifie")] * 120
    plant = [SentencePair("tatoeba", "a plant grows", "une plante pousse")] * 3
    other = [SentencePair("tatoeba", "a window opens", "une fenêtre s'ouvre")] * 3
    chosen = list(misleading_pairs([*common, *plant, *other], _Splitter(), lowest=2, highest=10))
    assert chosen == [SentencePair("tatoeba-split", pair.first, pair.second) for pair in plant]
    assert list(misleading_pairs([*plant, *other], _Splitter(), lowest=2, highest=10)) == []
