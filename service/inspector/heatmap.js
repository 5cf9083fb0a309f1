// One map, large: a canvas that is drawn once, a canvas for the chosen cell, and a real table that holds the focus.

import { css, diverging, indexOf, inkOn, palette, scaled } from "./color.js";
import { h, percent, sized } from "./dom.js";

const NUMBERS_UP_TO = 16;
const WINDOW = 8;

export class Heatmap {
  /** @param events {hover(query, key), pick(query, key), page(step)} */
  constructor(root, events) {
    this.root = root;
    this.events = events;
    this.base = h("canvas", { class: "base", "aria-hidden": "true" });
    this.over = h("canvas", { class: "over", "aria-hidden": "true" });
    this.sheet = h("div", { class: "sheet" }, this.base, this.over);
    this.table = h("table", { class: "twin", role: "grid" });
    this.asTable = false;
    this.tableBox = h("div", { class: "sr" }, this.table);
    this.frame = h("div", { class: "frame" }, this.sheet, this.tableBox);
    this.cell = null;
    this.#listen();
    new ResizeObserver(() => this.view && this.root.clientWidth !== this.width && this.draw()).observe(root);
  }

  /** @param view {map, queries, keys, scale, cmap, isDifference, caption} */
  show(view, colors) {
    this.view = view;
    this.colors = colors;
    if (this.cell && (this.cell.query >= view.map.queries || this.cell.key >= view.map.keys)) {
      this.cell = null; // it was chosen in a larger map
    }
    this.ramp = view.isDifference ? diverging(colors.paper, colors.isDark) : palette(view.cmap, colors.paper, colors.isDark);
    this.draw();
  }

  colorOf(value, rowMaximum) {
    if (this.view.isDifference) {
      return this.ramp[255 + Math.max(-255, Math.min(255, Math.round(value * 255)))];
    }
    return this.ramp[indexOf(scaled(value, this.view.scale, rowMaximum))];
  }

  draw() {
    const { map, queries, keys } = this.view;
    this.width = this.root.clientWidth;
    const font = getComputedStyle(this.root).fontFamily;
    const measure = this.base.getContext("2d");
    measure.font = `13px ${font}`;
    const longest = (labels) => Math.min(110, Math.max(...labels.map((label) => measure.measureText(label.text).width), 20));
    const room = this.width || 600;
    let left = longest(queries) + 12;
    const cellLimit = map.keys <= NUMBERS_UP_TO ? 44 : 28;
    const tall = Math.max(16, (0.8 * innerHeight - 130) / map.queries); // all rows in sight, where they are not too many
    let cell = Math.floor(Math.min(cellLimit, tall, (room - left - 4) / map.keys));
    if (cell < 4) {
      cell = 4;
    }
    this.isLabelled = cell >= 11;
    if (!this.isLabelled) {
      left = 4;
    }
    const slope = this.isLabelled ? Math.sin(Math.PI / 4) : 0;
    const top = this.isLabelled ? Math.ceil(longest(keys) * slope) + 16 : 4;
    const right = this.isLabelled ? Math.ceil(longest(keys.slice(-2)) * slope) : 0;
    const gap = cell >= 8 ? 1 : 0;
    Object.assign(this, { left, top, size: cell, gap });
    Object.assign(this.base.dataset, { left, top, size: cell });
    const width = left + map.keys * cell + Math.min(right, Math.max(0, room - left - map.keys * cell));
    const height = top + map.queries * cell + 4;
    const context = sized(this.base, width, height);
    this.overContext = sized(this.over, width, height);
    this.sheet.style.width = `${width}px`;
    context.fillStyle = css(this.colors.paper);
    context.fillRect(0, 0, width, height);
    for (let q = 0; q < map.queries; q += 1) {
      let most = 0;
      for (let k = 0; k < map.keys; k += 1) {
        most = Math.max(most, map.data[q * map.keys + k]);
      }
      for (let k = 0; k < map.keys; k += 1) {
        const value = map.data[q * map.keys + k];
        const color = this.colorOf(value, most);
        context.fillStyle = css(color);
        context.fillRect(left + k * cell, top + q * cell, cell - gap, cell - gap);
        if (map.keys <= NUMBERS_UP_TO && map.queries <= NUMBERS_UP_TO + 4 && cell >= 30 && Math.abs(value) >= 0.005) {
          context.fillStyle = inkOn(color);
          context.font = `11px ui-monospace, "DejaVu Sans Mono", monospace`;
          context.textAlign = "center";
          context.textBaseline = "middle";
          context.fillText((100 * value).toFixed(0), left + k * cell + (cell - gap) / 2, top + q * cell + (cell - gap) / 2 + 0.5);
        }
      }
    }
    context.strokeStyle = css(this.colors.line);
    context.lineWidth = 1;
    context.strokeRect(left - 0.5, top - 0.5, map.keys * cell - gap + 1, map.queries * cell - gap + 1);
    if (this.isLabelled) {
      this.#names(context, font, queries, keys);
    }
    this.#drawCell();
    this.#fillTable();
  }

  #names(context, font, queries, keys) {
    const { left, top, size } = this;
    context.fillStyle = css(this.colors.muted);
    context.font = `13px ${font}`;
    context.textBaseline = "middle";
    context.textAlign = "end";
    queries.forEach((label, q) => context.fillText(cut(context, label.text, left - 12), left - 8, top + (q + 0.5) * size));
    context.textAlign = "start";
    keys.forEach((label, k) => {
      context.save();
      context.translate(left + (k + 0.5) * size, top - 7);
      context.rotate(-Math.PI / 4);
      context.fillText(cut(context, label.text, 110), 0, 0);
      context.restore();
    });
  }

  /** Which cell is under a place of the canvas, or null. */
  at(x, y) {
    const key = Math.floor((x - this.left) / this.size);
    const query = Math.floor((y - this.top) / this.size);
    const inside = key >= 0 && query >= 0 && key < this.view.map.keys && query < this.view.map.queries;
    return inside ? { query, key } : null;
  }

  /** A place in the middle of a cell's upper left quarter, in CSS pixels of the canvas: free of printed numbers. */
  place(query, key) {
    return { x: this.left + key * this.size + this.size * 0.12 + 0.5, y: this.top + query * this.size + this.size * 0.12 + 0.5 };
  }

  #listen() {
    this.base.addEventListener("pointermove", (event) => {
      const cell = this.view && this.at(event.offsetX, event.offsetY);
      if (cell && (cell.query !== this.hovered?.query || cell.key !== this.hovered?.key)) {
        this.hovered = cell;
        this.events.hover(cell.query, cell.key);
      }
    });
    this.base.addEventListener("pointerleave", () => {
      this.hovered = null;
      this.events.hover(null, null);
    });
    this.base.addEventListener("click", (event) => {
      const cell = this.view && this.at(event.offsetX, event.offsetY);
      if (cell) {
        this.events.pick(cell.query, cell.key);
      }
    });
    this.table.addEventListener("keydown", (event) => this.#key(event));
    this.table.addEventListener("click", (event) => {
      const cell = event.target.closest("td");
      if (cell) {
        this.events.pick(Number(cell.dataset.query), Number(cell.dataset.key));
      }
    });
  }

  #key(event) {
    const { map } = this.view;
    // From the cell that has the focus: the pointer may rest on another one, which is then the one that is lit.
    const from = event.target.closest("td");
    if (!from) {
      return;
    }
    const [query, key] = [Number(from.dataset.query), Number(from.dataset.key)];
    const moves = {
      ArrowLeft: [query, key - 1], ArrowRight: [query, key + 1], ArrowUp: [query - 1, key], ArrowDown: [query + 1, key],
      Home: [query, 0], End: [query, map.keys - 1],
    };
    if (event.ctrlKey && event.key === "Home") {
      moves.Home = [0, 0];
    }
    if (event.ctrlKey && event.key === "End") {
      moves.End = [map.queries - 1, map.keys - 1];
    }
    const to = moves[event.key];
    if (to) {
      event.preventDefault();
      event.stopPropagation();
      const [q, k] = [Math.max(0, Math.min(map.queries - 1, to[0])), Math.max(0, Math.min(map.keys - 1, to[1]))];
      this.events.hover(q, k, true);
      this.focusCell();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.events.pick(query, key);
    }
  }

  focusCell() {
    this.table.querySelector('td[tabindex="0"]')?.focus({ preventScroll: !this.asTable });
  }

  /** `isPreview`: only the picture follows; the table waits for what is kept. */
  select(cell, isPreview = false) {
    const moved = this.cell?.query !== cell?.query || this.cell?.key !== cell?.key;
    this.cell = cell;
    if (this.view && moved) {
      this.#drawCell();
    }
    if (this.view && !isPreview && (moved || this.isTableOld)) {
      this.#fillTable();
    }
    this.isTableOld = isPreview && (moved || this.isTableOld);
  }

  #drawCell() {
    const context = this.overContext;
    context.clearRect(0, 0, this.over.width, this.over.height);
    if (!this.cell) {
      return;
    }
    const { left, top, size, gap } = this;
    const { query, key } = this.cell;
    const { map, queries, keys } = this.view;
    context.strokeStyle = css(this.colors.chosen);
    context.lineWidth = 2;
    context.strokeRect(left + key * size - 1, top + query * size - 1, size - gap + 2, size - gap + 2);
    context.lineWidth = 1;
    context.globalAlpha = 0.6;
    context.strokeRect(left - 1.5, top + query * size - 1.5, map.keys * size - gap + 3, size - gap + 3);
    context.globalAlpha = 1;
    if (this.isLabelled) {
      context.font = `600 13px ${getComputedStyle(this.root).fontFamily}`;
      context.textBaseline = "middle";
      const over = (text, x, y, align) => {
        const shownText = cut(context, text, align === "end" ? left - 10 : 110);
        const width = context.measureText(shownText).width;
        context.fillStyle = css(this.colors.paper);
        context.fillRect(align === "end" ? x - width - 4 : x - 1, y - 8, width + 5, 16);
        context.fillStyle = css(this.colors.chosen);
        context.textAlign = align;
        context.fillText(shownText, x, y);
      };
      over(queries[query].text, left - 8, top + (query + 0.5) * size, "end");
      context.save();
      context.translate(left + (key + 0.5) * size, top - 7);
      context.rotate(-Math.PI / 4);
      over(keys[key].text, 0, 0, "start");
      context.restore();
    }
  }

  /** The cells around the chosen one as a table. */
  #fillTable() {
    const { map, queries, keys, caption } = this.view;
    const { query, key } = this.cell ?? { query: 0, key: 0 };
    const rows = around(query, map.queries, this.asTable ? 10 : WINDOW);
    const columns = around(key, map.keys, this.asTable ? 10 : WINDOW);
    const held = this.table.contains(document.activeElement);
    const part = rows.length < map.queries || columns.length < map.keys
      ? `; rows ${rows[0] + 1} to ${rows.at(-1) + 1} of ${map.queries}, columns ${columns[0] + 1} to ${columns.at(-1) + 1} of ${map.keys}` : "";
    this.table.setAttribute("aria-rowcount", map.queries + 1);
    this.table.setAttribute("aria-colcount", map.keys + 1);
    this.table.replaceChildren(
      h("caption", { text: `${caption}: weights in percent${part}` }),
      h("thead", {}, h("tr", { role: "row", "aria-rowindex": 1 }, h("th", { scope: "col", role: "columnheader", "aria-colindex": 1 }, h("span", { text: "looks at" })),
        columns.map((k) => h("th", { scope: "col", role: "columnheader", "aria-colindex": k + 2, text: keys[k].text })))),
      h("tbody", {}, rows.map((q) => h("tr", { role: "row", "aria-rowindex": q + 2 },
        h("th", { scope: "row", role: "rowheader", "aria-colindex": 1, text: queries[q].text }),
        columns.map((k) => {
          const value = map.data[q * map.keys + k];
          const isChosen = q === query && k === key;
          return h("td", {
            role: "gridcell", "aria-colindex": k + 2, tabindex: isChosen ? 0 : -1, "aria-selected": String(Boolean(this.cell) && isChosen),
            "data-query": q, "data-key": k, title: String(value), text: percent(value).replace(" %", ""),
          });
        })))),
    );
    if (held) {
      this.focusCell();
    }
  }

  showAsTable(asTable) {
    this.asTable = asTable;
    this.sheet.hidden = asTable;
    this.tableBox.className = asTable ? "" : "sr";
    this.#fillTable();
  }

  /** A picture of the whole map, with background and names. */
  png() {
    return new Promise((done) => { this.base.toBlob(done, "image/png"); });
  }
}

function cut(context, text, width) {
  if (context.measureText(text).width <= width) {
    return text;
  }
  const letters = [...text];
  while (letters.length > 1 && context.measureText(`${letters.join("")}…`).width > width) {
    letters.pop();
  }
  return `${letters.join("")}…`;
}

function around(center, total, span) {
  const size = Math.min(total, 2 * span);
  const start = Math.max(0, Math.min(total - size, center - span));
  return Array.from({ length: size }, (_, i) => start + i);
}

/** The colour bar of a map: from 0 to 1, or from -1 to 1. */
export function legend(ramp, text) {
  const canvas = h("canvas", { width: ramp.length, height: 1, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  ramp.forEach((color, i) => {
    context.fillStyle = css(color);
    context.fillRect(i, 0, 1, 1);
  });
  return h("p", { class: "legend" }, h("span", { text: ramp.length > 256 ? "−1" : "0" }), canvas, h("span", { text: "1" }), h("span", { text }));
}
