// The 15 stations: what happens there, in one sentence and one formula; what the server is asked; what is shown.

import * as attention from "./views-attention.js";
import * as block from "./views-block.js";
import * as inputs from "./views-input.js";
import * as output from "./views-output.js";

/**
 * name: as the server calls it. title, lead, formula, question: words; functions take the model.
 * attends: about one attention, so kind, layer, head and query matter. uses: which of these the request depends on.
 * whole: asks with the text (the search runs again, so that its score is known) instead of the fixed pair of ids.
 */
export const STATIONS = [
  {
    name: "route", title: "The route", uses: [], view: inputs.route,
    lead: (m) => `Your sentence passes ${m.num_encoder_layers} encoder layers once; each word of the translation then passes ${m.num_decoder_layers} decoder layers. Every stage takes the shape that the one before it gave.`,
    formula: "text → tokens → vectors → encoder → decoder → logits → next token",
    question: "Where does most of the time go? Open a stage to see its numbers.",
  },
  {
    name: "tokens", title: "Tokens", uses: ["side", "place", "compared"], view: inputs.tokens,
    lead: (m) => `The text is cut into pieces of a vocabulary of ${m.source_vocab_size.toLocaleString("en")}. Each piece's id picks one row of a learned table: ${m.d_model} numbers that stand for it from here on.`,
    formula: "x_{i} = E[id_{i}]",
    question: "Pick a word. Are the pieces nearest to it related in meaning, in spelling, or not at all?",
  },
  {
    name: "positions", title: "Position", uses: ["side"], view: inputs.positions,
    lead: (m) => ({
      sinusoidal: "Attention alone sees a bag of words. So each position adds its own pattern of waves to the token’s vector, from fast ones to slow ones.",
      learned: "Attention alone sees a bag of words. So each position adds a learned vector of its own to the token’s.",
      rotary: "Attention alone sees a bag of words. This model turns queries and keys by an angle that grows with their position.",
    }[m.positions]),
    formula: (m) => ({
      sinusoidal: "PE(pos, 2i) = sin(pos / 10000^{2i/d})    PE(pos, 2i+1) = cos(pos / 10000^{2i/d})",
      learned: "x_{0} = E[id] · scale + P[pos]",
      rotary: "q′ = R(pos) q    k′ = R(pos) k",
    }[m.positions]),
    question: "Move the position. Which numbers change fast, which hardly at all?",
  },
  {
    name: "projections", title: "Query, key, value", attends: true, uses: ["kind", "layer", "head"], view: attention.projections,
    lead: (m) => `Each token is seen three ways: what it asks (query), what it offers (key), what it passes on (value). Three learned matrices make ${m.d_k} numbers each from its ${m.d_model}.`,
    formula: (m) => (m.attention_bias ? "q = x W_{Q} + b_{Q}    k = x W_{K} + b_{K}    v = x W_{V} + b_{V}" : "q = x W_{Q}    k = x W_{K}    v = x W_{V}"),
    question: "Go from one token to another: the matrices stay, the vectors change. Who lends keys and values across?",
  },
  {
    name: "attention", title: "Attention", attends: true, uses: ["kind", "layer", "head"], view: attention.rows,
    lead: () => "A query is compared with every key. The scores become shares that sum to 1, and the values are mixed in those shares.",
    formula: "context = softmax(Q K^{T} / √d_{k}) V",
    question: "Which head links “it” to “plant” rather than to “window”? Try the layers in the grid of heads.",
  },
  {
    name: "softmax", title: "Softmax", attends: true, uses: ["kind", "layer", "head", "query"], view: attention.softmax,
    lead: () => "exp makes every score positive and stretches differences; dividing by the sum makes them shares. A temperature or another width dₖ would stretch more or less.",
    formula: "p_{i} = exp(s_{i} / T) / Σ_{j} exp(s_{j} / T)    s = q·k / √d_{k}",
    question: "Find a temperature at which one word takes nearly everything, and one at which all are alike.",
  },
  {
    name: "heads", title: "Heads", attends: true, uses: ["kind", "layer"], view: attention.heads,
    lead: (m) => `${m.num_heads} heads look at the same words, each in its own way. What they bring back is laid side by side and mixed by one more matrix.`,
    formula: "concat(head_{1} … head_{h}) W_{O} + b_{O}",
    question: "Sort the heads. Which one looks at the word before, which at the end of the sentence, which is hard to name?",
  },
  {
    name: "block", title: "The block", uses: ["side", "sideLayer"], view: block.block,
    lead: (m) => `A layer first mixes positions, then works on each by itself. Around both, what came in is kept and added. In this model the norm stands ${m.norm === "pre" ? "before each part (pre-norm; the paper had it behind)" : "behind each sum (post-norm, as in the paper)"}.`,
    formula: (m) => (m.norm === "pre" ? "x ← x + Attention(LN(x))    x ← x + FFN(LN(x))" : "x ← LN(x + Attention(x))    x ← LN(x + FFN(x))"),
    question: "For each stage: does it mix positions, transform one, or protect what is there? The last two columns prove it.",
  },
  {
    name: "residual", title: "Residual and norm", uses: ["side", "sideLayer", "sublayer"], view: block.residual,
    lead: () => "The vector that came in goes straight on, and the sublayer’s update is added to it. The norm brings a vector to mean 0 and variance 1, then scales it by learned numbers.",
    formula: (m) => `${m.norm === "pre" ? "y = x + α · Sublayer(LN(x))" : "y = LN(x + α · Sublayer(x))"}    LN(x) = γ (x − mean) / √(variance + ε) + β`,
    question: "Draw the update down to 0. How much of the output was already there?",
  },
  {
    name: "ffn", title: "Feed-forward", uses: ["side", "sideLayer", "place", "activation"], view: block.ffn,
    lead: (m) => `Each token is now worked on alone: widened from ${m.d_model} to ${m.d_ff} numbers, bent by ${NAMES[m.activation] ?? m.activation}, and brought back.`,
    formula: (m) => `FFN(x) = W_{2} ${NAMES[m.activation] ?? m.activation}(W_{1} x + b_{1}) + b_{2}`,
    question: "How many of the inner numbers are silent for this word? Bend them in another way and see what comes out.",
  },
  {
    name: "mask", title: "Causal mask", attends: true, uses: ["layer", "head", "query"], kind: "decoder", view: attention.mask,
    lead: () => "While it writes, the model may look at what it has written, never at what comes later: those scores are minus infinity, so their shares are exactly 0.",
    formula: "softmax((Q K^{T} + M) / √d_{k})    M = 0 for the past, −∞ for the future",
    question: "Let it peek (what-if). How much of its attention would have gone to words it has not written yet?",
  },
  {
    name: "cross", title: "Encoder and decoder", attends: true, uses: ["layer", "head", "swap"], kind: "cross", view: attention.cross,
    lead: () => "The encoder reads the whole sentence once. At every step the decoder asks it: queries come from what is being written, keys and values from what was read.",
    formula: "Q from the decoder    K, V from the encoder    map: m × n",
    question: "When the model is about to write “plante”, where does its question go?",
  },
  {
    name: "decoding", title: "Choosing a token", whole: true, uses: ["query", "sampling"], view: output.decoding,
    lead: (m) => `The last vector becomes one number for each of ${m.target_vocab_size.toLocaleString("en")} pieces; softmax turns them into probabilities. One piece is chosen, and the next step reads it.`,
    formula: "p = softmax(h W_{vocabulary})    score = Σ log p / length^{penalty}",
    question: "Write the second best piece instead, and see how the sentence goes on.",
  },
  {
    name: "loss", title: "Loss", whole: true, uses: ["smoothing"], view: output.loss,
    lead: () => "In training the right token is known. The less the model expected it, the higher the loss; learning lowers it.",
    formula: "L = −log p(right token)    perplexity = exp(mean L)",
    question: "Type a translation of your own above (More). Which of your words surprised the model most?",
  },
  {
    name: "cost", title: "The price of looking", uses: [], view: output.cost,
    lead: () => "Every query meets every key. Twice the length makes four times the cells.",
    formula: (m) => `cells = ${m.num_encoder_layers} · ${m.num_heads} · n^{2} + ${m.num_decoder_layers} · ${m.num_heads} · (m^{2} + m n)`,
    question: "Where does your sentence stand on the curve? Where would a page of text?",
  },
];

const NAMES = { relu: "ReLU", gelu: "GELU", swish: "swish" };

export const worded = (text, model) => (typeof text === "function" ? text(model) : text);
