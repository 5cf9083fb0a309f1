import json
import random
import sys

import numpy as np
import pytest

from model.alignment import GoldAlignment
from model.training import aligner
from model.training.aligner import Aligner, Rounds, grow_diag_final_and, in_words_of
from model.training.links import read_linked_pairs, word_spans

_NOUNS = {"cat": "chat", "dog": "chien", "horse": "cheval", "bird": "oiseau", "fish": "poisson", "mouse": "rat"}
_ADJECTIVES = {"black": "noir", "white": "blanc", "green": "vert", "grey": "gris", "small": "petit"}
_VERBS = {"sees": "voit", "eats": "mange", "likes": "aime", "finds": "trouve"}


def swapped_pairs(count: int) -> tuple[list[tuple[str, str]], list[set[tuple[int, int]]]]:
    """Sentences whose adjectives stand before the noun on one side and behind it on the other."""
    generator = random.Random(1)
    pairs, links = [], []
    for _ in range(count):
        first, last = generator.sample(sorted(_NOUNS), 2)
        adjective, verb = generator.choice(sorted(_ADJECTIVES)), generator.choice(sorted(_VERBS))
        pairs.append(
            (
                f"The {adjective} {first} {verb} a {last}.",
                f"Le {_NOUNS[first]} {_ADJECTIVES[adjective]} {_VERBS[verb]} un {_NOUNS[last]}.",
            )
        )
        links.append({(0, 0), (1, 2), (2, 1), (3, 3), (4, 4), (5, 5), (6, 6)})
    return pairs, links


@pytest.mark.parametrize("join", ["product", "grow-diag-final-and"])
def test_swapped_words_are_aligned_without_a_dictionary(join):
    pairs, links = swapped_pairs(300)
    model = Aligner(pairs)
    model.train(Rounds(uniform=3, diagonal=3, hmm=3))
    found = model.links(join)
    assert sum(mine == theirs for mine, theirs in zip(found, links, strict=True)) >= 290


def test_what_was_learned_from_some_pairs_aligns_all():
    pairs, links = swapped_pairs(300)
    model = Aligner(pairs)
    model.train(Rounds(uniform=3, diagonal=3, hmm=3), learn_from=100)
    assert sum(mine == theirs for mine, theirs in zip(model.links(), links, strict=True)) >= 290


@pytest.mark.parametrize("model", ["uniform", "diagonal", "hmm"])
def test_every_word_has_one_partner_in_all_and_each_round_explains_the_pairs_better(model):
    learner = Aligner(swapped_pairs(50)[0])
    for direction in learner._directions:
        rates = [direction.update(learner._shapes, model) for _ in range(4)]
        # From the second round on: the first table is no distribution, and so its rate is none.
        assert rates[1] < rates[2] < rates[3] < 0
        posterior, _ = direction.posterior(learner._shapes[0].cells[direction.index], model)
        np.testing.assert_allclose(posterior.sum(axis=2), 1, atol=1e-4)


def test_the_markov_model_gives_the_probabilities_of_all_paths_written_out():
    """Two words, three states, every path by hand: forward and backward may not err."""
    learner = Aligner([("one two three", "un deux")])
    direction = learner._directions[0]
    generator = np.random.default_rng(1)
    direction.table = generator.random(len(direction.table)).astype(np.float32)
    direction.jumps = generator.random(len(direction.jumps))
    cells = learner._shapes[0].cells[0]
    posterior, log_prob = direction.posterior(cells, "hmm")

    emission, empty = direction.table[cells][0], 0.08
    middle = len(direction.jumps) // 2
    moves = np.array([[direction.jumps[middle + to - start] for to in range(3)] for start in range(3)])
    moves /= moves.sum(axis=1, keepdims=True)
    expected, total = np.zeros((2, 4)), 0.0
    for a, b in np.ndindex(6, 6):  # a state and whether it is linked
        path = (1 / 3) * ((1 - empty) * emission[0, a % 3] if a < 3 else empty * emission[0, 3])
        path *= (1 - empty) * moves[a % 3, b] * emission[1, b] if b < 3 else empty * emission[1, 3] * (a % 3 == b % 3)
        expected[0, a if a < 3 else 3] += path
        expected[1, b if b < 3 else 3] += path
        total += path
    np.testing.assert_allclose(posterior[0], expected / total, rtol=1e-4)
    assert log_prob[0] == pytest.approx(np.log(total), rel=1e-4)


def test_pairs_that_are_too_long_or_empty_have_no_links():
    pairs, _ = swapped_pairs(20)
    model = Aligner([*pairs, ("a " * 40, "un"), ("", "rien")], longest=30)
    model.train(Rounds(1, 1, 1))
    assert all(model.links()[:20])
    assert model.links()[20:] == [set(), set()]


def test_words_that_were_not_learned_are_placed_by_their_neighbours():
    pairs, _ = swapped_pairs(200)
    unseen = ("The qwert yuiop asdfg a hjkl.", "Le zxcvb nmqwe rtzui un oplkj.")
    model = Aligner([*pairs, pairs[0], unseen])
    # Of each shape the first pairs are learned from, so not the last one.
    model.train(Rounds(uniform=3, diagonal=3, hmm=3), learn_from=150)
    assert {(0, 0), (4, 4), (6, 6)} <= model.links()[-1]
    for _, by_first, by_second in model.posteriors():
        assert np.isfinite(by_first).all()
        assert np.isfinite(by_second).all()


def test_growing_takes_neighbours_of_the_union_and_then_words_that_are_free_on_both_sides():
    both = {(0, 0)}
    grown = grow_diag_final_and(both | {(1, 1), (4, 4), (0, 3)}, both | {(2, 2), (0, 5)})
    # (1, 1) and then (2, 2) are neighbours; (4, 4) is free on both sides; word 0 is taken when (0, 3), (0, 5) come.
    assert grown == {(0, 0), (1, 1), (2, 2), (4, 4)}


def test_links_are_told_in_the_words_of_a_gold_alignment():
    gold = GoldAlignment(
        "I'm ok", "Je vais bien", ((0, 1), (1, 3), (4, 6)), ((0, 2), (3, 12)), frozenset(), frozenset()
    )
    assert word_spans(gold.source) == [(0, 3), (4, 6)]
    assert in_words_of(gold, {(0, 0), (1, 2)}) == {(0, 0), (1, 0), (2, 1)}


def test_the_command_writes_links_for_every_line_and_judges_them(tmp_path, monkeypatch, capsys):
    pairs = list(dict.fromkeys(swapped_pairs(150)[0]))
    data = tmp_path / "train.tsv"
    # The second source has no weight: its lines stay without links.
    data.write_text("".join(f"{'a' if n % 4 else 'b'}\t{en}\t{fr}\n" for n, (en, fr) in enumerate(pairs)), "utf-8")
    settings = tmp_path / "run.toml"
    settings.write_text(
        'name = "x"\nsource_language = "en"\ntarget_language = "fr"\n[guided_alignment]\nlinks = "links"\n'
        '[data]\ntrain = ["train.tsv"]\ndev = "train.tsv"\n[data.sources]\na = 1.0\n'
    )
    gold = tmp_path / "gold.jsonl"
    spans = [word_spans(text) for text in pairs[1]]
    links = [[0, 0], [1, 2], [2, 1], [3, 3], [4, 4], [5, 5], [6, 6]]
    gold.write_text(
        json.dumps(
            {"source": pairs[1][0], "target": pairs[1][1], "source_words": spans[0], "target_words": spans[1],
             "sure": links, "possible": []}
        )
    )  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["aligner", str(settings), "--gold", str(gold)])
    aligner.main()
    assert "AER of 1 pairs: 0.0 %" in capsys.readouterr().out
    read = list(read_linked_pairs(data, tmp_path / "links"))
    assert [bool(pair.links) for pair in read] == [bool(n % 4) for n in range(len(pairs))]
    assert set(read[1].links) == {tuple(link) for link in links}
