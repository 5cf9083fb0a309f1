"""Tiny real models for the tests of this folder."""

import torch

from model.config import TransformerConfig
from model.transformer import Transformer

VOCAB_SIZE = 29
EOS = 3

# One name for every kind of arithmetic that a configuration can ask for.
VARIATIONS = {
    "paper": {},
    "pre-norm": {"norm": "pre", "final_norm": True},
    "pre-norm without final norm": {"norm": "pre"},
    "post-norm with final norm": {"final_norm": True},
    "gelu": {"activation": "gelu"},
    "gelu by tanh": {"activation": "gelu", "gelu_approximation": "tanh"},
    "swish": {"activation": "swish"},
    "sinusoids in halves": {"sinusoid_layout": "halves"},
    "learned positions": {"positions": "learned", "max_positions": 24},
    "rotary positions": {"positions": "rotary"},
    "no embedding scale": {"embedding_scale": False},
    "no biases": {"attention_bias": False, "ffn_bias": False},
    "attention biases alone": {"ffn_bias": False},
    "logits bias": {"output_bias": True},
    "separate output": {"tie_output": False},
    "separate embeddings": {"share_embeddings": False, "source_vocab_size": 37},
    "separate learned positions": {
        **{"share_embeddings": False, "tie_output": False, "source_vocab_size": 37},
        **{"positions": "learned", "max_positions": 24},
    },
    "deep encoder": {"num_encoder_layers": 6, "num_decoder_layers": 2},
    "deep decoder": {"num_encoder_layers": 2, "num_decoder_layers": 6},
    "large eps": {"layer_norm_eps": 0.1},
    "one head": {"num_heads": 1},
    "Marian": {
        **{"activation": "swish", "sinusoid_layout": "halves", "output_bias": True, "decoder_start_id": 0},
        **{"norm": "post", "final_norm": False},
    },
}


def tiny_config(**changes):
    fields = {
        **{"source_vocab_size": VOCAB_SIZE, "target_vocab_size": VOCAB_SIZE, "d_model": 16, "num_heads": 4, "d_ff": 24},
        **{"num_encoder_layers": 2, "num_decoder_layers": 3},
    }
    return TransformerConfig(**(fields | changes))


def tiny_model(seed=0, **changes):
    """A model in evaluation mode whose every weight matters: also biases and norms are random."""
    model = Transformer(tiny_config(**changes), seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    return model.eval()


def random_sources(lengths, vocab_size=VOCAB_SIZE, seed=0):
    """Sources of these lengths, each ended by eos."""
    generator = torch.Generator().manual_seed(seed)
    return [[*torch.randint(4, vocab_size, (length - 1,), generator=generator).tolist(), EOS] for length in lengths]


def random_targets(rows, length, start_id=2, seed=1):
    """(rows, length) of decoder inputs."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(4, VOCAB_SIZE, (rows, length), generator=generator)
    targets[:, 0] = start_id
    return targets


def forward(model, source, target):
    """Logits (T, V) of one pair of id lists, alone in its batch."""
    with torch.no_grad():
        return model(torch.tensor([source]), None, torch.tensor([target]))[0]


def prefill(model, sources):
    with torch.no_grad():
        return model.prefill(sources)


def step(model, state, tokens):
    """Logits (R, V) of one decode step."""
    with torch.no_grad():
        return model.decode_step(torch.tensor(tokens), state)
