"""Sort texts by language: python docs/examples/detect.py [URL]."""

import sys

from gossamer import Client

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
texts = ["Where is the train station?", "Où se trouve la gare ?", "42"]

with Client(url) as client:
    for text, found in zip(texts, client.detect(texts), strict=True):
        print(f"{text}: {found.language} ({found.confidence:.2f}), looks like {found.looks_like}")
