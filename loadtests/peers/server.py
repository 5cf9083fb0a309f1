"""What one would otherwise write: a model library behind FastAPI, with or without a dynamic batcher.

    python -m loadtests.peers.server --system ctranslate2 --checkpoint CHECKPOINT --converted FOLDER --port 9000

Around the library everything is ours, so that only the library and its batching differ: text is split and tokenized as
our server does it. `POST /translate {"text", "target_tokens"?}` answers the same two; the text may be a list.

The batcher is the usual one: it takes the first waiting request, waits up to 8 ms for more (at most 64), and runs one
`translate_batch` for all their segments in a thread; with several workers of the library, so many batches run at once.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from model.description import describe, open_tokenizer
from model.tokenizer import TextTokenizer
from service.text.segmenter import Document, segment_text

_LONGEST_TARGET = 512


class TranslateBody(BaseModel):
    """What is to be translated; `target_tokens` is the length that random weights are made to write."""

    text: str | list[str]
    target_tokens: int | None = None


class TranslateAnswer(BaseModel):
    """The translation, of a list a list."""

    text: str | list[str]
    target_tokens: int


@dataclass(slots=True)
class Waiting:
    """A request in the batcher.

    Attributes:
        sources: The pieces of each of its segments, the end of sentence last.
        target_tokens: How many tokens each must have; None = as many as the model wants.
        done: Gets the pieces of each segment's translation.
    """

    sources: list[list[str]]
    target_tokens: int | None
    done: asyncio.Future[list[list[str]]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


Translate = Callable[[list[list[str]], list[int | None]], list[list[str]]]
"""Sources and their fixed lengths -> pieces; blocks."""


class Batcher:
    """Collects requests and runs them together."""

    def __init__(self, translate: Translate, *, max_requests: int, max_wait_seconds: float, workers: int) -> None:
        """Starts nothing yet."""
        self._translate = translate
        self._max_requests, self._max_wait_seconds = max_requests, max_wait_seconds
        self._waiting: asyncio.Queue[Waiting] = asyncio.Queue()
        self._collecting = asyncio.Lock()
        self._threads = ThreadPoolExecutor(workers)
        self._workers = workers

    async def run(self) -> None:
        """Works until cancelled."""
        await asyncio.gather(*(self._work() for _ in range(self._workers)))

    async def submit(self, sources: list[list[str]], target_tokens: int | None) -> list[list[str]]:
        """The pieces of each source's translation."""
        request = Waiting(sources, target_tokens)
        self._waiting.put_nowait(request)
        return await request.done

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._collecting:
                batch = await self._collect()
            sources = [source for request in batch for source in request.sources]
            lengths = [request.target_tokens for request in batch for _ in request.sources]
            try:
                results = await loop.run_in_executor(self._threads, self._translate, sources, lengths)
            except Exception as error:
                for request in batch:
                    request.done.set_exception(error)
                continue
            for request in batch:
                own, results = results[: len(request.sources)], results[len(request.sources) :]
                if not request.done.cancelled():
                    request.done.set_result(own)

    async def _collect(self) -> list[Waiting]:
        batch = [await self._waiting.get()]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._max_wait_seconds
        while len(batch) < self._max_requests:
            if self._waiting.empty():
                try:
                    async with asyncio.timeout_at(deadline):
                        batch.append(await self._waiting.get())
                except TimeoutError:
                    break
            else:
                batch.append(self._waiting.get_nowait())
        return batch


def ctranslate2_translate(
    folder: Path, compute_type: str, workers: int, threads: int, max_batch_size: int
) -> Translate:
    """Greedy `translate_batch`.

    A call has one minimum and maximum length. To give every row a length of its own, so that rows of different lengths
    can share a call, the callback that the library offers ends each row where it must end.
    """
    import ctranslate2

    translator = ctranslate2.Translator(
        str(folder), device="cpu", compute_type=compute_type, inter_threads=workers, intra_threads=threads
    )

    def translate(sources: list[list[str]], lengths: list[int | None]) -> list[list[str]]:
        if lengths[0] is None:
            options: dict[str, Any] = {"min_decoding_length": 0, "max_decoding_length": _LONGEST_TARGET}
        else:
            longest = max(length for length in lengths if length is not None)
            options = {
                "min_decoding_length": longest,
                "max_decoding_length": longest,
                "callback": lambda result: result.step + 1 >= lengths[result.batch_id],
            }
        results = translator.translate_batch(sources, beam_size=1, max_batch_size=max_batch_size, **options)
        return [result.hypotheses[0] for result in results]

    return translate


def huggingface_translate(folder: Path, threads: int, names: Sequence[str]) -> Translate:
    """`generate` of transformers, one source a call: the fixed lengths of a call are one pair of numbers."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    torch.set_num_threads(threads)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    ids = {name: number for number, name in enumerate(names)}
    eos_id = model.config.eos_token_id

    def translate(sources: list[list[str]], lengths: list[int | None]) -> list[list[str]]:
        results = []
        for source, length in zip(sources, lengths, strict=True):
            options = {"max_new_tokens": _LONGEST_TARGET}
            if length is not None:
                options = {"min_new_tokens": length, "max_new_tokens": length}
            with torch.inference_mode():
                output = model.generate(
                    input_ids=torch.tensor([[ids[piece] for piece in source]]), num_beams=1, do_sample=False, **options
                )
            written = output[0, 1:].tolist()
            if length is None and written[-1:] == [eos_id]:  # as CTranslate2, whose pieces are without it
                written.pop()
            results.append([names[token] for token in written])
        return results

    return translate


class Texts:
    """Text to the pieces of its segments and back, as our server does it."""

    def __init__(self, checkpoint: Path, max_segment_tokens: int) -> None:
        """Reads the checkpoint's tokenizer, not its weights."""
        description = describe(checkpoint)
        self.language = description.source_language
        self.tokenizer: TextTokenizer = open_tokenizer(checkpoint, description)
        self._max_tokens = max_segment_tokens
        self.pieces = [self.tokenizer.piece(token) for token in range(self.tokenizer.vocab_size)]
        self._ids = {piece: token for token, piece in enumerate(self.pieces)}

    def cut(self, text: str) -> tuple[Document, list[int], list[list[str]]]:
        """The document, the indices of its segments that are translated, and their pieces."""
        document = segment_text(text, self.language, max_tokens=self._max_tokens, count_tokens=self._count)
        places = [index for index, segment in enumerate(document.segments) if segment.translatable]
        return document, places, [list(self._encode(document.segments[place].text).pieces) for place in places]

    def join(self, document: Document, places: Sequence[int], pieces: Sequence[list[str]]) -> str:
        """The translated text."""
        texts = [segment.text for segment in document.segments]
        for place, written in zip(places, pieces, strict=True):
            texts[place] = self.tokenizer.decode([self._ids[piece] for piece in written])
        return document.join(texts)

    def _encode(self, text: str) -> Any:
        return self.tokenizer.encode(text, self.language, add_eos=True)

    def _count(self, text: str) -> int:
        return len(self._encode(text).ids)


def create_app(texts: Texts, batcher: Batcher) -> FastAPI:
    """The HTTP front."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        work = asyncio.create_task(batcher.run())
        yield
        work.cancel()

    app = FastAPI(lifespan=lifespan)

    @app.get("/healthz")
    @app.get("/readyz")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/translate")
    async def translate(body: TranslateBody) -> TranslateAnswer:
        cut = [texts.cut(text) for text in ([body.text] if isinstance(body.text, str) else body.text)]
        sources = [source for _, _, some in cut for source in some]
        pieces = await batcher.submit(sources, body.target_tokens) if sources else []
        ends = len(pieces) if body.target_tokens is None else 0  # the end of sentence is written, but not among them
        translated, left = [], iter(pieces)
        for document, places, some in cut:
            translated.append(texts.join(document, places, list(islice(left, len(some)))))
        text = translated[0] if isinstance(body.text, str) else translated
        return TranslateAnswer(text=text, target_tokens=sum(map(len, pieces)) + ends)

    return app


def main() -> None:
    """Serve until a signal comes."""
    import uvicorn

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=["ctranslate2", "huggingface"], required=True)
    parser.add_argument("--checkpoint", type=Path, required=True, help="ours, for its tokenizer")
    parser.add_argument("--converted", type=Path, required=True, help="the same weights as the library wants them")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--compute-type", default="int8")
    parser.add_argument("--workers", type=int, default=1, help="batches at once (inter_threads)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each (intra_threads)")
    parser.add_argument("--max-requests", type=int, default=64, help="of a batch; 1 = one request a call")
    parser.add_argument("--max-wait-seconds", type=float, default=0.008)
    parser.add_argument("--max-batch-size", type=int, default=64, help="segments that the library runs together")
    parser.add_argument("--max-segment-tokens", type=int, default=128)
    arguments = parser.parse_args()
    texts = Texts(arguments.checkpoint, arguments.max_segment_tokens)
    if arguments.system == "huggingface":
        translate = huggingface_translate(arguments.converted, arguments.threads, texts.pieces)
    else:
        translate = ctranslate2_translate(
            arguments.converted,
            arguments.compute_type,
            arguments.workers,
            arguments.threads,
            arguments.max_batch_size,
        )
    batcher = Batcher(
        translate,
        max_requests=arguments.max_requests,
        max_wait_seconds=arguments.max_wait_seconds if arguments.max_requests > 1 else 0.0,
        workers=arguments.workers,
    )
    uvicorn.run(create_app(texts, batcher), port=arguments.port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
