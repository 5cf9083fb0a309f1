"""Translated files that wait to be fetched: in one folder, for a while, under names that cannot be guessed."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException

_TOKEN_BYTES = 24


class StoreFull(HTTPException):
    """There is no room for one more file now."""

    def __init__(self, num_bytes: int, max_bytes: int) -> None:
        super().__init__(503, f"translated files would take {num_bytes} bytes; at most {max_bytes} are kept")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that waits.

    Attributes:
        token: The only way to it: 192 random bits. It is also the file's name in the folder.
        name: What the client is to call it; never used as a path.
        media_type: What it is.
        num_bytes: Its length.
    """

    token: str
    name: str
    media_type: str
    num_bytes: int


class FileStore:
    """Keeps files until they are fetched, or too old. Used by the event loop only; bytes are moved in threads."""

    def __init__(self, lifetime_seconds: float, max_bytes: int) -> None:
        """Starts empty; the folder is made when it is first needed.

        Args:
            lifetime_seconds: How long a file waits.
            max_bytes: The most that all of them may have together.
        """
        self._lifetime_seconds = lifetime_seconds
        self._max_bytes = max_bytes
        self._folder: Path | None = None
        self._files: dict[str, StoredFile] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def num_bytes(self) -> int:
        """Of all files together."""
        return sum(file.num_bytes for file in self._files.values())

    async def put(self, content: bytes, name: str, media_type: str) -> StoredFile:
        """Takes a file.

        Raises:
            StoreFull: If there is no room for it now.
            HTTPException: If it cannot be written: the disk is full, or there is no temporary folder.
        """
        num_bytes = self.num_bytes + len(content)
        if num_bytes > self._max_bytes:
            raise StoreFull(num_bytes, self._max_bytes)
        file = StoredFile(secrets.token_urlsafe(_TOKEN_BYTES), name, media_type, len(content))
        self._files[file.token] = file  # before the wait, so that its room is taken
        try:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="gossamer-files-"))
            await asyncio.to_thread((self._folder / file.token).write_bytes, content)
        except BaseException as error:
            self._forget(file.token)
            if isinstance(error, OSError):
                raise HTTPException(503, f"translated files cannot be kept now: {error.strerror}") from error
            raise
        loop = asyncio.get_running_loop()
        self._timers[file.token] = loop.call_later(self._lifetime_seconds, self.remove, file.token)
        return file

    async def get(self, token: str) -> tuple[StoredFile, bytes] | None:
        """A file and what is in it; None if there is none of this name, or none any more."""
        file = self._files.get(token)
        if file is None or token not in self._timers or self._folder is None:
            return None
        try:
            return file, await asyncio.to_thread((self._folder / file.token).read_bytes)
        except FileNotFoundError:  # somebody cleaned the system's temporary folder
            self.remove(token)
            return None

    def remove(self, token: str) -> None:
        """Forgets a file, if there is one."""
        if self._forget(token) and self._folder is not None:
            (self._folder / token).unlink(missing_ok=True)

    def close(self) -> None:
        """Removes all files and the folder."""
        for token in list(self._files):
            self._forget(token)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _forget(self, token: str) -> bool:
        timer = self._timers.pop(token, None)
        if timer is not None:
            timer.cancel()
        return self._files.pop(token, None) is not None
