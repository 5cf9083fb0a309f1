"""Stand-ins for a translator, which show what went in and where it came out."""

import re

TAG = re.compile(r"<!--.*?-->|<[^<>]*>|&\w+;", re.DOTALL)


def shout(part):
    """Capital letters, outside tags."""
    if part.format == "text":
        return part.text.upper()
    pieces, done = [], 0
    for tag in TAG.finditer(part.text):
        pieces += [part.text[done : tag.start()].upper(), tag[0]]
        done = tag.end()
    return "".join([*pieces, part.text[done:].upper()])


def translated(document, translate=shout):
    return document.render([translate(part) for part in document.parts])
