"""What the dialects remember between requests: gone when the server stops."""

from __future__ import annotations

from service.api.dialects.documents import Documents
from service.api.dialects.glossaries import Glossaries
from service.api.dialects.store import FileStore
from service.settings import Settings


class DialectState:
    """Used by the event loop only.

    Attributes:
        num_characters: Translated by the DeepL dialect since the start, in code points of the source.
        files: Translated ones that wait to be fetched.
        glossaries: DeepL's.
        documents: DeepL's, in the order they came.
    """

    def __init__(self, settings: Settings) -> None:
        """Starts with nothing.

        Args:
            settings: Say how much is kept, and how long.
        """
        self.num_characters = 0
        self.files = FileStore(settings.file_lifetime_seconds, settings.file_store_bytes)
        self.glossaries = Glossaries()
        self.documents = Documents(self.files, settings.file_lifetime_seconds)

    async def close(self) -> None:
        """Ends what runs and removes all files."""
        await self.documents.close()
        self.files.close()
