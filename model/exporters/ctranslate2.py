"""A checkpoint of ours -> a CTranslate2 model, through CTranslate2's public converter API.

    export_ctranslate2("model/pretrained/en-fr", "models/en-fr-ct2")

    translator = ctranslate2.Translator("models/en-fr-ct2")
    translator.translate_batch([["▁Good", "▁morning", ".", "</s>"]], beam_size=1)

CTranslate2 reads and writes pieces, not text: a source is what our tokenizer cuts it into, with the end of sentence.
The tokenizer's files are copied beside the model for that.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any, Literal, cast, get_args

from torch import Tensor

from model.attention import CrossAttention, SelfAttention
from model.checkpoint import Checkpoint, load_checkpoint
from model.config import TransformerConfig
from model.decoder import DecoderLayer
from model.description import CheckpointError, Description, SentencePieceFiles, describe
from model.encoder import EncoderLayer
from model.generation import forbidden_outputs
from model.layers import Embedding, FeedForward, LayerNorm
from model.linear import Linear

Quantization = Literal["float32", "float16", "bfloat16", "int8", "int8_float32", "int16"]
QUANTIZATIONS: tuple[Quantization, ...] = get_args(Quantization)

_MAX_POSITIONS = 1024
"""Rows of the written position table. CTranslate2 itself cuts sources at 1,024 tokens."""

_NEVER = -10_000.0
"""Bias of outputs that must not be written: small enough for every softmax, and finite in float16."""


class CTranslate2Missing(RuntimeError):
    """The package ctranslate2 is not installed."""


def export_ctranslate2(
    folder: str | Path, output: str | Path, *, quantization: Quantization = "float32"
) -> Description:
    """Write a checkpoint as a CTranslate2 model.

    What the server never writes (padding, start, unknown) gets a bias that keeps it from ever being the best output,
    so that both search among the same pieces.

    Args:
        folder: The checkpoint.
        output: Where the model goes; must not exist yet, or be empty.
        quantization: Number format of the written weights. CTranslate2 converts again when it loads them.

    Returns:
        What the checkpoint says about itself.

    Raises:
        CheckpointError: When the checkpoint cannot be read, has something that CTranslate2 does not know, or `output`
            is taken. Nothing is written then.
        CTranslate2Missing: When the package is not there.
    """
    try:
        import ctranslate2
    except ModuleNotFoundError as error:
        raise CTranslate2Missing(
            "the package ctranslate2 is not installed; exporting needs: pip install 'gossamer[peers]'"
        ) from error

    folder, output = Path(folder), Path(output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise CheckpointError(f"{output}: is there already; export to a folder that is not")
    description = describe(folder)
    check_exportable(description.config, folder)
    checkpoint = load_checkpoint(folder)
    source_pieces = _source_pieces(folder, checkpoint, description)

    class Converter(ctranslate2.converters.Converter):  # type: ignore[misc]  # the package has no types
        def _load(self) -> Any:
            return _spec(ctranslate2, checkpoint, source_pieces)

    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.name}.{uuid.uuid4().hex}")
    try:
        Converter().convert(str(unfinished), quantization=None if quantization == "float32" else quantization)
        for file in description.tokenizer.files:
            shutil.copyfile(folder / file, unfinished / file)
        if output.exists():
            output.rmdir()
        unfinished.rename(output)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return description


def check_exportable(config: TransformerConfig, folder: Path) -> None:
    """Refuse what CTranslate2 cannot compute.

    Raises:
        CheckpointError: Naming the field, what it is and what it may be.
    """
    if config.positions == "rotary":
        raise CheckpointError(f"{folder}: positions is 'rotary'; only sinusoidal and learned can be exported")
    if config.final_norm != (config.norm == "pre"):
        raise CheckpointError(
            f"{folder}: final_norm is {config.final_norm} with norm {config.norm!r}; "
            "only pre with a final norm and post without can be exported"
        )


def _source_pieces(folder: Path, checkpoint: Checkpoint, description: Description) -> list[str]:
    """The pieces of the source vocabulary, in the order of their ids."""
    files = description.tokenizer
    if isinstance(files, SentencePieceFiles) or files.target_vocabulary is None:
        return _target_pieces(checkpoint)
    import json

    ids: dict[str, int] = json.loads((folder / files.vocabulary).read_text(encoding="utf-8"))
    return sorted(ids, key=ids.__getitem__)


def _target_pieces(checkpoint: Checkpoint) -> list[str]:
    return [checkpoint.tokenizer.piece(token_id) for token_id in range(checkpoint.config.target_vocab_size)]


def _spec(ctranslate2: Any, checkpoint: Checkpoint, source_pieces: list[str]) -> Any:
    """The whole model as CTranslate2's specification."""
    config, model = checkpoint.config, checkpoint.model
    spec = ctranslate2.specs.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=_activation(ctranslate2, config),
    )
    _fill_embedding(spec.encoder, spec.encoder.embeddings[0], model.source_embedding, config)
    _fill_embedding(spec.decoder, spec.decoder.embeddings, model.target_embedding, config)
    if config.final_norm:
        assert model.encoder.norm is not None and model.decoder.norm is not None  # the configuration says so
        _fill_norm(spec.encoder.layer_norm, model.encoder.norm)
        _fill_norm(spec.decoder.layer_norm, model.decoder.norm)
    for layer_spec, layer in zip(spec.encoder.layer, model.encoder.layers, strict=True):
        _fill_encoder_layer(layer_spec, cast(EncoderLayer, layer))
    for layer_spec, layer in zip(spec.decoder.layer, model.decoder.layers, strict=True):
        _fill_decoder_layer(layer_spec, cast(DecoderLayer, layer))
    _fill_output(spec.decoder.projection, model.output, checkpoint)

    target_pieces = _target_pieces(checkpoint)
    spec.register_source_vocabulary(source_pieces)
    spec.register_target_vocabulary(target_pieces)
    tokenizer = checkpoint.tokenizer
    spec.config.bos_token = target_pieces[tokenizer.bos_id]
    spec.config.eos_token = target_pieces[config.eos_id]
    spec.config.unk_token = target_pieces[tokenizer.unk_id]
    spec.config.decoder_start_token = target_pieces[config.decoder_start_id]
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    return spec


def _activation(ctranslate2: Any, config: TransformerConfig) -> Any:
    activations = ctranslate2.specs.Activation
    if config.activation == "gelu":
        return activations.GELUTanh if config.gelu_approximation == "tanh" else activations.GELU
    return activations.RELU if config.activation == "relu" else activations.SWISH


def _fill_embedding(stack: Any, spec: Any, embedding: Embedding, config: TransformerConfig) -> None:
    """The table, and the positions as explicit rows: CTranslate2's own sinusoids are in halves only."""
    spec.weight = _numbers(embedding.weight)
    stack.scale_embeddings = config.embedding_scale
    count = config.max_positions or _MAX_POSITIONS
    rows = embedding.position_rows(count)
    assert rows is not None  # rotary positions were refused
    stack.position_encodings.encodings = _numbers(rows[:count])


def _fill_encoder_layer(spec: Any, layer: EncoderLayer) -> None:
    _fill_self_attention(spec.self_attention, layer.attention)
    _fill_norm(spec.self_attention.layer_norm, layer.attention_residual.norm)
    _fill_ffn(spec.ffn, layer.ffn, layer.ffn_residual.norm)


def _fill_decoder_layer(spec: Any, layer: DecoderLayer) -> None:
    _fill_self_attention(spec.self_attention, layer.attention)
    _fill_norm(spec.self_attention.layer_norm, layer.attention_residual.norm)
    _fill_cross_attention(spec.attention, layer.cross_attention)
    _fill_norm(spec.attention.layer_norm, layer.cross_residual.norm)
    _fill_ffn(spec.ffn, layer.ffn, layer.ffn_residual.norm)


def _fill_self_attention(spec: Any, attention: SelfAttention) -> None:
    """Queries, keys and values are one matrix on both sides, in the same order."""
    _fill_linear(spec.linear[0], attention.qkv)
    _fill_linear(spec.linear[1], attention.out)


def _fill_cross_attention(spec: Any, attention: CrossAttention) -> None:
    _fill_linear(spec.linear[0], attention.query)
    _fill_linear(spec.linear[1], attention.kv)
    _fill_linear(spec.linear[2], attention.out)


def _fill_ffn(spec: Any, ffn: FeedForward, norm: LayerNorm) -> None:
    _fill_linear(spec.linear_0, ffn.inner)
    _fill_linear(spec.linear_1, ffn.outer)
    _fill_norm(spec.layer_norm, norm)


def _fill_linear(spec: Any, linear: Linear) -> None:
    assert linear.weight is not None  # loaded a moment ago, so not quantized
    spec.weight = _numbers(linear.weight)
    if linear.bias is not None:
        spec.bias = _numbers(linear.bias)


def _fill_norm(spec: Any, norm: LayerNorm) -> None:
    spec.gamma, spec.beta = _numbers(norm.weight), _numbers(norm.bias)


def _fill_output(spec: Any, output: Linear, checkpoint: Checkpoint) -> None:
    assert output.weight is not None
    bias = output.weight.new_zeros(len(output.weight)) if output.bias is None else output.bias.detach().clone()
    never = {checkpoint.config.pad_id, *forbidden_outputs(checkpoint.config, checkpoint.tokenizer)}
    bias[sorted(never)] = _NEVER
    spec.weight, spec.bias = _numbers(output.weight), _numbers(bias)


def _numbers(tensor: Tensor) -> Any:
    return tensor.detach().float().contiguous().numpy()
