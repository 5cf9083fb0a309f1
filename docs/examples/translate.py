"""Translate a text, a list and a piece of HTML: python docs/examples/translate.py [URL]."""

import sys

from gossamer import ApiError, Client

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"

with Client(url, timeout_seconds=30) as client:
    print(client.translate("Good morning.", target="fr").text)

    # Texts of a list are translated together, which is far faster than one after the other.
    answer = client.translate(["The old house.", "Where is the station?"], target="fr")
    for text in answer.texts:
        print(text)

    # A sentence is translated whole, through its tags.
    print(client.translate("<p>The <b>red</b> car.</p>", target="fr", format="html").text)

    # Two alternatives, with the score of the best.
    best = client.translate(
        "The plant needs light.", target="fr", decoding={"beam_size": 4, "num_hypotheses": 2}, return_=["scores"]
    ).translations[0]
    print(best.text, best.score, *best.alternatives, sep=" | ")

    try:
        client.translate("Good morning.", target="fr", decoding={"beam_size": 99})
    except ApiError as error:
        print(error.status, error.kind, error.faults[0]["field"], error.faults[0]["allowed"])
