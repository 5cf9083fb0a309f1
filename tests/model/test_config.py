import dataclasses
import json
import math
import re

import pytest

from model.config import ConfigError, TransformerConfig
from tests.model.tiny import VARIATIONS, tiny_config

# field -> (a wrong value, what the message says is allowed)
WRONG = [
    *[
        (name, value, allowed)
        for name in (
            *("source_vocab_size", "target_vocab_size", "d_model", "num_heads", "d_ff"),
            *("num_encoder_layers", "num_decoder_layers"),
        )
        for value, allowed in ((0, "at least 1"), (-1, "at least 1"), (2.0, "a whole number"), (True, "a whole number"))
    ],
    ("d_model", "16", "a whole number"),
    ("num_heads", 3, "a divisor of d_model (16)"),
    ("norm", "rms", "one of pre, post"),
    ("norm", None, "one of pre, post"),
    ("final_norm", 1, "true or false"),
    ("activation", "tanh", "one of relu, gelu, swish"),
    ("gelu_approximation", "erf", "one of none, tanh"),
    ("positions", "alibi", "one of sinusoidal, learned, rotary"),
    ("positions", ["learned"], "one of sinusoidal, learned, rotary"),
    ("sinusoid_layout", "thirds", "one of interleaved, halves"),
    ("max_positions", 10, "absent with sinusoidal"),
    ("max_positions", 1.5, "a whole number"),
    ("embedding_scale", "yes", "true or false"),
    ("share_embeddings", 0, "true or false"),
    ("tie_output", None, "true or false"),
    ("attention_bias", "true", "true or false"),
    ("ffn_bias", 1, "true or false"),
    ("output_bias", 1, "true or false"),
    ("dropout", 1.0, "at least 0 and below 1"),
    ("dropout", -0.1, "at least 0 and below 1"),
    ("dropout", math.nan, "at least 0 and below 1"),
    ("dropout", "0", "a number"),
    ("layer_norm_eps", 0.0, "above 0"),
    ("layer_norm_eps", True, "a number"),
    ("pad_id", 29, "an id from 0 to 28"),
    ("pad_id", -1, "an id from 0 to 28"),
    ("eos_id", 29, "an id from 0 to 28"),
    ("eos_id", 0, "different from pad_id (0)"),
    ("decoder_start_id", 29, "an id from 0 to 28"),
    ("decoder_start_id", "2", "a whole number"),
]


@pytest.mark.parametrize(("field", "value", "allowed"), WRONG)
def test_a_wrong_value_is_refused_with_field_value_and_what_is_allowed(field, value, allowed):
    message = re.escape(f"{field} is {value!r}; it must be ") + ".*" + re.escape(allowed)
    changes = {field: value} | ({"share_embeddings": False} if field.endswith("vocab_size") else {})
    with pytest.raises(ConfigError, match=message):
        tiny_config(**changes)


def test_every_field_is_among_the_wrong_ones():
    assert {field for field, _, _ in WRONG} == {field.name for field in dataclasses.fields(TransformerConfig)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_vocab_size": 31}, r"target_vocab_size is 29; .* equal to source_vocab_size \(31\) when .* shared"),
        ({"positions": "learned"}, "max_positions is None; .* at least 1 with learned positions"),
        ({"positions": "learned", "max_positions": 0}, "max_positions is 0; .* at least 1"),
        ({"positions": "rotary", "max_positions": 9}, "max_positions is 9; .* absent with rotary"),
        ({"d_model": 15, "num_heads": 5}, "d_model is 15; .* even"),
        ({"positions": "rotary", "d_model": 20, "num_heads": 4}, "num_heads is 4; .* d_model / num_heads is even"),
        ({"share_embeddings": False, "source_vocab_size": 10, "eos_id": 10}, "eos_id is 10; .* from 0 to 9"),
    ],
)
def test_fields_that_do_not_fit_together_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny_config(**changes)


@pytest.mark.parametrize("variation", VARIATIONS)
def test_to_dict_and_from_dict_through_json(variation):
    config = tiny_config(**VARIATIONS[variation])
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_from_dict_names_unknown_and_missing_fields():
    with pytest.raises(ConfigError, match="unknown field.* depth, width; known are activation, .*d_model"):
        TransformerConfig.from_dict(tiny_config().to_dict() | {"width": 1, "depth": 2})
    with pytest.raises(ConfigError, match="missing field.* source_vocab_size, target_vocab_size"):
        TransformerConfig.from_dict({"d_model": 16})


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        tiny_config().d_model = 32


def test_defaults_are_the_papers_base_model():
    config = TransformerConfig(source_vocab_size=37_000, target_vocab_size=37_000)
    assert (config.d_model, config.num_heads, config.d_ff, config.head_width) == (512, 8, 2048, 64)
    assert (config.num_encoder_layers, config.num_decoder_layers, config.norm) == (6, 6, "post")
    assert config.embedding_factor == math.sqrt(512)
