"""API keys: a file of hashes, written by `gossamer keys` and read by the server.

A key is `gossamer_ID_SECRET`: the id may be shown and logged, the secret is 256 random bits, shown when it is made.
The file holds the SHA-256 of the whole key. That is enough, for a secret of this size cannot be guessed; slow hashes
are for passwords that people choose.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

logger = logging.getLogger(__name__)

Scope = Literal["translate", "inspect", "admin"]
"""What a key is good for: `translate` the text routes, `inspect` those that look inside the model, `admin` all."""

SCOPES: tuple[Scope, ...] = get_args(Scope)

PREFIX = "gossamer"
_KEY = re.compile(rf"{PREFIX}_([0-9a-f]{{8}})_[A-Za-z0-9_-]{{43}}")
_CHECK_SECONDS = 1.0
_FORMAT = 1


class KeyFileError(ValueError):
    """The file cannot be read or written, or a key in it is not there; the message names the file."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key.

    Attributes:
        id: Names it in lists and logs.
        name: Whose it is, in the operator's words.
        scopes: What it is good for.
        sha256: Of the whole key, in hex.
        created: When, as ISO 8601 in UTC.
        revoked: When it was withdrawn; None while it holds.
        requests_per_minute: Its own limit instead of the settings'; None for theirs.
        tokens_per_minute: Likewise, in source tokens.
    """

    id: str
    name: str
    scopes: tuple[Scope, ...]
    sha256: str
    created: str
    revoked: str | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def allows(self, scope: Scope) -> bool:
        """Whether the key is good for something."""
        return self.revoked is None and ("admin" in self.scopes or scope in self.scopes)


class KeyFile:
    """A file of keys.

    Args:
        path: Need not exist before the first key is made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, ApiKey]:
        """All keys by their id, the oldest first; revoked ones too.

        Raises:
            KeyFileError: If there is no such file, or it holds something else.
        """
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except OSError as error:
            raise KeyFileError(f"{self.path} cannot be read ({error.strerror})") from error
        except ValueError as error:
            raise KeyFileError(f"{self.path} is not a file of keys ({error})") from error
        try:
            if content["format"] != _FORMAT:
                raise KeyFileError(f"{self.path} has the format {content['format']!r}; this version reads {_FORMAT}")
            keys = [_from_json(item) for item in content["keys"]]
        except (TypeError, KeyError, AttributeError) as error:
            raise KeyFileError(f"{self.path} is not a file of keys ({type(error).__name__}: {error})") from error
        return {key.id: key for key in keys}

    def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
    ) -> tuple[ApiKey, str]:
        """Makes a key and writes its hash down.

        Returns:
            What is known of it, and the key itself, which is nowhere else.

        Raises:
            KeyFileError: If the file cannot be written, or holds something else.
        """
        with self._locked() as keys:
            key_id = secrets.token_hex(4)
            while key_id in keys:
                key_id = secrets.token_hex(4)
            secret = f"{PREFIX}_{key_id}_{secrets.token_urlsafe(32)}"
            key = ApiKey(
                key_id,
                name,
                tuple(scope for scope in SCOPES if scope in scopes),
                _hash(secret),
                _now(),
                requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
            )
            self._write([*keys.values(), key])
        return key, secret

    def revoke(self, key_id: str) -> ApiKey:
        """Withdraws a key; it stays in the list. One that is withdrawn already stays as it is.

        Raises:
            KeyFileError: If there is no such key, or the file cannot be written.
        """
        with self._locked() as keys:
            if key_id not in keys:
                raise KeyFileError(f"{self.path} has no key {key_id!r}; `gossamer keys list` shows those it has")
            key = keys[key_id]
            if key.revoked is None:
                key = replace(key, revoked=_now())
                self._write([key if other.id == key_id else other for other in keys.values()])
        return key

    @contextlib.contextmanager
    def _locked(self) -> Iterator[dict[str, ApiKey]]:
        """Keeps two commands from overwriting each other's key."""
        try:
            with self.path.with_name(self.path.name + ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield self.read() if self.path.exists() else {}
        except OSError as error:
            raise KeyFileError(f"{self.path} cannot be written ({error.strerror})") from error

    def _write(self, keys: Sequence[ApiKey]) -> None:
        """Replaces the file in one go: a server that reads meanwhile sees the old one or the new one."""
        content = {"format": _FORMAT, "keys": [asdict(key) for key in keys]}
        descriptor, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)  # readable for its owner
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


class KeyRing:
    """The keys as the server uses them: a change of the file counts within a second, without a restart.

    Args:
        path: The file.

    Raises:
        KeyFileError: If it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._file = KeyFile(path)
        self._stamp = self._stamp_now()
        self._keys: Mapping[str, ApiKey] = self._file.read()
        self._checked_at = time.monotonic()

    def find(self, presented: str) -> ApiKey | None:
        """The key that was presented, if it is one and holds."""
        self._refresh()
        match = _KEY.fullmatch(presented)
        key = self._keys.get(match[1]) if match else None
        if key is None or not hmac.compare_digest(key.sha256, _hash(presented)) or key.revoked is not None:
            return None
        return key

    def _refresh(self) -> None:
        now = time.monotonic()
        if now < self._checked_at + _CHECK_SECONDS:
            return
        self._checked_at = now
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        try:
            self._keys = self._file.read()
            logger.info("the file of keys has changed and was read again")
        except KeyFileError as error:
            logger.error("the keys stay as they were: %s", error)
        self._stamp = stamp

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            found = self._file.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


def _from_json(item: dict[str, Any]) -> ApiKey:
    key = ApiKey(**item | {"scopes": tuple(item["scopes"])})
    if not set(key.scopes) <= set(SCOPES) or not re.fullmatch(r"[0-9a-f]{64}", key.sha256):
        raise TypeError(f"the key {key.id} has an unknown scope, or no hash")
    return key


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
