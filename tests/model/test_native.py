"""The compiled kernels against the PyTorch modules that define what they compute."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.decoding import DecodingOptions
from model.generation import generate
from model.linear import Linear
from model.native import batch, library, packing, translate
from model.native.library import COLUMNS, kernels, load_kernels, runnable
from model.native.packing import PackedWeight
from model.native.translate import KernelSummary, NativeState
from model.search import Reads, advance_batch, best_tokens, candidates, start_search
from tests.model.company import check_any_company
from tests.model.tiny import VARIATIONS, VOCAB_SIZE, prefill, random_sources, step, tiny_model

pytestmark = pytest.mark.skipif(
    kernels() is None, reason="no kernels: no C compiler when installed, or no AVX2 in this processor"
)


def native_model(**changes):
    model = tiny_model(**{"d_model": 32, "d_ff": 48} | changes).requires_grad_(False)
    model.quantize()
    return model


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 11, 12, 13, 23, 24, 25, 40])
@pytest.mark.parametrize(("inputs", "outputs"), [(16, 7), (32, 64), (64, 65), (100, 200)])
def test_a_product_is_that_of_the_rounded_numbers(rows, inputs, outputs):
    generator = torch.Generator().manual_seed(rows + inputs)
    weight, bias = torch.randn(outputs, inputs, generator=generator), torch.randn(outputs, generator=generator)
    x = torch.randn(rows, inputs, generator=generator) * torch.logspace(-3, 3, rows).unsqueeze(1)
    steps = weight.abs().amax(1) / 127
    ranges = x.abs().amax(1)
    whole_weight = np.rint((weight / steps.unsqueeze(1)).numpy()).astype(np.int64)
    whole_input = np.rint((x / ranges.unsqueeze(1) * 127).numpy()).astype(np.int64)
    expected = whole_input @ whole_weight.T * (ranges.numpy()[:, None] / 127) * steps.numpy() + bias.numpy()
    got = PackedWeight(weight, bias).multiply(x)
    np.testing.assert_allclose(got.numpy(), expected, rtol=2e-5, atol=1e-5 * float(ranges.max()))


@pytest.mark.parametrize("inputs", [4, 36, 64, 100])
@pytest.mark.parametrize("sizes", [(127,), (0, 1, 127), (63, 64, 65, 66), (0, 32, 64, 65), (127, 0, 0, 0, 0, 0, 2)])
def test_no_sum_in_16_bits_is_cut_off(inputs, sizes):
    # AVX2 adds products in 16 bits: the largest sums are those with weights that have the signs of the inputs.
    generator = torch.Generator().manual_seed(inputs + len(sizes))
    x = torch.tensor(sizes, dtype=torch.float32)[torch.randint(len(sizes), (23, inputs), generator=generator)]
    x *= torch.randint(2, (23, inputs), generator=generator) * 2 - 1
    x[0] = x[0].abs()
    x[:, -1] = 127  # what rows and weights are rounded to 127 steps of
    weight = (
        torch.cat([x.sign(), -x.sign(), torch.ones(1, inputs), torch.randn(9, inputs, generator=generator).sign()])
        * 127
    )
    weight[:, -1] = 127
    got = PackedWeight(weight, None).multiply(x)
    assert torch.equal(got.double().round(), x.double() @ weight.double().T)


@pytest.mark.parametrize("rows", [70, 2_048, 2_050, 4_200])  # 2,048 are packed at a time
def test_a_packed_weight_can_be_read_back(rows):
    weight = torch.randn(rows, 24)
    torch.testing.assert_close(
        PackedWeight(weight, None).unpacked(), weight, rtol=0, atol=float(weight.abs().max() / 250)
    )


@pytest.mark.parametrize("name", [name for name in VARIATIONS if "rotary" not in name])
def test_steps_give_the_logits_of_the_modules(name):
    model = native_model(**VARIATIONS[name])
    sources = random_sources([3, 17, 9, 1, 20])
    state = prefill(model, sources)
    assert isinstance(state, NativeState)
    translator, model._native = model._native, None
    expected_state = prefill(model, sources)
    differences = []
    generator = random.Random(1)
    for position in range(20):
        tokens = [model.config.decoder_start_id if not position else generator.randrange(VOCAB_SIZE) for _ in sources]
        expected = step(model, expected_state, tokens)
        got, _ = translator.decode_step(torch.tensor(tokens), state)
        differences.append((got - expected).abs().amax(1) / expected.abs().amax())
    differences = torch.stack(differences).flatten()
    # A sum in another order may round one input of a later product to the next of its 127 steps: rare, and small.
    assert (differences < 1e-5).float().mean() > 0.5
    assert differences.max() < 0.1


def test_a_model_with_rotary_positions_runs_on_the_modules():
    model = native_model(**VARIATIONS["rotary positions"])
    assert not isinstance(prefill(model, random_sources([4])), NativeState)


def _alone(model, source, tokens):
    state = prefill(model, [source])
    return [step(model, state, [token])[0] for token in tokens]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_has_the_same_bits_alone_and_in_any_company(threads):
    model = native_model(**VARIATIONS["Marian"])
    sources = random_sources([5, 33, 2, 16, 17, 9, 12, 3, 3, 8, 21, 1, 7])
    tokens = torch.randint(4, VOCAB_SIZE, (len(sources), 19), generator=torch.Generator().manual_seed(1)).tolist()
    alone = [_alone(model, source, row) for source, row in zip(sources, tokens, strict=True)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        state = prefill(model, sources)
        for position in range(19):
            logits = step(model, state, [row[position] for row in tokens])
            for row, expected in enumerate(alone):
                assert torch.equal(logits[row], expected[position])
    finally:
        torch.set_num_threads(before)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_rows_that_join_leave_fork_and_change_places_go_on_as_if_alone(data):
    def check(logits, source, tokens):
        assert torch.equal(logits, _alone(_MODEL, source, tokens)[-1])

    check_any_company(data, _MODEL, _MODEL._native._pool, check, longest_source=20)


_MODEL = native_model(num_encoder_layers=1, num_decoder_layers=1) if kernels() is not None else None


def test_a_state_that_is_dropped_gives_its_pages_back():
    model = native_model()
    state = prefill(model, random_sources([4, 5]))
    for _ in range(17):
        step(model, state, [5, 6])
    assert model._native._pool.num_used == 4
    state.select([0, 0, 0])
    assert model._native._pool.num_used == 2  # shared until written
    step(model, state, [5, 6, 7])
    assert model._native._pool.num_used == 4  # the last page of each, the first of all
    del state
    assert model._native._pool.num_used == 0


def test_the_budget_of_the_caches_counts_what_a_page_takes():
    model = native_model()
    per_position = 2 * model.config.num_decoder_layers * model.config.d_model * model.cache_number_bytes
    assert model._native._pool.page_bytes == per_position * model.cache_page_tokens
    assert model.cache_number_bytes == 2
    assert native_model(**VARIATIONS["rotary positions"]).cache_number_bytes == 4


def test_beam_search_gives_what_it_gives_on_the_modules():
    options = DecodingOptions(beam_size=4, max_target_tokens=24, num_hypotheses=3, no_repeat_ngram_size=3)
    same = []
    for seed in range(4):
        model = native_model(seed=seed, **VARIATIONS["pre-norm"])
        sources = random_sources([4, 9, 15, 2], seed=2)
        got = generate(model, sources, options)
        model._native = None
        for mine, theirs in zip(got, generate(model, sources, options), strict=True):
            same.append([h.tokens for h in mine] == [h.tokens for h in theirs])
            if same[-1]:
                np.testing.assert_allclose([h.score for h in mine], [h.score for h in theirs], atol=1e-3)
    # Sums in another order change a rounding now and then, and with it one of equally good hypotheses.
    assert sum(same) >= 14, same


def _summary(logits):
    padding = (0, -logits.shape[1] % COLUMNS)
    blocks = torch.nn.functional.pad(logits, padding, value=-torch.inf).unflatten(1, (-1, COLUMNS))
    maxima = blocks.amax(-1)
    places = (blocks == maxima.unsqueeze(-1)).to(torch.uint8).argmax(-1).to(torch.uint8)
    return KernelSummary(logits, maxima, places, (blocks - maxima.unsqueeze(-1)).exp().sum(-1))


def test_the_kernel_summarizes_its_logits():
    model = native_model(source_vocab_size=1000, target_vocab_size=1000)
    state = prefill(model, random_sources([4, 9, 2]))
    with torch.no_grad():
        logits, summary = model.decode_step_summarized(torch.tensor([5, 6, 7]), state)
    expected = _summary(logits)
    assert torch.equal(summary.maxima, expected.maxima)
    assert torch.equal(summary.places, expected.places)
    torch.testing.assert_close(summary.sums, expected.sums, rtol=1e-5, atol=0)
    torch.testing.assert_close(summary.log_sum_exp(), logits.logsumexp(-1))


@pytest.mark.parametrize("sums", [False, True])
def test_a_step_without_logits_knows_the_same(sums):
    model = native_model(source_vocab_size=1000, target_vocab_size=1000)
    sources, tokens = random_sources([4, 9, 2, 5, 3, 8, 7, 1]), torch.arange(5, 13)
    with torch.no_grad():
        logits, expected = model.decode_step_summarized(tokens, prefill(model, sources))
        lazy, summary = model.decode_step_summarized(tokens, prefill(model, sources), Reads(logits=False, sums=sums))
    assert lazy.shape == logits.shape
    assert torch.equal(lazy.float(), logits)
    assert torch.equal(lazy[torch.tensor([3, 0])], logits[[3, 0]])
    best = logits.argmax(-1)
    assert torch.equal(summary.best_tokens()[1], best)
    assert torch.equal(summary.best_tokens()[0], expected.best_tokens()[0])
    others = torch.where(torch.arange(len(best)) % 2 == 0, best, tokens)
    torch.testing.assert_close(summary.log_probs(others), logits.log_softmax(-1).gather(1, others[:, None]).squeeze(1))
    banned = [{int(token)} for token in best]
    for got, want in zip(summary.candidates(3, banned), expected.candidates(3, banned), strict=True):
        torch.testing.assert_close(got, want)
    some = summary.rows(torch.tensor([2, 6])).candidates(3, [banned[2], banned[6]])
    assert torch.equal(some[1], expected.candidates(3, banned)[1][[2, 6]])


def test_greedy_search_decodes_without_logits(monkeypatch):
    model = native_model(source_vocab_size=1000, target_vocab_size=1000, seed=2)
    reads, step = [], model.decode_step_summarized
    monkeypatch.setattr(
        model, "decode_step_summarized", lambda tokens, state, some: reads.append(some) or step(tokens, state, some)
    )
    sources = random_sources([4, 9, 15, 2])
    options = DecodingOptions(max_target_tokens=12, min_target_tokens=12)
    got = generate(model, sources, options)
    assert {some.logits for some in reads} == {False}
    monkeypatch.setattr(model, "decode_step_summarized", lambda tokens, state, _: step(tokens, state))
    assert [one[0].tokens for one in got] == [one[0].tokens for one in generate(model, sources, options)]


@pytest.mark.parametrize("size", [1.0, 70_000.0, float("nan")])
def test_keys_and_values_are_kept_as_the_nearest_float16(size):
    model = native_model(num_decoder_layers=1, num_encoder_layers=1)
    model.decoder.layers[0].cross_attention.kv.packed._bias[3] = size
    source = random_sources([18])
    state = prefill(model, source)
    depth, heads = 32 // model.config.num_heads, model.config.num_heads
    blocks = state._memories[0].view(2, heads, 2, 16 * depth)
    keys = blocks[:, :, 0].view(2, heads, depth, 16).permute(0, 3, 1, 2).reshape(32, 32)[:18]
    values = blocks[:, :, 1].view(2, heads, 16, depth).permute(0, 2, 1, 3).reshape(32, 32)[:18]
    with torch.no_grad():
        memory = model.encode(torch.tensor(source), torch.ones(1, 18, dtype=torch.bool))
        plain = model.decoder.layers[0].cross_attention.kv(memory)[0].numpy()
    with np.errstate(over="ignore"):
        expected = np.clip(plain, -65_504, 65_504).astype(np.float16)
    # The modules sum in another order: a number next to the border of two roundings may fall to either side.
    np.testing.assert_allclose(torch.cat([keys, values], 1).numpy(), expected, rtol=2e-3, atol=2e-3)
    assert (torch.cat([keys, values], 1).numpy() == expected).mean() > 0.9 or np.isnan(size)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_summary_does_not_hide_what_is_not_finite(poison):
    model = native_model(target_vocab_size=1000, source_vocab_size=1000, output_bias=True)
    model.output.packed._bias[777] = poison
    with torch.no_grad():
        _, summary = model.decode_step_summarized(torch.tensor([5]), prefill(model, random_sources([4])))
    assert isinstance(summary, KernelSummary)
    assert summary.best_tokens()[0].isnan().all()
    assert summary.candidates(4, [set()])[0][0, 0].isnan()
    assert summary.log_probs(torch.tensor([4])).isnan().all()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 5), k=st.sampled_from([1, 2, 8]), coarse=st.booleans())
def test_search_finds_the_same_with_a_summary_and_without(seed, rows, k, coarse):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, 1500, generator=generator) * 3
    if coarse:
        logits = logits.round()  # many ties
    banned = [set(torch.randint(0, 1500, (3,), generator=generator).tolist()) | {0, 2} for _ in range(rows)]
    for row, tokens in enumerate(banned):
        tokens.add(int(logits[row].argmax()))  # the best of all may not be had
    log_probs = logits.log_softmax(-1)
    for row, tokens in enumerate(banned):
        log_probs[row, list(tokens)] = -torch.inf
    values, ids = candidates(log_probs, k)
    summary = _summary(logits)
    got = summary.candidates(k, banned)
    assert torch.equal(got[1], ids)
    torch.testing.assert_close(got[0], values)
    best = best_tokens(logits)[1]
    assert torch.equal(summary.best_tokens()[1], best)
    torch.testing.assert_close(summary.log_probs(best), logits.log_softmax(-1).amax(-1))


def test_a_step_of_all_kinds_of_search_is_the_same_with_a_summary():
    generator = torch.Generator().manual_seed(1)
    kinds = [
        DecodingOptions(), DecodingOptions(beam_size=4), DecodingOptions(temperature=1.0, seed=3),
        DecodingOptions(beam_size=2, repetition_penalty=1.3), DecodingOptions(min_target_tokens=4),
    ]  # fmt: skip
    both = [
        [start_search(options, eos_id=3, max_tokens=9, forbidden_ids=(0, 1), forced_prefix=prefix)
         for options in kinds for prefix in ((), (7,))]
        for _ in range(2)
    ]  # fmt: skip
    for _ in range(9):
        running = [[search for search in searches if not search.finished] for searches in both]
        if not running[0]:
            break
        logits = torch.randn(sum(search.num_rows for search in running[0]), 1500, generator=generator) * 2
        plain, summarized = advance_batch(running[0], logits), advance_batch(running[1], logits, _summary(logits))
        assert plain == summarized
    for one, other in zip(*both, strict=True):
        for mine, theirs in zip(one.hypotheses(), other.hypotheses(), strict=True):
            assert mine.tokens == theirs.tokens
            np.testing.assert_allclose(mine.token_log_probs, theirs.token_log_probs, rtol=1e-4, atol=1e-4)


def test_without_kernels_a_layer_is_quantized_by_torch(monkeypatch):
    monkeypatch.setattr(PackedWeight, "fits", lambda weight: False)
    layer = Linear(32, 32, bias=False).requires_grad_(False)
    layer.weight.normal_()
    layer.quantize()
    assert layer.packed is None
    assert layer.is_quantized


def test_where_a_compiler_is_the_kernels_are():
    # Not in the mark above: a broken build must not turn into a skipped file unseen.
    assert kernels() is not None or shutil.which("gcc") is None
    folder = Path(library.__file__).parent
    assert {path.name for path in folder.glob("libkernels_*.so.1")} >= {
        "libkernels_avx2.so.1",
        "libkernels_avx512.so.1",
    }


@pytest.mark.skipif(runnable() != ["avx512", "avx2"], reason="this processor runs the kernels of AVX2 only")
@pytest.mark.parametrize("name", [name for name in VARIATIONS if "rotary" not in name])
def test_both_instruction_sets_give_the_same_bits(name, monkeypatch):
    logits = []
    sources = random_sources([3, 17, 9, 1, 20, 2, 2, 40])
    for instructions in runnable():
        chosen = load_kernels(instructions)
        for module in (library, batch, packing, translate):
            monkeypatch.setattr(module, "kernels", lambda chosen=chosen: chosen)
        longer = {"max_positions": 64} if "learned" in name else {}  # than the sources
        model = native_model(**VARIATIONS[name] | longer)
        state = prefill(model, sources)
        logits.append(torch.stack([step(model, state, [5 + position] * len(sources)) for position in range(20)]))
    assert torch.equal(*logits)


@pytest.mark.parametrize("rows", [2, 3, 15, 16, 17, 18, 40])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 65), (256, 320), (448, 33)])
def test_products_of_matrices_have_the_bits_of_products_of_vectors(rows, inputs, outputs, with_matrices):
    generator = torch.Generator().manual_seed(rows + inputs)
    weight = PackedWeight(torch.randn(outputs, inputs, generator=generator), torch.randn(outputs, generator=generator))
    x = torch.randn(rows, inputs, generator=generator)
    x[0] = 127  # the largest sums
    assert with_matrices(1) == 1
    found = weight.multiply(x)
    assert with_matrices(0) == 0
    assert torch.equal(found, weight.multiply(x))


@pytest.fixture
def with_matrices():
    use = kernels().gs_use_matrices
    if not use(1):
        pytest.skip("this processor has no AMX, or the system does not let it be used")
    yield use
    use(1)
