"""A training run, as one TOML file says it."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from model.config import ConfigError, TransformerConfig


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where the sentence pairs are and how often each source is seen.

    Attributes:
        train: Gzipped or plain TSV files: source name, English side, French side (see data.py).
        dev: One such file, for the loss and BLEU during training.
        sources: Weight of each source name: 1 = every pair once an epoch, 0.25 = a quarter of them,
            drawn anew each epoch, 2.5 = twice, and half of them once more. Sources not named are left out.
        reverse: Train French to English.
        max_tokens: Pairs with more tokens on a side are left out of training; counted in the log.
        scores: Folder of what ``model.training.scores`` wrote for the files of ``train``.
        leave_out: By source name, the share of its pairs with the worst scores that is left out, from 0 to below 1;
            pairs of the same texts in other sources are left out with them.
    """

    train: list[str]
    dev: str
    sources: dict[str, float]
    reverse: bool = False
    max_tokens: int = 160
    scores: str | None = None
    leave_out: dict[str, float] | None = None

    def __post_init__(self) -> None:
        """Check what is left out.

        Raises:
            ConfigError: Naming the field.
        """
        for name, share in (self.leave_out or {}).items():
            if not 0.0 <= share < 1.0:
                raise ConfigError(f"data.leave_out.{name} is {share!r}; it must be at least 0 and below 1")
            if name not in self.sources:
                raise ConfigError(f"data.leave_out.{name}: no such source in data.sources")
        if self.leave_out and self.scores is None:
            raise ConfigError("data.scores is missing; data.leave_out needs it")


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """The joint vocabulary.

    Attributes:
        vocab_size: Pieces, the 256 byte pieces and 4 special ones included.
        path: An existing model file to use; None trains one on the sampled training lines.
    """

    vocab_size: int = 8000
    path: str | None = None


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """One optimizer.

    Attributes:
        name: ``adamw`` (Loshchilov and Hutter 2019), or ``muon`` (Jordan et al. 2024) for the matrices
            between embeddings and output, with AdamW for all else.
        learning_rate: Peak rate of AdamW.
        muon_learning_rate: Peak rate of the matrices under Muon.
        beta2: AdamW's memory of squared gradients.
        weight_decay: Decoupled, on matrices only.
        clip_norm: Largest norm of the whole gradient.
    """

    name: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 8e-4
    muon_learning_rate: float = 1.2e-3
    beta2: float = 0.98
    weight_decay: float = 0.01
    clip_norm: float = 1.0


@dataclass(frozen=True, kw_only=True)
class GuidedAlignmentSettings:
    """One head of cross-attention that also learns word alignments (Garg et al. 2019, section 4.2).

    Attributes:
        links: Folder of what ``model.training.aligner`` wrote for the files of ``data.train``.
        weight: Of this loss beside the translation's; 0 computes it and changes nothing.
        layer: The decoder layer, from 0.
        head: The head, from 0.
        row: ``input``: the row that has read a target token points at that token's source; ``predicted``: the row that
            predicts it. As in `model.alignment.AlignmentRecipe`.
    """

    links: str
    weight: float = 0.05
    layer: int = 0
    head: int = 0
    row: Literal["predicted", "input"] = "input"

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: Naming the field.
        """
        if not self.weight >= 0:
            raise ConfigError(f"guided_alignment.weight is {self.weight!r}; it must be at least 0")
        if self.row not in ("predicted", "input"):
            raise ConfigError(f"guided_alignment.row is {self.row!r}; it must be predicted or input")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """One run.

    Attributes:
        name: Names the checkpoint, e.g. ``en-fr``.
        source_language: Code of the side that is read.
        target_language: Code of the side that is written.
        data: See DataSettings.
        tokenizer: See TokenizerSettings.
        optimizer: See OptimizerSettings.
        guided_alignment: See GuidedAlignmentSettings; without the table no head is guided.
        model: Fields of TransformerConfig; vocabulary sizes and special ids come from the tokenizer.
        seed: Of weights, sampling, batching and dropout.
        total_steps: Optimizer steps of the whole schedule.
        warmup_steps: Linear rise of the learning rate.
        decay_power: After the rise the rate falls with step ** -decay_power (0.5 is the paper's, 0.25 gentler).
        cooldown_fraction: The last part of ``total_steps``, in which the rate also falls linearly to zero.
        batch_tokens: Target tokens of one micro-batch, padding included.
        micro_batches: Micro-batches in one step, over all processes together (gradient accumulation).
        label_smoothing: See loss.py.
        precision: ``bfloat16`` runs the products under autocast; weights and sums stay float32.
        ema_decay: Of the averaged weights that are evaluated and published, per step; 0 = off.
        ema_every: Steps between two updates of the average (the decay is adapted).
        log_every: Steps between two lines of the log.
        evaluate_every: Steps between two evaluations on dev.
        checkpoint_every_seconds: Time between two saved states.
        dev_sentences: Sentences of each kind translated for dev BLEU.
        compile: Use torch.compile for the loss.
        threads: Torch threads of each process; 0 = torch's choice.
    """

    name: str
    source_language: str
    target_language: str
    data: DataSettings
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    guided_alignment: GuidedAlignmentSettings | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 1
    total_steps: int = 100_000
    warmup_steps: int = 1_200
    decay_power: float = 0.25
    cooldown_fraction: float = 0.4
    batch_tokens: int = 750
    micro_batches: int = 1
    label_smoothing: float = 0.1
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    ema_decay: float = 0.999
    ema_every: int = 4
    log_every: int = 50
    evaluate_every: int = 2_000
    checkpoint_every_seconds: float = 300.0
    dev_sentences: int = 400
    compile: bool = False
    threads: int = 0

    def __post_init__(self) -> None:
        """Check the values that no other class checks.

        Raises:
            ConfigError: Naming the field, what was given and what is allowed.
        """
        for name in ("total_steps", "warmup_steps", "batch_tokens", "micro_batches", "ema_every", "log_every",
                     "evaluate_every"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be at least 1")
        for name, upper in (("cooldown_fraction", 1.0), ("label_smoothing", 1.0), ("ema_decay", 1.0)):
            if not 0.0 <= getattr(self, name) < upper:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be at least 0 and below {upper}")
        if self.precision not in ("float32", "bfloat16"):
            raise ConfigError(f"precision is {self.precision!r}; it must be float32 or bfloat16")
        if self.optimizer.name not in ("adamw", "muon"):
            raise ConfigError(f"optimizer.name is {self.optimizer.name!r}; it must be adamw or muon")
        config = self.transformer_config(self.tokenizer.vocab_size, pad_id=0, bos_id=2, eos_id=3)
        if self.guided_alignment is not None:
            for name, count in (("layer", config.num_decoder_layers), ("head", config.num_heads)):
                value = getattr(self.guided_alignment, name)
                if not 0 <= value < count:
                    raise ConfigError(f"guided_alignment.{name} is {value!r}; it must be from 0 to {count - 1}")

    def transformer_config(self, vocab_size: int, *, pad_id: int, bos_id: int, eos_id: int) -> TransformerConfig:
        """The model of this run over a vocabulary of ``vocab_size``."""
        return TransformerConfig.from_dict(
            {
                "source_vocab_size": vocab_size,
                "target_vocab_size": vocab_size,
                "pad_id": pad_id,
                "decoder_start_id": bos_id,
                "eos_id": eos_id,
                **self.model,
            }
        )


def load_settings(path: Path) -> TrainingSettings:
    """Read a run's TOML file; relative paths in it start at the file's folder.

    ``base = "other.toml"`` begins with all that another file says: tables are merged name by name, everything else that
    stands in both is taken from this file.

    Raises:
        ConfigError: Naming the file and the field.
    """
    values = _read_table(path, ())
    try:
        return settings_from_dict(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _read_table(path: Path, readers: tuple[Path, ...]) -> dict[str, Any]:
    """The file's values over those of its base, with paths that no longer depend on where a file lies."""
    chain = (*readers, path.resolve())
    if path.resolve() in readers:
        raise ConfigError(f"{readers[0]}: base goes round in a circle: {' -> '.join(file.name for file in chain)}")
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    base = values.pop("base", None)
    _anchor(values, path.parent)
    if base is None:
        return values
    if not isinstance(base, str):
        raise ConfigError(f"{path}: base is {base!r}; it must be str")
    return _merge(_read_table(path.parent / base, chain), values)


def _anchor(values: dict[str, Any], folder: Path) -> None:
    # Wrong kinds pass through untouched: they are refused, with the field's name, when the settings are built.
    places = (
        ("data", "dev"),
        ("data", "train"),
        ("data", "scores"),
        ("tokenizer", "path"),
        ("guided_alignment", "links"),
    )
    for table, name in places:
        fields = values.get(table)
        if not isinstance(fields, dict):
            continue
        value = fields.get(name)
        if isinstance(value, str):
            fields[name] = str(folder / value)
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            fields[name] = [str(folder / item) for item in value]


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def settings_from_dict(values: Mapping[str, Any]) -> TrainingSettings:
    """Build settings from parsed TOML.

    Raises:
        ConfigError: For unknown, missing or impossible fields, named.
    """
    nested: dict[str, type[Any]] = {
        "data": DataSettings,
        "tokenizer": TokenizerSettings,
        "optimizer": OptimizerSettings,
        "guided_alignment": GuidedAlignmentSettings,
    }
    built = {
        name: _build(nested[name], value, prefix=f"{name}.") if name in nested else value
        for name, value in values.items()
    }
    settings: TrainingSettings = _build(TrainingSettings, built, prefix="")
    return settings


def _build(cls: type[Any], values: Any, prefix: str) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{prefix.rstrip('.')} is {values!r}; it must be a table")
    known = {item.name: item for item in dataclasses.fields(cls)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigError(f"unknown field {prefix}{unknown[0]}; known are {', '.join(known)}")
    required = {
        name
        for name, item in known.items()
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    }
    missing = sorted(required - set(values))
    if missing:
        raise ConfigError(f"missing field {prefix}{missing[0]}")
    for name, value in values.items():
        _check_kind(prefix + name, str(known[name].type), value)
    return cls(**values)


def _check_kind(name: str, annotation: str, value: Any) -> None:
    kinds: dict[str, tuple[type, ...]] = {
        "int": (int,), "float": (int, float), "str": (str,), "bool": (bool,), "list[str]": (list,),
        "dict[str, float]": (dict,), "str | None": (str,), "dict[str, float] | None": (dict,),
    }  # fmt: skip
    allowed = kinds.get(annotation)
    if allowed is None:
        return
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        raise ConfigError(f"{name} is {value!r}; it must be {annotation}")
