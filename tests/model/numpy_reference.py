"""The forward pass of the paper in plain numpy, one sentence at a time: the judge of the torch model.

It grew from the code at the end of a popular text that explains attention by a spider and its web. That code does not
run as printed: its block calls ``feed_forward`` without the weights, and the mask is never passed to a block, so that
a decoder made of it would see the future. Both are repaired here; cross-attention, positions of every kind, norms in
either place and the other variations of real checkpoints are added, from the papers. It shares nothing with ``model/``
but the names of the weights.

All is float64. Letters: T positions of the sentence, S of the source, d the model width, h heads.
"""

import math

import numpy as np


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(Q, K, V, mask=None):  # Q (T, d_k), K and V (S, d_k)
    scores = Q @ K.T / np.sqrt(Q.shape[-1])  # how hard each thread pulls
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)  # can't feel the future
    weights = softmax(scores)  # each row sums to 1
    return weights @ V, weights


def multi_head(X, memory, p, h, mask=None, turn=None):
    """What the words of X (T, d) feel of those of memory (S, d), with all h legs; also the weights (h, T, S)."""
    Q = X @ p["Wq"] + p["bq"]
    K = memory @ p["Wk"] + p["bk"]
    V = memory @ p["Wv"] + p["bv"]

    def split(M):  # one read per leg: (h, length, d_k)
        return M.reshape(len(M), h, -1).transpose(1, 0, 2)

    Q, K, V = split(Q), split(K), split(V)
    if turn is not None:
        Q, K = turn(Q), turn(K)
    legs = [attention(Q[i], K[i], V[i], mask) for i in range(h)]
    out = np.concatenate([mixed for mixed, _ in legs], axis=-1)  # pool the reads
    return out @ p["Wo"] + p["bo"], np.stack([weights for _, weights in legs])


def layer_norm(X, g, b, eps):
    mu = X.mean(-1, keepdims=True)
    var = X.var(-1, keepdims=True)
    return g * (X - mu) / np.sqrt(var + eps) + b


def activate(x, config):
    if config.activation == "relu":
        return np.maximum(0, x)
    if config.activation == "swish":  # Ramachandran et al. 2017
        return x / (1 + np.exp(-x))
    if config.gelu_approximation == "tanh":  # Hendrycks and Gimpel 2016, section 2
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def feed_forward(X, W1, b1, W2, b2, config):  # think about each word on its own
    return activate(X @ W1 + b1, config) @ W2 + b2


def sinusoid(position, d, layout):
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d))."""
    angles = [position / 10000 ** (2 * i / d) for i in range(d // 2)]
    if layout == "halves":
        return [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
    return [wave(angle) for angle in angles for wave in (math.sin, math.cos)]


def rotate(M):
    """Rotary positions: pair i of a leg's vector, at position t, turned by t / 10000^(2i/d_k); M (h, T, d_k).

    The pair is (i, i + d_k / 2), read as a complex number.
    """
    half = M.shape[-1] // 2
    pairs = M[..., :half] + 1j * M[..., half:]
    angles = np.arange(M.shape[1])[:, None] / 10000 ** (np.arange(half) / half)
    pairs = pairs * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


class Web:
    """Gives the weights of a state_dict by the paper's names."""

    def __init__(self, state, config):
        self.state = {name: np.asarray(value, dtype=np.float64) for name, value in state.items()}
        self.config = config

    def matrix(self, name):
        """(in, out): torch stores the transpose."""
        return self.state[f"{name}.weight"].T

    def bias(self, name, width, has_bias):
        assert (f"{name}.bias" in self.state) == has_bias
        return self.state[f"{name}.bias"] if has_bias else np.zeros(width)

    def attention(self, name, kind):
        d, has_bias = self.config.d_model, self.config.attention_bias
        if kind == "self":
            W, b = self.matrix(f"{name}.qkv"), self.bias(f"{name}.qkv", 3 * d, has_bias)
        else:
            W = np.hstack([self.matrix(f"{name}.query"), self.matrix(f"{name}.kv")])
            b = np.hstack([self.bias(f"{name}.query", d, has_bias), self.bias(f"{name}.kv", 2 * d, has_bias)])
        (Wq, Wk, Wv), (bq, bk, bv) = np.split(W, 3, axis=1), np.split(b, 3)
        Wo, bo = self.matrix(f"{name}.out"), self.bias(f"{name}.out", d, has_bias)
        return {"Wq": Wq, "Wk": Wk, "Wv": Wv, "Wo": Wo, "bq": bq, "bk": bk, "bv": bv, "bo": bo}

    def norm(self, name):
        return self.state[f"{name}.weight"], self.state[f"{name}.bias"], self.config.layer_norm_eps

    def feed_forward(self, name):
        config = self.config
        return (
            self.matrix(f"{name}.inner"),
            self.bias(f"{name}.inner", config.d_ff, config.ffn_bias),
            self.matrix(f"{name}.outer"),
            self.bias(f"{name}.outer", config.d_model, config.ffn_bias),
            config,
        )

    def embedding(self, side):
        """A shared matrix is read from the source's name alone."""
        shared = self.config.share_embeddings
        return self.state[f"{'source' if shared else side}_embedding.weight"]

    def embed(self, ids, side):
        config = self.config
        X = self.embedding(side)[ids]
        if config.embedding_scale:
            X = X * math.sqrt(config.d_model)
        if config.positions == "sinusoidal":
            X = X + [sinusoid(t, config.d_model, config.sinusoid_layout) for t in range(len(ids))]
        elif config.positions == "learned":
            side = "source" if config.share_embeddings else side
            X = X + self.state[f"{side}_embedding.positions"][: len(ids)]
        return X

    def turn(self):
        return rotate if self.config.positions == "rotary" else None


def add_and_norm(X, move, norm, placement):
    """One move inside its safety net: what went in is kept, and the numbers are rescaled before or after."""
    if placement == "pre":
        return X + move(layer_norm(X, *norm))
    return layer_norm(X + move(X), *norm)


def block(X, web, name, mask=None, memory=None, maps=None):
    """Feel, then think: one layer of either tower. ``memory`` is what a decoder's layer reaches across to."""
    config, h = web.config, web.config.num_heads

    def feel(X):
        out, weights = multi_head(X, X, web.attention(f"{name}.attention", "self"), h, mask, web.turn())
        maps[0].append(weights)
        return out

    def reach(X):
        out, weights = multi_head(X, memory, web.attention(f"{name}.cross_attention", "cross"), h)
        maps[1].append(weights)
        return out

    def think(X):
        return feed_forward(X, *web.feed_forward(f"{name}.ffn"))

    X = add_and_norm(X, feel, web.norm(f"{name}.attention_residual.norm"), config.norm)
    if memory is not None:
        X = add_and_norm(X, reach, web.norm(f"{name}.cross_residual.norm"), config.norm)
    return add_and_norm(X, think, web.norm(f"{name}.ffn_residual.norm"), config.norm)


def transformer(source_ids, target_ids, state, config):
    """Logits (T, V) of one pair, and the attention maps.

    Args:
        source_ids: The source, eos included.
        target_ids: The target, start token first.
        state: Name -> array, as in the model's state_dict.
        config: The model's configuration.

    Returns:
        Logits, and the maps of encoder, decoder and cross-attention, each (layers, h, queries, keys).
    """
    web = Web(state, config)
    encoder_maps, decoder_maps, cross_maps = [], [], []
    memory = web.embed(source_ids, "source")
    for layer in range(config.num_encoder_layers):
        memory = block(memory, web, f"encoder.layers.{layer}", maps=(encoder_maps,))
    if config.final_norm:
        memory = layer_norm(memory, *web.norm("encoder.norm"))

    X = web.embed(target_ids, "target")
    past = np.tril(np.ones((len(target_ids), len(target_ids)), dtype=bool))
    for layer in range(config.num_decoder_layers):
        X = block(X, web, f"decoder.layers.{layer}", past, memory, maps=(decoder_maps, cross_maps))
    if config.final_norm:
        X = layer_norm(X, *web.norm("decoder.norm"))

    E = web.embedding("target") if config.tie_output else web.state["output.weight"]
    logits = X @ E.T  # scores over the vocabulary
    if config.output_bias:
        logits = logits + web.state["output.bias"]
    return logits, (np.stack(encoder_maps), np.stack(decoder_maps), np.stack(cross_maps))
