"""Locust users for everything that clients do: the native API, both dialects, streams, attention, HTML.

    make load                                            # a server of its own, headless, half a minute
    locust -f loadtests/locustfile.py --host http://127.0.0.1:8000              # Locust's web page
    locust -f loadtests/locustfile.py --host ... NativeUser StreamingUser       # only these

Texts are held-out sentences of exact token lengths, drawn with a seed (LOAD_SEED, 1 by default), so that two runs ask
the same. All users but one are a closed loop: each waits for its answer before it asks again, so a slow server is asked
less (coordinated omission). `OpenLoopUser` asks on a Poisson schedule (LOAD_RATE a second, 2 by default, for each such
user) whatever became of earlier requests, and counts times from when a request was due; its line is the one to quote.
"""

from __future__ import annotations

import json
import os
import random
import time
from itertools import count
from typing import Any

import gevent
from locust import FastHttpUser, constant_pacing, task
from locust.exception import StopUser

from loadtests.texts import Texts
from model.description import describe, open_tokenizer
from service.settings import BUNDLED_MODELS

SEED = int(os.environ.get("LOAD_SEED", "1"))
RATE = float(os.environ.get("LOAD_RATE", "2"))
LENGTHS = (4, 8, 16, 32, 64, 128, 256)
_TEXTS_OF_EACH_LENGTH = 12
_NUMBERS = count()


def _draw_texts() -> dict[int, list[str]]:
    folder = BUNDLED_MODELS / "en-fr"
    description = describe(folder)
    texts = Texts(open_tokenizer(folder, description), description.source_language, seed=SEED)
    return {length: [texts.sentences(length) for _ in range(_TEXTS_OF_EACH_LENGTH)] for length in LENGTHS}


TEXTS = _draw_texts()


class _User(FastHttpUser):
    abstract = True
    wait_time = constant_pacing(0.5)

    def on_start(self) -> None:
        """Each user has random numbers of its own."""
        self.random = random.Random(1_000 * SEED + next(_NUMBERS))

    def text(self, longest: int = 256) -> tuple[int, str]:
        """A text and its length in tokens; each length is as likely."""
        length = self.random.choice([length for length in LENGTHS if length <= longest])
        return length, self.random.choice(TEXTS[length])

    def ask(self, name: str, path: str, body: dict[str, Any], **options: Any) -> Any:
        """POST and check: any status but 200 and any answer without content is a failure. None then."""
        with self.client.post(path, json=body, name=name, catch_response=True, **options) as response:
            if response.status_code != 200:
                response.failure(f"{response.status_code} {(response.text or '')[:200]}")
                return None
            try:
                return response.json()
            except ValueError:
                response.failure("no JSON")
                return None


class NativeUser(_User):
    """`/v1/translate`: single texts of all lengths, lists now and then."""

    weight = 4

    @task(8)
    def one(self) -> None:
        """One text; the default search."""
        length, text = self.text()
        self.ask(f"/v1/translate {length} tokens", "/v1/translate", {"text": text, "source": "en", "target": "fr"})

    @task(1)
    def many(self) -> None:
        """Ten short texts, greedily."""
        texts = [self.text(16)[1] for _ in range(10)]
        body = {"text": texts, "target": "fr", "decoding": {"beam_size": 1}}
        answer = self.ask("/v1/translate list of 10", "/v1/translate", body)
        assert answer is None or len(answer["translations"]) == len(texts)


class LibreTranslateUser(_User):
    """A client of LibreTranslate."""

    weight = 2

    @task
    def translate(self) -> None:
        """`/translate`."""
        _, text = self.text(64)
        self.ask("/translate (LibreTranslate)", "/translate", {"q": text, "source": "en", "target": "fr"})


class DeepLUser(_User):
    """A client of DeepL."""

    weight = 2

    @task
    def translate(self) -> None:
        """`/v2/translate`."""
        _, text = self.text(64)
        self.ask(
            "/v2/translate (DeepL)", "/v2/translate", {"text": [text], "target_lang": "FR"},
            headers={"Authorization": "DeepL-Auth-Key load"},
        )  # fmt: skip


class StreamingUser(_User):
    """Reads translations while they are written."""

    weight = 1

    @task
    def stream(self) -> None:
        """Times to the headers, to the first text and to the end, each in a line of its own."""
        _, text = self.text(128)
        body = {"text": text, "source": "en", "target": "fr", "stream": True}
        started, first, last = time.perf_counter(), None, b""
        with self.client.post(
            "/v1/translate", json=body, name="stream, headers", stream=True, catch_response=True
        ) as response:
            if response.status_code != 200:
                response.failure(f"{response.status_code} {response.text}")
                return
            while line := response.stream.readline(b"\n"):
                if first is None and line.startswith(b"event: token"):
                    first = time.perf_counter() - started
                last = line if line.strip() else last
            if b'"translations"' not in last:
                response.failure(f"the stream ended with {last[:200]!r}")
        for name, seconds in (("first text", first), ("end", time.perf_counter() - started)):
            if seconds is not None:
                self.environment.events.request.fire(
                    request_type="POST", name=f"stream, {name}", response_time=1e3 * seconds,
                    response_length=0, exception=None, context={},
                )  # fmt: skip


class AttentionUser(_User):
    """Looks inside."""

    weight = 1
    wait_time = constant_pacing(2)  # replays run one at a time: more would be refused, as it should be

    @task
    def attention(self) -> None:
        """The cross-attention of a short text."""
        _, text = self.text(32)
        self.ask("/v1/attention", "/v1/attention", {"text": text, "target": "fr", "kinds": ["cross"], "decimals": 4})


class HtmlUser(_User):
    """Translates pages; leaves at once where the server cannot."""

    weight = 1

    def on_start(self) -> None:
        """Ask once whether HTML is translated."""
        super().on_start()
        body = {"text": "<p>Yes.</p>", "target": "fr", "format": "html"}
        with self.client.post("/v1/translate", json=body, name="/v1/translate HTML?", catch_response=True) as response:
            response.success()
            if response.status_code == 422:
                raise StopUser

    @task
    def page(self) -> None:
        """Two paragraphs with a link and emphasis."""
        first, second = self.text(32)[1], self.text(64)[1]
        page = (
            f'<h1>{self.text(8)[1]}</h1><p>{first} <a href="https://example.org/">{second}</a></p><p><b>{first}</b></p>'
        )
        answer = self.ask("/v1/translate HTML", "/v1/translate", {"text": page, "target": "fr", "format": "html"})
        assert answer is None or answer["translations"][0]["text"].count("<p>") == 2


class OpenLoopUser(_User):
    """Asks on schedule, and counts from then."""

    weight = 1
    wait_time = constant_pacing(0)

    @task
    def arrive(self) -> None:
        """One arrival, and the wait for the next one, which does not depend on the answer."""
        gevent.sleep(self.random.expovariate(RATE))
        gevent.spawn(self._one, time.perf_counter(), *self.text(64))

    def _one(self, due: float, length: int, text: str) -> None:
        error = None
        body = json.dumps({"text": text, "source": "en", "target": "fr"})
        try:
            # Past Locust's own clock, which starts when the request is sent.
            response = self.client.client.urlopen(
                f"{self.host}/v1/translate", method="POST", payload=body, headers={"Content-Type": "application/json"}
            )
            response.read()
            if response.status_code != 200:
                error = RuntimeError(f"status {response.status_code}")
        except Exception as caught:
            error = caught
        self.environment.events.request.fire(
            request_type="POST", name=f"open loop {length} tokens", response_time=1e3 * (time.perf_counter() - due),
            response_length=0, exception=error, context={},
        )  # fmt: skip
