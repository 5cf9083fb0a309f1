"""DeepL's documents: uploaded, translated while the client asks how far they are, and fetched once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException

from service.api.dialects.store import FileStore, StoredFile
from service.api.errors import problem_of
from service.observability.logging import describe_exception

logger = logging.getLogger(__name__)

MAX_WAITING = 64
"""Documents that wait or are being translated; more are refused."""

_NUM_TOGETHER = 2
"""Documents that are being translated at once."""

_GUESSED_CHARACTERS_PER_SECOND = 200


class TooManyDocuments(HTTPException):
    """Others have to be done first."""

    def __init__(self) -> None:
        super().__init__(429, f"Too many requests: {MAX_WAITING} documents are waiting")


class NoSuchDocument(HTTPException):
    """There is none of this id and key, or it was fetched."""

    def __init__(self) -> None:
        super().__init__(404, "Document not found")


@dataclass(slots=True)
class Document:
    """A document on its way.

    Attributes:
        document_id: 128 random bits in hex.
        key: 256 more, which its owner shows.
        owner: Whose API key it came with.
        num_characters: How much text there is in it.
        status: `queued`, `translating`, `done` or `error`.
        error: What went wrong.
        progress: Which share is done, 0 to 1.
        started: When its turn came, on the monotonic clock.
        file: The translation.
    """

    document_id: str
    key: str
    owner: str | None
    num_characters: int
    status: str = "queued"
    error: str = ""
    progress: float = 0.0
    started: float = 0.0
    file: StoredFile | None = None

    def seconds_remaining(self) -> int:
        """A guess."""
        if self.progress <= 0.0:
            return max(1, self.num_characters // _GUESSED_CHARACTERS_PER_SECOND)
        spent = time.monotonic() - self.started
        return max(1, round(spent * (1.0 - self.progress) / self.progress))

    def info(self) -> dict[str, object]:
        """What DeepL tells of a document."""
        answer: dict[str, object] = {"document_id": self.document_id, "status": self.status}
        if self.status == "translating":
            answer["seconds_remaining"] = self.seconds_remaining()
        elif self.status == "done":
            answer |= {"seconds_remaining": 0, "billed_characters": self.num_characters}
        elif self.status == "error":
            answer |= {"error_message": self.error, "message": self.error}
        return answer


Work = Callable[[Callable[[float], None]], Awaitable[StoredFile]]
"""Translates; it is given whom to tell of its progress."""


@dataclass(slots=True)
class Documents:
    """All documents, in memory. Used by the event loop only."""

    files: FileStore
    lifetime_seconds: float
    _documents: dict[str, Document] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_NUM_TOGETHER))

    def start(self, owner: str | None, num_characters: int, work: Work) -> Document:
        """Takes a document; it is translated when its turn comes.

        Raises:
            TooManyDocuments: If too many wait already.
        """
        if len(self._tasks) >= MAX_WAITING:
            raise TooManyDocuments
        document = Document(secrets.token_hex(16).upper(), secrets.token_hex(32).upper(), owner, num_characters)
        self._documents[document.document_id] = document
        task = asyncio.create_task(self._run(document, work))
        self._tasks[document.document_id] = task
        task.add_done_callback(lambda _: self._finished(document))
        return document

    def get(self, document_id: str, key: str | None, owner: str | None) -> Document:
        """A document, for whoever has its key.

        Raises:
            NoSuchDocument: If there is none, or the key is not its own.
        """
        document = self._documents.get(document_id)
        is_own = document is not None and secrets.compare_digest(document.key.encode(), (key or "").encode())
        if document is None or not is_own or document.owner != owner:
            raise NoSuchDocument
        return document

    async def fetch(self, document: Document, *, keep: bool = False) -> tuple[StoredFile, bytes]:
        """The translation, which is then gone, unless it is to be kept.

        Raises:
            HTTPException: If it is not done.
            NoSuchDocument: If it is not there any more.
        """
        if document.status != "done" or document.file is None:
            raise HTTPException(503, "Document translation is not done")
        found = await self.files.get(document.file.token)
        if keep and found is not None:
            return found
        self._documents.pop(document.document_id, None)
        if found is None:
            raise NoSuchDocument
        self.files.remove(document.file.token)
        return found

    async def close(self) -> None:
        """Ends what runs."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, document: Document, work: Work) -> None:
        def tell(progress: float) -> None:
            document.progress = progress

        try:
            async with self._turns:
                document.status, document.started = "translating", time.monotonic()
                document.file = await work(tell)
            document.status = "done"
        except Exception as error:
            problem = problem_of(error)
            document.status, document.error = "error", problem["detail"]
            if problem["status"] == 500:
                logger.error("unexpected error with a document: %s", describe_exception(error))

    def _finished(self, document: Document) -> None:
        self._tasks.pop(document.document_id, None)
        with contextlib.suppress(RuntimeError):  # the loop is closing
            loop = asyncio.get_running_loop()
            loop.call_later(self.lifetime_seconds, self._documents.pop, document.document_id, None)
