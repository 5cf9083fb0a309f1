// Stations 8 to 10: the block, residual and norm, the feed-forward network.

import { columns, histogram, largestDifference, vector } from "./draw.js";
import { choice, fmt, h, percent, slider, table } from "./dom.js";
import { picker, sideLabels, sides } from "./views-input.js";

const ROLES = { mixes: "mixes positions", transforms: "transforms each", protects: "protects" };

export function block(context) {
  const { values, seg, colors, kind, position, set, check, go, ask } = context;
  const labels = sideLabels(seg, kind);
  const { stages } = values;
  const at = Math.min(position, labels.length - 1);
  check("Every stage gives as many vectors as came in", stages.filter((stage) => stage.norms.length !== labels.length).length, 0);
  const last = stages.at(-1);
  if (last.output && values.inputs) {
    check("The last stage’s lengths, measured again here", largestDifference(last.output.map((row) => Math.hypot(...row)), last.norms), 1e-3 * Math.max(1, ...last.norms));
  }
  const links = { attention: "attention", cross: "cross", ffn: "ffn" };
  return [
    sides(context, true),
    picker(labels, at, (i) => set({ place: i })),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Stages of the layer" }, h("table", { class: "stagetable" },
      h("thead", {}, h("tr", {}, ["Stage", "What it does", "Length of each vector", `Of ${labels[at].text}`, "Others move", "Itself moves"].map((text, i) => h("th", { scope: "col", class: i > 2 ? "num" : null, text })))),
      h("tbody", {}, stages.map((stage) => h("tr", {},
        h("th", { scope: "row" }, h("button", { type: "button", class: "plain", text: stage.name === "add" || stage.name === "norm" ? `${stage.name} (${stage.sublayer})` : stage.name,
          onclick: () => (stage.name === "add" || stage.name === "norm" ? (ask({ sublayer: stage.sublayer }), go("residual")) : go(links[stage.sublayer])) })),
        h("td", { text: ROLES[stage.role] }),
        h("td", { class: "wide" }, columns(stage.norms, labels.map((label) => label.text), at, `Lengths after ${stage.name}`, colors)),
        h("td", { class: "num", title: String(stage.norms[at]), text: fmt(stage.norms[at]) }),
        h("td", { class: "num", title: String(stage.change_elsewhere), text: fmt(stage.change_elsewhere) }),
        h("td", { class: "num", title: String(stage.change_here), text: fmt(stage.change_here) })))))),
    h("p", { class: "caption", text: "The proof: position 0 of what the stage reads is changed (across: of the sentence). “Others move” says by how much the other positions change; 0 means that the stage mixes nothing." }),
  ];
}

/** As the paper of Ba, Kiros and Hinton has it. */
export function layerNorm(x, gamma, beta, epsilon) {
  const mean = x.reduce((a, b) => a + b, 0) / x.length;
  const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
  return x.map((value, i) => (gamma[i] * (value - mean)) / Math.sqrt(variance + epsilon) + beta[i]);
}

export function residual(context) {
  const { values, seg, colors, kind, position, set, check, extra, refresh, ask } = context;
  const labels = sideLabels(seg, kind);
  const at = Math.min(position, labels.length - 1);
  const isPre = values.norm_placement === "pre";
  const alpha = extra.alpha ?? 1;
  const sum = values.stream[at].map((x, i) => x + alpha * values.update[at][i]);
  const after = isPre ? sum : layerNorm(sum, values.gamma, values.beta, values.epsilon);
  const real = values.stream[at].map((x, i) => x + values.update[at][i]);
  check("With the whole update, this browser gets the model’s output", largestDifference(isPre ? real : layerNorm(real, values.gamma, values.beta, values.epsilon), values.output[at]), 1e-4 * Math.max(1, ...values.output[at].map(Math.abs)));
  check("The norm, computed again here", largestDifference(layerNorm(values.norm_inputs[at], values.gamma, values.beta, values.epsilon), values.normed[at]), 1e-4 * Math.max(1, ...values.normed[at].map(Math.abs)));
  const which = h("div", { class: "choice", role: "group", "aria-label": "Sublayer" });
  choice(which, [["attention", "self-attention"], ...(kind === "encoder" ? [] : [["cross", "cross-attention"]]), ["ffn", "feed-forward"]].map(([value, label]) => ({ value, label })), values.sublayer, (value) => ask({ sublayer: value }));
  const range = Math.max(...values.stream[at].map(Math.abs), ...values.total[at].map(Math.abs));
  const isReal = alpha === 1;
  return [
    sides(context, true),
    h("div", { class: "controls" }, h("span", { text: "Around" }), which),
    picker(labels, at, (i) => set({ place: i })),
    slider({ label: "Share of the update α", min: 0, max: 1, step: 0.01, value: alpha, real: 1, onchange: (value) => refresh({ alpha: value }) }),
    h("div", { class: "panes" },
      h("div", {}, vector("x: what came in", values.stream[at], colors, { range }), vector("the sublayer’s update", values.update[at], colors, { range }),
        vector(isReal ? "x + update" : `x + ${fmt(alpha)} · update`, sum, colors, { range, isWhatIf: !isReal }),
        vector(isPre ? "what goes on" : "LayerNorm of it: what goes on", after, colors, { isWhatIf: !isReal })),
      h("div", {},
        table("The norm in numbers", ["Quantity", "Value"], [["norm taken of", isPre ? "x, before the sublayer" : "x + update"], ["mean", values.mean[at]], ["variance", values.variance[at]], ["ε", values.epsilon],
          ["√(variance + ε)", Math.sqrt(values.variance[at] + values.epsilon)], ["length of x", Math.hypot(...values.stream[at])], ["length of the update", Math.hypot(...values.update[at])]].map(([name, value]) => [name, typeof value === "number" ? h("span", { class: "num", title: String(value), text: fmt(value) }) : value])),
        vector("(x − mean) / √(variance + ε)", values.standardised[at], colors), vector("γ", values.gamma, colors), vector("β", values.beta, colors))),
  ];
}

const BENDS = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  swish: (x) => x / (1 + Math.exp(-x)),
};

/** Abramowitz and Stegun 7.1.26, good to 1.5e-7. */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const y = 1 - (((((1.061405429 * t - 1.453152027) * t) + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-x * x);
  return x < 0 ? -y : y;
}

const tanhGelu = (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

export function ffn(context) {
  const { values, seg, colors, kind, set, check, extra, ask } = context;
  const labels = sideLabels(seg, kind);
  const at = values.position;
  const bend = values.activation === "gelu" && values.approximation === "tanh" ? tanhGelu : BENDS[values.activation];
  check(`${values.activation} of every inner number, computed again here`, largestDifference(values.hidden.map(bend), values.activated), 1e-5 * Math.max(1, ...values.activated.map(Math.abs)));
  const chosen = extra.activation ?? values.activation;
  const isReal = chosen === values.activation;
  const which = h("div", { class: "choice", role: "group", "aria-label": "Activation" });
  choice(which, ["relu", "gelu", "swish"].map((value) => ({ value, label: `${{ relu: "ReLU", gelu: "GELU", swish: "swish" }[value]}${value === values.activation ? " (the model’s)" : ""}` })), chosen, (value) => ask({ activation: value === values.activation ? null : value }));
  const output = values.outputs[at];
  return [
    sides(context, true),
    picker(labels, at, (i) => set({ place: i })),
    h("div", { class: "controls" }, h("span", { text: "Bend by" }), which, h("span", { class: isReal ? "model" : "whatif", text: isReal ? "model" : "what-if" })),
    h("div", { class: "panes" },
      h("div", {},
        vector(`what comes in: ${values.inputs[at].length} numbers`, values.inputs[at], colors),
        vector(`inner, before the bend: ${values.hidden.length}`, values.hidden, colors),
        vector("inner, after it", isReal ? values.activated : values.what_if_activated, colors, { isWhatIf: !isReal }),
        vector("what comes out", isReal ? output : values.what_if_output, colors, { isWhatIf: !isReal }),
        isReal ? null : h("p", {}, h("span", { class: "whatif", text: "what-if " }), `The output moves by ${fmt(Math.hypot(...output.map((x, i) => x - values.what_if_output[i])))}; its length is ${fmt(Math.hypot(...output))}.`)),
      h("div", {},
        h("p", { class: "caption", text: "Inner numbers before the bend, counted" }),
        histogram(values.histogram, values.histogram_edges, "Histogram of inner numbers"),
        h("p", {}, `${percent(values.share_negative[at])} are negative, ${percent(values.share_silent[at])} are exactly 0 after the bend.`),
        table("Strongest inner units", ["Unit", "After the bend"], values.top_units.map((unit, i) => [String(unit), values.top_values[i]])))),
  ];
}
