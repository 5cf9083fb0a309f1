from model.training.data import SentencePair
from model.training.rare import rare_pairs


def test_pairs_with_a_word_that_is_rare_but_not_a_name_are_chosen():
    common = [SentencePair("tatoeba", f"I see a house, number {'x' * index}.", "Je vois.") for index in range(1, 9)]
    rare = [SentencePair("tatoeba", "The plant grows.", "La plante pousse.")] * 2
    names = [SentencePair("tatoeba", "I see a house, Zelda.", "Je vois.")] * 2
    once = [SentencePair("tatoeba", "I see a hosue.", "Je vois.")]
    chosen = list(rare_pairs([*common, *rare, *names, *once], lowest=2, highest=3))
    assert chosen == [SentencePair("tatoeba-rare", "The plant grows.", "La plante pousse.")] * 2
