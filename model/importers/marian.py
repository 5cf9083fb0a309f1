"""A Hugging Face MarianMT folder, such as one of OPUS-MT, to a checkpoint of ours.

    import_marian(Path("opus-mt-en-fr"), Path("models/en-fr"))

The checkpoint computes what `MarianMTModel` of transformers 5.24 does: tests compare logits, greedy and beam search.
What could change that and is not understood is an error that names the file and the key, and then nothing is written.
"""

from __future__ import annotations

import dataclasses
import functools
import pickle
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from model.checkpoint import write_checkpoint
from model.config import TransformerConfig
from model.description import CheckpointError, Description, MarianFiles, open_tokenizer, read_file
from model.importers.marian_settings import (
    TOKENIZER_FILE,
    MarianImportError,
    MarianSettings,
    MarianTokenizerSettings,
    read_settings,
    read_tokenizer_settings,
)
from model.layers import sinusoids
from model.marian_tokenizer import MarianTokenizer, UnknownTargetTag, find_tag
from model.tokenizer import TokenizerModelError
from model.transformer import Transformer

__all__ = ["MarianImportError", "import_marian"]

WEIGHTS_FILES = ("model.safetensors", "pytorch_model.bin")
SOURCE_MODEL, TARGET_MODEL = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
README = "README.md"

IMPOSSIBLE_LOGIT = -1e4
"""Bias of a token that is to have no probability: finite in every number format, and exp() of it is 0."""


def import_marian(
    folder: Path,
    output: Path,
    *,
    name: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    target_tag: str | None = None,
) -> Description:
    """Turn a MarianMT folder into a checkpoint.

    The weights keep their number format. Where generation_config.json says `renormalize_logits`, the padding's bias
    becomes `IMPOSSIBLE_LOGIT`. It is never written anyway; so its share of the probability falls to the other tokens,
    as it does in transformers.

    Args:
        folder: Holds config.json, model.safetensors or pytorch_model.bin, source.spm, target.spm, vocab.json and, with
            separate vocabularies, target_vocab.json; also read are generation_config.json, tokenizer_config.json and
            README.md, which becomes the model card.
        output: Where the checkpoint will be. An earlier one is replaced, anything else is left alone.
        name: What requests call the model; None takes the folder's name.
        source_language: Code of what it reads; None takes the tokenizer's `source_lang`.
        target_language: Code of what it writes; None takes the tokenizer's `target_lang`. Of a model with several
            targets it is the one that is meant unless a request chooses.
        target_tag: The tag of that language, without `>>` and `<<`; None finds it by the code (see `find_tag`), and
            the empty text puts no tag before sources although the vocabulary has some.

    Returns:
        What the checkpoint says of itself.

    Raises:
        MarianImportError: The folder cannot be imported.
        CheckpointError: `output` cannot be written.
    """
    folder, output = Path(folder), Path(output)
    if not folder.is_dir():
        raise MarianImportError(f"{folder}: {'not a folder' if folder.exists() else 'there is no such folder'}")
    settings, tokenizer_settings = read_settings(folder), read_tokenizer_settings(folder)
    target_language = target_language or _required_language(tokenizer_settings.target_language, "target", folder)
    description = Description(
        name=name or folder.resolve().name,
        source_language=source_language or _required_language(tokenizer_settings.source_language, "source", folder),
        target_language=target_language,
        config=settings.config,
        tokenizer=_tokenizer_files(folder, settings.config, tokenizer_settings, target_language, target_tag),
        training={"imported_from": "marian", "advised_decoding": dict(settings.advice)},
        max_source_tokens=settings.max_source_tokens,
    )
    try:
        open_tokenizer(folder, description)
        tokenizer_contents = [read_file(folder / file) for file in description.tokenizer.files]
        card = read_file(folder / README).decode(errors="replace") if (folder / README).exists() else None
    except CheckpointError as error:
        raise MarianImportError(str(error)) from error
    model, dtype = _read_model(folder, settings)
    write_checkpoint(output, model, description, tokenizer_contents, dtype=dtype, model_card=card)
    return description


def _required_language(language: str | None, side: str, folder: Path) -> str:
    if language is None:
        raise MarianImportError(f"{folder / TOKENIZER_FILE}: names no {side}_lang; give the {side} language's code")
    return language


def _tokenizer_files(
    folder: Path,
    config: TransformerConfig,
    settings: MarianTokenizerSettings,
    target_language: str,
    target_tag: str | None,
) -> MarianFiles:
    """The tokenizer's files, and the tag that sources get."""
    is_separate = settings.separate_vocabularies
    if is_separate is None:
        sizes_differ = config.source_vocab_size != config.target_vocab_size
        is_separate = sizes_differ or (not config.share_embeddings and (folder / TARGET_VOCABULARY).exists())
    if is_separate and config.share_embeddings:
        raise MarianImportError(
            f"{folder / TOKENIZER_FILE}: separate_vocabs is True, but share_encoder_decoder_embeddings is as well"
        )
    files = MarianFiles(SOURCE_MODEL, TARGET_MODEL, VOCABULARY, TARGET_VOCABULARY if is_separate else None)
    try:
        tags = MarianTokenizer(*(folder / file for file in files.files), target_language=target_language).target_tags
        if target_tag or (tags and target_tag is None):
            target_tag = find_tag(tags, target_tag or target_language)
    except TokenizerModelError as error:
        raise MarianImportError(str(error)) from error
    except UnknownTargetTag as error:
        raise MarianImportError(f"{folder / VOCABULARY}: {error}") from error
    return dataclasses.replace(files, target_tags=tags, target_tag=target_tag or None)


# --- weights ---------------------------------------------------------------------------------------------------------


def _read_model(folder: Path, settings: MarianSettings) -> tuple[Transformer, torch.dtype]:
    """The model, and a number format that holds all its weights."""
    config = settings.config
    path, tensors = _read_tensors(folder)
    _remove_positions(tensors, config, path)
    _remove_copies(tensors, config, path)
    sources = _sources(config)
    _check_names(tensors, {name for names in sources.values() for name in names}, path)
    with torch.device("meta"):
        model = Transformer(config)
    loaded: dict[nn.Parameter, nn.Parameter] = {}
    for name, empty in list(model.named_parameters(remove_duplicate=False)):
        if empty not in loaded:  # a tied weight is met first under the name that is in `sources`
            loaded[empty] = nn.Parameter(_joined(tensors, sources[name], empty.shape, path), requires_grad=False)
        owner, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(owner), attribute, loaded[empty])
    if settings.renormalizes:
        model.get_parameter("output.bias")[config.pad_id] = IMPOSSIBLE_LOGIT
    return model.eval(), functools.reduce(torch.promote_types, (weight.dtype for weight in model.parameters()))


def _read_tensors(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    path = next((folder / file for file in WEIGHTS_FILES if (folder / file).exists()), None)
    if path is None:
        index = next(folder.glob("*.index.json"), None)
        hint = f"; weights in several files, of which {index.name} speaks, cannot be imported" if index else ""
        raise MarianImportError(f"{folder}: has neither {' nor '.join(WEIGHTS_FILES)}{hint}")
    try:
        if path.suffix == ".safetensors":
            return path, safetensors.torch.load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except safetensors.SafetensorError as error:
        raise MarianImportError(f"{path}: truncated or not a safetensors file ({error})") from error
    # Whatever torch's readers of zip files and pickles raise.
    except (OSError, EOFError, RuntimeError, ValueError, LookupError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise MarianImportError(f"{path}: damaged, or holds more than weights ({reason})") from error
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise MarianImportError(f"{path}: holds something else than tensors by name")
    return path, dict(tensors)


def _remove_positions(tensors: dict[str, Tensor], config: TransformerConfig, path: Path) -> None:
    """Take the position tables of older files out, once they are seen to be the sinusoids that we compute."""
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        table = tensors.pop(name, None)
        if table is None:
            continue
        expected = sinusoids(0, len(table), config.d_model, config.sinusoid_layout)
        # Within 2e-3, for they may be in float16.
        if table.shape != expected.shape or not torch.allclose(table.float(), expected, rtol=0.0, atol=2e-3):
            raise MarianImportError(
                f"{path}: tensor {name} of shape {tuple(table.shape)} does not hold "
                f"Marian's sinusoids of shape {tuple(expected.shape)}"
            )


def _remove_copies(tensors: dict[str, Tensor], config: TransformerConfig, path: Path) -> None:
    """Leave one name of each tied weight: writers differ in which they keep, and some keep all."""
    names = ["model.decoder.embed_tokens.weight"]
    if config.share_embeddings:
        names = ["model.shared.weight", "model.encoder.embed_tokens.weight", *names]
    if config.tie_output:
        names.append("lm_head.weight")
    present = [name for name in names if name in tensors]
    if not present:
        return
    kept = tensors.pop(present[0])
    for name in present[1:]:
        copy = tensors.pop(name)
        if not torch.equal(copy, kept):
            raise MarianImportError(
                f"{path}: tensors {present[0]} of shape {tuple(kept.shape)} and {name} of shape {tuple(copy.shape)} "
                "differ, but the configuration ties them"
            )
    tensors[names[0]] = kept


def _sources(config: TransformerConfig) -> dict[str, list[str]]:
    """For each of our weights, by name, the tensors that stand above one another in it."""
    sources = {"output.bias": ["final_logits_bias"]}
    if config.share_embeddings:
        sources["source_embedding.weight"] = ["model.shared.weight"]
    else:
        sources["source_embedding.weight"] = ["model.encoder.embed_tokens.weight"]
        sources["target_embedding.weight"] = ["model.decoder.embed_tokens.weight"]
    if not config.tie_output:
        sources["output.weight"] = ["lm_head.weight"]
    for index in range(config.num_encoder_layers):
        sources |= _layer_sources(f"encoder.layers.{index}", has_cross=False)
    for index in range(config.num_decoder_layers):
        sources |= _layer_sources(f"decoder.layers.{index}", has_cross=True)
    return sources


def _layer_sources(layer: str, *, has_cross: bool) -> dict[str, list[str]]:
    parts = {
        "attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        "attention.out": ["self_attn.out_proj"],
        "attention_residual.norm": ["self_attn_layer_norm"],
        "ffn.inner": ["fc1"],
        "ffn.outer": ["fc2"],
        "ffn_residual.norm": ["final_layer_norm"],
    }
    if has_cross:
        parts |= {
            "cross_attention.query": ["encoder_attn.q_proj"],
            "cross_attention.kv": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
            "cross_attention.out": ["encoder_attn.out_proj"],
            "cross_residual.norm": ["encoder_attn_layer_norm"],
        }
    return {
        f"{layer}.{ours}.{kind}": [f"model.{layer}.{name}.{kind}" for name in names]
        for ours, names in parts.items()
        for kind in ("weight", "bias")
    }


def _check_names(tensors: Mapping[str, Tensor], expected: set[str], path: Path) -> None:
    for kind, names in (("missing", expected - tensors.keys()), ("unexpected", tensors.keys() - expected)):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise MarianImportError(f"{path}: {kind} tensor(s) {', '.join(sorted(names)[:5])}{more}")


def _joined(tensors: dict[str, Tensor], names: list[str], shape: torch.Size, path: Path) -> Tensor:
    """One weight of ours, of this shape, from tensors of the file, which are taken out of `tensors`."""
    part = (shape[0] // len(names), *shape[1:])
    expected = (1, *part) if names == ["final_logits_bias"] else part
    parts = []
    for name in names:
        tensor = tensors.pop(name)
        if tuple(tensor.shape) != expected:
            raise MarianImportError(
                f"{path}: tensor {name} has shape {tuple(tensor.shape)}; the configuration asks for {expected}"
            )
        if not tensor.is_floating_point():
            raise MarianImportError(f"{path}: tensor {name} holds {tensor.dtype}, not floating-point numbers")
        if not tensor.isfinite().all():
            raise MarianImportError(f"{path}: tensor {name} holds NaN or infinity")
        parts.append(tensor.reshape(part))
    return torch.cat(parts)
