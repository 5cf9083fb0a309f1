"""The engine on a GPU. Skipped where there is none, and so far it was: no GPU was at hand when this was written."""

import threading

import pytest
import torch

from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from model.device import choose_device
from model.graphs import CudaCapture
from service.engine.limits import EngineLimits
from service.engine.request import EngineRequest, SequenceRequest
from service.engine.runner import Runner
from service.engine.scheduler import Scheduler
from tests.data.make_tiny_checkpoint import FOLDER as TINY_CHECKPOINT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # torch calls the mode that refuses to wait for the GPU a prototype.
    pytest.mark.filterwarnings("default::UserWarning"),
]

OPTIONS = (
    DecodingOptions(max_target_tokens=20),
    DecodingOptions(beam_size=4, num_hypotheses=2, max_target_tokens=20),
    DecodingOptions(temperature=1.0, top_k=5, seed=1, max_target_tokens=20),
)


def decode(device, precision, **how):
    checkpoint = load_checkpoint(TINY_CHECKPOINT, choose_device(device))
    limits = EngineLimits()
    runner = Runner([checkpoint], limits, precision=precision, **how)
    runner.warm_up()
    scheduler = Scheduler(runner.models(), limits)
    texts = ("The spider feels the web.", "Hello.", "How many trains leave on Sunday?")
    sources = [checkpoint.tokenizer.encode(text, "en", add_eos=True).ids for text in texts]
    sequences = tuple(SequenceRequest(source, options) for source in sources for options in OPTIONS)
    scheduler.submit(EngineRequest("r", checkpoint.name, sequences, with_log_probs=True))
    found = {}
    while not scheduler.is_idle:
        for update in runner.execute(scheduler.schedule()).updates:
            if update.is_final:
                assert update.failure is None
                found[scheduler.owner(update.sequence_id)[1]] = update.hypotheses[0]
                scheduler.finish(update.sequence_id)
    return runner.models()[0].precision, [found[index] for index in range(len(sequences))]


def test_float32_finds_what_the_processor_finds():
    _, expected = decode("cpu", "float32")
    _, found = decode("cuda", "float32")
    assert [each.tokens for each in found] == [each.tokens for each in expected]


def test_captured_steps_find_what_steps_kernel_by_kernel_find():
    _, expected = decode("cuda", "float32", cuda_graphs=False)
    _, found = decode("cuda", "float32", cuda_graphs=True)
    assert [each.tokens for each in found] == [each.tokens for each in expected]


@pytest.fixture(scope="module")
def captured():
    """A model in half precision whose steps are captured."""
    model = load_checkpoint(TINY_CHECKPOINT, choose_device("cuda")).model
    model.set_precision("auto")
    model.use_graphs(max_rows=16, max_positions=64, cache_bytes=2**24, capture=CudaCapture())
    model.capture_steps()
    return model


def test_every_step_of_sentences_is_captured_at_warm_up(captured):
    graphs = captured._graphs
    assert graphs.num_captured == len(graphs._steps) == 2 * len(graphs._rungs)


@torch.inference_mode()
def test_a_step_waits_for_the_gpu_only_to_hear_what_came_of_it(captured):
    state = captured.prefill([[5, 6, 3], [7, 3], [8, 9, 10, 11, 3]])
    tokens = torch.tensor([5, 6, 7])
    captured.decode_step_summarized(tokens, state)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(17):  # a page is begun on the way
            captured.decode_step_summarized(tokens, state)
        state.select([0, 0, 2])  # and one is copied
        captured.decode_step_summarized(tokens, state)
        state.join(captured.prefill([[5, 3]]))
        _, summary = captured.decode_step_summarized(torch.tensor([5, 6, 7, 2]), state)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert summary.best_tokens()[0].isfinite().all()


@torch.inference_mode()
def test_a_look_inside_during_a_capture_disturbs_neither(captured):
    model = load_checkpoint(TINY_CHECKPOINT, choose_device("cuda")).model
    model.use_graphs(max_rows=16, max_positions=64, cache_bytes=2**24, capture=CudaCapture())
    is_over, faults = threading.Event(), []

    def look():
        try:
            ids = torch.tensor([[5, 6, 3]], device="cuda")
            while not is_over.is_set():
                with torch.inference_mode():
                    captured.attentions(ids, None, ids)[0].sum().item()
        except RuntimeError as fault:
            faults.append(fault)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        model.capture_steps()
    finally:
        is_over.set()
        thread.join()
    assert not faults
    assert model._graphs.num_captured == len(model._graphs._steps)


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "auto"])
def test_half_formats_translate(precision):
    held, found = decode("cuda", precision)
    assert held in ("bfloat16", "float16") if precision == "auto" else held == precision
    assert all(torch.isfinite(torch.tensor(each.token_log_probs)).all() for each in found)
