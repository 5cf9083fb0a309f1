"""A thin, typed client of a Gossamer server: see `gossamer.client`."""

from gossamer.client import (
    Answer,
    ApiError,
    AsyncClient,
    Client,
    ConnectionFailed,
    DeadlineExceeded,
    Delta,
    Detection,
    GossamerError,
    SegmentDone,
    Translation,
)

__all__ = [
    "Answer",
    "ApiError",
    "AsyncClient",
    "Client",
    "ConnectionFailed",
    "DeadlineExceeded",
    "Delta",
    "Detection",
    "GossamerError",
    "SegmentDone",
    "Translation",
]
