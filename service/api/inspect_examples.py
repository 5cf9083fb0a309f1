"""Requests and answers of the endpoints that look inside, for OpenAPI; a test runs and compares them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from service.inspection.maps import MEDIA_TYPES

_TEXT = "The plant needs more sunlight."

ATTENTION: dict[str, Any] = {
    "cross": {
        "summary": "Cross-attention of the last layer, all heads",
        "value": {"text": _TEXT, "target": "fr", "kinds": ["cross"], "layers": -1, "decimals": 4},
    },
    "words": {
        "summary": "By words, without special tokens, the mean of all heads",
        "value": {
            "text": _TEXT,
            "target": "fr",
            "kinds": ["cross"],
            "aggregate": "mean",
            "granularity": "word",
            "special": "renormalise",
            "decimals": 3,
        },
    },
    "forced": {
        "summary": "A translation of your own",
        "value": {
            "text": _TEXT,
            "target_text": "La plante a besoin de lumière.",
            "kinds": ["decoder", "cross"],
            "layers": "0-1",
            "heads": [0, -1],
        },
    },
    "hypothesis": {
        "summary": "The second best hypothesis of a beam",
        "value": {"text": _TEXT, "hypothesis": 1, "decoding": {"beam_size": 4}, "kinds": ["cross"], "layers": -1},
    },
}
HEATMAP: dict[str, Any] = {
    "one": {
        "summary": "One map",
        "value": {"text": _TEXT, "target": "fr", "kinds": ["cross"], "layers": -1, "aggregate": "mean"},
    },
    "atlas": {
        "summary": "All layers and heads of the encoder",
        "value": {"text": _TEXT, "target": "fr", "kinds": ["encoder"], "theme": "dark", "scale": "row"},
    },
}
ALIGNMENT: dict[str, Any] = {
    "recipe": {"summary": "By the model's recipe", "value": {"text": _TEXT, "target": "fr"}},
    "one head": {
        "summary": "By one head, each word's best partner",
        "value": {"text": _TEXT, "target": "fr", "method": "argmax", "layer": -1, "heads": 0},
    },
}
TRACE: dict[str, Any] = {
    "softmax": {
        "summary": "One row of scores becoming weights, at half the temperature",
        "value": {
            "text": _TEXT,
            "target": "fr",
            "stations": ["softmax"],
            "kind": "cross",
            "layer": -1,
            "position": 1,
            "what_if": {"temperature": 0.5},
        },
    },
    "decoding": {
        "summary": "What was chosen from, and what it costs",
        "value": {"text": _TEXT, "stations": [13, 14], "position": 2, "top_k": 5, "arrays": "none"},
    },
    "all": {
        "summary": "All 15 stations, without their arrays",
        "value": {"text": _TEXT, "stations": "all", "arrays": "none"},
    },
}
SCORE: dict[str, Any] = {
    "translation": {
        "summary": "A translation of your own",
        "value": {"text": _TEXT, "target_text": "La plante a besoin de plus de lumière."},
    },
}
NEXT: dict[str, Any] = {
    "prefix": {
        "summary": "After two words",
        "value": {"text": _TEXT, "prefix": "La plante", "num_candidates": 5},
    },
    "first": {"summary": "The first token", "value": {"text": _TEXT, "num_candidates": 5}},
}


def _answers() -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(Path(__file__).with_suffix(".json").read_bytes())
    return found


def _answer(name: str) -> dict[str, Any]:
    """What OpenAPI says of status 200."""
    return {"content": {"application/json": {"example": _ANSWERS[name]}}}


_ANSWERS = _answers()
"""Answers of the bundled model to the first example of each path, shortened: lists to their first items."""

MODEL_ANSWER = _answer("model")
ATTENTION_ANSWER = _answer("attention")
ATTENTION_ANSWER["content"] |= {media_type: {} for name, media_type in MEDIA_TYPES.items() if name != "json"}
ALIGNMENT_ANSWER = _answer("alignment")
TRACE_ANSWER = _answer("trace")
TRACE_ANSWER["content"] |= {MEDIA_TYPES["safetensors"]: {}, "application/x-npz": {}}
SCORE_ANSWER = _answer("score")
NEXT_ANSWER = _answer("next")
