"""What is done before and between the engine's turns takes linear time, and ends with the deadline.

The engine is none, so that all time is that of splitting, finding what is kept, encoding, detecting and putting back.
"""

import asyncio
import time

import pytest

from model.tokenizer import Tokenizer
from service.engine.errors import DeadlineExceeded
from service.markup import MarkupTranslator, read_markups
from service.settings import BUNDLED_MODELS
from service.text.detection import detect, warm_up
from service.translator import Job, Translator
from tests.service.fakes import FAKE_MODEL, FakeEngine

SIZE = 131_072
"""As much as a request may hold."""
DEADLINE_SECONDS = 0.3
PATHOLOGICAL = (
    "a a@ a.b/ a_ a- a' a=b_ a->b A.B( x( x(a, ((( ((a [[ {{ {x,plural, `a < <a <!-- &a; % \\a C:\\a w/ 1 1, 1e- $ ^ ?!"
    " .... --a @a_ http://a/ a\u0301 \u0301 \u200d \u200f 🙂 🇫🇷 こ שלום «_ \x00 \ue000a f(a);_ x_=_ Mr._"
    " one_two_three._ a_b\n a\tb ____a"
).split(" ")


@pytest.fixture(scope="module")
def tokenizer():
    warm_up()
    return Tokenizer(BUNDLED_MODELS / "en-fr" / "tokenizer.model")


def seconds_of(tokenizer, text, format_):
    async def main():
        engine = FakeEngine()
        await engine.start()
        translator = Translator(engine, {"en-fr": tokenizer}, max_segment_tokens=128)
        job = Job((text,), FAKE_MODEL, deadline=time.monotonic() + DEADLINE_SECONDS)
        try:
            if format_ == "html":
                await MarkupTranslator(translator, None).translate(job, await read_markups("html", job.texts))
            else:
                await translator.translate(job)
        except DeadlineExceeded:
            pass

    started = time.process_time()  # of all threads; what other processes take does not count
    detect(text, ["en", "de"])
    asyncio.run(main())
    return time.process_time() - started


@pytest.mark.parametrize(
    ("part", "format_"),
    [*((part, "text") for part in PATHOLOGICAL), *((part, "html") for part in PATHOLOGICAL[::4])],
    ids=ascii,
)
def test_no_text_takes_much_longer_than_its_deadline(tokenizer, part, format_):
    part = part.replace("_", " ")
    text = part * (SIZE // len(part.encode()))
    # One look at 128 kB takes up to 4 seconds on a slow processor; what is not linear would take minutes.
    assert seconds_of(tokenizer, text, format_) < DEADLINE_SECONDS + 10
