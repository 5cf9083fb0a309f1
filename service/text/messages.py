r"""Lines of files of messages: what a program calls a text stays, the text is translated.

    [line[slice(*span)] for span in message_spans("key=The door")]              # ["The door"]
    [line[slice(*span)] for span in message_spans('"key" = "The door";')]       # ["The door"]
    [line[slice(*span)] for span in message_spans('{"title": "The door is open.", "n": 3}')]    # ["The door is open."]

As in `.properties`, `.env`, `.strings` and JSON. A value counts as a text if it has words beside each other; a single
word may be a setting (`color=Red`, `"type": "button"`), and stays. What single quotation marks are around is left to
`service/text/code.py`: the apostrophes of a translation would end it.
"""

from __future__ import annotations

import regex

_PAIR = regex.compile(
    r"""\s*+"?[A-Za-z][\w.-]{0,80}+"?(?P<gap>[ ]?)=(?P=gap)
    (?:"(?P<text>(?:[^"\\]|\\.)++)"[;,]?|(?P<bare>(?<=\w=)[^\s="'].*))\s*+""",
    regex.VERBOSE,
)
_JSON = regex.compile(r"""\s*+(?:[{\[]|"(?:[^"\\]|\\.)++"\s?:\s?(?:["{\[\d-]|true|false|null))""")
_JSON_STRING = regex.compile(r'"(?P<value>(?:[^"\\]|\\.)*+)"(?P<colon>\s*+:)?')
# Between its strings JSON has nothing else.
_BETWEEN = regex.compile(r"(?:[\s,:{}\[\]]|true|false|null|-?\d[\d.eE+-]*+)*+")
# What begins as a sentence, or a label, or is so long that it can only be one.
_TEXT = regex.compile(
    r"""[\"'“‘«(¿¡]*+(?:\p{Lu}[\p{L}'’-]*+,?[ ].*\p{L} | \p{L}[\p{L}'’-]*+,?(?:[ ][\p{L}\p{N}'’,-]++)++[.!?…]
    | (?:\p{L}[\p{L}'’-]*+,?[ ]){3}.*).*""",
    regex.VERBOSE,
)
# The same where nothing but its first word says that it is a text: DEBUG=true turns it on.
_BARE_TEXT = regex.compile(r"""[\"'“‘«(¿¡]*+(?:\p{Lu}[\p{Ll}'’]*+|I[\p{L}'’]*+),?[ ].*\p{L}.*""")


def message_spans(line: str) -> list[tuple[int, int]] | None:
    """Finds the texts of a line of a file of messages.

    Args:
        line: One line; takes time linear in its length.

    Returns:
        `[start, end)` of each, in order, none of a member of an object that has none; None if it is no
        such line.
    """
    if "=" in line and (match := _PAIR.fullmatch(line)):
        name, pattern = ("text", _TEXT) if match["text"] else ("bare", _BARE_TEXT)
        return [match.span(name)] if pattern.fullmatch(match[name]) else None
    if '"' not in line or not _JSON.match(line):
        return None
    found: list[tuple[int, int]] = []
    done = 0
    for match in _JSON_STRING.finditer(line):
        if not _BETWEEN.fullmatch(line, done, match.start()):
            return None
        done = match.end()
        if not match["colon"] and _TEXT.fullmatch(match["value"]):
            found.append(match.span("value"))
    is_member = line.lstrip().startswith('"')
    return found if (found or is_member) and _BETWEEN.fullmatch(line, done) else None
