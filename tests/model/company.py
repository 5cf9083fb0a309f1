"""Rows of a batch that join, leave, fork and change places: whatever steps them, each goes on as if it were alone."""

from hypothesis import strategies as st

from tests.model.tiny import VOCAB_SIZE, prefill, random_sources, step

_FILLER = 5


def check_any_company(data, model, pool, check, *, longest_source, most_steps=100):
    """Draws what becomes of the rows of a batch, and looks at some of them.

    Args:
        data: Of hypothesis.
        model: Steps them.
        pool: Whose pages they take; all are given back at the end.
        check: Called with the logits of a row, its source, and the tokens it has read.
        longest_source: In tokens.
        most_steps: No row has read more tokens.
    """
    used_before = pool.num_used
    state, histories = None, []

    def read(tokens):
        nonlocal histories
        logits = step(model, state, tokens)
        histories = [(source, [*past, token]) for (source, past), token in zip(histories, tokens, strict=True)]
        return logits

    for _ in range(data.draw(st.integers(1, 6))):
        sources = random_sources(data.draw(st.lists(st.integers(1, longest_source), max_size=3)), seed=len(histories))
        if sources:
            joining = prefill(model, sources)
            if state is None:
                state = joining
            else:
                state.join(joining)
            histories += [(source, []) for source in sources]
        for _ in range(data.draw(st.integers(0, 18))):
            if histories and max(len(past) for _, past in histories) < most_steps - 1:
                chosen = data.draw(st.integers(0, 10**6))
                read([4 + (chosen + row) % (VOCAB_SIZE - 4) for row in range(len(histories))])
        if histories:
            rows = data.draw(st.lists(st.integers(0, len(histories) - 1), max_size=6))
            state.select(rows)
            histories = [histories[row] for row in rows]
        if histories and max(len(past) for _, past in histories) < most_steps:
            logits = read([_FILLER] * len(histories))
            row = data.draw(st.integers(0, len(histories) - 1))
            check(logits[row], *histories[row])
    if state is not None:
        state.select([])
    assert pool.num_used == used_before
