import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from model.generation import translate_texts
from model.training import loop
from model.training.batching import make_batch
from model.training.beside import write_beside
from model.training.data import read_pairs
from model.training.distributed import Processes
from model.training.links import format_links, word_spans
from model.training.loop import ResumeError, Trainer
from model.training.progress import Progress
from tests.model.training.fixtures import sentence_pairs, tiny_settings, write_corpus

ALONE = Processes(0, 1, torch.device("cpu"))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return folder


def train(settings, folder, resume=False) -> Trainer:
    trainer = Trainer(settings, folder, ALONE)
    if resume:
        assert trainer.resume()
    with Progress(folder, settings) as progress:
        progress.start(trainer.position, trainer.model, trainer.corpus, 1, resume)
        trainer.run(progress)
    return trainer


def log_lines(folder, event):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["event"] == event]


def test_the_loss_starts_near_the_logarithm_of_the_vocabulary(corpus_folder, tmp_path):
    settings = tiny_settings(corpus_folder, total_steps=2, log_every=1)
    train(settings, tmp_path)
    first = log_lines(tmp_path, "loss")[0]["loss"]
    assert abs(first - math.log(settings.tokenizer.vocab_size)) < 0.15 * math.log(settings.tokenizer.vocab_size)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_an_interrupted_run_ends_bit_for_bit_where_the_uninterrupted_one_does(corpus_folder, tmp_path, optimizer):
    settings = tiny_settings(
        corpus_folder,
        optimizer={"name": optimizer, "learning_rate": 3e-3},
        model={**tiny_settings(corpus_folder).model, "dropout": 0.1},
        total_steps=14,
        cooldown_fraction=0.0,
        ema_every=3,
    )
    whole = train(settings, tmp_path / "whole")
    train(dataclasses.replace(settings, total_steps=5), tmp_path / "parts")  # stops inside an epoch
    parts = train(settings, tmp_path / "parts", resume=True)
    assert parts.position.epoch == whole.position.epoch > 0
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, parts.model.state_dict()[name]), name
    for mine, theirs in zip(whole.average.averages, parts.average.averages, strict=True):
        assert torch.equal(mine, theirs)


def test_a_state_of_other_settings_is_refused_with_both_values(corpus_folder, tmp_path):
    settings = tiny_settings(corpus_folder, total_steps=2)
    train(settings, tmp_path)
    other = Trainer(dataclasses.replace(settings, label_smoothing=0.2), tmp_path, ALONE)
    with pytest.raises(ResumeError, match=r"label_smoothing = 0\.1.*0\.2"):
        other.resume()


def test_a_run_may_go_on_with_other_data_from_the_start_of_an_epoch(corpus_folder, tmp_path):
    settings = tiny_settings(corpus_folder, total_steps=3)
    stopped = train(settings, tmp_path)
    assert stopped.position.epoch_step == 3
    other = dataclasses.replace(settings.data, sources={"tatoeba": 1.0, "stories": 0.2})
    resumed = Trainer(dataclasses.replace(settings, data=other), tmp_path, ALONE)
    assert resumed.resume()
    assert (resumed.position.step, resumed.position.epoch, resumed.position.epoch_step) == (3, 1, 0)
    for mine, theirs in zip(stopped.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_new_run_may_begin_with_the_weights_of_a_checkpoint(corpus_folder, tmp_path):
    trained = train(tiny_settings(corpus_folder), tmp_path / "first")
    checkpoint = load_checkpoint(tmp_path / "first" / "checkpoint")
    tokenizer = {"vocab_size": 320, "path": str(tmp_path / "first" / "tokenizer.model")}
    second = Trainer(tiny_settings(corpus_folder, tokenizer=tokenizer, seed=5), tmp_path / "second", ALONE)
    second.start_from(tmp_path / "first" / "checkpoint")
    for mine, theirs, average in zip(
        second.model.parameters(), checkpoint.model.parameters(), second.average.averages, strict=True
    ):
        assert torch.equal(mine, theirs)
        assert torch.equal(average, theirs)
    assert second.position.step == 0
    assert trained.position.step == 12

    deeper = {**tiny_settings(corpus_folder).model, "num_encoder_layers": 3}
    other = Trainer(tiny_settings(corpus_folder, tokenizer=tokenizer, model=deeper), tmp_path / "third", ALONE)
    with pytest.raises(ResumeError, match="has the shape"):
        other.start_from(tmp_path / "first" / "checkpoint")


def test_a_tiny_model_learns_50_pairs_by_heart(tmp_path):
    write_corpus(tmp_path, num_pairs=50)
    settings = tiny_settings(
        tmp_path, total_steps=250, warmup_steps=30, batch_tokens=250, micro_batches=1, ema_decay=0.9, ema_every=1
    )
    train(settings, tmp_path / "run")
    checkpoint = load_checkpoint(tmp_path / "run" / "checkpoint")
    sources, targets = zip(*sentence_pairs()[:50], strict=True)
    assert translate_texts(checkpoint, sources, DecodingOptions()) == list(targets)
    assert log_lines(tmp_path / "run", "loss")[-1]["step"] == 250
    assert log_lines(tmp_path / "run", "dev")[-1]["everyday_bleu"] == pytest.approx(100.0)


def test_the_published_checkpoint_holds_the_averaged_weights(corpus_folder, tmp_path):
    # In bfloat16, as real runs are; the evaluation at the end then decodes under that setting too.
    trainer = train(tiny_settings(corpus_folder, precision="bfloat16"), tmp_path)
    published = load_checkpoint(tmp_path / "checkpoint").model
    with trainer.average.applied():
        for mine, theirs in zip(trainer.model.parameters(), published.parameters(), strict=True):
            assert torch.equal(mine.detach().half().float(), theirs)


def test_accumulated_micro_batches_give_the_gradient_of_one_big_batch(corpus_folder, tmp_path):
    trainer = Trainer(tiny_settings(corpus_folder), tmp_path, ALONE)
    micro_batches, _ = next(trainer.steps())
    trainer.accumulate(micro_batches)
    apart = [weight.grad.clone() for weight in trainer.model.parameters()]
    trainer.model.zero_grad()
    trainer.accumulate([np.concatenate(micro_batches)])
    for mine, weight in zip(apart, trainer.model.parameters(), strict=True):
        torch.testing.assert_close(mine, weight.grad, atol=1e-6, rtol=1e-4)


_GRADIENTS = """
import sys
from pathlib import Path
import torch
from model.training.distributed import join_processes, leave_processes
from model.training.loop import Trainer
from tests.model.training.fixtures import tiny_settings

torch.set_num_threads(1)
processes = join_processes()
trainer = Trainer(tiny_settings(Path(sys.argv[1])), Path(sys.argv[2]), processes)
trainer.accumulate(next(trainer.steps())[0])
if processes.is_main:
    torch.save([weight.grad for weight in trainer.model.parameters()], sys.argv[3])
leave_processes(processes)
"""


@pytest.mark.slow
def test_two_processes_compute_the_gradient_of_one(corpus_folder, tmp_path):
    script = tmp_path / "gradients.py"
    script.write_text(_GRADIENTS)
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    one, two = tmp_path / "one.pt", tmp_path / "two.pt"
    arguments = [str(script), str(corpus_folder), str(tmp_path / "run")]
    subprocess.run([sys.executable, *arguments, str(one)], env=environment, check=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*torchrun, *arguments, str(two)], env=environment, check=True, capture_output=True)
    for alone, together in zip(torch.load(one), torch.load(two), strict=True):
        torch.testing.assert_close(alone, together, atol=1e-6, rtol=1e-4)


def test_main_reads_a_toml_file_and_stops_in_time(corpus_folder, tmp_path):
    settings = tiny_settings(corpus_folder)
    path = tmp_path / "tiny.toml"
    sources = "\n".join(f"{name} = {weight}" for name, weight in settings.data.sources.items())
    path.write_text(
        'name = "tiny"\nsource_language = "en"\ntarget_language = "fr"\ntotal_steps = 100000\nlog_every = 2\n'
        'batch_tokens = 120\nprecision = "bfloat16"\nthreads = 1\n'
        "[model]\nd_model = 32\nnum_heads = 4\nd_ff = 64\nnum_encoder_layers = 1\nnum_decoder_layers = 1\n"
        f'[tokenizer]\nvocab_size = 320\n[data]\ntrain = ["{corpus_folder}/train.tsv.gz"]\n'
        f'dev = "{corpus_folder}/dev.tsv"\n[data.sources]\n{sources}\n'
    )
    assert not loop.main(path, run_folder=tmp_path / "run", stop_after_minutes=0.01)
    stopped_at = log_lines(tmp_path / "run", "stop")[0]["step"]
    assert stopped_at % 2 == 0
    assert not loop.main(path, run_folder=tmp_path / "run", stop_after_minutes=0.01)
    assert log_lines(tmp_path / "run", "resume")[0]["step"] == stopped_at


def guided_settings(corpus_folder, folder, **changes):
    """Links between words of the same place, which this grammar nearly has."""
    data = corpus_folder / "train.tsv.gz"
    pairs = list(read_pairs(data))
    lines = [
        format_links((index, index) for index in range(min(len(word_spans(pair.first)), len(word_spans(pair.second)))))
        for pair in pairs
    ]
    write_beside(folder / "links", data, "links", lines)
    return tiny_settings(
        corpus_folder,
        guided_alignment={"links": str(folder / "links"), "layer": 0, "head": 2, "weight": 1.0, **changes},
    )


def test_a_guided_head_of_weight_zero_changes_no_bit(corpus_folder, tmp_path):
    without = train(tiny_settings(corpus_folder, precision="bfloat16"), tmp_path / "without")
    settings = guided_settings(corpus_folder, tmp_path, weight=0.0)
    with_it = train(dataclasses.replace(settings, precision="bfloat16"), tmp_path / "with")
    for mine, theirs in zip(without.model.parameters(), with_it.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert [line["loss"] for line in log_lines(tmp_path / "without", "loss")] == [
        line["loss"] for line in log_lines(tmp_path / "with", "loss")
    ]


@pytest.mark.parametrize(("row", "reverse"), [("input", False), ("predicted", True)])
def test_a_guided_head_learns_to_point_where_the_links_say(corpus_folder, tmp_path, row, reverse):
    settings = guided_settings(corpus_folder, tmp_path, row=row, weight=5.0)
    settings = dataclasses.replace(settings, data=dataclasses.replace(settings.data, reverse=reverse), total_steps=60)
    trainer = train(settings, tmp_path / "run")
    batch = make_batch(trainer.corpus, np.arange(40), 0, 2, 3, row)
    trainer.model.eval()
    with torch.no_grad():
        maps = trainer.model.attentions(batch.source_ids, batch.source_mask, batch.target_inputs)[1]
    cross = maps.cross[0]
    known = batch.alignment.sum(-1) > 0
    mass = [(cross[:, head] * (batch.alignment > 0)).sum(-1)[known].mean() for head in range(4)]
    assert mass[2] > 0.6, mass
    assert max(mass[0], mass[1], mass[3]) < 0.4, mass


def test_a_state_from_before_guided_alignment_is_still_the_same_run(corpus_folder, tmp_path):
    settings = tiny_settings(corpus_folder, total_steps=3)
    train(settings, tmp_path)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert "guided_alignment" not in state["settings"]
    assert set(state["settings"]["data"]) == {"train", "sources", "reverse", "max_tokens"}
    resumed = Trainer(dataclasses.replace(settings, total_steps=4), tmp_path, ALONE)
    assert resumed.resume()
    assert resumed.position.epoch_step == 3  # no new epoch: the data are the same


def test_the_worst_pairs_are_left_out_of_the_corpus_and_come_back_with_the_setting(corpus_folder, tmp_path):
    data = corpus_folder / "train.tsv.gz"
    write_beside(tmp_path / "scores", data, "scores", [str(index / 10) for index in range(75)])
    settings = tiny_settings(corpus_folder)
    cleaned = dataclasses.replace(settings.data, scores=str(tmp_path / "scores"), leave_out={"tatoeba": 0.2})
    whole = Trainer(settings, tmp_path / "run", ALONE)
    assert whole.corpus.counts == {"tatoeba": 50, "stories": 25}
    fewer = Trainer(dataclasses.replace(settings, data=cleaned), tmp_path / "run", ALONE)
    assert fewer.corpus.counts == {"tatoeba": 40, "stories": 25}
    more = dataclasses.replace(cleaned, leave_out={"tatoeba": 0.4})
    assert len(Trainer(dataclasses.replace(settings, data=more), tmp_path / "run", ALONE).corpus) == 30 + 25
    # They are cached side by side; none is taken for another.
    assert len(Trainer(settings, tmp_path / "run", ALONE).corpus) == 75
