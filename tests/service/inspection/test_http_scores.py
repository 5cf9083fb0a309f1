"""`/v1/score`, `/v1/next`, `/v1/alignment` and `/v1/model` over HTTP."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from model.trace import replay
from tests.service.inspection.conftest import MODELS

TEXT = "The cat eats an apple."
TARGET = "Le chat mange une pomme rouge dans la maison."


@pytest.mark.parametrize("model", MODELS)
def test_a_model_says_what_it_is(server, model):
    found = server.client.get(f"/v1/models/{model}").json()
    config = server.checkpoint(model).config
    for name in ("num_encoder_layers", "num_decoder_layers", "num_heads", "d_model", "d_ff", "norm", "positions"):
        assert found[name] == getattr(config, name)
    assert found["d_k"] * found["num_heads"] == found["d_model"]
    assert found["parameters"] == server.checkpoint(model).model.num_parameters()
    assert found["special_ids"]["eos"] == config.eos_id
    assert found["alignment_recipe"]["is_tuned"] is False


def test_a_model_that_is_not_there_is_named(float_server):
    response = float_server.client.get("/v1/models/none")
    assert response.status_code == 404
    assert "tiny" in response.json()["detail"]
    assert float_server.client.get("/v1/model").status_code == 422  # there are several
    assert float_server.client.get("/v1/model?name=tiny").json()["name"] == "tiny"


@pytest.mark.parametrize("model", MODELS)
def test_a_score_is_the_cross_entropy(float_server, model):
    answer = float_server.json("score", text=TEXT, target_text=TARGET, model=model, label_smoothing=0.1)
    (segment,) = answer["segments"]
    source, target = ([token["id"] for token in segment[f"{side}_tokens"]] for side in ("source", "target"))
    logits = torch.from_numpy(replay(float_server.checkpoint(model).model.eval(), source, target).logits)
    nats = functional.cross_entropy(logits, torch.tensor(target), reduction="none")
    assert [token["nats"] for token in answer["tokens"]] == pytest.approx(nats.tolist(), abs=1e-4)
    assert answer["total_nats"] == pytest.approx(float(nats.sum()), abs=1e-3)
    assert answer["perplexity"] == pytest.approx(math.exp(answer["mean_nats"]))
    assert answer["total_bits"] == pytest.approx(answer["total_nats"] / math.log(2))
    smoothed = functional.cross_entropy(logits, torch.tensor(target), label_smoothing=0.1, reduction="sum")
    assert answer["total_smoothed_nats"] == pytest.approx(float(smoothed), abs=1e-3)
    for token, row, token_id in zip(answer["tokens"], logits, target, strict=True):
        assert token["rank"] == 1 + int((row > row[token_id]).sum())


def test_ids_score_as_the_text_that_they_are(server):
    by_text = server.json("score", text=TEXT, target_text=TARGET)
    ids = [token["id"] for token in by_text["tokens"]]
    by_ids = server.json("score", text=TEXT, target_ids=ids)
    assert by_ids["total_nats"] == by_text["total_nats"]
    assert by_ids["translation"] == TARGET


def test_candidates_are_of_the_whole_vocabulary(server):
    answer = server.json("next", text=TEXT, prefix="Le chat", num_candidates=20)
    candidates = answer["candidates"]
    assert [candidate["rank"] for candidate in candidates[:20]] == list(range(1, 21))
    assert answer["probability_sum"] == pytest.approx(1, abs=1e-5)
    assert all(candidate["text"].startswith("Le chat") for candidate in candidates)
    best = next(candidate for candidate in candidates if candidate["is_permitted"])
    assert answer["greedy_id"] == best["id"]
    greedy = server.json("next", text=TEXT, prefix="Le chat", temperature=0)
    chosen = [candidate for candidate in greedy["candidates"] if candidate["processed_probability"] == 1]
    assert [candidate["id"] for candidate in chosen] == [answer["greedy_id"]]


def test_greedy_clicks_write_the_greedy_translation(server):
    """Choosing the best permitted candidate, again and again, is greedy search."""
    length = 8
    decoded = server.json(
        "attention", text=TEXT, prefix="", decoding={"beam_size": 1, "max_target_tokens": length}, kinds=["cross"]
    )
    expected = [token["id"] for token in decoded["segments"][0]["target_tokens"]]
    prefix = []
    while len(prefix) < len(expected):
        answer = server.json("next", text=TEXT, prefix_ids=prefix, num_candidates=1)
        assert len(answer["segments"][0]["rows"]) == len(prefix) + 1
        prefix.append(answer["greedy_id"])
    assert prefix == expected


def test_one_goes_on_from_a_chosen_token(server):
    second = server.json("next", text=TEXT, num_candidates=5)["candidates"][1]
    answer = server.json("attention", text=TEXT, prefix_ids=[second["id"]], kinds=["cross"], decoding={"beam_size": 2})
    (segment,) = answer["segments"]
    assert segment["target_tokens"][0]["id"] == second["id"]
    assert all(check["passed"] for check in segment["checks"])


def test_alignment_links_words_with_their_places(server):
    answer = server.json("alignment", text=TEXT, target_text=TARGET)
    (segment,) = answer["segments"]
    assert segment["links"]
    for link in segment["links"]:
        source, target = segment["source_words"][link["source_word"]], segment["target_words"][link["target_word"]]
        assert TEXT[slice(*link["source"])] == source["text"]
        assert TARGET[slice(*link["target"])] == target["text"]
        assert not source["is_special"] and not target["is_special"]
        assert 0 < link["score"] <= 1 + 1e-6
    linked = {link["source_word"] for link in segment["links"]}
    words = {word["index"] for word in segment["source_words"] if not word["is_special"]}
    assert set(segment["unaligned_source"]) == words - linked
    assert len(segment["pharaoh"].split()) == len(segment["links"])


def test_an_alignment_by_other_heads_and_methods(server):
    body = {"text": TEXT, "target_text": TARGET, "model": "deep-decoder"}
    best = server.json("alignment", **body, method="argmax", layer=-1, heads=2)
    assert best["recipe"]["heads"] == [[5, 2]]
    maps = server.json(
        "attention", **body, kinds=["cross"], layers=-1, heads=2, granularity="word", special="renormalise"
    )
    (item,) = maps["segments"][0]["maps"]
    values = np.array(item["values"])[0, 0]
    expected = {(item["keys"][row.argmax()], item["queries"][index]) for index, row in enumerate(values)}
    assert {(link["source_word"], link["target_word"]) for link in best["segments"][0]["links"]} == expected
    none = server.json("alignment", **body, method="threshold", threshold=1.0)
    assert none["segments"][0]["links"] == []
