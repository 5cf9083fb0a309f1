"""Where sentences begin and end, by the library sentencex, with what it gets wrong put right.

sentencex is lossless and knows abbreviations, quotes and many languages. What is corrected here, each found by trying:

- It splits inside words at `.`, `?` and `!` (`ASP.NET`, `foo.Bar()`, `https://x.org/a?B=C`).
- Some abbreviations end a sentence (`Vol. 3`, `Apt. 5`), and in French a leading `M. Dupont`.
- It takes quadratic time on unpaired quotes (87 s for 500,000 of them), and refuses lone surrogates.
- It panics where a capital is followed by a white space of several bytes and a full stop (`A\u00a0.`).
- It knows `fr`, but takes `fr-CA` and `FR` for an unknown language.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate

import sentencex

MAX_CHUNK_CHARACTERS = 2_000
"""sentencex never sees more at once."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNUSUAL_SPACE = re.compile(r"[^\S ]")
_ONE_SENTENCE = re.compile(r"[^.!?;\x00-\x1f\x7f-\U0010ffff]*+[.!?]*+[\"')\]]*+ *+")
"""ASCII in which nothing that may end a sentence stands before its end."""
_WESTERN_MARK = re.compile(r"[.!?…:;)\]}\"'*_`]")

# What stands before a name or a number, so that the sentence goes on whatever comes next.
_TITLE = re.compile(
    r"(?:^|[\s(\[\"'«])(?:Mr|Mrs|Ms|Mx|Dr|Prof|Rev|Hon|Capt|Gen|Col|Sgt|Lt|Messrs|M|MM|Mme|Mmes|Mlle|Mlles|Me|Mgr|Hr|Fr)"
    r"\.\s*\Z"
)
# The sentence goes on only if a number, or a small letter, follows.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'«])(?:Apt|apt|App|app|Approx|approx|Art|art|ca|cf|Ch|ch|Chap|chap|Ed|ed|Eds|eds|est|etc|Ext|ext|Fig|fig"
    r"|Figs|figs|incl|max|Max|min|Min|No|no|Nos|nos|Nr|p|pp|Pp|Par|par|Sec|sec|Sect|sect|St|Ste|tel|Tel|vol|Vol|vols|Vols|vs)"
    r"\.\s*\Z"
)

# In English it goes on behind these where that follows.
_ENGLISH_GOES_ON = re.compile(
    r"(?:\d ?[ap]\.m\.\s+(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|\d ?[ap]\.m\.\s+(?:[ECMP][SD]?T|GMT|UTC|BST|CET)\b"
    r"|\b[Aa]pprox\.\s+\w|\b(?:Vol|No|Fig|Ch|Sec|Art|Bk|vs)\.\s+[IVXLC]+\b|\bvs\.\s+\w)"
)

# The same in French, where a street or a saint ends no sentence either.
_FRENCH_TITLE = re.compile(
    r"(?:^|[\s(\[\"'«])(?:Pr|Gal|Cdt|Cne|Sr|Ste?s?|[Aa]v|[Bb]d|[Bb]ld|[Bb]oul|[Pp]l"
    r"|(?<!av\. )(?<!apr\. )[A-Z]\.-[A-Z])\.\s*\Z"
)
_FRENCH_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'«\d])(?:[Aa]pr|[Aa]rr|[Cc]ie|c\.-à-d|[Dd]ép|[Ee]nv|[Éé]d|[Ee]x|h|[Hh]ab|[Nn]|[A-Z]\.-[A-Z]|[Rr]esp"
    r"|[Ss]té|[Tt]él|[Jj]anv|[Ff]évr|[Aa]vr|[Jj]uil|[Ss]ept|[Oo]ct|[Nn]ov|[Dd]éc)\.\s*\Z"
)


def sentence_spans(line: str, language: str) -> list[tuple[int, int]]:
    """Splits one line into sentences.

    Args:
        line: Text without line breaks.
        language: Code of its language; the part before the first `-` counts.

    Returns:
        `[start, end)` spans in code points that cover the line without gap or overlap; white space belongs to the
        sentence before it. Takes time linear in the length of the line.
    """
    if line and _ONE_SENTENCE.fullmatch(line):  # most sentences that come alone
        return [(0, len(line))]
    language = re.split("[-_]", language, maxsplit=1)[0].lower()
    # One character for one: the places stay.
    text = _UNUSUAL_SPACE.sub(" ", _SURROGATE.sub("\ufffd", line))
    cuts = [0]
    for cut in _cuts(text, language):
        if cut < len(text) and _ends_sentence(text, cuts[-1], cut, language):
            cuts.append(cut)
    return list(zip(cuts, [*cuts[1:], len(text)], strict=True)) if text else []


def _cuts(text: str, language: str) -> list[int]:
    """Ends of all sentences, by sentencex."""
    cuts: list[int] = []
    start = 0
    while start < len(text):
        chunk = text[start : start + MAX_CHUNK_CHARACTERS]
        sentences = _segment(chunk, language)
        ends = [start + length for length in accumulate(map(len, sentences))]
        chunk_end = start + len(chunk)
        if chunk_end == len(text):
            return cuts + ends
        # What follows the chunk may change its ends (by closing a quotation), so only those in its first half count,
        # and from there it is read again; one more counts if less than a quarter would be done. The chunk's own end
        # is the end of no sentence.
        num_sure = bisect_right(ends, start + len(chunk) // 2)
        quarter = start + len(chunk) // 4
        if num_sure == 0 or ends[num_sure - 1] < quarter:
            num_sure += 1
        ends = ends[: min(num_sure, len(ends) - 1)]
        start = ends[-1] if ends and ends[-1] >= quarter else chunk_end
        cuts += ends
    return cuts


def _segment(chunk: str, language: str) -> list[str]:
    try:
        sentences: list[str] = sentencex.segment(language, chunk)
    except BaseException as error:  # a panic in its Rust code is no Exception
        if type(error).__module__ != "pyo3_runtime":
            raise
        sentences = []
    # Neither a panic nor a loss has been seen again; a sentence too long is better than either.
    return sentences if "".join(sentences) == chunk else [chunk]


def _ends_sentence(text: str, start: int, cut: int, language: str) -> bool:
    """Whether the sentence that began at `start` really ends at `cut`."""
    if not (text[cut - 1].isspace() or text[cut].isspace()) and _WESTERN_MARK.match(text[cut - 1]):
        return False
    before = text[max(start, cut - 24) : cut]
    if _TITLE.search(before):
        return False
    if language == "en" and any(
        match.start() < cut < match.end() for match in _ENGLISH_GOES_ON.finditer(text, max(start, cut - 16), cut + 16)
    ):
        return False
    following = text[cut : cut + 40].lstrip()[:1]
    goes_on = following.isdigit() or following.islower()
    if language == "fr" and (_FRENCH_TITLE.search(before) or (goes_on and _FRENCH_ABBREVIATION.search(before))):
        return False
    return not (goes_on and _ABBREVIATION.search(before))
