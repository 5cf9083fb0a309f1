"""How good a model is: loss and BLEU on dev while training, BLEU and chrF on every test set afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from model.tokenizer import Tokenizer
from model.training.data import SentencePair, read_pairs
from model.training.loss import label_smoothed_loss
from model.training.settings import TrainingSettings
from model.transformer import Transformer, pad_sequences

# The sentence that the project's explanations carry through the whole architecture, and everyday ones.
_SAMPLES = (
    "Ninja moved the plant near the window because it needed more sunlight.",
    "I would like a cup of coffee, please.",
    "The children were playing in the garden when it started to rain.",
)


@dataclass(frozen=True)
class DevSet:
    """Pairs to watch while training, by kind: everyday sentences and all the rest."""

    kinds: dict[str, list[SentencePair]]

    @classmethod
    def read(cls, path: Path, settings: TrainingSettings) -> DevSet:
        """The first ``dev_sentences`` of each kind whose source is trained on."""
        kinds: dict[str, list[SentencePair]] = {"everyday": [], "other": []}
        for pair in read_pairs(path):
            if pair.source_name not in settings.data.sources:
                continue
            kind = kinds["everyday" if pair.source_name == "tatoeba" else "other"]
            if len(kind) < settings.dev_sentences:
                reverse = settings.data.reverse
                kind.append(SentencePair(pair.source_name, pair.second, pair.first) if reverse else pair)
        return cls({name: pairs for name, pairs in kinds.items() if pairs})


@torch.inference_mode()
def greedy_ids(model: Transformer, sources: list[list[int]], max_rows: int = 64) -> list[list[int]]:
    """Greedy translations of sources (ended by eos), without eos; at most 2 * S + 10 tokens each."""
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    results: list[list[int]] = [[] for _ in sources]
    config = model.config
    for start in range(0, len(order), max_rows):
        rows = order[start : start + max_rows]
        ids, mask = pad_sequences([sources[index] for index in rows], config.pad_id)
        state = model.prefill(ids, mask)
        tokens = torch.full((len(rows),), config.decoder_start_id)
        limit = 2 * ids.shape[1] + 10
        while rows:
            tokens = model.decode_step(tokens, state).argmax(dim=-1)
            keep = []
            for row, token in enumerate(tokens.tolist()):
                if token != config.eos_id and len(results[rows[row]]) < limit:
                    results[rows[row]].append(token)
                    keep.append(row)
            if len(keep) < len(rows):
                rows = [rows[row] for row in keep]
                tokens = tokens[keep]
                if rows:
                    state.select(keep)
    return results


@torch.inference_mode()
def dev_scores(model: Transformer, tokenizer: Tokenizer, dev: DevSet, settings: TrainingSettings) -> dict[str, Any]:
    """Loss (as trained) and greedy BLEU of each kind of dev pairs, and sample translations."""
    scores: dict[str, Any] = {}
    config = model.config
    source_language, target_language = settings.source_language, settings.target_language
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.precision == "bfloat16"):
        for kind, pairs in dev.kinds.items():
            sources = [tokenizer.encode_ids(pair.first, source_language) + [config.eos_id] for pair in pairs]
            targets = [tokenizer.encode_ids(pair.second, target_language) + [config.eos_id] for pair in pairs]
            loss_sum, count = 0.0, 0
            order = sorted(range(len(pairs)), key=lambda index: len(targets[index]))
            for start in range(0, len(order), 32):
                rows = order[start : start + 32]
                source_ids, source_mask = pad_sequences([sources[index] for index in rows], config.pad_id)
                outputs, _ = pad_sequences([targets[index] for index in rows], config.pad_id)
                inputs = torch.cat((torch.full((len(rows), 1), config.decoder_start_id), outputs[:, :-1]), dim=1)
                logits = model(source_ids, source_mask, inputs).flatten(0, 1)
                loss = label_smoothed_loss(logits, outputs.flatten(), config.pad_id, settings.label_smoothing)
                loss_sum += float(loss)
                count += sum(len(targets[index]) for index in rows)
            scores[f"{kind}_loss"] = loss_sum / count
            translations = [tokenizer.decode(ids) for ids in greedy_ids(model, sources)]
            scores[f"{kind}_bleu"] = sacrebleu.corpus_bleu(translations, [[pair.second for pair in pairs]]).score
        samples = list(_SAMPLES) if not settings.data.reverse else [dev.kinds["everyday"][0].first]
        ids = [tokenizer.encode_ids(text, source_language) + [config.eos_id] for text in samples]
        scores["samples"] = list(zip(samples, map(tokenizer.decode, greedy_ids(model, ids)), strict=True))
    return scores
