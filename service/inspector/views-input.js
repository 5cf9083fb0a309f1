// Stations 1 to 3: the route, tokens, positions.

import { Chart, largestDifference, matrix, strip, vector } from "./draw.js";
import { fmt, h, milliseconds, slider, table } from "./dom.js";

/** Which side's tokens a station about one side shows. */
export function sides({ state, set, sideLayer, sideDepth }, withLayer = false) {
  return h("div", { class: "controls" }, h("div", { class: "choice", role: "group", "aria-label": "Side" },
    [["encoder", "the sentence"], ["decoder", "the translation, as read"]].map(([value, label]) => h("button", {
      type: "button", "aria-pressed": String(state.side === value), text: label, onclick: () => value !== state.side && set({ side: value, place: null, sideLayer: null }, true),
    }))),
  withLayer ? h("label", {}, "Layer ", h("select", { onchange: (event) => set({ sideLayer: Number(event.target.value) }, true) },
    Array.from({ length: sideDepth }, (_, i) => h("option", { value: i, text: String(i), selected: i === sideLayer })))) : null);
}

/** Buttons for the tokens of the side. */
export function picker(labels, chosen, onpick, name = "Token") {
  return h("div", { class: "picker", role: "group", "aria-label": name }, labels.map((label, i) => h("button", {
    type: "button", "aria-pressed": String(i === chosen), text: label.text, onclick: () => onpick(i),
  })));
}

export function sideLabels(seg, kind) {
  return kind === "encoder" ? seg.labels("encoder", "query") : seg.labels("decoder", "query");
}

export function route({ values, go, seg, check, set, compare, state }) {
  const { stages, links } = values;
  const total = stages.reduce((sum, stage) => sum + stage.seconds, 0);
  const most = Math.max(...stages.map((stage) => stage.seconds));
  const breaks = stages.filter((stage, i) => i && stage.reads.some((name, j) => {
    const source = stages.find((other) => other.name === name);
    return source && String(source.output_shape) !== String(stage.input_shapes[j]);
  })).length;
  check("Each stage’s shape is that of the next one’s input", breaks, 0);
  if (compare) {
    check("The translation is the one that /v1/translate gives", compare === seg.answer.translation ? 0 : 1, 0);
  }
  const open = (i) => {
    const [, side, layer] = /^(encoder|decoder) layer (\d+)/.exec(stages[i].name) ?? [];
    const chosen = side ?? (stages[i].name.startsWith("source") ? "encoder" : stages[i].name.startsWith("target") ? "decoder" : state.side);
    set({ side: chosen, place: null, sideLayer: layer ? Number(layer) : null });
    go(links[i]);
  };
  const list = h("ol", { class: "stages" }, stages.map((stage, i) => {
    const time = h("span", { class: "time", "aria-hidden": "true" });
    time.style.width = `${(100 * stage.seconds) / most}%`;
    return h("li", {}, h("button", { type: "button", title: `opens ${links[i]}`, onclick: () => open(i) },
      h("span", { text: stage.name }),
      h("span", { class: "shape" }, `${stage.input_shapes.map((shape) => shape.join(" × ")).join(", ")} → ${stage.output_shape.join(" × ")}`, time),
      h("span", { class: "num", title: `${stage.seconds} s`, text: milliseconds(stage.seconds) })));
  }));
  list.addEventListener("keydown", (event) => {
    const buttons = [...list.querySelectorAll("button")];
    const to = buttons[buttons.indexOf(document.activeElement) + ({ ArrowDown: 1, ArrowUp: -1 }[event.key] ?? NaN)];
    if (to) {
      event.preventDefault();
      to.focus();
    }
  });
  return [
    h("p", { class: "caption", text: `${seg.segment.source_tokens.length} tokens read, ${seg.segment.rows.length} written; ${milliseconds(total)} for one pass with every number kept` }),
    list,
  ];
}

export function tokens(context) {
  const { values, seg, colors, kind, set, check, ask } = context;
  const isSource = kind === "encoder";
  const labels = sideLabels(seg, kind);
  const list = isSource ? seg.segment.source_tokens : null;
  const { index, rows, ids } = values;
  const text = [...seg.answer.text];
  const name = (i) => labels[i]?.text ?? String(ids[i]);
  if (isSource) {
    const covered = list.filter((token) => !token.is_special).every((token) => token.start <= token.end && token.end <= text.length);
    check("Every span lies in the text", covered ? 0 : 1, 0);
  }
  const compared = values.compared_index;
  const own = rows[index].reduce((sum, x, i) => sum + x * rows[compared][i], 0)
    / Math.hypot(...rows[index]) / Math.hypot(...rows[compared]);
  check("The cosine of the two rows, computed again", Math.abs(own - values.cosine), 1e-5);
  const range = Math.max(...rows.flat().map(Math.abs));
  return [
    sides(context),
    picker(labels, index, (i) => set({ place: i })),
    h("div", { class: "panes" },
      h("div", {},
        h("p", { class: "caption", text: "All tokens: piece, id, place in the text, its row of the table" }),
        h("div", { class: "scroll tokens", tabindex: 0, role: "region", "aria-label": "All tokens" }, h("table", {},
          h("thead", {}, h("tr", {}, ["Piece", "Id", "Text", "Row of E"].map((heading) => h("th", { scope: "col", text: heading })))),
          h("tbody", {}, rows.map((row, i) => h("tr", { "aria-current": i === index ? "true" : null },
            h("th", { scope: "row", text: isSource ? list[i].piece : seg.segment.rows[i].input_token }),
            h("td", { class: "num", text: String(ids[i]) }),
            h("td", { class: "num", text: isSource && !list[i].is_special ? `${list[i].start}–${list[i].end}` : "" }),
            h("td", { class: "wide" }, strip(row, colors, `row of ${name(i)}`, range)))))))),
      h("div", {},
        vector(`E[${ids[index]}], ${name(index)}`, rows[index], colors, { range }),
        h("label", { class: "slider" }, "Compare with ", h("select", {
          onchange: (event) => ask({ compared: Number(event.target.value) }),
        }, labels.map((label, i) => h("option", { value: i, selected: i === compared, text: `${i} ${label.text}` })))),
        vector(`E[${ids[compared]}], ${name(compared)}`, rows[compared], colors, { range }),
        h("p", {}, "Cosine of the two: ", h("b", { class: "num", title: String(values.cosine), text: fmt(values.cosine) })),
        h("p", { class: "caption", text: "Rows that point most in its direction" }),
        table("Nearest pieces", ["Piece", "Id", "Cosine"], values.nearest_ids.map((id, i) => [values.nearest_pieces?.[i] ?? String(id), h("span", { class: "num", text: String(id) }), values.nearest_cosines[i]])))),
  ];
}

export function positions(context) {
  const { values, seg, colors, kind, check, extra, refresh } = context;
  const labels = sideLabels(seg, kind);
  const { encodings, embeddings, sums, cosines } = values;
  const last = encodings.length - 1;
  const at = Math.min(extra.at ?? 1, last);
  const pinned = Math.min(extra.pinned ?? 0, last);
  const width = encodings[0].length;
  const isWave = values.kind !== "learned";
  if (isWave) {
    const formula = closedForm(at, width, values.kind === "rotary" ? "halves" : values.layout);
    check(`The waves of position ${at}, computed here from the formula`, largestDifference(formula, encodings[at]), 1e-5);
  }
  const token = Math.min(at, embeddings.length - 1);
  if (values.kind !== "rotary") {
    check("Embedding × scale + position is what the first layer reads", largestDifference(embeddings[token].map((x, i) => x + encodings[token][i]), sums[token]), 1e-4);
  }
  return [
    sides(context),
    slider({ label: "Position", min: 0, max: last, step: 1, value: at, show: (p) => `${p}${labels[p] ? ` ${labels[p].text}` : " (past the end)"}`, onchange: (value) => refresh({ at: value }) }),
    h("div", { class: "panes" },
      h("div", {},
        vector(`position ${at}`, encodings[at], colors, { range: 1 }),
        at < embeddings.length ? [vector(`embedding of ${labels[at].text} × ${fmt(values.scale)}`, embeddings[at], colors), vector("sum: what the first layer reads", sums[at], colors)] : h("p", { class: "caption", text: "Past the end of the sentence there is no token to add it to." }),
        slider({ label: "Pinned position", min: 0, max: last, step: 1, value: pinned, show: String, onchange: (value) => refresh({ pinned: value }) }),
        h("p", {}, `Cosine of positions ${at} and ${pinned}: `, h("b", { class: "num", title: String(cosines[at][pinned]), text: fmt(cosines[at][pinned]) }))),
      h("div", {},
        h("p", { class: "caption", text: `Positions 0 to ${last} from top to bottom, numbers 0 to ${width - 1} from left to right` }),
        h("div", { class: "tall" }, matrix(encodings, colors, "All position vectors", { signed: true })),
        h("p", { class: "caption", text: "How alike two positions are (cosine)" }),
        h("div", { class: "square" }, matrix(cosines.map((row) => row.map((x) => Math.max(0, x))), colors, "Cosines of positions")),
        isWave ? wave(encodings, at) : null)),
    h("p", { class: "caption" }, h("span", { class: "whatif", text: "what-if " }), `Read backwards, the same words change the encoder’s output by up to ${fmt(values.shuffled_change)}; without positions by nothing.`),
  ];
}

const WAVES = [24, 48, 80, 128];

function wave(encodings, at) {
  const last = encodings.length - 1;
  const chart = new Chart({ height: 160, x: { min: 0, max: Math.max(last, 1), ticks: [0, Math.round(last / 2), last] }, y: { min: -1.05, max: 1.05, ticks: [-1, 0, 1] }, name: "Waves of four dimensions", xLabel: "position", yLabel: "" });
  for (const d of WAVES.filter((d) => d < encodings[0].length)) {
    chart.curve(encodings.map((row, i) => [i, row[d]]));
  }
  chart.point(at, encodings[at][Math.min(WAVES[0], encodings[0].length - 1)], `position ${at}`, "chosen", at > last / 2 ? "end" : "start");
  return h("div", {}, h("p", { class: "caption", text: `Numbers ${WAVES.join(", ")} along the positions: fast waves and slow ones` }), chart.node);
}

/** Section 3.5 of the paper. */
export function closedForm(position, width, layout) {
  const found = new Array(width);
  for (let i = 0; i < width; i += 2) {
    const angle = position / 10_000 ** (i / width);
    const [sine, cosine] = layout === "halves" ? [i / 2, width / 2 + i / 2] : [i, i + 1];
    found[sine] = Math.sin(angle);
    found[cosine] = Math.cos(angle);
  }
  return found;
}
