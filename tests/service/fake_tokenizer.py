"""A tokenizer whose ids can be read: one for each character."""

from model.normalizer import normalize
from model.tokenizer import DecodeStream, Encoding

FIRST_ID = 4
EOS_ID = 3


class FakeTokenizer:
    """A `TextTokenizer` with one id for each character of the normalised text."""

    vocab_size = FIRST_ID + 0x110000
    pad_id, unk_id, bos_id, eos_id = 0, 1, 2, EOS_ID
    revision = "fake"

    def piece(self, token_id):
        return "</s>" if token_id == EOS_ID else chr(token_id - FIRST_ID)

    def is_special(self, token_id):
        return token_id < FIRST_ID

    def encode(self, text, language, *, add_eos=False):
        normalized = normalize(text, language)
        ids = [FIRST_ID + ord(char) for char in normalized.text]
        spans = [(place, place + 1) for place in range(len(ids))]
        if add_eos:
            ids.append(EOS_ID)
            spans.append((len(normalized.text), len(normalized.text)))
        return Encoding(
            ids=tuple(ids),
            pieces=tuple(map(self.piece, ids)),
            spans=tuple(spans),
            source_spans=tuple(normalized.source_span(start, end) for start, end in spans),
            normalized=normalized,
        )

    def decode(self, ids):
        return "".join(chr(token_id - FIRST_ID) for token_id in ids if token_id >= FIRST_ID)

    def decode_stream(self):
        return DecodeStream(lambda token_id: self.decode([token_id]).encode())


def upper(source_ids):
    """A translation that can be told from its source: capital letters."""
    return tuple(
        token_id if token_id == EOS_ID else FIRST_ID + ord(chr(token_id - FIRST_ID).upper()[0])
        for token_id in source_ids
    )
