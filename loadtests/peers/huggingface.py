"""The bundled model as one of Hugging Face's: the same weights, for `generate`.

MarianMT normalises after each sublayer, the bundled model before; of transformers' models Pegasus computes what ours
does: pre-norm with a last norm, scaled and tied embeddings, and positions from a table, which takes ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from model.checkpoint import Checkpoint, load_checkpoint

_MAX_POSITIONS = 1_024


def convert(folder: Path, output: Path) -> None:
    """Write the checkpoint in `folder` as a Pegasus model.

    Raises:
        ValueError: It is of another shape.
    """
    from transformers import PegasusConfig, PegasusForConditionalGeneration

    checkpoint = load_checkpoint(folder)
    config = checkpoint.config
    if not (config.norm == "pre" and config.final_norm and config.activation == "relu" and config.share_embeddings):
        raise ValueError(f"{folder}: only pre-norm models with a last norm, ReLU and shared embeddings are Pegasus'")
    theirs = PegasusForConditionalGeneration(
        PegasusConfig(
            vocab_size=config.target_vocab_size, d_model=config.d_model, encoder_layers=config.num_encoder_layers,
            decoder_layers=config.num_decoder_layers, encoder_attention_heads=config.num_heads,
            decoder_attention_heads=config.num_heads, encoder_ffn_dim=config.d_ff, decoder_ffn_dim=config.d_ff,
            activation_function="relu", max_position_embeddings=_MAX_POSITIONS, pad_token_id=config.pad_id,
            scale_embedding=config.embedding_scale, eos_token_id=config.eos_id,
            decoder_start_token_id=config.decoder_start_id, forced_eos_token_id=None,
        )
    )  # fmt: skip
    _, unexpected = theirs.load_state_dict(dict(_weights(checkpoint)), strict=False)  # tied ones are missing
    assert not unexpected, unexpected
    theirs.save_pretrained(output)


def _weights(checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    model = checkpoint.model
    positions = model.source_embedding.position_rows(_MAX_POSITIONS)
    assert positions is not None
    for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens"):
        yield f"model.{name}.weight", model.source_embedding.weight
    yield "lm_head.weight", model.output.effective_weight()
    for side in ("encoder", "decoder"):
        yield f"model.{side}.embed_positions.weight", positions[:_MAX_POSITIONS].clone()
    names = {
        "attention.out": "self_attn.out_proj", "attention_residual.norm": "self_attn_layer_norm",
        "cross_attention.query": "encoder_attn.q_proj", "cross_attention.out": "encoder_attn.out_proj",
        "cross_residual.norm": "encoder_attn_layer_norm", "ffn.inner": "fc1", "ffn.outer": "fc2",
        "ffn_residual.norm": "final_layer_norm",
    }  # fmt: skip
    split = {"attention.qkv": ("self_attn", "qkv"), "cross_attention.kv": ("encoder_attn", "kv")}
    for name, weight in model.named_parameters():
        side, _, rest = name.partition(".layers.")
        if rest:
            number, _, rest = rest.partition(".")
            module, _, kind = rest.rpartition(".")
            place = f"model.{side}.layers.{number}"
            if module in split:
                attention, letters = split[module]
                for letter, part in zip(letters, torch.chunk(weight, len(letters)), strict=True):
                    yield f"{place}.{attention}.{letter}_proj.{kind}", part.clone()
            else:
                yield f"{place}.{names[module]}.{kind}", weight
        elif ".norm." in name:
            yield f"model.{name.replace('.norm.', '.layer_norm.')}", weight
