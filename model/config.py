"""The shape of a Transformer, as one frozen value that validates itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

NormPlacement = Literal["pre", "post"]
Activation = Literal["relu", "gelu", "swish"]
PositionKind = Literal["sinusoidal", "learned", "rotary"]
SinusoidLayout = Literal["interleaved", "halves"]

Precision = Literal["auto", "float32", "bfloat16", "float16", "int8"]
"""Number format of a model's matrices when it translates; "auto" is the fastest that the processor or GPU offers."""

DeviceName = Literal["auto", "cpu", "cuda"]
"""Where a model is computed; "auto" is a GPU if torch sees one, else the processor."""


class ConfigError(ValueError):
    """A configuration that no model can be built from; the message names the field."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Everything that decides the shape and the arithmetic of one encoder-decoder Transformer.

    Defaults follow "Attention Is All You Need" (Vaswani et al. 2017, section 3) where the paper
    speaks; the other values are those that real checkpoints were trained with (Marian, OPUS-MT).

    Attributes:
        source_vocab_size: Rows of the source embedding.
        target_vocab_size: Rows of the target embedding and of the output projection.
        d_model: Width of every vector between layers.
        num_heads: Attention heads; divides ``d_model``.
        d_ff: Width of the feed-forward network's hidden layer.
        num_encoder_layers: Depth of the encoder.
        num_decoder_layers: Depth of the decoder.
        norm: ``post`` is the paper's LayerNorm(x + Sublayer(x)); ``pre`` is x + Sublayer(LayerNorm(x)),
            which trains without a delicate warm-up (Xiong et al. 2020).
        final_norm: One more LayerNorm after each stack; needed with ``pre``, absent in Marian's ``post``.
        activation: Of the feed-forward network; the paper has ``relu``, Marian ``swish`` (SiLU).
        gelu_approximation: ``none`` is the exact GELU, ``tanh`` its usual approximation.
        positions: ``sinusoidal`` (section 3.5), ``learned`` (one trained row a position) or
            ``rotary`` (Su et al. 2021, applied to queries and keys of self-attention only).
        sinusoid_layout: ``interleaved`` sin, cos, sin, cos, ... as in the paper; ``halves`` all
            sines and then all cosines, as Marian and tensor2tensor do.
        max_positions: Rows of a learned position table. None for the other kinds: they have no end.
        embedding_scale: Multiply embeddings by sqrt(d_model) (section 3.4).
        share_embeddings: Source and target use one embedding matrix (needs equal vocabularies).
        tie_output: The output projection is the target embedding, transposed (section 3.4).
        attention_bias: The four projections of each attention have biases.
        ffn_bias: Both matrices of the feed-forward network have biases.
        output_bias: The logits get a trained bias (Marian's ``final_logits_bias``).
        dropout: Probability of zeroing a value after embeddings and sublayers, in training only.
        layer_norm_eps: Added to the variance inside LayerNorm.
        pad_id: Fills short rows; never attended to.
        eos_id: Ends source and target.
        decoder_start_id: What the decoder reads first (Marian: the pad id).
    """

    source_vocab_size: int
    target_vocab_size: int
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    norm: NormPlacement = "post"
    final_norm: bool = False
    activation: Activation = "relu"
    gelu_approximation: Literal["none", "tanh"] = "none"
    positions: PositionKind = "sinusoidal"
    sinusoid_layout: SinusoidLayout = "interleaved"
    max_positions: int | None = None
    embedding_scale: bool = True
    share_embeddings: bool = True
    tie_output: bool = True
    attention_bias: bool = True
    ffn_bias: bool = True
    output_bias: bool = False
    dropout: float = 0.0
    layer_norm_eps: float = 1e-5
    pad_id: int = 0
    eos_id: int = 3
    decoder_start_id: int = 2

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            ConfigError: Naming the field, what was given and what is allowed.
        """
        for field in dataclasses.fields(self):
            _check_type(field.name, str(field.type), getattr(self, field.name))
        for name in ("source_vocab_size", "target_vocab_size", "d_model", "num_heads", "d_ff"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("num_encoder_layers", "num_decoder_layers"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name, allowed in (
            ("norm", get_args(NormPlacement)),
            ("activation", get_args(Activation)),
            ("positions", get_args(PositionKind)),
            ("sinusoid_layout", get_args(SinusoidLayout)),
            ("gelu_approximation", ("none", "tanh")),
        ):
            _require(getattr(self, name) in allowed, name, getattr(self, name), f"one of {', '.join(allowed)}")
        _require(
            self.d_model % self.num_heads == 0,
            "num_heads",
            self.num_heads,
            f"a divisor of d_model ({self.d_model})",
        )
        if self.positions == "sinusoidal":
            _require(self.d_model % 2 == 0, "d_model", self.d_model, "even, for sines and cosines in pairs")
        if self.positions == "rotary":
            _require(self.head_width % 2 == 0, "num_heads", self.num_heads, "such that d_model / num_heads is even")
        if self.positions == "learned":
            _require(
                self.max_positions is not None and self.max_positions >= 1,
                "max_positions",
                self.max_positions,
                "at least 1 with learned positions",
            )
        else:
            _require(self.max_positions is None, "max_positions", self.max_positions, f"absent with {self.positions}")
        if self.share_embeddings:
            _require(
                self.source_vocab_size == self.target_vocab_size,
                "target_vocab_size",
                self.target_vocab_size,
                f"equal to source_vocab_size ({self.source_vocab_size}) when embeddings are shared",
            )
        _require(0.0 <= self.dropout < 1.0, "dropout", self.dropout, "at least 0 and below 1")
        _require(self.layer_norm_eps > 0.0, "layer_norm_eps", self.layer_norm_eps, "above 0")
        smaller = min(self.source_vocab_size, self.target_vocab_size)
        for name in ("pad_id", "eos_id"):
            _require(0 <= getattr(self, name) < smaller, name, getattr(self, name), f"an id from 0 to {smaller - 1}")
        _require(self.eos_id != self.pad_id, "eos_id", self.eos_id, f"different from pad_id ({self.pad_id})")
        _require(
            0 <= self.decoder_start_id < self.target_vocab_size,
            "decoder_start_id",
            self.decoder_start_id,
            f"an id from 0 to {self.target_vocab_size - 1}",
        )

    @property
    def head_width(self) -> int:
        """The width of one head's queries, keys and values (the paper's d_k = d_v)."""
        return self.d_model // self.num_heads

    @property
    def embedding_factor(self) -> float:
        """What embeddings are multiplied by before positions are added."""
        return math.sqrt(self.d_model) if self.embedding_scale else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for ``config.json``."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TransformerConfig:
        """Read what ``to_dict`` wrote.

        Raises:
            ConfigError: For an unknown, missing or impossible field, named.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(f"unknown field(s) {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        missing = [name for name in ("source_vocab_size", "target_vocab_size") if name not in values]
        if missing:
            raise ConfigError(f"missing field(s) {', '.join(missing)}")
        return cls(**values)


def _require(holds: bool, name: str, given: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"{name} is {given!r}; it must be {allowed}")


def _check_type(name: str, annotation: str, value: object) -> None:
    if annotation == "bool":
        _require(isinstance(value, bool), name, value, "true or false")
    elif annotation in ("int", "int | None"):
        plain_int = isinstance(value, int) and not isinstance(value, bool)
        _require(plain_int or (value is None and annotation != "int"), name, value, "a whole number")
    elif annotation == "float":
        _require(isinstance(value, int | float) and not isinstance(value, bool), name, value, "a number")
