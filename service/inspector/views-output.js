// Stations 13 to 15: choosing a token, loss, cost.

import { Chart } from "./draw.js";
import { bytes, count, fmt, h, milliseconds, percent, slider, table } from "./dom.js";
import { shown } from "./maps.js";
import { debounce } from "./views-attention.js";
import { picker } from "./views-input.js";

export function decoding({ values, seg, position, set, check, extra, ask, state, choose }) {
  const { next, logits, probabilities } = values;
  const target = seg.segment.target_tokens;
  const at = values.position;
  if (logits && probabilities) {
    const most = Math.max(...logits);
    const sum = logits.reduce((total, logit) => total + Math.exp(logit - most), 0);
    check(`softmax over all ${count(logits.length)} logits, computed again here`, Math.max(...next.candidates.map((c) => Math.abs(Math.exp(logits[c.token_id] - most) / sum - c.probability))), 1e-5);
    check("All probabilities sum to 1", Math.abs(probabilities.reduce((a, b) => a + b, 0) - 1), 1e-5);
  }
  if (values.beam_scores?.length) {
    const logProbs = values.token_log_probs;
    const own = logProbs.reduce((a, b) => a + b, 0) / logProbs.length ** values.length_penalty;
    check("The translation’s score is Σ log p / length^penalty, summed again here", Math.abs(own - values.beam_scores.at(-1)), 1e-6);
  }
  const labels = target.map((token) => ({ text: shown(token.piece) }));
  const sampling = extra.sampling ?? {};
  const most = next.candidates[0]?.probability ?? 1;
  const isWhatIf = sampling.temperature !== undefined || sampling.top_k !== undefined || sampling.top_p !== undefined;
  const change = debounce((part) => {
    const merged = { ...sampling, ...part };
    Object.keys(merged).forEach((name) => merged[name] === null && delete merged[name]);
    ask({ sampling: Object.keys(merged).length ? merged : null });
  });
  return [
    picker(labels, at, (i) => set({ query: i, key: null }), "Step"),
    h("p", {}, "After ", h("b", { text: at ? target.slice(0, at).map((token) => token.piece).join("").replaceAll("▁", " ").trim() : "nothing yet" }), " the model would write:"),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Candidates" }, h("table", { class: "candidates" },
      h("caption", { class: "sr", text: "Candidates for the next token" }),
      h("thead", {}, h("tr", {}, ["Piece", "Rank", "Logit", "p", isWhatIf ? "p, drawn" : "p, allowed", "Choice"].map((text, i) => h("th", { scope: "col", class: i > 0 && i < 5 ? "num" : null, text })))),
      h("tbody", {}, next.candidates.map((candidate) => {
        const bar = h("span", { class: "b" });
        bar.style.width = `${(100 * candidate.probability) / most}%`;
        const isChosen = candidate.token_id === values.chosen_id;
        return h("tr", { "aria-current": isChosen ? "true" : null },
          h("th", { scope: "row", text: shown(candidate.piece) }),
          h("td", { class: "num", text: String(candidate.rank) }),
          h("td", { class: "num", title: String(candidate.logit), text: fmt(candidate.logit) }),
          h("td", { class: "num share", title: String(candidate.probability) }, bar, percent(candidate.probability)),
          h("td", { class: isWhatIf ? "num whatif" : "num", title: String(candidate.processed_probability), text: candidate.is_permitted ? percent(candidate.processed_probability) : "forbidden" }),
          h("td", {}, isChosen ? "written" : candidate.is_permitted ? h("button", { type: "button", "aria-label": `Write ${shown(candidate.piece)} instead and go on`, text: "write this", onclick: () => choose(target.slice(0, at).map((token) => token.id), candidate.token_id) }) : ""));
      })))),
    h("p", { class: "caption", text: `entropy ${fmt(next.entropy_nats)} nats · greedy takes ${shown(next.greedy_piece ?? "")}${values.chosen_id >= 0 && values.chosen_id !== next.greedy_id ? "; the beam chose otherwise" : ""}` }),
    state.prefix || state.forced ? h("p", {}, h("button", { type: "button", text: "Back to the model’s own translation", onclick: () => set({ prefix: null, forced: "" }, true) })) : null,
    h("div", { class: "controls" },
      h("span", { class: "whatif", text: "what-if: drawn by chance with" }),
      slider({ label: "temperature", min: 0.1, max: 3, step: 0.1, value: sampling.temperature ?? 1, real: 1, onchange: (value) => change({ temperature: value === 1 ? null : value }) }),
      slider({ label: "top p", min: 0.05, max: 1, step: 0.05, value: sampling.top_p ?? 1, real: 1, onchange: (value) => change({ top_p: value === 1 ? null : value }) })),
    h("details", {}, h("summary", { text: "The translation’s score, step by step" }),
      table("Score, step by step", ["Token", "log p", "Score so far"], values.token_log_probs.map((logProb, i) => [shown(target[i]?.piece ?? ""), logProb, values.beam_scores[i]]))),
  ];
}

export function loss({ values, seg, check, extra, refresh, ask, state, set }) {
  const { score } = values;
  const nats = score.nats;
  check("The total is the sum of −log p, summed again here", Math.abs(nats.reduce((a, b) => a + b, 0) - score.total_nats), 1e-6 * Math.max(1, score.total_nats));
  check("Each loss is −log of its probability", Math.max(...nats.map((n, i) => Math.abs(n + Math.log(score.probabilities[i])))), 1e-6);
  check("Perplexity is exp of the mean", Math.abs(Math.exp(score.total_nats / nats.length) - score.perplexity) / score.perplexity, 1e-6);
  const guess = extra.guess ?? 50;
  const highest = Math.max(Math.log(100), ...nats) + 0.3;
  const chart = new Chart({
    x: { min: 0, max: 1, ticks: [0, 0.25, 0.5, 0.75, 1], show: (p) => `${100 * p} %` }, y: { min: 0, max: highest, ticks: Array.from({ length: Math.ceil(highest / 2) }, (_, i) => 2 * i) },
    name: "Loss against probability, with this translation's tokens on the curve", xLabel: "probability of the right token", yLabel: "−log p, nats",
  });
  const low = Math.exp(-highest);
  chart.curve(Array.from({ length: 200 }, (_, i) => { const p = low * (1 / low) ** (i / 199); return [p, -Math.log(p)]; }));
  const labels = (score.pieces ?? seg.segment.target_tokens.map((token) => token.piece)).map(shown);
  nats.forEach((n, i) => chart.point(score.probabilities[i], n, `${labels[i]} ${percent(score.probabilities[i])}`));
  const worst = nats.indexOf(Math.max(...nats));
  chart.point(score.probabilities[worst], nats[worst], labels[worst], "chosen", score.probabilities[worst] > 0.6 ? "end" : "start");
  chart.point(guess / 100, -Math.log(guess / 100), `${guess} % costs ${fmt(-Math.log(guess / 100))}`, "whatif", guess > 55 ? "end" : "start");
  const own = h("textarea", { rows: 1, "aria-label": "A translation to score" });
  own.value = state.forced || seg.segment.target;
  return [
    h("form", { class: "own", onsubmit: (event) => { event.preventDefault(); set({ forced: own.value.trim(), prefix: null }, true); } },
      h("p", { class: "caption", text: state.forced ? "Your translation is being read." : "The model’s own translation. Change it to score yours:" }), own,
      h("div", { class: "controls" }, h("button", { type: "submit", text: "Score it" }), state.forced ? h("button", { type: "button", text: "Back to the model’s", onclick: () => set({ forced: "" }, true) }) : null)),
    h("div", { class: "panes" },
      h("div", {}, chart.node,
        slider({ label: "If p were", min: 1, max: 99, step: 1, value: guess, show: (p) => `${p} %`, onchange: (value) => refresh({ guess: value }) }),
        slider({ label: "Label smoothing", min: 0, max: 0.5, step: 0.05, value: score.label_smoothing, real: 0, onchange: debounce((value) => ask({ smoothing: value || null })) })),
      h("div", {},
        h("p", {}, "Total ", h("b", { class: "num", title: String(score.total_nats), text: `${fmt(score.total_nats)} nats` }), " (", h("span", { class: "num", text: `${fmt(score.total_bits)} bits` }), "), perplexity ", h("b", { class: "num", title: String(score.perplexity), text: fmt(score.perplexity) }),
          score.label_smoothing ? [", smoothed ", h("span", { class: "num whatif", text: fmt(score.total_smoothed_nats) })] : "", "."),
        table("Loss of each token", ["Token", "p", "Loss, nats", "Bits", "Rank"], nats.map((n, i) => [labels[i], score.probabilities[i], n, score.bits[i], score.ranks[i]].map((cell, j) => (j === 4 ? h("span", { class: "num", text: String(cell) }) : cell)))))),
  ];
}

export function cost({ values, seg, check, model, extra, refresh }) {
  const { num_source: n, num_rows: m, estimate, lengths, curve_cells: cells } = values;
  const byHand = (a, b) => model.num_encoder_layers * model.num_heads * a * a + model.num_decoder_layers * model.num_heads * (b * b + a * b);
  check("The formula gives the cells of these maps", Math.abs(byHand(n, m) - estimate.total_cells), 0);
  const received = Object.values(seg.maps).reduce((sum, map) => sum + map.data.length, 0);
  check("As many numbers came to this page as were estimated", Math.abs(received - estimate.total_cells), 0);
  check("Twice the length is four times the cells", Math.abs(byHand(2 * n, 2 * m) - 4 * byHand(n, m)), 0);
  const size = extra.size ?? 32;
  const most = byHand(128, 128);
  const chart = new Chart({
    x: { min: 0, max: 128, ticks: [8, 32, 64, 96, 128] }, y: { min: 0, max: most * 1.05, ticks: [0, 0.25, 0.5, 0.75, 1].map((share) => share * most), show: (value) => (value >= 1e6 ? `${(value / 1e6).toFixed(1)} M` : `${Math.round(value / 1000)} k`) },
    name: "Cells against length, with this sentence on the curve", xLabel: "tokens on each side", yLabel: "cells",
  });
  chart.curve(Array.from({ length: 65 }, (_, i) => [2 * i, byHand(2 * i, 2 * i)]));
  lengths.forEach((length, i) => length <= 128 && chart.point(length, cells[i], `${length} tokens: ${count(cells[i])} cells`));
  const middle = Math.sqrt(n * m);
  chart.point(Math.min(middle, 128), Math.min(estimate.total_cells, most), `this sentence: ${n} and ${m} tokens`, "chosen above", middle > 70 ? "end" : "start");
  if (size !== 32 || extra.size) {
    chart.point(size, byHand(size, size), `${size}: ${count(byHand(size, size))}`, "whatif", size > 80 ? "end" : "start");
  }
  return [
    h("p", {}, "This sentence: ", h("b", { class: "num", text: count(estimate.total_cells) }), ` cells in all maps, read in ${milliseconds(values.seconds)}. `, h("span", { class: "num", text: `${bytes(estimate.num_bytes.f32)} as f32, ${bytes(estimate.num_bytes.f16)} as f16, ${bytes(estimate.num_bytes.u8)} as u8.` })),
    h("div", { class: "panes" },
      h("div", {}, chart.node, slider({ label: "Tokens on each side", min: 8, max: 128, step: 1, value: size, show: (value) => `${value} → ${count(byHand(value, value))} cells`, onchange: (value) => refresh({ size: value }) })),
      table("Cells by length", ["Tokens", "Cells", "Against the row above", "f32"], lengths.map((length, i) => [String(length), h("span", { class: "num", text: count(cells[i]) }), h("span", { class: "num", text: i ? `× ${fmt(cells[i] / cells[i - 1])}` : "" }), h("span", { class: "num", text: bytes(4 * cells[i]) })]))),
  ];
}
