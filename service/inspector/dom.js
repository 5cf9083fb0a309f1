// Small things that every part of the page uses: elements, numbers as text, files to save.

/** An element: h("p", {class: "x", onclick: f, text: "y"}, ...children). Attributes only, never a style attribute. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) {
      continue;
    }
    if (name === "text") {
      node.textContent = value;
    } else if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const find = (id) => document.getElementById(id);

/** Text with _{below} and ^{above}. */
export function formula(text) {
  const parts = text.split(/([_^]\{[^}]*\})/);
  return h("p", { class: "formula", tabindex: 0, role: "math", "aria-label": text.replace(/[_^]\{([^}]*)\}/g, " $1 ") },
    parts.map((part) => (/^[_^]\{/.test(part) ? h(part[0] === "_" ? "sub" : "sup", { text: part.slice(2, -1) }) : part)));
}

/** Every number of the page: three decimals, or a power of ten where those would show nothing. */
export function fmt(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  if (Number.isNaN(value)) {
    return "no number";
  }
  const size = Math.abs(value);
  if (size !== 0 && (size < 5e-4 || size >= 1e6)) {
    return minus(value.toExponential(1));
  }
  return minus(value.toFixed(size >= 1000 ? 0 : 3));
}

export const percent = (share) => `${(100 * share).toFixed(1)} %`;
export const count = (value) => Math.round(value).toLocaleString("en");
export const bytes = (value) => (value >= 1e6 ? `${(value / 1e6).toFixed(1)} MB` : value >= 1e3 ? `${(value / 1e3).toFixed(1)} kB` : `${value} bytes`);
export const milliseconds = (seconds) => `${(1000 * seconds).toFixed(seconds < 0.01 ? 2 : 1)} ms`;
const minus = (text) => text.replace(/-/g, "−");

/** A number in a cell; the full one when pointed at. */
export const numberCell = (value, more = {}) => h("td", { class: "num", title: value === null ? null : String(value), text: fmt(value), ...more });

/** A table with headings; each row is a list of strings, numbers or nodes, and its first cell is its name. */
export function table(caption, headings, rows) {
  const isNumber = rows.length ? rows[0].map((cell) => typeof cell === "number" || cell === null) : [];
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, h("table", {},
    h("caption", { class: "sr", text: caption }),
    h("thead", {}, h("tr", {}, headings.map((text, i) => h("th", { scope: "col", class: isNumber[i] ? "num" : null, text })))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => {
      if (i === 0) {
        return h("th", { scope: "row" }, typeof cell === "number" ? String(cell) : cell);
      }
      return typeof cell === "number" || cell === null ? numberCell(cell) : h("td", {}, cell);
    }))))));
}

export function slider({ label, min, max, step, value, real, show = fmt, onchange }) {
  const output = h("output", { text: show(value) });
  const input = h("input", { type: "range", min, max, step, "aria-label": label });
  input.value = value;
  const tell = () => {
    output.textContent = show(input.valueAsNumber);
    input.setAttribute("aria-valuetext", output.textContent);
    output.classList.toggle("whatif", input.valueAsNumber !== real);
    onchange(input.valueAsNumber);
  };
  input.addEventListener("input", tell);
  output.classList.toggle("whatif", value !== real);
  const reset = real === undefined ? null : h("button", { type: "button", class: "plain", text: "as in the model", onclick: () => { input.value = real; tell(); } });
  return h("div", { class: "slider" }, h("span", { text: label }), input, output, reset);
}

/** Buttons of which one is pressed. */
export function choice(container, items, chosen, onpick) {
  container.replaceChildren(...items.map(({ value, label, disabled, title }) => h("button", {
    type: "button", "aria-pressed": String(value === chosen), disabled, title, text: label, onclick: () => onpick(value),
  })));
}

export function download(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A canvas as sharp as the screen; draws in CSS pixels. */
export function sized(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
