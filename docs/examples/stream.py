"""Show a translation while it is written: python docs/examples/stream.py [URL]."""

import sys

from gossamer import Answer, Client, Delta

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"

with Client(url) as client:
    for event in client.stream("Good morning. See you tomorrow.", target="fr"):
        if isinstance(event, Delta):  # segments are written side by side, so say which
            print(f"{event.segment}: {event.text!r}")
        elif isinstance(event, Answer):
            print(event.text)
