"""The tokenizer of models imported from Marian: two SentencePiece models, and vocabularies that give pieces their ids.

    tokenizer = MarianTokenizer("source.spm", "target.spm", "vocab.json", target_language="fr")
    tokenizer.encode("Hello world!", "en", add_eos=True)

It gives the ids of `MarianTokenizer` in transformers 5.24, which tests compare. Two things follow from that:

- The only normalisation is the one inside the SentencePiece models. `model.normalizer` would change ids. So would the
  Moses punctuation normalizer, which transformers loads where sacremoses is installed, but never calls.
- What a vocabulary lacks becomes the unknown id: such a character cannot be spelled, and the model does not see it.
  `MarianTokenizer.unknown_spans` tells which parts of a text that were.

One thing differs on purpose. There `</s>`, `<pad>` and `<unk>` inside a text become the special ids, and a text that
begins with `>>fra<<` chooses the target language. Here a text is only text; the tag is chosen by `for_target`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from model.normalizer import NormalizedText
from model.tokenizer import DecodeStream, Encoding, TokenizerModelError

EOS, UNK, PAD = "</s>", "<unk>", "<pad>"

# Part of the revision: raise it whenever the same files begin to give other ids or offsets.
_VERSION = b"marian 1"

_SPACE_MARK = "\u2581"  # how SentencePiece writes a space
_UNKNOWN_SURFACE = "\ufffd".encode()
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")
_TAG = re.compile(">>(.+)<<", re.DOTALL)

# ISO 639-1 and 639-3 codes of one language, written together: OPUS-MT uses both.
_ISO_639 = """
aaaar ababk aeave afafr akaka amamh anarg arara asasm avava ayaym azaze babak bebel bgbul bibis bmbam bnben bobod brbre
bsbos cacat ceche chcha cocos crcre csces cuchu cvchv cycym dadan dedeu dvdiv dzdzo eeewe elell eneng eoepo esspa etest
eueus fafas ffful fifin fjfij fofao frfra fyfry gagle gdgla glglg gngrn guguj gvglv hahau heheb hihin hohmo hrhrv hthat
huhun hyhye hzher iaina idind ieile igibo iiiii ikipk ioido isisl itita iuiku jajpn jvjav kakat kgkon kikik kjkua kkkaz
klkal kmkhm knkan kokor krkau kskas kukur kvkom kwcor kykir lalat lbltz lglug lilim lnlin lolao ltlit lulub lvlav mgmlg
mhmah mimri mkmkd mlmal mnmon mrmar msmsa mtmlt mymya nanau nbnob ndnde nenep ngndo nlnld nnnno nonor nrnbl nvnav nynya
ococi ojoji omorm orori ososs papan pipli plpol pspus ptpor quque rmroh rnrun roron rurus rwkin sasan scsrd sdsnd sesme
sgsag sisin skslk slslv smsmo snsna sosom sqsqi srsrp ssssw stsot susun svswe swswa tatam tetel tgtgk ththa titir tktuk
tltgl tntsn toton trtur tstso tttat twtwi tytah uguig ukukr ururd uzuzb veven vivie vovol wawln wowol xhxho yiyid yoyor
zazha zhzho zuzul
"""
_SAME_LANGUAGE = {pair[:2]: pair[2:] for pair in _ISO_639.split()}
_SAME_LANGUAGE |= {three: two for two, three in _SAME_LANGUAGE.items()}


class UnknownTargetTag(ValueError):
    """A model with several target languages does not know the one that was asked for; the message lists the others.

    Attributes:
        language: What was asked for.
        available: Its tags, without `>>` and `<<`.
    """

    def __init__(self, language: str, available: Sequence[str]) -> None:
        there_is = f"there are: {', '.join(available)}" if available else "the vocabulary has no tags"
        super().__init__(f"no target-language tag for {language!r}; {there_is}")
        self.language = language
        self.available = tuple(available)


def target_tags(vocabulary: Iterable[str]) -> tuple[str, ...]:
    """The target languages whose tags (`>>fra<<`) are among the pieces, as the tags name them, sorted."""
    return tuple(sorted(match[1] for match in map(_TAG.fullmatch, vocabulary) if match))


def find_tag(tags: Sequence[str], language: str) -> str:
    """The tag that means a language.

    An exact tag wins; then one that differs in case or separator (`pt-BR` finds `pt_br`); then the other code of the
    same language (`fr` finds `fra`, and `fra` finds `fr`); then all of that for the main language (`fr-CA` finds
    `fra`). Nothing is guessed beyond: `zh` does not find `cmn_Hans`, which must be named.

    Raises:
        UnknownTargetTag: When there is none.
    """
    if language in tags:
        return language
    by_code = {_folded(tag): tag for tag in reversed(tags)}
    code = _folded(language)
    for wanted in (code, code.partition("-")[0]):
        for same in (wanted, _SAME_LANGUAGE.get(wanted, wanted)):
            if same in by_code:
                return by_code[same]
    raise UnknownTargetTag(language, tags)


def language_code(tag: str) -> str:
    """The code that people use for the language of a tag: two letters where there are two for three (`fra` is `fr`)."""
    return _SAME_LANGUAGE.get(tag, tag) if len(tag) == 3 else tag


class MarianTokenizer:
    """The `TextTokenizer` of an imported Marian model; safe to share between threads.

    `encode` takes texts of both sides: one in the target language (by its code) is cut by the target's model and gets
    no tag, every other is a source. The ids of a source belong to the source vocabulary, which may be another one; all
    that takes or returns a bare id speaks of the target's.

    Decoding leaves out control pieces and tags, writes U+FFFD for the unknown id, and strips the ends, as transformers
    does.

    Attributes:
        pad_id: Fills rows, and is what a Marian decoder starts from.
        eos_id: The same id in both vocabularies, like `pad_id`.
        unk_id: Unknown piece of the target vocabulary.
        source_unk_id: Unknown piece of the source vocabulary.
        bos_id: `pad_id`.
        vocab_size: Size of the target vocabulary.
        source_vocab_size: Size of the source vocabulary.
        target_tags: The languages that the source vocabulary has tags for; empty for a model with one target.
        target_tag: The one that every source begins with; None for no tag.
        revision: Changes whenever the same text may give other ids or offsets.
    """

    def __init__(
        self,
        source_model: str | Path,
        target_model: str | Path,
        vocabulary: str | Path,
        target_vocabulary: str | Path | None = None,
        *,
        target_language: str,
        target_tag: str | None = None,
    ) -> None:
        """Loads the files.

        Args:
            source_model: SentencePiece model that cuts sources.
            target_model: SentencePiece model that cut the targets.
            vocabulary: JSON object from piece to id: of both sides, or of the source.
            target_vocabulary: The same for the target; None if both sides share one.
            target_language: Code of the language of the targets.
            target_tag: The tag put before sources, without `>>` and `<<`; None for no tag.

        Raises:
            TokenizerModelError: If a file is missing, damaged, or does not fit the others; names the file.
            UnknownTargetTag: If the source vocabulary has no such tag.
        """
        paths = [Path(source_model), Path(target_model), Path(vocabulary)]
        if target_vocabulary is not None:
            paths.append(Path(target_vocabulary))
        contents = [_read(path) for path in paths]
        self._source = _Side(contents[0], contents[2], paths[0], paths[2])
        self._target = _Side(contents[1], contents[-1], paths[1], paths[-1])
        for piece in (EOS, PAD):
            if self._source.ids[piece] != self._target.ids[piece]:
                raise TokenizerModelError(
                    f"vocabulary {paths[-1]}: {piece} has the id {self._target.ids[piece]}, "
                    f"but in {paths[2]} it has {self._source.ids[piece]}"
                )
        self.eos_id = self._target.ids[EOS]
        self.pad_id = self.bos_id = self._target.ids[PAD]
        self.unk_id, self.source_unk_id = self._target.ids[UNK], self._source.ids[UNK]
        self.vocab_size, self.source_vocab_size = len(self._target.ids), len(self._source.ids)
        self.target_tags = target_tags(self._source.ids)
        self._target_language = _folded(target_language)
        self._digest = b"".join(hashlib.sha256(content).digest() for content in contents)
        self._use_tag(target_tag)

    @property
    def target_languages(self) -> tuple[str, ...]:
        """Codes that `for_target` takes, its own first; empty for a model with one target. `fra` is called `fr`."""
        if self.target_tag is None:
            return ()
        codes = [language_code(tag) for tag in (self.target_tag, *self.target_tags)]
        return tuple(dict.fromkeys(codes))

    def for_target(self, language: str) -> MarianTokenizer:
        """The same tokenizer for another of the model's target languages; the files stay shared.

        Args:
            language: A tag, or a language code that means one (see `find_tag`).

        Raises:
            UnknownTargetTag: If the model has none for it; lists those it has.
        """
        other = copy.copy(self)
        other._use_tag(find_tag(self.target_tags, language))
        other._target_language = _folded(language)
        return other

    def piece(self, token_id: int) -> str:
        """The piece as the target vocabulary writes it.

        Raises:
            ValueError: If the id is not in the vocabulary.
        """
        return self._target.pieces[self._checked(token_id)]

    def is_special(self, token_id: int) -> bool:
        """Whether the id stands for no text: end, padding, unknown, a control piece or a target-language tag.

        Raises:
            ValueError: If the id is not in the vocabulary.
        """
        return self._target.is_special[self._checked(token_id)]

    def encode(self, text: str, language: str, *, add_eos: bool = False) -> Encoding:
        """Encodes a text; `Encoding.normalized` holds what the SentencePiece model's normalisation made of it.

        Args:
            text: Any text, also with lone surrogates. Without a visible character it gives no ids, and no tag.
            language: The target language's code for a text of that side; else the text is a source.
            add_eos: Whether to append the end-of-sentence id, with an empty span at the end of the text.

        Returns:
            The ids with their pieces and places. The tag has an empty span at the start; a run of characters without a
            piece is one unknown id, written `<unk>`, with the span of the run.
        """
        is_target = _folded(language) == self._target_language
        side = self._target if is_target else self._source
        cut, normalized = side.cut(text)
        ids = [side.ids.get(piece, side.ids[UNK]) for piece in cut]
        spans = side.spans(cut)
        if ids and self.target_tag is not None and not is_target:
            ids.insert(0, side.ids[f">>{self.target_tag}<<"])
            spans.insert(0, (0, 0))
        if add_eos:
            ids.append(self.eos_id)
            spans.append((len(normalized.text), len(normalized.text)))
        return Encoding(
            ids=tuple(ids),
            pieces=tuple(side.pieces[token_id] for token_id in ids),
            spans=tuple(spans),
            source_spans=tuple(normalized.source_span(start, end) for start, end in spans),
            normalized=normalized,
        )

    def unknown_spans(self, encoding: Encoding) -> tuple[tuple[int, int], ...]:
        """Which parts of the caller's text became unknown ids: the model does not see what they say."""
        return tuple(span for piece, span in zip(encoding.pieces, encoding.source_spans, strict=True) if piece == UNK)

    def decode(self, ids: Iterable[int]) -> str:
        """The text that the ids stand for.

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        return b"".join(map(self._surface, ids)).decode(errors="replace").strip()

    def decode_stream(self) -> DecodeStream:
        """A new stream that decodes id by id; white space comes with the text that follows it, or not at all."""
        return _StrippedStream(self._surface)

    def _use_tag(self, tag: str | None) -> None:
        if tag is not None and tag not in self.target_tags:
            raise UnknownTargetTag(tag, self.target_tags)
        self.target_tag = tag
        self.revision = hashlib.sha256(self._digest + _VERSION + repr(tag).encode()).hexdigest()[:16]

    def _surface(self, token_id: int) -> bytes:
        return self._target.surfaces[self._checked(token_id)]

    def _checked(self, token_id: int) -> int:
        if not 0 <= token_id < self.vocab_size:
            raise ValueError(f"id {token_id} is not in the vocabulary of {self.vocab_size} pieces")
        return token_id


class _StrippedStream(DecodeStream):
    """Holds white space back until text follows, so that none is given out at the ends."""

    _held = ""

    def push(self, token_id: int) -> str:
        return self._stripped(self._decoder.decode(self._surface(token_id)))

    def finish(self) -> str:
        return self._stripped(self._decoder.decode(b"", final=True))

    def _stripped(self, text: str) -> str:
        text = self._held + text
        if self._at_start:
            text = text.lstrip()
        shown = text.rstrip()
        self._held = text[len(shown) :]
        self._at_start = self._at_start and not shown
        return shown


class _Side:
    """One language's SentencePiece model and vocabulary."""

    def __init__(self, model: bytes, vocabulary: bytes, model_path: Path, vocabulary_path: Path) -> None:
        self._processor = SentencePieceProcessor()
        try:
            self._processor.load_from_serialized_proto(model)
        except RuntimeError as error:
            raise TokenizerModelError(
                f"tokenizer model {model_path}: damaged, or not a SentencePiece model ({error})"
            ) from error
        self.ids = _parse_vocabulary(vocabulary, vocabulary_path)
        self.pieces = sorted(self.ids, key=self.ids.__getitem__)
        # Pieces that the model does not know get its unknown id here, and are no control pieces.
        is_control = self._processor.is_control(self._processor.piece_to_id(self.pieces))
        self.is_special = [
            control or piece in (EOS, UNK, PAD) or _TAG.fullmatch(piece) is not None
            for piece, control in zip(self.pieces, is_control, strict=True)
        ]
        own_ids = range(self._processor.get_piece_size())
        self._byte_pieces = {self._processor.id_to_piece(own) for own in own_ids if self._processor.is_byte(own)}
        self.surfaces = [self._make_surface(token_id) for token_id in range(len(self.pieces))]

    def cut(self, text: str) -> tuple[list[str], NormalizedText]:
        """The pieces of a text, and the text that they are pieces of."""
        text, places = _without_surrogates(text)
        pieces: list[str] = self._processor.encode(text, out_type=str)
        normalized, starts = self._processor.normalize(text, with_offsets=True)
        if normalized.startswith(_SPACE_MARK):  # the space that SentencePiece puts before the first word
            normalized, starts = normalized[1:], starts[1:]
        return pieces, _aligned(normalized.replace(_SPACE_MARK, " "), starts, places)

    def spans(self, pieces: Sequence[str]) -> list[tuple[int, int]]:
        """The place of each piece in the normalised text, without the space before a word."""
        spans: list[tuple[int, int]] = []
        position = -1 if pieces and pieces[0].startswith(_SPACE_MARK) else 0
        bytes_left = 0
        for piece in pieces:
            if piece in self._byte_pieces:
                bytes_left = bytes_left or _utf8_length(_byte_of(piece))
                spans.append((position, position + 1))
                bytes_left -= 1
                position += bytes_left == 0
                continue
            word = piece.lstrip(_SPACE_MARK)
            end = position + len(piece)
            spans.append((end - len(word) if word else max(position, 0), end))
            position = end
        return spans

    def _make_surface(self, token_id: int) -> bytes:
        piece = self.pieces[token_id]
        if piece in self._byte_pieces:
            return bytes([_byte_of(piece)])
        if self.is_special[token_id]:
            return _UNKNOWN_SURFACE if piece == UNK else b""
        return piece.replace(_SPACE_MARK, " ").encode(errors="replace")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TokenizerModelError(f"{path}: cannot be read ({error.strerror})") from error


def _parse_vocabulary(content: bytes, path: Path) -> dict[str, int]:
    try:
        ids = json.loads(content)
    except ValueError as error:
        raise TokenizerModelError(f"vocabulary {path}: not valid JSON ({error})") from error
    if not isinstance(ids, dict):
        raise TokenizerModelError(f"vocabulary {path}: holds {type(ids).__name__}, not an object from piece to id")
    for piece, token_id in ids.items():
        if not isinstance(token_id, int) or isinstance(token_id, bool):
            raise TokenizerModelError(f"vocabulary {path}: {piece!r} has the id {token_id!r}, not a whole number")
    by_id = sorted(ids.items(), key=lambda item: item[1])
    for expected, (piece, token_id) in enumerate(by_id):
        if token_id != expected:
            raise TokenizerModelError(
                f"vocabulary {path}: the ids of {len(ids)} pieces must be 0 to {len(ids) - 1}, "
                f"but {piece!r} has {token_id} where {expected} is due"
            )
    missing = [piece for piece in (EOS, UNK, PAD) if piece not in ids]
    if missing:
        raise TokenizerModelError(f"vocabulary {path}: has no {', '.join(missing)}")
    return ids


def _without_surrogates(text: str) -> tuple[str, Sequence[int] | None]:
    """Joins surrogate pairs, makes lone surrogates U+FFFD, and tells where each character was (None: where it is)."""
    if not _SURROGATES.search(text):
        return text, None
    places: list[int] = []
    parts: list[str] = []
    done = 0
    for match in _SURROGATES.finditer(text):
        places += range(done, match.start() + 1)
        pair = match[0]
        joined = pair.encode("utf-16", "surrogatepass").decode("utf-16") if len(pair) == 2 else "\ufffd"
        parts += text[done : match.start()], joined
        done = match.end()
    places += range(done, len(text) + 1)
    return "".join(parts) + text[done:], places


def _aligned(text: str, starts: Sequence[int], places: Sequence[int] | None) -> NormalizedText:
    """Joins a normalised text with its places.

    Args:
        text: The normalised text.
        starts: For each of its characters where it began in the text that was normalised, and where the last one ended.
        places: Where each of those places is in the caller's text; None if just there.
    """
    if places is not None:
        starts = [places[start] for start in starts]
    ends = array("I", starts[1:])
    for index in range(len(ends) - 2, -1, -1):
        if ends[index] == starts[index]:  # several characters that came from one end with it
            ends[index] = ends[index + 1]
    return NormalizedText(text, array("I", starts[:-1]), ends)


def _folded(code: str) -> str:
    return code.lower().replace("_", "-")


def _byte_of(piece: str) -> int:
    return int(piece[3:5], 16)


def _utf8_length(first_byte: int) -> int:
    return 1 + (first_byte >= 0xC0) + (first_byte >= 0xE0) + (first_byte >= 0xF0)
