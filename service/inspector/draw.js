// Small pictures inside stations: vectors as strips, matrices, curves.

import { css, diverging, indexOf, palette } from "./color.js";
import { fmt, h, svg } from "./dom.js";

export const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
export const norm = (a) => Math.sqrt(dot(a, a));
export const largestDifference = (a, b) => a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i])), 0);

/** A vector as coloured cells: orange below 0, blue above, as strong as the largest of `range` (or of itself). */
export function strip(values, colors, name, range) {
  const most = range ?? Math.max(...values.map(Math.abs), 1e-12);
  const ramp = diverging(colors.paper, colors.isDark);
  return picture([values], (value) => ramp[255 + Math.max(-255, Math.min(255, Math.round((255 * value) / most)))], "strip",
    `${name}: ${values.length} numbers from ${fmt(Math.min(...values))} to ${fmt(Math.max(...values))}`);
}

/** A strip with its name and first numbers. */
export function vector(name, values, colors, { range, isWhatIf = false, first = 6 } = {}) {
  return h("div", {},
    h("p", { class: "caption" }, h("span", { class: isWhatIf ? "whatif" : null, text: name }), ` · length ${fmt(norm(values))}`),
    strip(values, colors, name, range),
    h("p", { class: "num", title: values.slice(0, 64).join(", ") }, `${values.slice(0, first).map(fmt).join("  ")} …`));
}

/** Rows of numbers from 0 to 1 (or, signed, from -1 to 1) as cells. */
export function matrix(rows, colors, name, { signed = false, cmap = "cividis", range = 1 } = {}) {
  const ramp = signed ? diverging(colors.paper, colors.isDark) : palette(cmap, colors.paper, colors.isDark);
  const color = signed ? (value) => ramp[255 + Math.max(-255, Math.min(255, Math.round((255 * value) / range)))] : (value) => ramp[indexOf(value / range)];
  return picture(rows, color, "matrix", name);
}

function picture(rows, color, className, name) {
  const canvas = h("canvas", { class: className, width: rows[0]?.length || 1, height: rows.length || 1, role: "img", "aria-label": name });
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  rows.forEach((row, y) => row.forEach((value, x) => {
    image.data.set(value === null ? [0, 0, 0, 0] : [...color(value), 255], 4 * (y * canvas.width + x));
  }));
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A diagram with axes: `at` turns values into places. */
export class Chart {
  constructor({ width = 640, height = 260, x, y, name, xLabel, yLabel }) {
    this.x = scale(x, 56, width - 24);
    this.y = scale(y, height - 34, 16);
    this.node = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name });
    const add = (...parts) => this.node.append(...parts);
    for (const tick of y.ticks) {
      add(svg("line", { class: "rule", x1: 56, x2: width - 24, y1: this.y(tick), y2: this.y(tick) }),
        svg("text", { x: 48, y: this.y(tick) + 4, "text-anchor": "end", text: y.show?.(tick) ?? String(tick) }));
    }
    for (const tick of x.ticks) {
      add(svg("text", { x: this.x(tick), y: height - 16, "text-anchor": "middle", text: x.show?.(tick) ?? String(tick) }));
    }
    add(svg("text", { x: width - 24, y: height - 1, "text-anchor": "end", text: xLabel }), svg("text", { x: 56, y: 8, text: yLabel }));
  }

  curve(points, className = "") {
    const d = points.map(([x, y], i) => `${i ? "L" : "M"}${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`).join("");
    this.node.append(svg("path", { class: `curve ${className}`, d }));
    return this;
  }

  point(x, y, label, className = "", anchor = "start") {
    this.node.append(svg("circle", { class: `point ${className}`, cx: this.x(x), cy: this.y(y), r: className ? 5 : 3 }, svg("title", { text: label })));
    if (className) {
      this.node.append(svg("text", { class: className, x: this.x(x) + (anchor === "start" ? 9 : -9), y: this.y(y) - (className.includes("above") ? 28 : 8), "text-anchor": anchor, text: label }));
    }
    return this;
  }
}

function scale({ min, max, log = false }, from, to) {
  const place = log ? Math.log : (value) => value;
  return (value) => from + ((place(Math.max(value, log ? 1e-9 : -Infinity)) - place(min)) / (place(max) - place(min))) * (to - from);
}

/** Counts as columns. */
export function histogram(counts, edges, name) {
  const width = 640;
  const most = Math.max(...counts, 1);
  const step = width / counts.length;
  const zero = edges[0] < 0 && edges.at(-1) > 0 ? ((0 - edges[0]) / (edges.at(-1) - edges[0])) * width : null;
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} 150`, role: "img", "aria-label": name },
    counts.map((n, i) => svg("rect", { class: "bar", x: i * step + 1, width: step - 2, y: 124 - (110 * n) / most, height: (110 * n) / most }, svg("title", { text: `${fmt(edges[i])} to ${fmt(edges[i + 1])}: ${n}` }))),
    svg("line", { class: "axis", x1: 0, x2: width, y1: 124.5, y2: 124.5 }),
    zero === null ? null : [svg("line", { class: "axis", x1: zero, x2: zero, y1: 8, y2: 130 }), svg("text", { x: zero, y: 144, "text-anchor": "middle", text: "0" })],
    svg("text", { x: 0, y: 144, text: fmt(edges[0]) }), svg("text", { x: width, y: 144, "text-anchor": "end", text: fmt(edges.at(-1)) }));
}

/** Lengths as columns, one a token. */
export function columns(values, labels, chosen, name, colors) {
  const most = Math.max(...values, 1e-9);
  const step = Math.min(28, 640 / values.length);
  return svg("svg", { class: "chart small", viewBox: `0 0 640 34`, role: "img", "aria-label": name, preserveAspectRatio: "none" },
    values.map((value, i) => svg("rect", { class: "bar", x: i * step, width: Math.max(1, step - 2), y: 32 - (30 * value) / most, height: (30 * value) / most, fill: i === chosen ? css(colors.chosen) : null },
      svg("title", { text: `${labels[i] ?? i}: ${fmt(value)}` }))));
}
