// The maps of one segment: [layer][head][query][key], with names for rows and columns.

export const KINDS = {
  cross: { label: "Across", says: "the translation looks at the sentence", mean: "cross-attention" },
  encoder: { label: "In the sentence", says: "the sentence looks at itself", mean: "encoder self-attention" },
  decoder: { label: "In the translation", says: "the translation looks back at itself", mean: "decoder self-attention" },
};

export const MEAN = "mean";

export class Segment {
  /**
   * @param segment of the answer (contract: source_tokens, target_tokens, rows, words, maps)
   * @param tensors by name; those of this segment are `segments.INDEX.KIND`
   */
  constructor(answer, segment, tensors, selected) {
    this.answer = answer;
    this.segment = segment;
    this.selected = selected;
    this.maps = {};
    for (const map of segment.maps ?? []) {
      const tensor = tensors[`segments.${segment.index}.${map.kind}`];
      if (tensor) {
        const [layers, heads, queries, keys] = tensor.shape;
        this.maps[map.kind] = { ...map, layers, heads, queries: queries, keys: keys, data: tensor.data };
      }
    }
    this.cache = new Map();
    this.isMean = answer.aggregate !== undefined && answer.aggregate !== "none";
  }

  /** The model's numbers of the layers that are here; all of them unless less was asked for. */
  layerNumbers(kind) {
    const { layers } = this.maps[kind];
    const numbers = this.selected?.layers?.[kind];
    return numbers?.length === layers ? numbers : Array.from({ length: layers }, (_, i) => i);
  }

  has(kind) {
    return kind in this.maps && this.maps[kind].queries > 0;
  }

  /** `layer` and `head` are the model's numbers. One map as {queries, keys, data}: a head's, or the mean of a layer's heads; of tokens or of words. */
  map(kind, layer, head, grain = "token") {
    const key = `${kind} ${layer} ${head} ${grain}`;
    if (!this.cache.has(key)) {
      const plain = head !== MEAN ? this.#one(kind, layer, head) : this.isMean ? this.#one(kind, layer, 0) : this.#mean(kind, layer);
      this.cache.set(key, grain === "word" ? mergeWords(plain, this.words(kind, "query"), this.words(kind, "key")) : plain);
      if (this.cache.size > 200) {
        this.cache.delete(this.cache.keys().next().value);
      }
    }
    return this.cache.get(key);
  }

  #one(kind, layer, head) {
    const { heads, queries, keys, data } = this.maps[kind];
    const size = queries * keys;
    const start = (this.layerNumbers(kind).indexOf(layer) * heads + head) * size;
    return { queries, keys, data: data.subarray(start, start + size) };
  }

  #mean(kind, layer) {
    const { heads, queries, keys } = this.maps[kind];
    const sum = new Float64Array(queries * keys);
    for (let head = 0; head < heads; head += 1) {
      const { data } = this.#one(kind, layer, head);
      for (let i = 0; i < sum.length; i += 1) {
        sum[i] += data[i];
      }
    }
    return { queries, keys, data: Float32Array.from(sum, (value) => value / heads) };
  }

  words(kind, axis) {
    const { source_words: source, target_words: target, input_words: input } = this.segment;
    if (kind === "encoder" || (kind === "cross" && axis === "key")) {
      return source;
    }
    return axis === "key" ? input : target;
  }

  /** Names of an axis: {text, piece, word, special, predicts?}. A decoder's keys are what was read, its queries what comes next. */
  labels(kind, axis, grain = "token") {
    const { source_tokens: source, target_tokens: target, rows } = this.segment;
    if (grain === "word") {
      return this.words(kind, axis).map((word) => ({ text: word.text || special(word, this.#pieces(kind, axis)), piece: word.text, word: word.index, special: word.is_special }));
    }
    if (kind === "encoder" || (kind === "cross" && axis === "key")) {
      return pieceLabels(source, this.answer.text);
    }
    const written = pieceLabels(target, this.answer.translation);
    if (kind === "cross") {
      return written;
    }
    return rows.map((row, i) => ({ ...(i ? written[i - 1] : label(row.input_token, -1, true)), predicts: written[i]?.text ?? "" }));
  }

  #pieces(kind, axis) {
    const { source_tokens: source, rows } = this.segment;
    if (kind === "encoder" || (kind === "cross" && axis === "key")) {
      return source.map((token) => token.piece);
    }
    return rows.map((row) => (axis === "key" ? row.input_token : row.predicted_token));
  }
}

function special(word, pieces) {
  return shown(pieces[word.tokens[0]] ?? "");
}

function label(piece, word, isSpecial) {
  return { text: isSpecial ? shown(piece) : bare(piece), piece, word, special: isSpecial, begins: piece.startsWith("▁") };
}

/** Bytes of a letter that is not in the vocabulary: the letter at the first, a dot at the others. */
function pieceLabels(tokens, text) {
  const letters = [...text];
  return tokens.map((token, i) => {
    const found = label(token.piece, token.word, token.is_special);
    if (/^<0x[0-9A-F]{2}>$/.test(token.piece) && !token.is_special) {
      const before = tokens[i - 1];
      const isFirst = !before || before.start !== token.start || before.end !== token.end || !/^<0x/.test(before.piece);
      found.text = isFirst ? letters.slice(token.start, token.end).join("") || token.piece : "·";
    }
    return found;
  });
}

const NAMES = { "</s>": "end", "<s>": "start", "<pad>": "pad", "<unk>": "unknown" };
const bare = (piece) => piece.replaceAll("▁", " ").trim() || (piece.includes("▁") ? "␣" : piece);

/** How a piece is written on the page. */
export const shown = (piece) => (piece === null || piece === undefined ? "" : NAMES[piece] ?? bare(piece));

/** Sum over a word's key pieces, mean over its query pieces: rows still sum to 1. */
export function mergeWords(map, queryWords, keyWords) {
  const queries = queryWords.length;
  const keys = keyWords.length;
  const data = new Float32Array(queries * keys);
  queryWords.forEach((queryWord, q) => keyWords.forEach((keyWord, k) => {
    let sum = 0;
    for (const i of queryWord.tokens) {
      for (const j of keyWord.tokens) {
        sum += map.data[i * map.keys + j];
      }
    }
    data[q * keys + k] = sum / queryWord.tokens.length;
  }));
  return { queries, keys, data };
}

export const row = (map, query) => map.data.subarray(query * map.keys, (query + 1) * map.keys);

/** What kind of map a head has, as model/stations/attention.py names them. */
export function pattern(map, isCausal) {
  const { queries, keys, data } = map;
  const steps = queries === keys ? 1 : (keys - 1) / Math.max(queries - 1, 1);
  const shares = { same: 0, previous: 0, next: 0, first: 0, last: 0 };
  let relative = 0;
  let counted = 0;
  for (let q = 0; q < queries; q += 1) {
    const weights = row(map, q);
    const nearest = Math.round(q * steps);
    shares.same += weights[nearest] ?? 0;
    shares.previous += weights[nearest - 1] ?? 0;
    shares.next += weights[nearest + 1] ?? 0;
    shares.first += weights[0];
    shares.last += weights[keys - 1];
    const allowed = isCausal ? q + 1 : keys;
    if (allowed > 1) {
      relative += entropy(weights) / Math.log(allowed);
      counted += 1;
    }
  }
  const [name, share] = Object.entries(shares).reduce((best, next) => (next[1] > best[1] ? next : best));
  if (share / queries >= 0.5) {
    return name;
  }
  relative = counted ? relative / counted : 0;
  return relative > 0.8 ? "broad" : relative < 0.4 ? "focused" : "mixed";
}

export function entropy(weights) {
  return -weights.reduce((sum, p) => sum + (p > 0 ? p * Math.log(p) : 0), 0);
}
