"""Translate many files at once with asyncio: python docs/examples/many.py [URL] [FILE]..."""

import asyncio
import sys
from pathlib import Path

from gossamer import AsyncClient, GossamerError

url, *files = sys.argv[1:] or ["http://127.0.0.1:8000"]


async def translate(client: AsyncClient, file: str, places: asyncio.Semaphore) -> None:
    async with places:
        try:
            # A busy server is asked again, as long as the timeout allows.
            answer = await client.translate(Path(file).read_text(), target="fr", timeout_seconds=120)
        except GossamerError as error:
            print(f"{file}: {error}", file=sys.stderr)
            return
    print(f"{file}: {answer.text}")


async def main() -> None:
    places = asyncio.Semaphore(8)
    async with AsyncClient(url) as client:
        await asyncio.gather(*(translate(client, file, places) for file in files))


asyncio.run(main())
