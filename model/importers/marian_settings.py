"""What the JSON files of a MarianMT folder say, in our terms; every key of them is understood, or refused by name.

The lists below are the whole of it: keys that are read, keys that must have one value, and keys that change nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.config import Activation, ConfigError, TransformerConfig
from model.description import CheckpointError
from model.marian_tokenizer import EOS, PAD, UNK

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
TOKENIZER_FILE = "tokenizer_config.json"

# --- config.json -----------------------------------------------------------------------------------------------------

_SIZES = (
    *("vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim"),
    *("encoder_attention_heads", "decoder_attention_heads", "max_position_embeddings"),
)
_IDS = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
_REQUIRED = (*_SIZES, *_IDS, "activation_function", "scale_embedding")

# Read where present; else transformers' own default holds.
_OPTIONAL = ("decoder_vocab_size", "share_encoder_decoder_embeddings", "tie_word_embeddings")

_ACTIVATIONS: dict[str, tuple[Activation, str]] = {
    "relu": ("relu", "none"),
    "swish": ("swish", "none"),
    "silu": ("swish", "none"),
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
}

# Any other value would change the arithmetic.
_FIXED: dict[str, object] = {
    "model_type": "marian",
    "is_encoder_decoder": True,
    "is_decoder": False,
    "add_cross_attention": False,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "do_blenderbot_90_layernorm": False,
    "tie_encoder_decoder": False,
    "pruned_heads": {},
    "use_bfloat16": False,
}

# Second names, as older versions wrote them.
_SAME_AS = {
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
}

# Change nothing: training, bookkeeping, what calls in Python return. extra_pos_embeddings was never read for Marian,
# and the bias that add_bias_logits speaks of is among the weights whatever it says.
_HARMLESS = {
    *("_name_or_path", "_commit_hash", "_attn_implementation", "attn_implementation", "architectures"),
    *("transformers_version", "torch_dtype", "dtype", "tokenizer_class", "torchscript", "use_cache"),
    *("dropout", "attention_dropout", "activation_dropout", "classif_dropout", "classifier_dropout"),
    *("encoder_layerdrop", "decoder_layerdrop", "init_std", "gradient_checkpointing", "chunk_size_feed_forward"),
    *("_num_labels", "num_labels", "id2label", "label2id", "problem_type", "finetuning_task", "save_step"),
    *("output_attentions", "output_hidden_states", "output_past", "output_scores", "output_logits"),
    *("return_dict", "return_dict_in_generate", "extra_pos_embeddings", "add_bias_logits"),
    *("bos_token_id", "sep_token_id"),
}

# --- generation_config.json; older folders have these keys in config.json ---------------------------------------------

# For the caller to choose: recorded as what the model's makers advise, under our names.
_ADVISED: dict[str, tuple[str, tuple[type, ...]]] = {
    "num_beams": ("beam_size", (int,)),
    "num_return_sequences": ("num_hypotheses", (int,)),
    "length_penalty": ("length_penalty", (int, float)),
    "early_stopping": ("early_stopping", (bool,)),
    "no_repeat_ngram_size": ("no_repeat_ngram_size", (int,)),
    "repetition_penalty": ("repetition_penalty", (int, float)),
    "max_length": ("max_target_tokens", (int,)),
    "max_new_tokens": ("max_target_tokens", (int,)),
    "min_length": ("min_target_tokens", (int,)),
    "min_new_tokens": ("min_target_tokens", (int,)),
    "do_sample": ("do_sample", (bool,)),
    "temperature": ("temperature", (int, float)),
    "top_k": ("top_k", (int,)),
    "top_p": ("top_p", (int, float)),
}
_COUNT_THE_START_TOKEN = ("max_length", "min_length")

# Would change the search, unless they are off.
_OFF: dict[str, object] = {
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "diversity_penalty": 0.0,
    "num_beam_groups": 1,
    "penalty_alpha": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "guidance_scale": 1.0,
    "remove_invalid_values": False,
    "force_bos_token_to_be_generated": False,
    "suppress_tokens": [],
    "begin_suppress_tokens": [],
}
_GENERATION_READ = ("bad_words_ids", "forced_eos_token_id", "renormalize_logits")
_GENERATION_KEYS = {*_IDS, *_GENERATION_READ, *_ADVISED, *_OFF}

# --- tokenizer_config.json -------------------------------------------------------------------------------------------

_TOKENIZER_FIXED: dict[str, object] = {
    "tokenizer_class": "MarianTokenizer",
    "eos_token": EOS,
    "unk_token": UNK,
    "pad_token": PAD,
    "sp_model_kwargs": {},
}
_TOKENIZER_READ = {"source_lang", "target_lang", "separate_vocabs"}
# Paths, and what a caller in Python may have done to a text after it was cut or decoded.
_TOKENIZER_HARMLESS = {
    *("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens", "special_tokens_map_file"),
    *("model_max_length", "padding_side", "truncation_side", "clean_up_tokenization_spaces", "split_special_tokens"),
    *("name_or_path", "tokenizer_file", "source_spm", "target_spm", "vocab", "vocab_file", "target_vocab_file"),
    *("processor_class", "backend", "is_local", "local_files_only", "model_input_names", "use_fast"),
}


class MarianImportError(CheckpointError):
    """A folder cannot be imported; the message names the file, and the key or tensor. Nothing was written."""


@dataclass(frozen=True)
class MarianSettings:
    """What config.json and generation_config.json say.

    Attributes:
        config: Shape and arithmetic, in our terms.
        max_source_tokens: Positions that the model was trained with.
        renormalizes: Probabilities are those among tokens other than the padding.
        advice: Decoding options that the makers chose, under our names.
    """

    config: TransformerConfig
    max_source_tokens: int
    renormalizes: bool
    advice: Mapping[str, Any]


@dataclass(frozen=True)
class MarianTokenizerSettings:
    """What tokenizer_config.json says; None where it says nothing, or there is none.

    Attributes:
        source_language: As it is called there.
        target_language: As it is called there.
        separate_vocabularies: The target has a vocabulary of its own.
    """

    source_language: str | None = None
    target_language: str | None = None
    separate_vocabularies: bool | None = None


def read_settings(folder: Path) -> MarianSettings:
    """Read config.json and, where there is one, generation_config.json.

    Raises:
        MarianImportError: Naming the file and the key.
    """
    path = folder / CONFIG_FILE
    values = _read_json(path)
    missing = [key for key in _REQUIRED if values.get(key) is None]
    if missing:
        raise MarianImportError(f"{path}: has no {', '.join(missing)}")
    _check_known(values, {*_REQUIRED, *_OPTIONAL, *_FIXED, *_SAME_AS, *_HARMLESS, *_GENERATION_KEYS}, path)
    _check_fixed(values, _FIXED, path)
    for key, meaning in _SAME_AS.items():
        if values.get(key, values[meaning]) != values[meaning]:
            raise MarianImportError(f"{path}: {key} is {values[key]!r}, but {meaning} is {values[meaning]!r}")
    config = _transformer_config(values, path)

    generation, generation_path = values, path
    if (folder / GENERATION_FILE).exists():  # which then is all that counts, as in transformers
        generation_path = folder / GENERATION_FILE
        generation = _read_json(generation_path)
        _check_known(generation, {"_from_model_config", *_GENERATION_KEYS, *_HARMLESS}, generation_path)
    _check_generation(generation, config, generation_path)
    return MarianSettings(
        config=config,
        max_source_tokens=values["max_position_embeddings"],
        renormalizes=generation.get("renormalize_logits") is True,
        advice=_advice(generation, generation_path),
    )


def read_tokenizer_settings(folder: Path) -> MarianTokenizerSettings:
    """Read tokenizer_config.json, where there is one.

    Raises:
        MarianImportError: Naming the file and the key.
    """
    path = folder / TOKENIZER_FILE
    if not path.exists():
        return MarianTokenizerSettings()
    values = {key: _token_text(value) for key, value in _read_json(path).items()}
    _check_known(values, {*_TOKENIZER_FIXED, *_TOKENIZER_READ, *_TOKENIZER_HARMLESS}, path)
    _check_fixed(values, _TOKENIZER_FIXED, path)
    for key in ("source_lang", "target_lang"):
        if not isinstance(values.get(key), str | None):
            raise MarianImportError(f"{path}: {key} is {values[key]!r}; it must be a string")
    return MarianTokenizerSettings(
        source_language=values.get("source_lang") or None,
        target_language=values.get("target_lang") or None,
        separate_vocabularies=_flag(values, "separate_vocabs", None, path),
    )


def _transformer_config(values: Mapping[str, Any], path: Path) -> TransformerConfig:
    for key in (*_SIZES, *_IDS):
        lowest = 0 if key in _IDS else 1
        if not isinstance(values[key], int) or isinstance(values[key], bool) or values[key] < lowest:
            raise MarianImportError(f"{path}: {key} is {values[key]!r}; it must be a whole number from {lowest}")
    shared = _flag(values, "share_encoder_decoder_embeddings", True, path)
    tied = _flag(values, "tie_word_embeddings", True, path)
    if shared and not tied:
        raise MarianImportError(
            f"{path}: tie_word_embeddings is False; with share_encoder_decoder_embeddings only True can be imported"
        )
    for key in ("ffn_dim", "attention_heads"):
        encoder, decoder = values[f"encoder_{key}"], values[f"decoder_{key}"]
        if encoder != decoder:
            raise MarianImportError(
                f"{path}: encoder_{key} is {encoder} and decoder_{key} is {decoder}; only equal ones can be imported"
            )
    if values["decoder_start_token_id"] != values["pad_token_id"]:
        raise MarianImportError(
            f"{path}: decoder_start_token_id is {values['decoder_start_token_id']}; "
            f"only pad_token_id, which is {values['pad_token_id']}, can be imported"
        )
    function = values["activation_function"]
    if not isinstance(function, str) or function not in _ACTIVATIONS:
        raise MarianImportError(
            f"{path}: activation_function is {function!r}; it must be one of {', '.join(_ACTIVATIONS)}"
        )
    activation, approximation = _ACTIVATIONS[function]
    fields = {
        "source_vocab_size": values["vocab_size"],
        "target_vocab_size": values.get("decoder_vocab_size") or values["vocab_size"],
        "d_model": values["d_model"],
        "num_heads": values["encoder_attention_heads"],
        "d_ff": values["encoder_ffn_dim"],
        "num_encoder_layers": values["encoder_layers"],
        "num_decoder_layers": values["decoder_layers"],
        "norm": "post",
        "final_norm": False,
        "activation": activation,
        "gelu_approximation": approximation,
        "positions": "sinusoidal",
        "sinusoid_layout": "halves",
        "embedding_scale": _flag(values, "scale_embedding", False, path),
        "share_embeddings": shared,
        "tie_output": tied,
        "output_bias": True,
        "pad_id": values["pad_token_id"],
        "eos_id": values["eos_token_id"],
        "decoder_start_id": values["decoder_start_token_id"],
    }
    try:
        return TransformerConfig.from_dict(fields)
    except ConfigError as error:
        raise MarianImportError(f"{path}: in our terms, {error}") from error


def _check_generation(values: Mapping[str, Any], config: TransformerConfig, path: Path) -> None:
    _check_fixed(values, _OFF, path)
    allowed: dict[str, tuple[object, ...]] = {
        "pad_token_id": (config.pad_id,),
        "eos_token_id": (config.eos_id, [config.eos_id]),
        "decoder_start_token_id": (config.decoder_start_id,),
        "forced_eos_token_id": (config.eos_id, [config.eos_id]),
        "bad_words_ids": ([[config.pad_id]],),
        "renormalize_logits": (True, False),
    }
    for key, choices in allowed.items():
        if values.get(key) is not None and values[key] not in choices:
            raise MarianImportError(f"{path}: {key} is {values[key]!r}; only {choices[0]!r} can be imported")


def _advice(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    advice: dict[str, Any] = {}
    for key, (name, types) in _ADVISED.items():
        value = values.get(key)
        if value is None:
            continue
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            kinds = " or ".join(kind.__name__ for kind in types)
            raise MarianImportError(f"{path}: {key} is {value!r}; it must be of the type {kinds}")
        advice[name] = max(0, values[key] - 1) if key in _COUNT_THE_START_TOKEN else value
    return advice


def _token_text(value: object) -> Any:
    """Some versions write a special token as an object with its text and flags."""
    return value["content"] if isinstance(value, dict) and "content" in value else value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise MarianImportError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise MarianImportError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(values, dict):
        raise MarianImportError(f"{path}: holds {type(values).__name__}, not an object")
    return values


def _check_known(values: Mapping[str, Any], known: set[str], path: Path) -> None:
    """Refuse keys that are in no list; a null says nothing."""
    unknown = sorted(key for key in values if key not in known and values[key] is not None)
    if unknown:
        given = ", ".join(f"{key} ({json.dumps(values[key])[:60]})" for key in unknown)
        raise MarianImportError(f"{path}: keys that are not understood, and might change the translations: {given}")


def _check_fixed(values: Mapping[str, Any], fixed: Mapping[str, object], path: Path) -> None:
    for key, wanted in fixed.items():
        if values.get(key) is not None and values[key] != wanted:
            raise MarianImportError(f"{path}: {key} is {values[key]!r}; only {wanted!r} can be imported")


def _flag(values: Mapping[str, Any], key: str, default: bool | None, path: Path) -> bool | None:
    value = values.get(key)
    if value is not None and not isinstance(value, bool):
        raise MarianImportError(f"{path}: {key} is {value!r}; it must be true or false")
    return default if value is None else value
