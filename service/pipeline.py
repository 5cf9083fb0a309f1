"""Segments to translations, whatever the model does: kept spans are kept, and what went wrong is tried again.

    work = SegmentWork(vocabulary, options, max_tokens=128)
    for segment in segments:
        work.add(segment.text)
    while sequences := work.sequences():        # one round: everything that can run side by side
        results = ...                           # of the engine, in the same order
        work.take(results)
    outcomes = work.outcomes()

or, where others go on beside them, `for asked in work.ask(): work.judge(asked, result)`, in any order.

This file decides; it runs nothing, so that the server, a stream and a test drive it alike. Each segment is a tree: a
node is a stretch of its text. A node is translated as a whole, its hard kept spans hidden from the model. If no
hypothesis is good, it is tried again in another form or with other options; then it is parted, around its kept spans or
at the best break, and its parts are nodes. What fails even so comes back in the source language, with a warning. Depth
and tries are bounded, and with them the work.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, get_args

import regex

from model.decoding import DecodingOptions, Hypothesis
from model.lexicon import Lexicon
from model.tokenizer import Encoding, TextTokenizer
from service.engine.request import SequenceRequest, SequenceResult
from service.text.capitals import visible_text
from service.text.ends import ENGLISH_ORDINAL, ORDINAL, Ends, certain, ends, finished
from service.text.escapes import read_escapes, shown_escapes, with_escapes
from service.text.forms import DIGITS, MASKS, NEVER_WRITTEN, Form, Piece, exchanged, make_form
from service.text.guards import MINOR_FAULTS, Fault, faults, is_too_long, loses_much
from service.text.invented import invented, known_words, lacks_shown
from service.text.kept import KeptSpan, kept_spans, number_runs
from service.text.languages import base_language
from service.text.lists import glue, has_item, lacks_counted, lacks_items, middle, says_twice
from service.text.names import (
    copied_words,
    has_titles,
    is_copied_word,
    loses_title,
    missing_names,
    names,
    translated_titles,
)
from service.text.negation import loses_negation
from service.text.numerals import Numeral, lost_numerals, numerals
from service.text.quotes import doubled, pairs
from service.text.quotes import signs as quote_signs
from service.text.segmenter import compress, has_letter
from service.text.spaces import has_unusual_spaces, with_spaces
from service.text.terms import Replaced, Terms
from service.text.windows import window_spans
from service.text.wording import WITHOUT, Change, changes, close_brackets, has_brackets, spoken

WarningCode = Literal[
    "repetition",
    "length",
    "untranslated",
    "not_translated",
    "parted",
    "negation",
    "name",
    "number",
    "items",
    "redrawn",
    "unsure",
    "long",
]
WARNINGS: tuple[WarningCode, ...] = get_args(WarningCode)

_Fault = Literal[
    Fault, "truncated", "order", "hollow", "items", "negation", "characters", "name", "number", "copied", "invented"
]
"""`truncated`: the model was stopped by a limit that the caller did not set; `order`: numbers have changed
places; `hollow`: between two spans of which nothing else parts the words, there is no word left; `items`: one of a list
is lost, or there twice; `characters`: some were written that no text has; `name`: one is not there; `number`: one in
words is another one; `invented`: a word is none of the training data's; `copied`: a few ordinary words are there again,
which is told and no more, for what a model writes instead is worse (docs/experiments.md)."""

_WEIGHTS: dict[_Fault, int] = {
    "characters": 256,
    "repetition": 128,
    "too_long": 64,
    "truncated": 32,
    "too_short": 16,
    "order": 8,
    "hollow": 8,
    "items": 8,
    "signs": 4,
    "quotes": 4,
    "untranslated": 2,
    "negation": 2,
    "name": 2,
    "number": 2,
    "copied": 0,
    "invented": 2,
    "marks": 1,
}
_MINOR: frozenset[_Fault] = frozenset({*MINOR_FAULTS, "negation", "name", "number", "copied", "invented"})
_WARNING_FOR: dict[_Fault, WarningCode] = {
    "untranslated": "untranslated",
    "too_short": "length",
    "truncated": "length",
    "too_long": "length",
    "repetition": "repetition",
    "items": "items",
}
"""Of what is given back all the same."""

_MAX_DEPTH = 3
_RETRY_BEAM_SIZE = 4
_RETRY_NGRAM_SIZE = 3
_MAX_REDRAWS = 2
_HIGHEST_REDRAW_TEMPERATURE = 1.0
"""At which a model draws what it was trained to write; at twice that it hardly draws anything else than salad."""
_MIN_WORDS_TO_HALVE = 6
_FEW_WORDS, _UNSURE_LOG_PROB = 3, -0.75
"""Without a sentence around it a word may be anything: below so much a token of its translation is a guess, mostly a
wrong one (docs/experiments.md)."""

_SEPARATOR = regex.compile(r"(?<=\s)(?:[|¦•·→←⇒►▶»]++|<?[-=]+>|<[-=]+|\.(?:\s\.)++|(?<=[.;:!?]\s{1,3})\#++)(?=\s)")
_BETWEEN_WORDS = regex.compile(r"(?<=\p{L}{2}[)\]\"'”’]?\s)[<>=~*]++(?=\s[(\[\"'“‘]?\p{L}{2})")
"""Parts as good as independent of one another, as in *Home > Settings*."""
_JOINING = regex.compile(r"(?<=\s)(?:&amp;|[&+/<>=~*|×÷≠≈≤≥]++)(?=\s)|(?<=\w[)\]]?)[&+/](?=[(\[]?\w)")
"""Signs with something on both sides."""
_PAUSE = regex.compile(r"(?<=[\p{L}\p{N}}\])>]\s?)(?:\.{2,4}+|…++|[!?]{2,}+)(?=\s*+[\p{L}\p{N}])")
"""Dots in the middle, which a model takes for the end of a sentence, or for anything."""
_MARKS_IN_A_ROW = re.compile(r"\.\.|…|[!?][!?]")
_FINAL_MARKS = regex.compile(r"[\s.,!?…]+\Z")
_REPEATED = regex.compile(
    r"(?|((?:[\p{L}\p{M}'’-]++)(?:[ ][\p{L}\p{M}'’-]++){0,2}?)([,;/]?[ \u00a0\u202f]|[,;/])"
    r"|([\p{L}\p{M}'’]++)(-))\1(?:\2\1)+",
    regex.IGNORECASE,
)
_GLUED_BEHIND = regex.compile(r"[,;:](?=\p{L})")
"""A mark between what is kept and a word, without a space: `%s;no`."""
_JOINING_MARK = regex.compile(r"\s*+[,;:](?:\s++(?=\S)|(?=\p{L}))")
"""What no part of a sentence begins with: a model leaves it out."""
_SIGN = regex.compile(r"[()（）]|(?<!\b[wW])/(?=\s?\p{L}{2})")
_WORDS = regex.compile(r"\S+")
_SMALL_WORD = re.compile(r" [a-z]")
"""No name has a space before a small letter."""
_LONE_LETTER = regex.compile(r"(?<![\w'’.-])(?![A-Za-zªº](?!\p{M}))\p{Latin}\p{M}*+(?![\w'’-])")
_BYTE_PIECE = regex.compile(r"<0x[0-9A-F]{2}>")


class Vocabulary:
    """What a model can read, by its tokenizer."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        source_language: str,
        target_language: str = "",
        lexicon: Lexicon | None = None,
    ) -> None:
        """Looks which placeholders the model has.

        Args:
            tokenizer: Of the model.
            source_language: Code of the language that the model reads.
            target_language: Code of the one that it writes; without it nothing is done that only some languages have.
            lexicon: Of the model; without it names are not looked for.
        """
        self.tokenizer = tokenizer
        self.source_language = source_language
        self.target_language = target_language
        self.lexicon = lexicon
        self.is_known = lru_cache(maxsize=65_536)(self._is_known)
        has_masks = all(mask in tokenizer.encode(mask, source_language).pieces for mask in MASKS)
        # A tokenizer of characters has every character, which does not mean that its model was trained to copy it.
        has_masks = has_masks and "\uf8ff" not in tokenizer.encode("\uf8ff", source_language).pieces
        self.has_masks = has_masks
        self.placeholders: tuple[tuple[str, ...], ...] = (MASKS, DIGITS) if has_masks else (DIGITS,)

    def spans(self, text: str) -> tuple[KeptSpan, ...]:
        """The kept spans of a text."""
        found = kept_spans(text, self.is_known)
        is_english = self.source_language.startswith("en")
        if is_english and "w/o" in text:  # a word, not a sign between two
            words = [match.span() for match in WITHOUT.finditer(text)]
            found = tuple(s for s in found if not any(start < s.start and s.end < end for start, end in words))
        if text.isascii() or not is_english:
            return found
        # English has no word of one letter with an accent: it is spoken of.
        lone = [KeptSpan(*match.span(), match[0], "symbol") for match in _LONE_LETTER.finditer(text)]
        lone = [span for span in lone if all(span.end <= other.start or other.end <= span.start for other in found)]
        return tuple(sorted([*found, *lone], key=lambda span: span.start)) if lone else found

    def encode(self, text: str) -> Encoding:
        """The text as the model's ids, ended by the end of sentence."""
        return self.tokenizer.encode(text, self.source_language, add_eos=True)

    def _is_known(self, char: str) -> bool:
        encoding = self.tokenizer.encode(char, self.source_language)
        return not any(piece == "<unk>" or _BYTE_PIECE.fullmatch(piece) for piece in encoding.pieces)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a segment and what became of it. A segment's parts follow one another without gap.

    Attributes:
        start: Where it begins in the segment's text, in code points.
        end: One past its end there.
        texts: Its translations, best first; at least one.
        encoding: What the model was shown, its `source_spans` in code points of the segment's text; None for what was
            not translated.
        hypotheses: What the model wrote, one for each of `texts`; empty without an encoding.
        pieces: How the best translation's characters follow from what the tokenizer decodes for the best hypothesis.
    """

    start: int
    end: int
    texts: tuple[str, ...]
    encoding: Encoding | None = None
    hypotheses: tuple[Hypothesis, ...] = ()
    pieces: tuple[Piece, ...] = ()

    @property
    def text(self) -> str:
        """The best translation."""
        return self.texts[0]

    def nth_text(self, rank: int) -> str:
        """The translation of this rank, or the last there is."""
        return self.texts[min(rank, len(self.texts) - 1)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a segment.

    Attributes:
        parts: In order; one where the segment was translated as a whole.
        warnings: What is wrong with the translation, without doubles.
        num_retries: Sequences that the engine was given again.
    """

    parts: tuple[Part, ...]
    warnings: tuple[WarningCode, ...] = ()
    num_retries: int = 0

    @property
    def truncated(self) -> bool:
        """Whether a part of the best translation stopped at the limit of tokens and not by itself."""
        return any(part.hypotheses[0].finish_reason == "length" for part in self.parts if part.hypotheses)

    @property
    def num_ranks(self) -> int:
        """How many different translations there are; at least 1."""
        return max(len(part.texts) for part in self.parts)

    def nth_text(self, rank: int) -> str:
        """The translation of this rank."""
        return "".join(part.nth_text(rank) for part in self.parts)


@dataclass(slots=True)
class _Try:
    """One way of showing a node to the model."""

    form: Form
    encoding: Encoding
    options: DecodingOptions
    words: Sequence[Change] = ()
    """What the model is shown in the target language, for what it made of it was no word."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One hypothesis of a try, put back into the caller's terms."""

    text: str
    pieces: tuple[Piece, ...]
    hypothesis: Hypothesis
    faults: tuple[_Fault, ...]
    missing: tuple[KeptSpan, ...] = ()
    """The names that are not there, and the ordinals."""
    lost: tuple[Numeral, ...] = ()
    """The numbers in words that are not there."""

    @property
    def faults_beyond_minor(self) -> tuple[_Fault, ...]:
        """The faults that something is done about."""
        return tuple(fault for fault in self.faults if fault not in _MINOR)


@dataclass(slots=True)
class _Node:
    """A stretch of a segment."""

    start: int
    end: int
    text: str
    spans: tuple[KeptSpan, ...]
    root: _Node | None = None
    """The node of the whole segment; None for that one itself."""
    depth: int = 0
    is_fragment: bool = False
    """Whether it is less than a sentence, so that its translation gets no capital and full stop of its own."""
    round: int = 0
    """Sequences that had to end, one after the other, before its next one can be asked for."""
    tries: list[_Try] = field(default_factory=list)
    guarded: bool = False
    num_redraws: int = 0
    unsure: list[_Candidate] = field(default_factory=list)
    """What was good but for a name or a number, while it is tried as a placeholder, or in digits."""
    unsure_try: _Try | None = None
    names: tuple[KeptSpan, ...] | None = None
    numerals: tuple[Numeral, ...] | None = None
    shown: tuple[int, ...] = ()
    """What the model has written and somebody has read already: it stands."""
    fallback: list[_Candidate] = field(default_factory=list)
    fallback_try: _Try | None = None
    children: list[_Node] = field(default_factory=list)
    part: Part | None = None
    warnings: list[WarningCode] = field(default_factory=list)
    ends: Ends | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A sequence that was handed out, to be judged when the engine has done it.

    Attributes:
        sequence: What the engine is to do.
        owner: The number of its segment, the first of those that share it.
        round: How many others had to end, one after the other, before this one could be asked for.
        node: What it belongs to; nobody else's.
    """

    sequence: SequenceRequest
    owner: int
    round: int
    node: _Node


def _sequence(node: _Node) -> SequenceRequest:
    last = node.tries[-1]
    return SequenceRequest(last.encoding.ids, last.options, node.shown)


@dataclass(frozen=True, slots=True)
class _Repeated:
    """A segment that is nothing but the same words many times: no model needs to see them more than once.

    Attributes:
        block: Those words.
        between: What stands between two of them.
        times: How often they come.
        is_small: Whether they begin with a small letter, but for the first time.
    """

    block: str
    between: str
    times: int
    is_small: bool

    @classmethod
    def find(cls, text: str, end: int) -> _Repeated | None:
        """Looks at a text up to its last marks."""
        match = _REPEATED.fullmatch(text, 0, end)
        if match is None:
            return None
        size = len(match[1]) + len(match[2])
        return cls(match[1], match[2], (end + len(match[2])) // size, text[size].islower())

    def repeat(self, pieces: Sequence[Piece]) -> list[Piece]:
        """A translation of the words, as often as they come."""
        last = pieces[-1]
        words = _FINAL_MARKS.sub("", "".join(piece.text for piece in pieces)).lstrip(" ,;/")
        if not words:
            return list(pieces)
        rest = self.between + (words[:1].lower() + words[1:] if self.is_small else words)
        return [Piece(words, pieces[0].start, last.end), Piece(rest * (self.times - 1), last.end, last.end)]


class SegmentWork:
    """Segments on their way through the model, round by round."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        options: DecodingOptions,
        *,
        max_tokens: int,
        max_beam_size: int = 16,
        terms: Terms | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts without segments.

        Args:
            vocabulary: Of the model.
            options: How the caller wants to have it searched.
            max_tokens: The longest source that the model takes, end of sentence included.
            max_beam_size: The widest beam for what is tried again.
            terms: What must be translated so, and no other way.
            check: Called between any two steps of the work; what it raises ends it.
        """
        self._vocabulary = vocabulary
        self._terms = terms
        self._check = check
        # What is drawn without a seed is drawn anew for each; otherwise the same segment has the same translation.
        self._same: dict[tuple[str, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]], list[int]] = {}
        self._sharing: list[list[int]] = []
        self._shares = options.temperature == 0 or options.seed is not None
        self._replaced: dict[int, Replaced] = {}
        # More hypotheses of a beam cost nothing, and the best that is right is taken.
        self._options = _with_all_hypotheses(options)
        self._num_wanted = options.num_hypotheses
        self._max_tokens = max_tokens
        self._max_beam_size = max_beam_size
        self._roots: list[_Node] = []
        self._open: list[_Node] = []
        self._changing = threading.Lock()
        """Segments may be added in one thread while others are judged in another."""
        self._encodings: dict[str, Encoding] = {}
        self._spans: dict[str, tuple[KeptSpan, ...]] = {}
        self._owner: dict[int, int] = {}
        self._retries: dict[int, int] = {}
        self._outcomes: dict[int, Outcome] = {}
        """Of the first of the segments that share it."""

    def add(self, text: str, kept: Iterable[tuple[int, int]] = (), apart: Iterable[tuple[int, int]] = ()) -> int:
        """Takes a segment; the same one again costs nothing more.

        Args:
            text: Without line breaks.
            kept: `[start, end)` of more that must be kept whole, in code points of the text; in order.
            apart: `[start, end)` of what is translated on its own; not where terms are exchanged.

        Returns:
            Its number.
        """
        with self._changing:
            return self._add(text, kept, apart)

    def _add(self, text: str, kept: Iterable[tuple[int, int]], apart: Iterable[tuple[int, int]]) -> int:
        index = len(self._roots)
        kept, apart, translated = tuple(kept), tuple(apart), tuple[tuple[int, int], ...]()
        same = self._same.setdefault((text, kept, apart), [index] if self._shares else [])
        self._sharing.append(same or [index])
        if same and same[0] != index:
            same.append(index)
            self._roots.append(self._roots[same[0]])
            if same[0] in self._replaced:
                self._replaced[index] = self._replaced[same[0]]
            return index
        if self._terms:
            hard = [(span.start, span.end) for span in self.spans(text) if not span.is_soft]
            replaced = self._replaced[index] = self._terms.replace(text, kept, hard)
            text, kept, translated = replaced.text, tuple(map(replaced.place, kept)), replaced.kept
        spans = _joined(text, self.spans(text), kept, translated)
        root = _Node(0, len(text), text, spans)
        self._roots.append(root)
        self._owner[id(root)] = index
        if not (apart and not translated and self._part_at(root, {place for span in apart for place in span})):
            self._begin(root)
        return index

    def sequences(self) -> list[SequenceRequest]:
        """What the engine is to do now; none when all is done."""
        return [_sequence(node) for node in self._open]

    def owners(self) -> list[int]:
        """For each of `sequences` the number of its segment, the first of those that share it."""
        return [self._owner[id(node)] for node in self._open]

    @property
    def num_open(self) -> int:
        """How many `sequences` there are."""
        return len(self._open)

    def ask(self) -> list[Asked]:
        """The same, to be judged one by one; they are none of `sequences` any more."""
        with self._changing:
            nodes, self._open = self._open, []
        return [Asked(_sequence(node), self._owner[id(node)], node.round, node) for node in nodes]

    def sharing(self, index: int) -> list[int]:
        """The numbers of all segments that share the outcome of this one, itself included."""
        return self._sharing[index]

    def shows_plainly(self, place: int) -> bool:
        """Whether what the model writes for this sequence is at once the translation of its whole segment.

        Not with kept spans in it: whether they are kept is known at its end.
        """
        node = self._open[place]
        is_whole = self._roots[self._owner[id(node)]] is node
        keeps_nothing = not node.spans and not number_runs(node.text)
        is_plain = (
            not node.tries[-1].form.is_capitals
            and not self._ends(node).beginning
            and not has_brackets(node.text)
            and not pairs(node.text)
            and not has_unusual_spaces(node.text)
            and not shown_escapes(node.text)
            and self._repeated(node) is None
            and not has_titles(node.text, self._vocabulary.source_language, self._vocabulary.target_language)
        )
        return is_whole and len(node.tries) == 1 and keeps_nothing and is_plain

    def preview(self, place: int, written: str) -> str:
        """What is certain of the translation of a sequence that `shows_plainly`, by what the model has written so far.

        Its marks at the end wait, for they may have to be those of the source, and so does a first word that may get
        another beginning.
        """
        node = self._open[place]
        return certain(node.text, self._ends(node), written, self._vocabulary.target_language)

    def show(self, place: int, token_ids: Sequence[int]) -> None:
        """Says that somebody has read what the model has written so far for a sequence that `shows_plainly`.

        The segment's translation begins with it then, whatever is wrong with it.

        Args:
            place: Which of `sequences`.
            token_ids: What came to what was shown before.
        """
        self._open[place].shown += tuple(token_ids)

    def take(self, results: Sequence[SequenceResult]) -> None:
        """Takes what the engine made of `sequences`.

        Args:
            results: In the same order; none of them failed.
        """
        for asked, result in zip(self.ask(), results, strict=True):
            self.judge(asked, result)

    def judge(self, asked: Asked, result: SequenceResult) -> None:
        """Takes what the engine made of one of those that `ask` gave, in any order.

        Args:
            asked: Each once.
            result: It has not failed.
        """
        with self._changing:
            asked.node.round += 1  # of what is asked for next
            self._judge(asked.node, result)

    def is_done(self, index: int) -> bool:
        """Whether a segment has its outcome."""
        return _is_done(self._roots[index])

    @property
    def num_retries(self) -> int:
        """Sequences that were tried again."""
        return sum(self._retries.values())

    def outcome(self, index: int) -> Outcome:
        """What became of a segment that is done."""
        index = self._sharing[index][0]
        if index not in self._outcomes:
            self._check()
            self._outcomes[index] = self._outcome(index)
        return self._outcomes[index]

    def _outcome(self, index: int) -> Outcome:
        root = self._roots[index]
        outcome = Outcome(tuple(_parts(root)), tuple(dict.fromkeys(_warnings(root))), self._retries.get(index, 0))
        if not all(_keeps(root, root.text, outcome.nth_text(rank)) for rank in range(outcome.num_ranks)):
            # Parts that are right alone may be wrong together; this is the last resort of all.
            whole = Part(0, len(root.text), (root.text,))
            outcome = replace(outcome, parts=(whole,), warnings=("not_translated",))
        replaced = self._replaced.get(index)
        if replaced is None or not replaced.kept:
            return outcome
        return replace(outcome, parts=tuple(_before_terms(part, replaced) for part in outcome.parts))

    def outcomes(self) -> list[Outcome]:
        """What became of all segments."""
        return [self.outcome(index) for index in range(len(self._roots))]

    # What comes next for a node.

    def _begin(self, node: _Node) -> None:
        """Decides how a new node is tried first; or that there is nothing to try."""
        self._check()
        if not self._has_words(node) or len(self.encode(node.text).ids) <= 1:
            node.part = Part(node.start, node.end, (node.text,))
            return
        hard = [span for span in node.spans if not span.is_soft]
        separators = [span for span in hard if _is_separator(node.text, span)]
        separators += _pauses(node)
        if self._repeated(node) is None:
            separators += _glue(node)
        outer = _outer_spans(node)
        if separators or outer:
            self._part(node, sorted({*separators, *outer}, key=lambda span: span.start), fragments=False)
        elif len(self.encode(visible_text(node.text, hard)).ids) > self._max_tokens:
            if not self._halve(node):
                self._leave(node)
        elif not self._try(node, hard):
            self._part_in_groups(node, hard)

    def _try(
        self,
        node: _Node,
        hidden: Sequence[KeptSpan],
        placeholders: int = 0,
        options: DecodingOptions | None = None,
        *,
        is_spoken: bool = True,
        names: Sequence[KeptSpan] = (),
        in_digits: Sequence[Change] = (),
        words: Sequence[Change] = (),
    ) -> bool:
        """Asks for one more translation; False if there is no such form, or it has been tried.

        Of the hidden spans those that are signs with a name are shown by it, if `is_spoken` is true; `names` are
        those that are none of the node's kept spans, `in_digits` changes by which it is shown numbers in digits, and
        `words` words in the target language.
        """
        vocabulary = self._vocabulary
        if placeholders >= len(vocabulary.placeholders):
            return False
        signs = spoken(node.text, hidden, vocabulary.source_language, vocabulary.target_language) if is_spoken else ()
        named = {id(sign.span) for sign in signs}
        form = make_form(
            node.text,
            _with_names(node.spans, names) if names else node.spans,
            [span for span in hidden if id(span) not in named],
            vocabulary.placeholders[placeholders],
            language=vocabulary.source_language,
            changes=self._changes(node, [*in_digits, *words]),
            spoken=signs,
        )
        options = options or self._options
        if form is None and signs:
            return self._try(
                node, hidden, placeholders, options, is_spoken=False, names=names, in_digits=in_digits, words=words
            )
        if form is None or len(self.encode(form.text).ids) > self._max_tokens:
            return False
        if any(old.form.text == form.text and old.options == options for old in node.tries):
            return False
        if node.tries:
            index = self._owner[id(node)]
            self._retries[index] = self._retries.get(index, 0) + 1
        node.tries.append(_Try(form, _in_segment(self.encode(form.text), form, node.start), options, words))
        self._open.append(node)
        return True

    def _try_plainly(self, node: _Node, now: _Try, candidate: _Candidate) -> bool:
        """Asks for a translation in which what the candidate lost is hard to lose: names as masks, numbers in digits.

        Returns:
            False if there is nothing of that, or the model has no masks.
        """
        lost = candidate.missing if self._vocabulary.has_masks else ()
        in_digits = tuple(change for numeral in candidate.lost for change in numeral.changes)
        words: tuple[Change, ...] = ()
        if "invented" in candidate.faults and self._vocabulary.lexicon is not None:
            words = known_words(node.text, [*node.spans, *lost], candidate.text, self._vocabulary.lexicon)
        if not lost and not in_digits and not words:
            return False
        hides = now.form.hides()
        hidden = sorted([*(span for span in node.spans if id(span) in hides), *lost], key=lambda span: span.start)
        is_spoken = bool(now.form.spoken)
        return self._try(node, hidden, is_spoken=is_spoken, names=lost, in_digits=in_digits, words=words)

    def _judge(self, node: _Node, result: SequenceResult) -> None:
        """Takes the first good hypothesis, or decides what comes next."""
        self._check()
        if node.shown:
            self._judge_shown(node, result)
            return
        now = node.tries[-1]
        keeping: list[_Candidate] = []
        good: list[_Candidate] = []
        for hypothesis in result.hypotheses:
            candidate = self._candidate(node, now.form, hypothesis)
            if candidate is not None:
                keeping.append(candidate)
                good += [candidate] if candidate.faults_beyond_minor == () else []
            if len({candidate.text for candidate in good if not candidate.faults}) == self._num_wanted:
                break  # To look at the rest would take three quarters of the time.
        # Instead of an invented word other hypotheses have nothing, or a wrong one; but not if they know a better one.
        good.sort(key=_weight if now.words else _weight_without_words)
        if node.unsure_try is not None:
            if good and _weight(good[0]) < _weight(node.unsure[0]):
                self._settle(node, now, self._best_of(good))
            else:
                self._settle(node, node.unsure_try, node.unsure)
            return
        if good:
            # The caller's ranks: the rest is second choice, but never one that lost something.
            bad = [candidate for candidate in keeping if candidate.faults_beyond_minor == ("untranslated",)]
            chosen = self._best_of([*good, *bad])
            if self._try_plainly(node, now, good[0]):
                node.unsure, node.unsure_try = chosen, now
            else:
                self._settle(node, now, chosen)
            return
        if keeping and (not node.fallback or _weight(keeping[0]) < _weight(node.fallback[0])):
            node.fallback, node.fallback_try = keeping, now
        if not keeping and not node.fallback and self._try_other_form(node):
            return
        # Numbers that are hidden cannot be taken for one another, wherever they stand then.
        if keeping and keeping[0].faults_beyond_minor == ("order",) and self._try(node, node.spans):
            return
        if not node.guarded and (keeping or not node.spans):
            hides = now.form.hides()
            hidden = [span for span in node.spans if id(span) in hides]
            options, is_spoken = self._next_options(node), bool(now.form.spoken)
            if self._try(node, hidden, self._alphabet(now.form), options, is_spoken=is_spoken):
                return
        if node.fallback:
            self._give_in(node)
        else:
            self._part_around(node)

    def _judge_shown(self, node: _Node, result: SequenceResult) -> None:
        """Of what has been read already only the rest can be tried again."""
        now = node.tries[-1]
        found = [self._as_written(node, now.form, hypothesis) for hypothesis in result.hypotheses]
        found.sort(key=_weight)
        if not node.fallback or _weight(found[0]) < _weight(node.fallback[0]):
            node.fallback, node.fallback_try = found, now
        best = node.fallback[0]
        if best.faults_beyond_minor and not node.guarded:
            node.guarded = True
            if self._try(node, (), options=self._retry_options()):
                return
        self._settle_for_fallback(node)

    def _as_written(self, node: _Node, form: Form, hypothesis: Hypothesis) -> _Candidate:
        """A hypothesis without kept spans, taken as it is."""
        written = self._vocabulary.tokenizer.decode(hypothesis.tokens_without_eos)
        clean = NEVER_WRITTEN.sub("", written)
        pieces = _stripped([Piece(clean, 0, len(written))] if clean else [])
        pieces = self._finished(node, pieces, hypothesis)
        text = "".join(piece.text for piece in pieces)
        found = self._faults(node, form, pieces, clean, text, hypothesis)
        if clean != written:
            found = (*found, "characters")
        return self._with_losses(node, _Candidate(text, tuple(pieces), hypothesis, found))

    def _try_other_form(self, node: _Node) -> bool:
        hard = [span for span in node.spans if not span.is_soft]
        everything = list(node.spans)
        ways = [(everything, index) for index in range(len(self._vocabulary.placeholders))]
        ways += [(hard, index) for index in range(1, len(self._vocabulary.placeholders))]
        if node.tries[-1].form.spoken:
            ways.insert(0, (hard, 0))
        return len(node.tries) < 3 and any(self._try(node, hidden, index, is_spoken=False) for hidden, index in ways)

    def _part_around(self, node: _Node, around: Sequence[KeptSpan] = ()) -> None:
        """Translates what stands between the kept spans, so that nothing can happen to them."""
        around = around or [span for span in node.spans if not span.is_soft] or node.spans
        if not around or node.depth >= _MAX_DEPTH:
            self._leave(node)
            return
        node.warnings.append("parted")
        self._part(node, around, fragments=True)

    def _give_in(self, node: _Node) -> None:
        """Nothing good was found for a node, though its spans were kept."""
        best = node.fallback[0]
        is_bad = bool({"repetition", "too_long"} & set(best.faults))
        if {"order", "hollow"} & set(best.faults) and node.depth < _MAX_DEPTH:
            label = _LABEL.match(node.text)
            if label and not label["number"] and "order" not in best.faults and _loses_label(node, best.text):
                self._part_around(node, [KeptSpan(*label.span("mark"), label["mark"], "symbol")])
            else:
                self._part_around(node, node.spans if "order" in best.faults else ())
            return
        half = middle(node.text) if "items" in best.faults and node.depth < _MAX_DEPTH else None
        if half is not None and not any(span.start < half[1] and half[0] < span.end for span in node.spans):
            node.warnings.append("parted")
            self._part(node, [KeptSpan(*half, node.text[slice(*half)], "symbol")], fragments=True)
            return
        if set(best.faults_beyond_minor) <= {"signs", "quotes"} and node.depth < _MAX_DEPTH:
            signs = _signs(node, best.faults)
            if signs:
                node.warnings.append("parted")
                self._part(node, signs, fragments=True)
                return
        if best.faults_beyond_minor not in (("untranslated",), ("signs",), ("quotes",)) and self._halve(node):
            return
        if is_bad:
            self._leave(node)
        else:
            self._settle_for_fallback(node)

    def _leave(self, node: _Node) -> None:
        """Gives the source back."""
        node.part = Part(node.start, node.end, (node.text,))
        found = {fault for candidate in node.fallback[:1] for fault in candidate.faults}
        if "repetition" in found:
            node.warnings.append("repetition")
        if "too_long" in found:
            node.warnings.append("length")
        node.warnings.append("not_translated")

    def _settle_for_fallback(self, node: _Node) -> None:
        """Takes the best of what is not good, and says what is wrong with it."""
        assert node.fallback_try is not None
        self._settle(node, node.fallback_try, self._best_of(node.fallback))
        node.warnings += [_WARNING_FOR[fault] for fault in node.fallback[0].faults if fault in _WARNING_FOR]

    def _settle(self, node: _Node, now: _Try, candidates: Sequence[_Candidate]) -> None:
        if now.options.temperature != self._options.temperature:
            node.warnings.append("redrawn")
        if "negation" in candidates[0].faults:
            node.warnings.append("negation")
        if "copied" in candidates[0].faults:
            node.warnings.append("untranslated")
        for code in ("name", "number"):
            if code in candidates[0].faults:
                node.warnings.append(code)
        if node.root is None and _is_guess(node, candidates[0].hypothesis):
            node.warnings.append("unsure")
        node.part = Part(
            node.start,
            node.end,
            tuple(candidate.text for candidate in candidates),
            now.encoding,
            tuple(candidate.hypothesis for candidate in candidates),
            candidates[0].pieces,
        )

    # Parting a node.

    def _part(self, node: _Node, around: Sequence[KeptSpan], *, fragments: bool) -> None:
        done = 0
        for span in around:
            self._add_child(node, done, span.start, fragments)
            ordinal = ENGLISH_ORDINAL.match(node.text, span.end) if span.kind == "number" else None
            end = ordinal.end() if ordinal else span.end
            self._add_child(node, span.start, end, fragments, is_kept=True)
            done = end
        self._add_child(node, done, len(node.text), fragments)

    def _part_at(self, node: _Node, cuts: Iterable[int]) -> bool:
        """Parts a node at places where no kept span is; False if there are none with words on both sides."""
        ends: list[int] = []
        for cut in sorted(cuts):
            is_free = not any(span.start < cut < span.end for span in node.spans)
            if is_free and has_letter(node.text[ends[-1] if ends else 0 : cut]) and has_letter(node.text[cut:]):
                ends.append(cut)
        if not ends:
            return False
        node.warnings.append("parted")
        for start, end in itertools.pairwise([0, *ends, len(node.text)]):
            self._add_child(node, start, end, fragments=True)
        return True

    def _part_in_groups(self, node: _Node, hard: Sequence[KeptSpan]) -> None:
        """Parts a node with more spans than there are placeholders."""
        if node.depth >= _MAX_DEPTH or len(hard) < 2:
            self._leave(node)
            return
        room = max(1, min(len(self._vocabulary.placeholders[0]) - 2, (len(hard) + 1) // 2))
        done = 0
        for index in range(room, len(hard), room):
            cut = _break_between(node.text, hard[index - 1].end, hard[index].start)
            self._add_child(node, done, cut, fragments=True)
            done = cut
        self._add_child(node, done, len(node.text), fragments=True)

    def _halve(self, node: _Node) -> bool:
        words = len(_WORDS.findall(node.text))
        if node.depth >= _MAX_DEPTH or words < _MIN_WORDS_TO_HALVE:
            return False
        compressed, places = compress(node.text, [(span.start, span.end) for span in node.spans])
        half = window_spans(compressed, words // 2 + 1, lambda part: len(_WORDS.findall(part)))
        if len(half) < 2:
            return False
        for start, end in half:
            self._add_child(node, places[start], places[end], fragments=True)
        return True

    def _add_child(self, node: _Node, start: int, end: int, fragments: bool, *, is_kept: bool = False) -> None:
        if start >= end:
            return
        text = node.text[start:end]
        inner = text.strip()
        if mark := not is_kept and _JOINING_MARK.match(text):
            self._add_child(node, start, start + mark.end(), fragments, is_kept=True)
            self._add_child(node, start + mark.end(), end, fragments)
            return
        if is_kept or not inner:
            literal = _Node(node.start + start, node.start + end, text, ())
            literal.part = Part(literal.start, literal.end, (text,))
            node.children.append(literal)
            return
        first = start + text.index(inner)
        last = first + len(inner)
        self._add_child(node, start, first, fragments)
        spans = tuple(
            KeptSpan(span.start - first, span.end - first, span.text, span.kind)
            for span in node.spans
            if first <= span.start and span.end <= last
        )
        child = _Node(node.start + first, node.start + last, inner, spans, node.root or node, node.depth + 1, fragments)
        child.round = node.round
        node.children.append(child)
        self._owner[id(child)] = self._owner[id(node)]
        self._begin(child)
        self._add_child(node, last, end, fragments)

    # Helpers.

    def _ends(self, node: _Node) -> Ends:
        if node.ends is None:
            node.ends = ends(node.text, node.spans)
        return node.ends

    def _has_words(self, node: _Node) -> bool:
        """Whether there is anything to translate: letters of no name, and of nothing that is kept."""
        if not node.spans and _SMALL_WORD.search(node.text):  # nearly always
            return True
        found = sorted([*node.spans, *self._names(node)], key=lambda span: span.start)
        return has_letter(visible_text(node.text, found))

    def _names(self, node: _Node) -> tuple[KeptSpan, ...]:
        if node.names is None:
            lexicon = self._vocabulary.lexicon
            node.names = () if lexicon is None else tuple(names(node.text, node.spans, lexicon))
        return node.names

    def _repeated(self, node: _Node) -> _Repeated | None:
        return None if node.spans else _Repeated.find(node.text, self._ends(node).end)

    def _finished(self, node: _Node, pieces: list[Piece], hypothesis: Hypothesis) -> list[Piece]:
        is_cut = hypothesis.finish_reason == "length"
        language = self._vocabulary.target_language
        pieces = finished(node.text, self._ends(node), pieces, language, is_cut=is_cut)
        source_language, text = self._vocabulary.source_language, "".join(piece.text for piece in pieces)
        if titles := translated_titles(node.text, text, source_language, language):
            pieces = exchanged(pieces, titles)
        return with_escapes(node.text, node.spans, with_spaces(node.text, node.spans, pieces))

    def _changes(self, node: _Node, more: Sequence[Change] = ()) -> Sequence[Change]:
        """What the model is shown otherwise than it stands there."""
        found = self._ends(node)
        result: list[Change] = [(0, len(found.beginning), "")] if found.beginning else []
        if (repeated := self._repeated(node)) is not None:
            result.append((len(repeated.block), found.end, ""))
        lexicon = self._vocabulary.lexicon
        spellings = {} if lexicon is None else lexicon.spellings
        inner = changes(node.text, node.spans, self._vocabulary.source_language, spellings)
        result += [change for change in inner if len(found.beginning) <= change[0] and change[1] <= found.end]
        if found.shown != found.marks:
            result.append((found.end, found.end + len(found.marks), found.shown))
        free = [new for new in more if not any(old[0] < new[1] and new[0] < old[1] for old in result)]
        return sorted([*result, *free]) if free else result

    def _candidate(self, node: _Node, form: Form, hypothesis: Hypothesis) -> _Candidate | None:
        """What a hypothesis means; None if it lost something, or says nothing."""
        written = self._vocabulary.tokenizer.decode(hypothesis.tokens_without_eos)
        restored = form.restore(written)
        if restored is None:
            return None
        pieces = _stripped(_parted_ordinals(node, restored.pieces))
        pieces = close_brackets(pieces) if has_brackets(node.text) else pieces
        if pieces and pieces[0].span and pieces[0].span.kind == "term" and _begins_with_capital(node.text):
            pieces[0] = replace(pieces[0], text=pieces[0].text[0].upper() + pieces[0].text[1:])
        repeated = self._repeated(node)
        said = " ".join(piece.text for piece in pieces if piece.span is None or piece.span.kind == "name")
        if repeated is not None and pieces:
            pieces = repeated.repeat(pieces)
        pieces = self._finished(node, pieces, hypothesis)
        text = "".join(piece.text for piece in pieces)
        if not text or not _keeps(node.root or node, node.text, text):
            return None
        if not any(piece.span is None and any(map(str.isalnum, piece.text)) for piece in pieces):
            return None  # all words are lost: a node without any is not asked for
        found = self._faults(node, form, pieces, said, text, hypothesis)
        return self._with_losses(node, _Candidate(text, tuple(pieces), hypothesis, found))

    def _with_losses(self, node: _Node, candidate: _Candidate) -> _Candidate:
        """A candidate with the names and numbers that it lacks."""
        vocabulary, text = self._vocabulary, candidate.text
        lexicon = vocabulary.lexicon
        missing = () if lexicon is None else missing_names(node.text, text, self._names(node), lexicon)
        lost = lost_numerals(self._numerals(node), text, vocabulary.target_language)
        ordinals = self._lost_ordinals(node, candidate.pieces)
        has_no_title = loses_title(node.text, text, vocabulary.source_language, vocabulary.target_language)
        if not missing and not lost and not ordinals and not has_no_title:
            return candidate
        found = list(candidate.faults)
        found += ["name"] if missing or has_no_title else []
        found += ["number"] if lost or ordinals else []
        return replace(candidate, faults=tuple(found), missing=(*missing, *ordinals), lost=lost)

    def _lost_ordinals(self, node: _Node, pieces: Sequence[Piece]) -> tuple[KeptSpan, ...]:
        """The numbers of a node that English makes ordinals and French did not, each with its ending."""
        languages = self._vocabulary.source_language, self._vocabulary.target_language
        if [base_language(language) for language in languages] != ["en", "fr"]:
            return ()
        following = {id(piece.span): after.text for piece, after in itertools.pairwise(pieces) if piece.span}
        found = []
        for span in node.spans:
            ending = ENGLISH_ORDINAL.match(node.text, span.end) if span.text.isdecimal() and span.is_soft else None
            if ending is None or any(start < ending.end() and span.end < end for start, end, _ in self._changes(node)):
                continue  # a day: 4 July
            if not ORDINAL.match(following.get(id(span), "")):
                found.append(KeptSpan(span.start, ending.end(), span.text + ending[0], span.kind))
        return tuple(found)

    def _numerals(self, node: _Node) -> tuple[Numeral, ...]:
        if node.numerals is None:
            found = numerals(node.text, self._vocabulary.source_language) if self._vocabulary.target_language else ()
            node.numerals = tuple(
                each
                for each in found
                if not any(each.start < span.end and span.start < each.end for span in node.spans)
            )
        return node.numerals

    def _faults(
        self, node: _Node, form: Form, pieces: Sequence[Piece], said: str, text: str, hypothesis: Hypothesis
    ) -> tuple[_Fault, ...]:
        """What is wrong; `said` are the model's own words, before the ends were put right."""
        if self._options.max_target_tokens is not None and hypothesis.finish_reason == "length":
            return ()  # as the caller wanted it
        repeated = self._repeated(node)
        source = read_escapes(visible_text(doubled(node.text), node.spans) if repeated is None else repeated.block)
        found: list[_Fault] = [fault for fault in faults(source, said) if fault != "too_long"]
        lexicon = self._vocabulary.lexicon
        if lexicon is not None and "untranslated" not in found:
            if is_copied_word(source, said, lexicon) or copied_words(source, said, lexicon):
                found.append("copied")
        if lexicon is not None and (invented(source, said, lexicon) or lacks_shown(said, node.tries[-1].words)):
            found.append("invented")
        if is_too_long(node.text.strip(), text.strip()):
            found.append("too_long")
        if hypothesis.finish_reason == "length":
            found.append("truncated")
        hidden = form.hides()
        numbers = [span.text for span in node.spans if span.is_soft and id(span) not in hidden]
        if numbers != [
            piece.span.text for piece in pieces if piece.span and piece.span.is_soft and id(piece.span) not in hidden
        ]:
            found.append("order")
        vocabulary = self._vocabulary
        languages = vocabulary.source_language, vocabulary.target_language
        if loses_negation(read_escapes(node.text), read_escapes(text), *languages):
            found.append("negation")
        if _is_hollow(node, pieces) or _loses_item(node, pieces, languages[1]) or _loses_label(node, text):
            found.append("hollow")
        # Of a half of a list two items are one.
        min_items = 2 if node.root else 3
        if repeated is None and (
            lacks_items(node.text, text, *languages, min_items)
            or lacks_counted(node.text, text, *languages)
            or says_twice(node.text, text, *languages)
        ):
            found.append("items")
        if "too_short" not in found and loses_much(node.text, text, *languages):
            found.append("too_short")
        return tuple(found)

    def _best_of(self, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        """As many as are wanted; of those that became the same text, as two that differ in a mark at the end, one."""
        distinct: dict[str, _Candidate] = {}
        for candidate in candidates:
            distinct.setdefault(candidate.text, candidate)
        return list(distinct.values())[: self._num_wanted]

    def _next_options(self, node: _Node) -> DecodingOptions:
        """What is tried next with a node that nothing good was written for: what was to be drawn is drawn again."""
        asked = self._options.temperature
        if asked > 0 and node.num_redraws < _MAX_REDRAWS:
            node.num_redraws += 1
            cooler = min(asked / 2, _HIGHEST_REDRAW_TEMPERATURE) / 2 ** (node.num_redraws - 1)
            return replace(self._options, temperature=cooler)
        node.guarded = True
        return self._retry_options()

    def _retry_options(self) -> DecodingOptions:
        beam_size = min(max(self._options.beam_size, _RETRY_BEAM_SIZE), self._max_beam_size)
        return replace(
            self._options,
            beam_size=beam_size,
            num_hypotheses=beam_size,
            beam_threshold=None,
            temperature=0.0,
            top_k=None,
            top_p=None,
            no_repeat_ngram_size=self._options.no_repeat_ngram_size or _RETRY_NGRAM_SIZE,
        )

    def _alphabet(self, form: Form) -> int:
        used = form.hidden[0][0] if form.hidden else self._vocabulary.placeholders[0][0]
        return next(index for index, chars in enumerate(self._vocabulary.placeholders) if used in chars)

    def spans(self, text: str) -> tuple[KeptSpan, ...]:
        """The kept spans of a text; those of the same text are looked for once."""
        if text not in self._spans:
            self._check()
            self._spans[text] = self._vocabulary.spans(text)
        return self._spans[text]

    def encode(self, text: str) -> Encoding:
        """The text as the model's ids, with the end of sentence; the same text is encoded once."""
        if text not in self._encodings:
            self._encodings[text] = self._vocabulary.encode(text)
        return self._encodings[text]


@lru_cache(maxsize=1_024)
def _with_all_hypotheses(options: DecodingOptions) -> DecodingOptions:
    return replace(options, num_hypotheses=options.beam_size)


def _with_names(spans: Iterable[KeptSpan], names: Sequence[KeptSpan]) -> list[KeptSpan]:
    """Kept spans and names in order; of a number that is a part of one of them, as of *1st*, only that."""
    free = [span for span in spans if not any(name.start < span.end and span.start < name.end for name in names)]
    return sorted([*free, *names], key=lambda span: span.start)


def _parted_ordinals(node: _Node, pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces of a translation, with a hidden ordinal as its number and its ending."""
    numbers = {span.start: span for span in node.spans if span.is_soft}
    result: list[Piece] = []
    for piece in pieces:
        number = numbers.get(piece.span.start) if piece.span is not None else None
        if number is None or len(number.text) == len(piece.text) or not piece.text.startswith(number.text):
            result.append(piece)
            continue
        result.append(Piece(number.text, piece.start, piece.end, number))
        result.append(Piece(piece.text[len(number.text) :], piece.end, piece.end))
    return result


def _is_done(node: _Node) -> bool:
    return all(map(_is_done, node.children)) if node.children else node.part is not None


def _parts(node: _Node) -> Iterable[Part]:
    if not node.children:
        assert node.part is not None
        yield node.part
    for child in node.children:
        yield from _parts(child)


def _warnings(node: _Node) -> Iterable[WarningCode]:
    yield from node.warnings
    for child in node.children:
        yield from _warnings(child)


def _keeps(root: _Node, source: str, text: str) -> bool:
    """Whether a text has what a whole segment keeps as often as this part of its source, also where it has none."""
    if not all(span.stays(source, text) for span in root.spans):
        return False
    runs = set(number_runs(root.text))
    if not runs:
        return True
    wanted = Counter(number_runs(source))
    found = Counter(run for run in number_runs(text) if any(own in run for own in runs))
    return found == wanted


def _weight(candidate: _Candidate) -> int:
    return sum(_WEIGHTS[fault] for fault in candidate.faults)


def _weight_without_words(candidate: _Candidate) -> int:
    """The same without invented words, for which another hypothesis is no cure."""
    return _weight(candidate) - ("invented" in candidate.faults) * _WEIGHTS["invented"]


def _is_separator(text: str, span: KeptSpan) -> bool:
    return any(pattern.match(text, span.start) for pattern in (_SEPARATOR, _BETWEEN_WORDS))


def _is_hollow(node: _Node, pieces: Sequence[Piece]) -> bool:
    """Whether what stood between two spans, or beside a sign that joins, is gone, as in `[](x)` for `[word](x)`."""
    if not node.spans:
        return False
    before: dict[int, str] = {}
    behind: dict[int, str] = {}
    last, words = 0, ""
    pieces = [replace(piece, span=None) if piece.span and piece.span.kind == "name" else piece for piece in pieces]
    following = dict(itertools.pairwise(id(piece.span) for piece in pieces if piece.span))
    start, end = (KeptSpan(place, place, "", "symbol") for place in (0, len(node.text)))
    for piece in [*pieces, Piece("", 0, 0, end)]:
        if piece.span is None:
            words += piece.text
        else:
            behind[last] = before[id(piece.span)] = words
            last, words = id(piece.span), ""

    def is_lost(left: KeptSpan, right: KeptSpan) -> bool:
        if not has_letter(node.text[left.end : right.start]):
            return False
        if following.get(id(left)) == id(right) and not _has_word(behind[id(left)]):
            return True
        if _GLUED_BEHIND.match(node.text, left.end) and id(left) in behind and not _has_word(behind[id(left)]):
            return True
        return (joins(left) and not _has_word(behind[id(left)])) or (joins(right) and not _has_word(before[id(right)]))

    def joins(span: KeptSpan) -> bool:
        match = _JOINING.match(node.text, span.start) if id(span) in before else None
        return match is not None and match.end() == span.end

    return any(is_lost(left, right) for left, right in itertools.pairwise([start, *node.spans, end]))


def _loses_item(node: _Node, pieces: Sequence[Piece], language: str) -> bool:
    """Whether the markers of a list have changed their order, or one has lost what stood behind it."""
    markers = [span for span in node.spans if span.kind == "marker"]
    if not markers:
        return False
    behind: list[tuple[int, str]] = []
    for piece in pieces:
        if piece.span and piece.span.kind == "marker":
            behind.append((piece.span.start, ""))
        elif behind:
            behind[-1] = behind[-1][0], behind[-1][1] + piece.text
    if [start for start, _ in behind] != [span.start for span in markers]:
        return True
    ends = [*(span.start for span in markers[1:]), len(node.text)]
    return any(
        has_letter(node.text[span.end : end]) and not has_item(words, language)
        for span, end, (_, words) in zip(markers, ends, behind, strict=True)
    )


_LABEL = regex.compile(r"(?:\p{L}[\p{L}\p{M}'’-]*+[ ]?){1,3}+(?P<number>\d[\d.]*+[ ]?)?(?P<mark>:[ ])(?=\S*\p{L})")
_LABELLED = regex.compile(r"\p{L}[^:：]*[:：].*\w", regex.DOTALL)
"""What the text behind it is called or counted by: *Note: ...*, *Error 404: ...*."""


def _loses_label(node: _Node, text: str) -> bool:
    """Whether a text begins with a label, and its translation has none, or nothing but that."""
    return ": " in node.text and _LABEL.match(node.text) is not None and _LABELLED.match(text) is None


def _is_guess(node: _Node, hypothesis: Hypothesis) -> bool:
    """Whether a model has written something for a few words that it hardly believes itself, as far as that is known."""
    if hypothesis.log_prob is None or len(_WORDS.findall(node.text)) > _FEW_WORDS:
        return False
    return hypothesis.log_prob / len(hypothesis.tokens) < _UNSURE_LOG_PROB


def _has_word(text: str) -> bool:
    return any(map(str.isalnum, text))


def _glue(node: _Node) -> list[KeptSpan]:
    """The signs of a list without spaces, to part it around them."""
    signs = [KeptSpan(place, place + 1, node.text[place], "symbol") for place in glue(node.text)]
    places = {(sign.start, sign.end) for sign in signs}
    return signs if all((span.start, span.end) in places for span in node.spans) else []


def _pauses(node: _Node) -> list[KeptSpan]:
    """Dots and marks in the middle of a node, to part it around them."""
    if not _MARKS_IN_A_ROW.search(node.text):
        return []
    return [
        KeptSpan(match.start(), match.end(), match[0], "symbol")
        for match in _PAUSE.finditer(node.text)
        if not any(span.start < match.end() and match.start() < span.end for span in node.spans)
    ]


def _signs(node: _Node, found: Iterable[_Fault]) -> list[KeptSpan]:
    """Brackets and slashes, or quotation marks, outside of what is kept, to part a node around them."""
    signs = quote_signs(node.text) if "quotes" in found else []
    if "signs" in found or not signs:
        signs += [KeptSpan(match.start(), match.end(), match[0], "symbol") for match in _SIGN.finditer(node.text)]
    own = node.spans
    signs = [sign for sign in signs if not any(span.start < sign.end and sign.start < span.end for span in own)]
    return sorted(signs, key=lambda span: span.start)


def in_source(part: Part, source_span: Callable[[int, int], tuple[int, int]], start: int, end: int) -> Part:
    """A part with the places it has in a text that what was translated was made from.

    Args:
        part: Of what was translated.
        source_span: A span of that as one of the text.
        start: Where the part begins in the text.
        end: One past its end there.
    """

    def moved(span: KeptSpan) -> KeptSpan:
        span_start, span_end = source_span(part.start + span.start, part.start + span.end)
        return replace(span, start=span_start - start, end=span_end - start)

    pieces = tuple(piece if piece.span is None else replace(piece, span=moved(piece.span)) for piece in part.pieces)
    if part.encoding is None:
        return replace(part, start=start, end=end, pieces=pieces)
    shown = part.encoding.normalized
    chars = [source_span(*span) for span in zip(shown.starts, shown.ends, strict=True)]
    encoding = replace(
        part.encoding,
        source_spans=tuple(source_span(*span) for span in part.encoding.source_spans),
        normalized=replace(shown, starts=[first for first, _ in chars], ends=[last for _, last in chars]),
    )
    return replace(part, start=start, end=end, encoding=encoding, pieces=pieces)


def _before_terms(part: Part, replaced: Replaced) -> Part:
    """A part with the places it has in the segment as it was before its terms were exchanged."""
    if part.encoding is None:  # it is its source, but for the terms in it
        pieces = []
        cuts = {0, len(part.text), *(place - part.start for span in replaced.kept for place in span)}
        places = sorted(place for place in cuts if 0 <= place <= len(part.text))
        for left, right in itertools.pairwise(places):
            text = part.text[left:right]
            pieces.append(Piece(text, left, right, KeptSpan(left, right, text, "term")))
        part = replace(part, pieces=tuple(pieces))
    return in_source(part, replaced.source_span, *replaced.source_span(part.start, part.end))


def _joined(
    text: str,
    found: Sequence[KeptSpan],
    given: Iterable[tuple[int, int]],
    terms: Iterable[tuple[int, int]] = (),
) -> tuple[KeptSpan, ...]:
    """The caller's spans, and those of the found ones that do not touch them."""
    wanted = [KeptSpan(start, end, text[start:end], "symbol") for start, end in given if start < end]
    wanted += [KeptSpan(start, end, text[start:end], "term") for start, end in terms]
    free = [span for span in found if all(span.end <= own.start or own.end <= span.start for own in wanted)]
    return tuple(sorted([*wanted, *free], key=lambda span: span.start))


def _outer_spans(node: _Node) -> list[KeptSpan]:
    """Emoji and signs at the ends, parted from the words by a space: they need not be shown to the model."""
    signs = ("emoji", "symbol", "tag", "marker")
    outer = []
    for span in node.spans:
        if (
            span.kind not in signs
            or node.text[: span.start].strip()
            or not node.text[span.end : span.end + 1].isspace()
        ):
            break
        outer.append(span)
    for span in reversed(node.spans):
        if span.kind not in signs or node.text[span.end :].strip() or not node.text[: span.start][-1:].isspace():
            break
        if span not in outer:
            outer.append(span)
    return outer


def _break_between(text: str, start: int, end: int) -> int:
    """The best place to part a text between two kept spans."""
    for pattern in (r"[,;:.!?]\s+", r"\s+"):
        found = list(regex.finditer(pattern, text[start:end]))
        if found:
            return start + int(found[-1].end())
    return end


def _in_segment(encoding: Encoding, form: Form, offset: int) -> Encoding:
    """The encoding of a form, with the places of its pieces in the segment's own text."""
    if form.shows_original and offset == 0:
        return encoding

    def place(span: tuple[int, int]) -> tuple[int, int]:
        start, end = form.source_span(*span)
        return start + offset, end + offset

    shown = encoding.normalized
    chars = [place(span) for span in zip(shown.starts, shown.ends, strict=True)]
    return replace(
        encoding,
        source_spans=tuple(map(place, encoding.source_spans)),
        normalized=replace(shown, starts=[start for start, _ in chars], ends=[end for _, end in chars]),
    )


def _stripped(pieces: list[Piece]) -> list[Piece]:
    """Without white space at the ends."""
    while pieces and pieces[0].span is None:
        text = pieces[0].text.lstrip()
        if text:
            pieces[0] = replace(pieces[0], text=text, start=pieces[0].start + len(pieces[0].text) - len(text))
            break
        pieces.pop(0)
    while pieces and pieces[-1].span is None:
        text = pieces[-1].text.rstrip()
        if text:
            pieces[-1] = replace(pieces[-1], text=text, end=pieces[-1].end - len(pieces[-1].text) + len(text))
            break
        pieces.pop()
    return pieces


def _begins_with_capital(text: str) -> bool:
    return next(filter(str.isalpha, text), "").isupper()
