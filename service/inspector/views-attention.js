// Stations 4 to 7, 11 and 12: attention, opened. The arithmetic is done again here, from the numbers that came.

import { palette } from "./color.js";
import { dot, largestDifference, matrix, vector } from "./draw.js";
import { choice, fmt, h, percent, slider, table } from "./dom.js";
import { bars, paint } from "./heads.js";
import { entropy, shown } from "./maps.js";
import { picker } from "./views-input.js";

const softmaxOf = (scores) => {
  const most = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
};

/** y = x W + b, rounding x as an int8 layer does (model/stations/base.py, Affine.apply). */
export function affine(x, { weight, bias, input_levels: levels }) {
  let inputs = x;
  if (levels) {
    const range = Math.max(...x.map(Math.abs), 1e-30);
    inputs = x.map((value) => (halfEven(Math.fround(Math.fround(value / range) * levels)) / levels) * range);
  }
  return bias.map((b, j) => weight.reduce((sum, row, i) => sum + inputs[i] * row[j], b));
}

function halfEven(value) {
  const rounded = Math.round(value);
  return Math.abs(value % 1) === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded;
}

/** The tolerance for one head's vector: int8 inputs may round the other way at a tie. */
const close = (levels, reference) => (levels ? 0.02 : 1e-4) * Math.max(1, ...reference.map(Math.abs));

export function projections({ values, seg, colors, kind, position, set, check }) {
  const { query_inputs: inputs, memory, query_map: wq, key_map: wk, value_map: wv, queries, keys, values: vs } = values;
  const at = Math.min(position, inputs.length - 1);
  const isAcross = kind === "cross";
  const keyLabels = seg.labels(kind, "key");
  const keyAt = isAcross ? Math.min(seg.keyAt ?? 0, memory.length - 1) : at;
  if (wq.weight && wk.weight && wv.weight) {
    check("q, k and v of this token, multiplied again here", Math.max(
      largestDifference(affine(inputs[at], wq), queries[at]), largestDifference(affine(memory[keyAt], wk), keys[keyAt]), largestDifference(affine(memory[keyAt], wv), vs[keyAt])),
    close(wq.input_levels, queries[at]));
  }
  const slice = (map, name) => (map.weight ? h("div", {}, h("p", { class: "caption", text: `${name}: ${map.weight.length} × ${map.weight[0].length}` }),
    h("div", { class: "tall" }, matrix(map.weight, colors, `${name} as a picture`, { signed: true, range: Math.max(...map.weight.flat().map(Math.abs)) }))) : null);
  return [
    h("p", {}, "Queries come from ", h("b", { text: values.query_origin }), "; keys and values from ", h("b", { text: values.memory_origin }), "."),
    picker(seg.labels(kind, "query"), at, (i) => set({ query: i }), "Token that asks"),
    isAcross ? h("div", {}, h("p", { class: "caption", text: "Token that answers" }), picker(keyLabels, keyAt, (i) => { seg.keyAt = i; set({ key: i }); }, "Token that answers")) : null,
    h("div", { class: "panes" },
      h("div", {},
        vector(`x of ${seg.labels(kind, "query")[at].text}`, inputs[at], colors),
        isAcross ? vector(`encoder output of ${keyLabels[keyAt].text}`, memory[keyAt], colors) : null,
        vector("q: what it asks", queries[at], colors),
        vector(`k: what ${keyLabels[keyAt]?.text ?? ""} offers`, keys[keyAt], colors),
        vector(`v: what ${keyLabels[keyAt]?.text ?? ""} passes on`, vs[keyAt], colors)),
      h("div", {}, slice(wq, "W_Q of this head"), slice(wk, "W_K"), slice(wv, "W_V"))),
  ];
}

/** softmax(Q K^T / sqrt(d_k)), every row, in double precision. */
export function recompute({ queries, keys, allowed }) {
  const root = Math.sqrt(keys[0].length);
  return queries.map((q, i) => softmaxOf(keys.map((k, j) => (allowed[i][j] ? dot(q, k) / root : -Infinity))));
}

export function rows({ values, seg, colors, kind, position, set, check, state }) {
  const at = Math.min(position, values.queries.length - 1);
  const own = recompute(values);
  const off = Math.max(...own.map((row, i) => largestDifference(row, values.weights[i])));
  check("All weights, computed again in this browser from the Q and K that came", off, 1e-5 * Math.max(1, ...values.keys.flat().map(Math.abs)));
  const mixed = values.values[0].map((_, d) => own[at].reduce((sum, w, k) => sum + w * values.values[k][d], 0));
  check("The context of this query, mixed again here", largestDifference(mixed, values.context[at]), 1e-4);
  const labels = seg.labels(kind, "key");
  const order = [...own[at].keys()].sort((a, b) => values.weights[at][b] - values.weights[at][a]).slice(0, 12);
  return [
    picker(seg.labels(kind, "query"), at, (i) => set({ query: i, key: null }), "Token that asks"),
    h("div", { class: "panes" },
      h("div", {},
        h("p", { class: "caption", text: `From scores to shares: the ${order.length} largest of ${labels.length}` }),
        table("Scores and weights", ["Key", "q·k", "/ √dₖ", "Weight", "Here"], order.map((k) => [
          labels[k].text, values.dot_products[at][k], values.scores[at][k], values.weights[at][k], own[at][k]]))),
      h("div", {},
        bars(Float32Array.from(values.weights[at]), labels, { ramp: palette("cividis", colors.paper, colors.isDark), chosen: state.key, limit: 6, pick: (k) => set({ key: k }) }),
        vector("context: the values, mixed in these shares", values.context[at], colors))),
  ];
}

export function softmax({ values, seg, colors, kind, position, set, check, extra, refresh }) {
  const temperature = extra.temperature ?? 1;
  const width = extra.width ?? values.d_k;
  const scores = values.raw.map((raw, i) => (values.allowed[i] ? raw / Math.sqrt(width) / temperature : -Infinity));
  const whatIf = softmaxOf(scores);
  const isReal = temperature === 1 && width === values.d_k;
  const real = softmaxOf(values.raw.map((raw, i) => (values.allowed[i] ? raw / Math.sqrt(values.d_k) : -Infinity)));
  check("At the model’s settings this browser gets the model’s weights", largestDifference(real, values.weights), 1e-5);
  const order = [...real.keys()].filter((i) => values.allowed[i]).sort((a, b) => real[a] - real[b]);
  check("No setting changes the order", order.reduce((worst, i, n) => Math.max(worst, n ? whatIf[order[n - 1]] - whatIf[i] : 0), 0), 1e-9);
  const labels = seg.labels(kind, "key");
  const best = [...order].reverse().slice(0, 14);
  const exps = values.exponentials;
  return [
    picker(seg.labels(kind, "query"), Math.min(position, seg.maps[kind].queries - 1), (i) => set({ query: i, key: null }), "Token that asks"),
    h("div", { class: "controls" },
      slider({ label: "Temperature T", min: 0.05, max: 5, step: 0.05, value: temperature, real: 1, onchange: (value) => refresh({ temperature: value }) }),
      slider({ label: "dₖ", min: 1, max: 4 * values.d_k, step: 1, value: width, real: values.d_k, show: String, onchange: (value) => refresh({ width: value }) })),
    h("div", { class: "panes" },
      table("From scores to shares", ["Key", "q·k", "/ √dₖ", "exp", "Weight", isReal ? "Same here" : "What-if"], best.map((i) => [
        labels[i].text, values.raw[i], values.scaled[i], exps[i], values.weights[i], whatIf[i]])),
      h("div", {},
        h("p", { class: "caption" }, h("span", { class: isReal ? "model" : "whatif", text: isReal ? "model" : "what-if" }), ` · entropy ${fmt(entropy(whatIf))} nats of at most ${fmt(Math.log(order.length))}`),
        bars(Float32Array.from(whatIf), labels, { ramp: palette("cividis", colors.paper, colors.isDark), limit: 10, pick: (k) => set({ key: k }) }),
        h("p", { class: "caption", text: `sum of exp ${fmt(values.exponential_sum)} · model’s entropy ${fmt(values.entropy_nats)} nats` }))),
  ];
}

const STATISTICS = [
  ["head", "Head"], ["relative_entropy", "Spread 0–1"], ["distance", "Distance"], ["share_same", "Same"], ["share_previous", "Previous"],
  ["share_next", "Next"], ["share_first", "First"], ["share_last", "Last"],
];

export function heads({ values, seg, colors, kind, layer, set, check, extra, refresh, state }) {
  const maps = values.maps ?? Array.from({ length: seg.maps[kind].heads }, (_, head) => unflat(seg.map(kind, layer, head)));
  const meanHere = maps[0].map((row, q) => row.map((_, k) => maps.reduce((sum, map) => sum + map[q][k], 0) / maps.length));
  if (values.mean) {
    check("The mean of the heads’ maps, computed again here", Math.max(...meanHere.map((row, q) => largestDifference(row, values.mean[q]))), 1e-5);
  }
  const sortBy = extra.sortBy ?? "head";
  const order = [...maps.keys()].sort((a, b) => (sortBy === "head" ? a - b : values[sortBy][b] - values[sortBy][a]));
  const ramp = palette(state.cmap, colors.paper, colors.isDark);
  const chosen = state.head === "mean" ? null : state.head;
  const thumbs = h("div", { class: "gallery" }, order.map((head) => {
    const canvas = h("canvas", { width: maps[head][0].length, height: maps[head].length, "aria-hidden": "true" });
    paint(canvas, flat(maps[head]), ramp, state.scale);
    return h("button", { type: "button", "aria-pressed": String(head === chosen), "aria-label": `head ${head}: ${values.patterns[head]}`, onclick: () => set({ head }) },
      canvas, h("span", { text: `${head} ${values.patterns[head]}` }));
  }));
  const sort = h("div", { class: "choice", role: "group", "aria-label": "Sort by" });
  choice(sort, STATISTICS.map(([value, label]) => ({ value, label: value === "head" ? "by number" : label.toLowerCase() })), sortBy, (value) => refresh({ sortBy: value }));
  return [
    h("div", { class: "controls" }, h("span", { text: "Sort" }), sort),
    thumbs,
    chosen === null ? h("p", { class: "caption", text: "Choose a head to see how it differs from the mean." })
      : h("div", {}, h("p", { class: "caption", text: `head ${chosen} minus the mean of all: more (blue), less (orange)` }),
        h("div", { class: "square" }, matrix(maps[chosen].map((row, q) => row.map((w, k) => w - meanHere[q][k])), colors, "Difference from the mean", { signed: true }))),
    table("Statistics of the heads", [...STATISTICS.map(([, label]) => label), "Pattern"], order.map((head) => [
      String(head), ...STATISTICS.slice(1).map(([name]) => values[name][head]), values.patterns[head]])),
    h("p", { class: "caption", text: "Shares: how much of the weight goes to the token itself, the one before, the one after, the first, the last; across, “same” is the source token as far along. Distance in tokens." }),
  ];
}

const flat = (rows) => ({ queries: rows.length, keys: rows[0].length, data: Float32Array.from(rows.flat()) });
const unflat = ({ queries, keys, data }) => Array.from({ length: queries }, (_, q) => [...data.subarray(q * keys, (q + 1) * keys)]);

export function mask({ values, seg, colors, set, check, extra, refresh }) {
  const { weights, scores, unmasked_scores: unmasked, peek_weights: peek, step } = values;
  const future = weights.flatMap((row, q) => row.filter((_, k) => k > q));
  check("Every weight above the diagonal is 0, seen here", Math.max(0, ...future.map(Math.abs)), 0);
  check("Every score above the diagonal is closed", scores.flatMap((row, q) => row.filter((score, k) => k > q && score !== null)).length, 0);
  const isPeeking = Boolean(extra.peek);
  const labels = seg.labels("decoder", "query");
  const shownWeights = isPeeking ? peek : weights;
  const cell = (q, k) => {
    const blocked = k > q && !isPeeking;
    return h("td", { class: blocked ? "closed" : q === step ? "num here" : "num", title: blocked ? `closed; would score ${fmt(unmasked[q][k])}` : String(shownWeights[q][k]), text: blocked ? "" : (100 * shownWeights[q][k]).toFixed(0) });
  };
  const first = Math.max(0, Math.min(labels.length - 16, step - 8));
  const window = labels.map((_, i) => i).slice(first, first + 16);
  return [
    slider({ label: "Step", min: 0, max: labels.length - 1, step: 1, value: step, show: (t) => `${t}`, onchange: debounce((value) => set({ query: value, key: null })) }),
    h("p", {}, "Row ", h("b", { text: String(step) }), " has read ", h("b", { text: labels[step].text }), " and predicts ", h("b", { text: labels[step].predicts || "what comes next" }), "."),
    h("label", { class: "slider" }, h("input", { type: "checkbox", checked: isPeeking, onchange: (event) => refresh({ peek: event.target.checked }) }),
      h("span", { class: "whatif", text: "what-if: let it peek" })),
    h("p", { class: "caption" }, h("span", { class: isPeeking ? "whatif" : "model", text: isPeeking ? "what-if" : "model" }), " · weights in percent; a dash marks what may not be seen"),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Weights of the decoder's self-attention" }, h("table", { class: "triangle" },
      h("caption", { class: "sr", text: "Weights of the decoder's self-attention, in percent" }),
      h("thead", {}, h("tr", {}, h("th", { scope: "col", text: "reads" }), h("th", { scope: "col", text: "predicts" }), window.map((k) => h("th", { scope: "col", class: "num", text: labels[k].text })))),
      h("tbody", {}, window.map((q) => h("tr", { "aria-current": q === step ? "true" : null },
        h("th", { scope: "row", text: labels[q].text }), h("td", { text: labels[q].predicts }), window.map((k) => cell(q, k))))))),
    h("p", {}, h("span", { class: "whatif", text: "what-if " }), `Without the mask, ${percent(values.peek_share)} of this row’s weight would go to later words.`),
  ];
}

export const debounce = (run, wait = 180) => {
  let timer;
  return (value) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(value), wait);
  };
};

const STEPS = [
  ["read", "1 · Read the sentence", "The encoder turns every token of the sentence into a vector that knows its neighbours. Their lengths:"],
  ["prefix", "2 · Read what is written", "The decoder looks back at the translation so far, through its causal mask. Its vectors become queries."],
  ["ask", "3 · Ask across", "Each query is compared with the keys made from the encoder’s output, and fetches a mixture of its values."],
  ["choose", "4 · Choose a word", "What comes out passes the rest of the stack and becomes one number for each entry of the vocabulary."],
];

export function cross({ values, seg, colors, position, set, check, extra, refresh, ask, go }) {
  const at = Math.min(position, values.queries.length - 1);
  const own = recompute({ queries: values.queries, keys: values.keys, allowed: values.weights.map((row) => row.map(() => true)) });
  check("The map, computed again here from the decoder’s queries and the encoder’s keys", Math.max(...own.map((row, i) => largestDifference(row, values.weights[i]))), 1e-4);
  check("The map is m × n", values.weights.length === seg.segment.rows.length && values.weights[0].length === seg.segment.source_tokens.length ? 0 : 1, 0);
  const step = extra.step ?? "ask";
  const steps = h("div", { class: "choice", role: "group", "aria-label": "Step" });
  choice(steps, STEPS.map(([value, label]) => ({ value, label })), step, (value) => refresh({ step: value }));
  const source = seg.labels("cross", "key");
  const ramp = palette("cividis", colors.paper, colors.isDark);
  const parts = {
    read: () => bars(Float32Array.from(values.memory_norms), source, { ramp, limit: 200, pick: (k) => set({ key: k }), plain: true }),
    prefix: () => [picker(seg.labels("cross", "query"), at, (i) => set({ query: i, key: null }), "Token to be written"), vector(`q of step ${at}, from ${values.query_origin}`, values.queries[at], colors)],
    ask: () => [picker(seg.labels("cross", "query"), at, (i) => set({ query: i, key: null }), "Token to be written"),
      h("div", { class: "panes" }, bars(Float32Array.from(values.weights[at]), source, { ramp, limit: 8, pick: (k) => set({ key: k }) }),
        h("div", {}, vector(`q, from ${values.query_origin}`, values.queries[at], colors), vector(`k of ${source[best(values.weights[at])].text}, from ${values.memory_origin}`, values.keys[best(values.weights[at])], colors)))],
    choose: () => h("p", {}, "At step ", h("b", { text: String(at) }), " the model wrote ", h("b", { text: shown(seg.segment.rows[at].predicted_token) }), ". ", h("button", { type: "button", text: "See what else it could have written", onclick: () => go("decoding") })),
  };
  const other = h("input", { type: "text", value: extra.swap ?? "", placeholder: "The spider feels the web.", "aria-label": "Another sentence for this layer to read" });
  return [
    steps,
    h("p", { text: STEPS.find(([value]) => value === step)[2] }),
    h("div", {}, parts[step]()),
    h("form", { class: "slider", onsubmit: (event) => { event.preventDefault(); ask({ swap: other.value || null }); } },
      h("span", { class: "whatif", text: "what-if: this layer reads another sentence" }), other, h("button", { type: "submit", text: "Read it" }),
      extra.swap ? h("button", { type: "button", class: "plain", text: "as in the model", onclick: () => ask({ swap: null }) }) : null),
    extra.swap && values.swapped_weights ? h("div", {}, h("p", { class: "caption" }, h("span", { class: "whatif", text: "what-if" }), " · the same queries over the other sentence’s keys"),
      h("div", { class: "square" }, matrix(values.swapped_weights, colors, "Map over the other sentence"))) : null,
  ];
}

const best = (weights) => weights.indexOf(Math.max(...weights));
