// All heads of all layers, small; the heads of one row, as bars.

import { css, indexOf, palette, scaled } from "./color.js";
import { h, percent } from "./dom.js";
import { MEAN, pattern, row } from "./maps.js";

/** Layers from top to bottom, heads from left to right, their mean last. */
export class Atlas {
  /** @param pick (layer, head) */
  constructor(root, pick) {
    this.root = root;
    this.pick = pick;
    this.root.addEventListener("keydown", (event) => {
      const buttons = [...this.root.querySelectorAll(".atlas button")];
      const at = buttons.indexOf(document.activeElement);
      const to = at + ({ ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns }[event.key] ?? NaN);
      if (at >= 0 && buttons[to]) {
        event.preventDefault();
        event.stopPropagation();
        buttons.forEach((button, i) => { button.tabIndex = i === to ? 0 : -1; });
        buttons[to].focus();
      }
    });
  }

  show(segment, kind, colors, cmap, scale, sort) {
    const key = [segment, kind, colors.isDark, cmap, scale, sort];
    if (this.shown && key.every((value, i) => value === this.shown[i])) {
      return;
    }
    this.shown = key;
    const heads = segment.isMean ? 0 : segment.maps[kind].heads;
    const ramp = palette(cmap, colors.paper, colors.isDark);
    this.columns = heads + 1;
    const grid = h("div", { class: "atlas", role: "group", "aria-label": "All heads" });
    grid.style.setProperty("--columns", String(this.columns));
    grid.append(h("span"), ...Array.from({ length: heads }, (_, head) => h("span", { class: "pattern", text: String(head) })), h("span", { class: "pattern", text: "mean" }));
    segment.layerNumbers(kind).forEach((layer, place) => {
      grid.append(h("span", { text: `layer ${layer}` }));
      for (const head of [...Array(heads).keys(), MEAN]) {
        const map = segment.map(kind, layer, head);
        const name = pattern(map, kind === "decoder");
        const canvas = h("canvas", { width: map.keys, height: map.queries, "aria-hidden": "true" });
        paint(canvas, map, ramp, scale);
        grid.append(h("button", {
          type: "button", tabindex: place || (head && heads) ? -1 : 0, "data-layer": layer, "data-head": head, title: `layer ${layer}, ${head === MEAN ? "mean" : `head ${head}`}: ${name}`,
          "aria-label": `layer ${layer}, ${head === MEAN ? "mean of all heads" : `head ${head}`}, ${name}`, onclick: () => this.pick(layer, head),
        }, canvas));
      }
    });
    this.root.querySelector(".atlas")?.remove();
    this.root.append(grid);
  }

  select(layer, head) {
    for (const button of this.root.querySelectorAll(".atlas button")) {
      button.setAttribute("aria-pressed", String(button.dataset.layer === String(layer) && button.dataset.head === String(head)));
    }
  }
}

/** One pixel a cell. */
export function paint(canvas, map, ramp, scale) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(map.keys, map.queries);
  for (let q = 0; q < map.queries; q += 1) {
    const weights = row(map, q);
    const most = scale === "row" ? Math.max(...weights) : 1;
    weights.forEach((weight, k) => {
      image.data.set([...ramp[indexOf(scaled(weight, scale, most))], 255], 4 * (q * map.keys + k));
    });
  }
  context.putImageData(image, 0, 0);
}

/** Who a query looks at, most first. */
export function bars(weights, labels, { ramp, chosen, limit, pick }) {
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a] || a - b).slice(0, limit);
  const most = Math.max(weights[order[0]] ?? 1, 1e-9);
  return h("ol", { class: "bars" }, order.map((k) => {
    const bar = h("span", { class: "b" });
    bar.style.width = `${Math.max(0.5, (100 * weights[k]) / most)}%`;
    bar.style.background = css(ramp[indexOf(0.25 + 0.75 * weights[k])]);
    return h("li", {}, h("button", { type: "button", "aria-pressed": String(k === chosen), title: String(weights[k]), onclick: () => pick(k) },
      h("span", { class: "t", text: labels[k].text }), bar, h("span", { class: "num", text: percent(weights[k]) })));
  }));
}
