"""Text to vocabulary ids and back, with the place of every piece in the caller's own text.

Callers depend on the `TextTokenizer` protocol only. `Tokenizer` is the implementation for our own models: one joint
SentencePiece vocabulary for both sides.

    tokenizer = Tokenizer("tokenizer.model")
    encoding = tokenizer.encode("Hello world!", "en", add_eos=True)
    assert tokenizer.decode(encoding.ids) == "Hello world!"
"""

import codecs
import hashlib
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from model.normalizer import NORMALIZER_VERSION, NormalizedText, normalize

PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)

# Private-use characters that a vocabulary may hold as one piece each, for spans that must come through unchanged.
MASK_CHARACTERS = tuple(map(chr, range(0xE000, 0xE00A)))

_SPACE_MARK = "\u2581"  # how SentencePiece writes a space
_UNKNOWN_SURFACE = "\ufffd".encode()
# Text that comes back changed from a model that normalises, adds a space, or drops characters.
_PROBES = ("a", " a", "  a  b ", "\ufb01 \uff21 e\u0301 \t", "\U0001f577 \x00 \u4e2d")


class TokenizerModelError(ValueError):
    """A tokenizer's model file is missing, damaged, or not made for this class; the message names the file."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """A text as vocabulary ids; all tuples have one entry for each id.

    Attributes:
        ids: Vocabulary ids.
        pieces: The pieces as the vocabulary writes them: `▁` for a space, `<0xE2>` for a byte.
        spans: `[start, end)` in code points of `normalized.text`, without the space before a word. Empty for the space
            that was put before the first word, when it is a piece of its own, and for the end-of-sentence piece.
            All bytes of a character have the span of that character.
        source_spans: The same in code points of the text that the caller gave.
        normalized: The text that was encoded.
    """

    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    source_spans: tuple[tuple[int, int], ...]
    normalized: NormalizedText


class DecodeStream:
    """Turns ids into text one at a time; never hands out a part of a character.

    What `push` returned for all ids, followed by `finish`, is what `decode` returns for them.
    """

    def __init__(self, surface: Callable[[int], bytes]) -> None:
        """Starts an empty stream.

        Args:
            surface: Gives the UTF-8 bytes that an id stands for (a part of a character for a byte piece, nothing for a
                control piece) and raises `ValueError` for an id outside the vocabulary.
        """
        self._surface = surface
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at_start = True

    def push(self, token_id: int) -> str:
        """Takes the next id and returns the text that became certain with it, often none.

        Raises:
            ValueError: If the id is not in the vocabulary.
        """
        return self._without_first_space(self._decoder.decode(self._surface(token_id)))

    def finish(self) -> str:
        """Returns what is still held back: U+FFFD if the ids ended inside a character, else nothing."""
        return self._without_first_space(self._decoder.decode(b"", final=True))

    def _without_first_space(self, text: str) -> str:
        if self._at_start and text:
            self._at_start = False
            return text.removeprefix(" ")
        return text


class TextTokenizer(Protocol):
    """What the rest of the system asks of a tokenizer.

    A model with two vocabularies chooses by `language` in `encode`. Everything that takes or returns a bare id speaks
    of the target side: pieces of the source are read from its `Encoding`.
    """

    @property
    def vocab_size(self) -> int:
        """Number of ids: valid ones are `0 .. vocab_size - 1`."""

    @property
    def pad_id(self) -> int:
        """The id that fills up the shorter rows of a batch."""

    @property
    def unk_id(self) -> int:
        """The id of what the vocabulary cannot express."""

    @property
    def bos_id(self) -> int:
        """The id that the decoder starts from."""

    @property
    def eos_id(self) -> int:
        """The id that ends a sequence."""

    @property
    def revision(self) -> str:
        """Changes whenever the same text may give other ids or offsets."""

    def piece(self, token_id: int) -> str:
        """The piece as the vocabulary writes it."""

    def is_special(self, token_id: int) -> bool:
        """Whether the id stands for no text: padding, unknown, begin, end and other control pieces."""

    def encode(self, text: str, language: str, *, add_eos: bool = False) -> Encoding:
        """Normalises and encodes a text."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text that the ids stand for."""

    def decode_stream(self) -> DecodeStream:
        """A new stream that decodes id by id."""


class Tokenizer:
    """The `TextTokenizer` over a SentencePiece model from `train_tokenizer`; safe to share between threads.

    Text alone never gives a control or unknown id: what the vocabulary lacks is spelled in bytes, and `</s>` in a text
    is four characters. `decode(encode(x).ids)` is `normalize(x).text` for any text.
    """

    pad_id = PAD_ID
    unk_id = UNK_ID
    bos_id = BOS_ID
    eos_id = EOS_ID

    def __init__(self, path: str | Path) -> None:
        """Loads a model file.

        Args:
            path: The SentencePiece model file.

        Raises:
            TokenizerModelError: If the file is missing, damaged, or of a model with other special ids, without byte
                fallback, or with a normalisation of its own.
        """
        path = Path(path)
        try:
            model = path.read_bytes()
        except OSError as error:
            raise TokenizerModelError(f"tokenizer model {path}: cannot be read ({error.strerror})") from error
        self._processor, self._pieces = _load(model, path)
        self.revision = hashlib.sha256(model + NORMALIZER_VERSION.encode()).hexdigest()[:16]
        every_id = list(range(len(self._pieces)))
        self._special = [
            control or unknown
            for control, unknown in zip(
                self._processor.is_control(every_id), self._processor.is_unknown(every_id), strict=True
            )
        ]
        self._is_byte = self._processor.is_byte(every_id)
        self._lengths = [(len(piece), len(piece.lstrip(_SPACE_MARK))) for piece in self._pieces]
        self._surfaces = [self._make_surface(token_id) for token_id in every_id]
        self._space_mark_ids = [self._processor.piece_to_id(_byte_piece(byte)) for byte in _SPACE_MARK.encode()]
        self._check_probes(path)

    @property
    def vocab_size(self) -> int:
        """Number of ids: valid ones are `0 .. vocab_size - 1`."""
        return len(self._pieces)

    def piece(self, token_id: int) -> str:
        """The piece as the vocabulary writes it.

        Raises:
            ValueError: If the id is not in the vocabulary.
        """
        return self._pieces[self._checked(token_id)]

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control piece or the unknown piece; bytes are not special.

        Raises:
            ValueError: If the id is not in the vocabulary.
        """
        return self._special[self._checked(token_id)]

    def encode(self, text: str, language: str, *, add_eos: bool = False) -> Encoding:
        """Normalises and encodes a text.

        Args:
            text: Any text, also with lone surrogates. Without a visible character it gives no ids.
            language: Language code, for the normalisation.
            add_eos: Whether to append the end-of-sentence id, with an empty span at the end of the text.

        Returns:
            The ids with their pieces and places.
        """
        normalized = normalize(text, language)
        ids = self._encode_ids(normalized.text)
        spans = self._spans(ids)
        if add_eos:
            ids.append(EOS_ID)
            spans.append((len(normalized.text), len(normalized.text)))
        return Encoding(
            ids=tuple(ids),
            pieces=tuple(self._pieces[token_id] for token_id in ids),
            spans=tuple(spans),
            # Where no rule changed anything it is the very text.
            source_spans=tuple(
                spans if normalized.text is text else (normalized.source_span(start, end) for start, end in spans)
            ),
            normalized=normalized,
        )

    def encode_ids(self, text: str, language: str) -> list[int]:
        """The ids of `encode` without the places of the pieces, several times faster: for training data."""
        return self._encode_ids(normalize(text, language).text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text that the ids stand for.

        Control ids are skipped, the unknown id and every malformed sequence of bytes become U+FFFD, and the one space
        that `encode` put at the start is taken away.

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        ids = tuple(ids)
        if ids and not 0 <= min(ids) <= max(ids) < len(self._pieces):
            self._checked(next(token_id for token_id in ids if not 0 <= token_id < len(self._pieces)))
        surfaces = self._surfaces
        return b"".join([surfaces[token_id] for token_id in ids]).decode(errors="replace").removeprefix(" ")

    def decode_stream(self) -> DecodeStream:
        """A new stream that decodes id by id."""
        return DecodeStream(self._surface)

    def _encode_ids(self, normalized: str) -> list[int]:
        if not normalized:
            return []
        # The space in front gives a first word the piece that it has later in a sentence.
        ids: list[int] = []
        for index, part in enumerate((" " + normalized).split(_SPACE_MARK)):
            if index:  # SentencePiece would take a literal mark for a space
                ids += self._space_mark_ids
            ids += self._processor.encode(part)
        return ids

    def _spans(self, ids: list[int]) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        position = -1  # the space in front stands before the text
        bytes_left = 0
        is_byte, lengths = self._is_byte, self._lengths
        for token_id in ids:
            if is_byte[token_id]:
                bytes_left = bytes_left or _utf8_length(self._surfaces[token_id][0])
                spans.append((position, position + 1))
                bytes_left -= 1
                position += bytes_left == 0
                continue
            length, word_length = lengths[token_id]
            end = position + length
            spans.append((end - word_length if word_length else max(position, 0), end))
            position = end
        return spans

    def _surface(self, token_id: int) -> bytes:
        return self._surfaces[self._checked(token_id)]

    def _make_surface(self, token_id: int) -> bytes:
        piece = self._pieces[token_id]
        if self._is_byte[token_id]:
            return bytes([int(piece[3:5], 16)])
        if self._special[token_id]:
            return _UNKNOWN_SURFACE if token_id == UNK_ID else b""
        return piece.replace(_SPACE_MARK, " ").encode()

    def _checked(self, token_id: int) -> int:
        if not 0 <= token_id < len(self._pieces):
            raise ValueError(f"id {token_id} is not in the vocabulary of {len(self._pieces)} pieces")
        return token_id

    def _check_probes(self, path: Path) -> None:
        for probe in _PROBES:
            ids = self._processor.encode(probe)
            if b"".join(self._surfaces[token_id] for token_id in ids) != probe.encode():
                raise TokenizerModelError(
                    f"tokenizer model {path}: changes text ({probe!r} does not come back); it must be trained with "
                    "identity normalisation and without a dummy prefix, as train_tokenizer does"
                )


def train_tokenizer(
    lines: Iterable[str],
    path: str | Path,
    *,
    vocab_size: int,
    character_coverage: float = 0.9998,
    split_digits: bool = True,
    num_threads: int = 2,
) -> Tokenizer:
    """Trains a unigram model (Kudo 2018, "Subword Regularization") with one vocabulary for all languages in `lines`.

    The same lines and arguments give the same file, byte for byte.

    Args:
        lines: Normalised lines of both languages, mixed as the vocabulary should be shared.
        path: The model file to write.
        vocab_size: Number of pieces, with the 4 special and 256 byte pieces.
        character_coverage: Share of all characters in `lines` that get a piece; rarer ones are spelled in bytes.
        split_digits: Whether every digit is a piece of its own, so that numbers are copied digit by digit.
        num_threads: Threads of the training.

    Returns:
        The tokenizer, loaded from `path`.

    Raises:
        ValueError: If SentencePiece cannot make such a vocabulary from the lines.
    """
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=(" " + line for line in lines),  # as in Tokenizer.encode
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            split_digits=split_digits,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            byte_fallback=True,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            max_sentence_length=1 << 16,
            num_threads=num_threads,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(f"cannot train a vocabulary of {vocab_size} pieces: {error}") from error
    Path(path).write_bytes(model.getvalue())
    return Tokenizer(path)


def _load(model: bytes, path: Path) -> tuple[SentencePieceProcessor, list[str]]:
    processor = SentencePieceProcessor()
    try:
        processor.load_from_serialized_proto(model)
        pieces = processor.id_to_piece(list(range(processor.get_piece_size())))
    except (RuntimeError, UnicodeDecodeError) as error:
        raise TokenizerModelError(f"tokenizer model {path}: damaged, or not a SentencePiece model ({error})") from error
    special_ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if special_ids != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
        raise TokenizerModelError(
            f"tokenizer model {path}: pad, unk, bos and eos ids are {special_ids}, "
            f"not {(PAD_ID, UNK_ID, BOS_ID, EOS_ID)}"
        )
    byte_ids = processor.piece_to_id([_byte_piece(byte) for byte in range(256)])
    if not all(processor.is_byte(byte_ids)):
        raise TokenizerModelError(f"tokenizer model {path}: has no byte fallback, so some text would be lost")
    return processor, pieces


def _byte_piece(byte: int) -> str:
    return f"<0x{byte:02X}>"


def _utf8_length(first_byte: int) -> int:
    return 1 + (first_byte >= 0xC0) + (first_byte >= 0xE0) + (first_byte >= 0xF0)
