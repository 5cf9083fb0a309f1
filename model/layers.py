"""Embeddings, positions, the feed-forward network, and the residual around every sublayer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import SinusoidLayout, TransformerConfig
from model.dropout import dropout
from model.linear import Linear, check_row_blocks, in_row_blocks

_SINUSOID_BASE = 10_000.0


def sinusoids(start: int, end: int, width: int, layout: SinusoidLayout) -> Tensor:
    """Positional encodings of positions ``start`` to ``end`` - 1 (Vaswani et al. 2017, section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i/width)) and PE(pos, 2i+1) = cos of the same angle. ``halves``
    holds the same numbers in another order: all sines, then all cosines.

    Returns:
        (end - start, width) float32; computed in float64, so that far positions stay exact.
    """
    cpu = torch.device("cpu")  # named, for a model that is built on the meta device needs real rows
    positions = torch.arange(start, end, dtype=torch.float64, device=cpu).unsqueeze(1)
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64, device=cpu) * (-math.log(_SINUSOID_BASE) / width))
    angles = positions * rates  # (positions, width / 2)
    pair = (torch.sin(angles), torch.cos(angles))
    table = torch.stack(pair, dim=-1).flatten(1) if layout == "interleaved" else torch.cat(pair, dim=-1)
    return table.to(torch.float32)


class GrowingTable:
    """Rows computed from their index alone, kept for reuse, with more appended when asked for.

    Not a module and not a buffer: the rows are no weights, follow from the configuration and
    would only bloat a checkpoint.
    """

    def __init__(self, width: int, layout: SinusoidLayout, initial_rows: int = 256) -> None:
        """Compute the first ``initial_rows`` rows."""
        self._width = width
        self._layout: SinusoidLayout = layout
        self._exact = sinusoids(0, initial_rows, width, layout)  # on the CPU in float32
        self._table = self._exact

    def rows(self, count: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """At least the first ``count`` rows, (>= count, width), on ``device`` in ``dtype``."""
        table = self._table
        if count > table.shape[0] or table.device != device or table.dtype != dtype:
            self._renew(count, device, dtype)
        return self._table

    # Rows made in inference mode could not take part in a later training step.
    @torch.inference_mode(False)
    def _renew(self, count: int, device: torch.device, dtype: torch.dtype) -> None:
        have = self._exact.shape[0]
        if count > have:
            # Doubling keeps the total work linear when a length creeps up by one.
            more = sinusoids(have, max(count, 2 * have), self._width, self._layout)
            self._exact = torch.cat((self._exact, more))
        # Always from the exact rows: what was once rounded to bfloat16 would stay rounded.
        self._table = self._exact.to(device=device, dtype=dtype)


class PositionTooLarge(ValueError):
    """A position beyond the rows of a learned table."""


class Embedding(nn.Module):
    """Token ids -> scaled embeddings plus positions (sections 3.4 and 3.5).

    Rotary positions add nothing here: they turn queries and keys inside self-attention.
    """

    def __init__(self, config: TransformerConfig, vocab_size: int, weight: nn.Parameter | None = None) -> None:
        """Build the table, or share ``weight`` (vocab_size, d_model) with another embedding."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, config.d_model)) if weight is None else weight
        self.positions: nn.Parameter | None = None
        if config.positions == "learned":
            assert config.max_positions is not None  # the configuration checked it
            self.positions = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        self._sinusoids = (
            GrowingTable(config.d_model, config.sinusoid_layout) if config.positions == "sinusoidal" else None
        )
        self._factor = config.embedding_factor
        self._dropout = config.dropout

    def forward(self, ids: Tensor, positions: Tensor | None = None, max_position: int | None = None) -> Tensor:
        """Embed ``ids``.

        Args:
            ids: (B, T) token ids.
            positions: (B, T) position of each id; None means 0, 1, 2, ... in every row.
            max_position: The largest value in ``positions``, known to the caller, so that nothing has
                to be read back from the device. Needed with ``positions``.

        Returns:
            (B, T, d_model).

        Raises:
            PositionTooLarge: When a learned table has fewer rows than needed.
        """
        embedded = functional.embedding(ids, self.weight) * self._factor
        if self.positions is not None or self._sinusoids is not None:
            if positions is None:
                count = ids.shape[1]
            else:
                assert max_position is not None
                count = max_position + 1
            table = self._position_rows(count, embedded)
            embedded = embedded + (table[:count] if positions is None else table[positions])
        return dropout(embedded, self._dropout, self.training)

    def position_rows(self, count: int) -> Tensor | None:
        """At least the first ``count`` rows of what is added for positions, float32; None when nothing is.

        Raises:
            PositionTooLarge: When a learned table has fewer rows.
        """
        if self.positions is None and self._sinusoids is None:
            return None
        return self._position_rows(count, self.weight)

    def _position_rows(self, count: int, like: Tensor) -> Tensor:
        if self._sinusoids is not None:
            return self._sinusoids.rows(count, like.device, like.dtype)
        assert self.positions is not None
        if count > self.positions.shape[0]:
            raise PositionTooLarge(
                f"position {count - 1} asked for; the learned table has {self.positions.shape[0]} rows "
                f"(0 to {self.positions.shape[0] - 1})"
            )
        return self.positions


class Rotary:
    """Rotary position embedding (Su et al. 2021, section 3.2): turn each pair of values by its angle.

    The pairs are (first half, second half) of a head, as in GPT-NeoX, not neighbours as in the paper's
    formula; the two differ by a fixed permutation of the head's dimensions.
    """

    def __init__(self, head_width: int) -> None:
        """Prepare the angles of one head."""
        self._table = GrowingTable(head_width, "halves")

    def table(self, count: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """The angles of at least the first ``count`` positions."""
        return self._table.rows(count, device, dtype)

    def rotate(self, vectors: Tensor, positions: Tensor | None, max_position: int) -> Tensor:
        """Rotate queries or keys.

        Args:
            vectors: (B, H, T, D).
            positions: (B, T), or None for 0, 1, 2, ...
            max_position: The largest position.

        Returns:
            (B, H, T, D) with the same norms.
        """
        table = self.table(max_position + 1, vectors.device, vectors.dtype)
        angles = table[: vectors.shape[2]] if positions is None else table[positions].unsqueeze(1)
        sine, cosine = angles.chunk(2, dim=-1)  # each (T, D / 2) or (B, 1, T, D / 2)
        first, second = vectors.chunk(2, dim=-1)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class FeedForward(nn.Module):
    """W2 act(W1 x + b1) + b2, applied to every position alike (section 3.3)."""

    def __init__(self, config: TransformerConfig) -> None:
        """Build both matrices."""
        super().__init__()
        self.inner = Linear(config.d_model, config.d_ff, config.ffn_bias)
        self.outer = Linear(config.d_ff, config.d_model, config.ffn_bias)
        self._activation = config.activation
        self._approximation = config.gelu_approximation
        self._row_block = 0

    def use_row_blocks(self, size: int) -> None:
        """Apply the nonlinearity to ``size`` rows at a time from now on.

        torch computes the last few numbers of a tensor by other means than the rest, with other last bits: which ones
        that are must not depend on how many rows there are.

        Raises:
            BatchVariance: When a row of random numbers did not give the same bits everywhere in a block.
        """
        check_row_blocks(self.activate, size, self.outer.effective_weight())
        self._row_block = size

    def activate(self, hidden: Tensor) -> Tensor:
        """The nonlinearity alone, shape kept."""
        if self._activation == "relu":
            return functional.relu(hidden)
        if self._activation == "gelu":
            return functional.gelu(hidden, approximate=self._approximation)
        return functional.silu(hidden)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        hidden = self.inner(hidden)
        if self._row_block:
            hidden = in_row_blocks(self.activate, hidden, self._row_block)
        else:
            hidden = self.activate(hidden)
        result: Tensor = self.outer(hidden)
        return result


class LayerNorm(nn.Module):
    """gamma * (x - mean) / sqrt(variance + eps) + beta over the last dimension (Ba et al. 2016)."""

    def __init__(self, width: int, eps: float) -> None:
        """Start as the identity on normalised input."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        return functional.layer_norm(inputs, self.weight.shape, self.weight, self.bias, self.eps)


class Residual(nn.Module):
    """The "Add & Norm" around one sublayer, in the order that the configuration names.

    The paper's text and figure have the norm after the addition (``post``); most code since has it
    before the sublayer (``pre``). A sublayer runs between :meth:`before` and :meth:`after`.
    """

    def __init__(self, config: TransformerConfig) -> None:
        """Build the norm."""
        super().__init__()
        self.norm = LayerNorm(config.d_model, config.layer_norm_eps)
        self._pre = config.norm == "pre"
        self._dropout = config.dropout

    def before(self, hidden: Tensor) -> Tensor:
        """What the sublayer reads."""
        return self.norm(hidden) if self._pre else hidden

    def after(self, hidden: Tensor, update: Tensor) -> Tensor:
        """The stream after the sublayer's ``update``; both (B, T, d_model)."""
        # In one format: to add bfloat16 to float32, as under autocast, takes ten times as long.
        total = hidden + dropout(update, self._dropout, self.training).to(hidden.dtype)
        return total if self._pre else self.norm(total)
