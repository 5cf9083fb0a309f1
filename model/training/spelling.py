"""English words in the spelling that a corpus has, for those in the other one: British for American, or the reverse.

    other_spellings({"neighbor": 156, "neighbour": 5})    # {"neighbour": "neighbor"}

A model that has read *neighbor* thirty times as often as *neighbour* translates the first and spells out the second.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

_OUR = (
    "arbour ardour armour behaviour candour clamour colour demeanour endeavour favour fervour flavour harbour honour "
    "humour labour misdemeanour neighbour odour parlour rancour rigour rumour saviour savour splendour succour tumour "
    "valour vapour vigour"
).split()
_RE = (
    "calibre centilitre centimetre centre fibre kilolitre kilometre litre lustre meagre metre millilitre millimetre "
    "mitre sabre sceptre sepulchre sombre spectre theatre"
).split()
_SINGLE = dict(
    pair.split("/")
    for pair in (
        "aeroplane/airplane aeroplanes/airplanes aluminium/aluminum analogue/analog catalogue/catalog "
        "cosy/cozy defence/defense dialogue/dialog enrol/enroll fulfil/fulfill grey/gray greyer/grayer "
        "jewellery/jewelry manoeuvre/maneuver moustache/mustache "
        "moustaches/mustaches mum/mom mums/moms offence/offense paediatrician/pediatrician plough/plow "
        "pretence/pretense programme/program programmes/programs pyjamas/pajamas sceptical/skeptical skilful/skillful "
        "tyre/tire tyres/tires wilful/willful woollen/woolen anaemia/anemia diarrhoea/diarrhea "
        "oestrogen/estrogen foetus/fetus"
    ).split()
)  # fmt: skip
_IS = re.compile(
    r"(?<=[a-z]{2}[^aeiou])is(e|es|ed|er|ers|ing|ation|ations)$|(?<=anal|aral|atal)ys(e|es|ed|er|ers|ing)$"
)
_L = (
    "cancel|channel|counsel|dial|duel|equal|fuel|funnel|initial|label|level|marvel|model|panel|quarrel|shovel|signal|total|"
    "travel|tunnel"
)
_DOUBLE_L, _SINGLE_L = (re.compile(rf"^({_L}){ell}(ed|er|ers|ing|ings)$") for ell in ("l", ""))
_IZ = re.compile(r"(?<=[a-z]{2}[^aeiou])iz(?=(?:e|es|ed|ing|ation|ations)$)")
_TIMES, _MIN_COUNT = 2, 2


def _american(word: str) -> Iterator[str]:
    """How a word would be written in American English, were it British."""
    if word in _SINGLE:
        yield _SINGLE[word]
    for stem in _OUR:
        if word.startswith(stem):
            yield f"{stem[:-3]}or{word[len(stem) :]}"
        elif word.startswith(f"un{stem}") or word.startswith(f"dis{stem}"):
            yield word.replace("our", "or", 1)
    for stem in _RE:
        if word in (stem, f"{stem}s"):
            yield f"{stem[:-2]}er{word[len(stem) :]}"
    if match := _IS.search(word):
        yield f"{word[: match.start()]}{'iz' if match[1] else 'yz'}{match[1] or match[2]}"
    if match := _DOUBLE_L.search(word):
        yield match[1] + match[2]


def other_spellings(counts: Mapping[str, float]) -> dict[str, str]:
    """Words that a corpus has far more often in the other English spelling, or in that one alone.

    Args:
        counts: How often each word in small letters is there, each time by the weight that the training gives it.

    Returns:
        The other spelling of each, of words that are not there too.
    """
    words = {*counts, *_SINGLE}
    words |= {stem + ending for stem in _OUR for ending in ("", "s", "ed", "ing", "ful", "less", "able", "ite", "hood")}
    words |= {stem + ending for stem in _RE for ending in ("", "s")}
    words |= {_IZ.sub("is", word) for word in counts if "size" not in word}
    words |= {_SINGLE_L.sub(r"\1l\2", word) for word in counts}
    numbers, found = defaultdict(float, counts), {}
    for british in sorted(words):
        for american in _american(british):
            few, many = sorted((british, american), key=lambda word: (numbers[word], word))
            is_word = few == british or numbers[few] > 0  # *surprized* is none
            if is_word and numbers[many] >= max(_MIN_COUNT, _TIMES * numbers[few]):
                found[few] = many
    return found
