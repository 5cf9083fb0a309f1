// Silk between words: a canvas of fine curves behind real buttons. Drawn once; a second canvas lights up one word's threads.

import { css, indexOf, palette } from "./color.js";
import { h, percent, reducedMotion, sized } from "./dom.js";
import { row } from "./maps.js";

const LEVELS = 24;
const LEAST = 0.008;
const LEAST_IN_CROWD = 0.025;
const SETTLE_MS = 150;
const UPRIGHT_BELOW = 560; // narrower than this, lines of words would break and threads cross them: two columns instead

export class Threads {
  /** @param events {hover(side, index | null), pick(side, index)}; side is "query" or "key" */
  constructor(root, events) {
    this.root = root;
    this.events = events;
    this.base = h("canvas", { class: "base", "aria-hidden": "true" });
    this.over = h("canvas", { class: "over", "aria-hidden": "true" });
    this.focus = null;
    this.weights = null;
    new ResizeObserver(() => this.resize()).observe(root);
    document.fonts?.ready.then(() => this.resize());
  }

  /**
   * @param view {kind, map, queries, keys, source, target}: one map, labels of its axes, language codes
   */
  show(view, colors) {
    const sameWords = this.view && JSON.stringify([view.queries, view.keys, view.kind]) === JSON.stringify([this.view.queries, this.view.keys, this.view.kind]);
    this.view = view;
    this.colors = colors;
    this.ramp = palette("cividis", colors.paper, colors.isDark);
    if (!sameWords) {
      this.#build();
    }
    this.measure();
    this.#settle();
    this.light(this.focus);
  }

  clear() {
    this.view = this.focus = this.weights = null;
    this.root.replaceChildren();
    this.root.classList.remove("focused");
  }

  #build() {
    const { kind, queries, keys, source, target } = this.view;
    const isSelf = kind !== "cross";
    this.focus = null;
    this.root.classList.toggle("many", Math.max(queries.length, keys.length) > 44);
    const line = (labels, side, name, lang, classes) => {
      const buttons = labels.map((label, i) => {
        const follows = i > 0 && !label.special && !labels[i - 1].special && label.word === labels[i - 1].word && label.word !== null && label.word >= 0;
        return h("button", {
          type: "button", class: `word${label.special ? " special" : ""}${follows ? " joined" : ""}`, tabindex: i ? -1 : 0,
          "data-side": side, "data-index": i, title: label.predicts ? `reads ${label.text}, predicts ${label.predicts}` : null,
        }, h("span", { class: "t", text: label.text }), h("span", { class: "n", "aria-hidden": "true" }));
      });
      // The pieces of a word stay together where lines break.
      const groups = [];
      buttons.forEach((button) => {
        if (!button.classList.contains("joined")) {
          groups.push(h("span", { class: "together" }));
        }
        groups.at(-1).append(button);
      });
      const node = h("div", { class: `words ${classes}`, role: "group", "aria-label": name, lang, dir: "auto" }, groups);
      // The direction of the first strong letter inside buttons is not seen by dir=auto.
      node.dir = /[\u0590-\u08ff\ufb1d-\ufefc]/.test(labels.map((label) => label.text).join("")) ? "rtl" : "ltr";
      return node;
    };
    if (isSelf) {
      const isPast = kind === "decoder";
      this.queryLine = line(queries, "query", isPast ? "Words of the translation, as read" : "Words of the sentence", isPast ? target : source, `self${isPast ? " past" : ""}`);
      this.keyLine = this.queryLine;
      this.root.replaceChildren(this.base, this.over, this.queryLine);
    } else {
      this.keyLine = line(keys, "key", "Words of the sentence", source, "keys");
      this.queryLine = line(queries, "query", "Words of the translation", target, "queries");
      this.root.replaceChildren(this.base, this.over, this.keyLine, this.queryLine);
    }
    this.root.classList.remove("focused");
    this.words = [...this.root.querySelectorAll(".word")].map((node) => ({
      node, plain: node.className, side: node.dataset.side, index: Number(node.dataset.index), marks: "", number: "",
    }));
    for (const node of new Set([this.keyLine, this.queryLine])) {
      this.#listen(node);
    }
    this.weights = null;
  }

  #listen(line) {
    const place = (event) => {
      const word = event.target.closest?.(".word");
      return word ? [word.dataset.side, Number(word.dataset.index), word] : null;
    };
    // Moves alone count: browsers also tell of pointers that the page has moved under while nobody moved them.
    let pointed = null;
    line.addEventListener("pointermove", (event) => {
      const found = place(event);
      if (found && found[2] !== pointed && event.pointerType !== "touch") {
        pointed = found[2];
        this.events.hover(found[0], found[1]);
      }
    });
    line.addEventListener("pointerleave", () => {
      pointed = null;
      this.events.hover(null, null);
    });
    line.addEventListener("focusin", (event) => {
      const found = place(event);
      if (found && found[2].matches(":focus-visible")) {
        this.events.hover(found[0], found[1]);
      }
    });
    line.addEventListener("focusout", () => this.events.hover(null, null));
    line.addEventListener("click", (event) => {
      const found = place(event);
      if (found) {
        this.events.pick(found[0], found[1]);
      }
    });
    line.addEventListener("keydown", (event) => {
      const words = [...line.querySelectorAll(".word")];
      const at = words.indexOf(event.target);
      const along = this.isUpright ? ["ArrowUp", "ArrowDown"] : line.dir === "rtl" ? ["ArrowRight", "ArrowLeft"] : ["ArrowLeft", "ArrowRight"];
      const across = this.isUpright ? ["ArrowLeft", "ArrowRight"] : ["ArrowUp", "ArrowDown"];
      const to = { [along[1]]: at + 1, [along[0]]: at - 1, Home: 0, End: words.length - 1 }[event.key];
      let next = words[to];
      if (this.keyLine !== this.queryLine && across.includes(event.key)) {
        next = (event.key === across[1] ? this.queryLine : this.keyLine).querySelector('.word[tabindex="0"]');
      }
      if (next && at >= 0) {
        event.preventDefault();
        event.stopPropagation();
        words.forEach((word) => { if (line.contains(next)) { word.tabIndex = word === next ? 0 : -1; } });
        next.focus();
      }
    });
  }

  resize() {
    if (this.view && this.root.clientWidth) {
      this.measure();
      this.#draw(this.weights ?? this.view.map.data);
      this.light(this.focus);
    }
  }

  /** Where every word is, once per layout. */
  measure() {
    this.isUpright = this.root.clientWidth < UPRIGHT_BELOW;
    this.root.classList.toggle("upright", this.isUpright);
    const origin = this.root.getBoundingClientRect();
    const boxes = (line) => {
      const isBelow = line.classList.contains("queries");
      const slot = this.isUpright ? 0 : Number.parseFloat(getComputedStyle(line.querySelector(".word"))[isBelow ? "paddingTop" : "paddingBottom"]);
      return [...line.querySelectorAll(".word")].map((node) => {
        const box = node.getBoundingClientRect();
        const [top, bottom] = [box.top - origin.top, box.bottom - origin.top];
        return { x: box.left - origin.left + box.width / 2, width: box.width, outerTop: top, outerBottom: bottom, top: isBelow ? top + slot : top, bottom: isBelow ? bottom : bottom - slot };
      });
    };
    this.queryBoxes = boxes(this.queryLine);
    this.keyBoxes = this.keyLine === this.queryLine ? this.queryBoxes : boxes(this.keyLine);
    // Threads to the first of several lines pass behind the words of the others.
    this.root.classList.toggle("wrapped", !this.isUpright && [this.queryBoxes, this.keyBoxes].some((all) => all.at(-1).outerTop - all[0].outerTop > 8));
    this.size = { width: this.root.clientWidth, height: this.root.scrollHeight };
    this.baseContext = sized(this.base, this.size.width, this.size.height);
    this.overContext = sized(this.over, this.size.width, this.size.height);
  }

  #settle() {
    const target = this.view.map.data;
    const from = this.weights;
    cancelAnimationFrame(this.frame);
    if (!from || from.length !== target.length || reducedMotion() || target.length > 4096) {
      this.weights = target;
      this.#draw(target);
      return;
    }
    const start = performance.now();
    const between = new Float32Array(target.length);
    const step = (now) => {
      const share = Math.min(1, (now - start) / SETTLE_MS);
      const eased = 1 - (1 - share) ** 3;
      for (let i = 0; i < target.length; i += 1) {
        between[i] = from[i] + (target[i] - from[i]) * eased;
      }
      this.weights = share < 1 ? between : target;
      this.#draw(this.weights);
      if (share < 1) {
        this.frame = requestAnimationFrame(step);
      }
    };
    this.frame = requestAnimationFrame(step);
  }

  /** All threads, in as many strokes as there are strengths. */
  #draw(weights) {
    const { map } = this.view;
    const least = Math.max(map.queries, map.keys) > 44 ? LEAST_IN_CROWD : LEAST;
    const levels = Array.from({ length: LEVELS + 1 }, () => []);
    for (let q = 0; q < map.queries; q += 1) {
      for (let k = 0; k < map.keys; k += 1) {
        const weight = weights[q * map.keys + k];
        if (weight > least) {
          levels[Math.min(LEVELS, Math.ceil(Math.sqrt(weight) * LEVELS))].push(q, k);
        }
      }
    }
    this.baseContext.clearRect(0, 0, this.size.width, this.size.height);
    const crowd = Math.min(1, 26 / Math.max(map.queries, map.keys));
    levels.forEach((pairs, level) => {
      if (pairs.length) {
        const strength = (level / LEVELS) ** 2;
        this.#stroke(this.baseContext, pairs, strength, (0.1 + 0.72 * strength ** 0.7) * (0.45 + 0.55 * crowd));
      }
    });
  }

  #stroke(context, pairs, strength, alpha) {
    context.beginPath();
    for (let i = 0; i < pairs.length; i += 2) {
      this.#thread(context, pairs[i], pairs[i + 1]);
    }
    context.strokeStyle = css(this.#color(strength), Math.min(1, alpha));
    context.lineWidth = 0.6 + 3.2 * strength;
    context.lineCap = "round";
    context.stroke();
  }

  /** The faint ones begin in the greys of the map: its yellow would shout on white. */
  #color(strength) {
    const from = this.colors.isDark ? 0.3 : 0.5;
    return this.ramp[indexOf(from + (1 - from) * strength)];
  }

  /** One curve. Ends are spread over the width of a word, in the order of where they go, so that threads do not braid. */
  #thread(context, q, k) {
    const from = this.queryBoxes[q];
    const to = this.keyBoxes[k];
    if (!from || !to) {
      return;
    }
    if (this.isUpright) {
      this.#uprightThread(context, from, to, q, k);
      return;
    }
    const { width } = this.size;
    const spread = (box, other) => box.x + (other.x / width - 0.5) * Math.min(box.width, 90) * 0.7;
    if (this.view.kind === "cross") {
      const x1 = spread(from, to);
      const x2 = spread(to, from);
      const y1 = from.outerTop;
      const y2 = to.outerBottom;
      const bend = (y1 - y2) * 0.55;
      context.moveTo(x1, y1 + 14);
      context.lineTo(x1, y1);
      context.bezierCurveTo(x1, y1 - bend, x2, y2 + bend, x2, y2);
      context.lineTo(x2, y2 - 14);
      return;
    }
    if (q === k) {
      context.moveTo(from.x + 4, from.top - 7);
      context.arc(from.x, from.top - 7, 4, 0, 2 * Math.PI);
      return;
    }
    // What came before is reached over the words, what comes after under them.
    const isBack = k < q;
    const sign = isBack ? -1 : 1;
    const x1 = from.x + (to.x > from.x ? 1 : -1) * Math.min(from.width * 0.2, 12);
    const x2 = to.x - (to.x > from.x ? 1 : -1) * Math.min(to.width * 0.2, 12);
    const y1 = isBack ? from.top - 1 : from.outerBottom;
    const sameLine = Math.abs(from.outerTop - to.outerTop) < 8;
    const y2 = sameLine ? y1 : isBack ? to.outerBottom : to.top - 1;
    const rise = sameLine ? Math.min(14 + Math.abs(x2 - x1) * 0.5, this.#room(isBack, from) * 1.3) : Math.max(14, Math.abs(y2 - y1) * 0.5);
    // The room for numbers below a word is crossed straight.
    const stub = 17;
    context.moveTo(x1, isBack ? y1 : y1 - stub);
    context.lineTo(x1, y1);
    context.bezierCurveTo(x1, y1 + sign * rise, x2, y2 + (sameLine ? sign : -sign) * rise, x2, y2);
    if (isBack ? !sameLine : sameLine) {
      context.lineTo(x2, y2 - stub);
    }
  }

  /** Across from column to column; within one to the left for what came before, to the right for what comes after. */
  #uprightThread(context, from, to, q, k) {
    const middle = (box) => (box.outerTop + box.outerBottom) / 2;
    const edge = (box, side) => box.x + side * (box.width / 2 + 5);
    const spread = (box, other) => middle(box) + (middle(other) / this.size.height - 0.5) * (box.outerBottom - box.outerTop) * 0.5;
    if (this.view.kind === "cross") {
      const [x1, x2, y1, y2] = [edge(from, -1), edge(to, 1), spread(from, to), spread(to, from)];
      const bend = (x1 - x2) * 0.5;
      context.moveTo(x1, y1);
      context.bezierCurveTo(x1 - bend, y1, x2 + bend, y2, x2, y2);
      return;
    }
    const side = k <= q ? -1 : 1;
    const [x1, x2, y1, y2] = [edge(from, side), edge(to, side), middle(from), middle(to)];
    if (q === k) {
      context.moveTo(x1, y1);
      context.arc(x1 - 4, y1, 4, 0, 2 * Math.PI);
      return;
    }
    const outer = side * Math.max(side * x1, side * x2);
    const room = (side < 0 ? outer : this.size.width - outer) - 4;
    const reach = outer + side * Math.min(12 + Math.abs(y2 - y1) * 0.6, room * 1.3);
    context.moveTo(x1, y1);
    context.bezierCurveTo(reach, y1, reach, y2, x2, y2);
  }

  /** How high an arc may be: to the edge of the picture from its first or last line, else to the next line. */
  #room(isBack, box) {
    const first = this.queryBoxes[0];
    const last = this.queryBoxes[this.queryBoxes.length - 1];
    if (isBack) {
      return Math.abs(box.outerTop - first.outerTop) < 8 ? first.top - 6 : 54;
    }
    return Math.abs(box.outerTop - last.outerTop) < 8 ? this.size.height - last.outerBottom - 4 : 40;
  }

  /** Light the threads of one word, or of none. @param focus {side, index, other?} */
  light(focus) {
    this.focus = focus;
    if (!this.view) {
      return;
    }
    const { map, kind } = this.view;
    const isLit = focus !== null && focus !== undefined;
    this.root.classList.toggle("focused", isLit);
    this.overContext.clearRect(0, 0, this.size.width, this.size.height);
    if (!isLit) {
      this.words.forEach((word) => this.#mark(word, "", ""));
      return;
    }
    const weights = focus.side === "query" ? row(map, focus.index) : Float32Array.from({ length: map.queries }, (_, q) => map.data[q * map.keys + focus.index]);
    const isSelf = kind !== "cross";
    const order = [...weights.keys()].filter((i) => weights[i] > 0.001).sort((a, b) => weights[a] - weights[b]);
    for (const i of order) {
      const [q, k] = focus.side === "query" ? [focus.index, i] : [i, focus.index];
      this.#stroke(this.overContext, [q, k], weights[i], 0.25 + 0.75 * Math.sqrt(weights[i]));
    }
    const numbered = this.#roomy(order.filter((i) => weights[i] >= 0.01).reverse(), isSelf || focus.side === "key" ? this.queryBoxes : this.keyBoxes);
    this.words.forEach((word) => {
      const { index, side } = word;
      const isOther = isSelf || side !== focus.side;
      const isChosen = index === focus.index && (isSelf || side === focus.side);
      const isLinked = isOther && weights[index] >= 0.01;
      const isBlocked = kind === "decoder" && focus.side === "query" && index > focus.index;
      const marks = `${isChosen ? " chosen" : ""}${isChosen || isLinked ? " lit" : ""}${isBlocked ? " blocked" : ""}`;
      this.#mark(word, marks, isOther && numbered.has(index) ? percent(weights[index]).replace(" %", "") : "");
    });
  }

  /** Touches only what changes: there may be hundreds of words. */
  #mark(word, marks, number) {
    if (word.marks !== marks) {
      word.marks = marks;
      word.node.className = word.plain + marks;
    }
    if (word.number !== number) {
      word.number = number;
      word.node.lastChild.textContent = number;
    }
  }

  /** Of these words, the strongest first, those whose numbers do not cover a stronger one's. */
  #roomy(order, boxes) {
    const taken = [];
    for (const i of order) {
      const box = boxes[i];
      if (taken.length < 10 && !taken.some((j) => Math.abs(boxes[j].x - box.x) < 38 && Math.abs(boxes[j].outerTop - box.outerTop) < 8)) {
        taken.push(i);
      }
    }
    return new Set(taken);
  }

  /** The picture as SVG text, with a background: what the canvas shows. */
  svg(title) {
    const recorder = new Recorder();
    const { map } = this.view;
    const parts = [];
    for (let q = 0; q < map.queries; q += 1) {
      for (let k = 0; k < map.keys; k += 1) {
        const weight = map.data[q * map.keys + k];
        if (weight > LEAST) {
          recorder.start();
          this.#thread(recorder, q, k);
          parts.push([weight, `<path d="${recorder.path}" stroke="${css(this.#color(weight))}" stroke-opacity="${(0.1 + 0.72 * weight ** 0.7).toFixed(3)}" stroke-width="${(0.6 + 3.2 * weight).toFixed(2)}"/>`]);
        }
      }
    }
    parts.sort((a, b) => a[0] - b[0]);
    const fontSize = this.root.classList.contains("many") ? 16 : 22;
    const names = (labels, boxes) => labels.map((label, i) => `<text x="${boxes[i].x.toFixed(1)}" y="${(boxes[i].bottom - 6).toFixed(1)}">${escapeXml(label.text)}</text>`).join("");
    const { width, height } = this.size;
    const { paper, ink } = this.colors;
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}"><title>${escapeXml(title)}</title>`
      + `<rect width="100%" height="100%" fill="${css(paper)}"/><g fill="none" stroke-linecap="round">${parts.map((part) => part[1]).join("")}</g>`
      + `<g fill="${css(ink)}" font-family="system-ui, sans-serif" font-size="${fontSize}" text-anchor="middle">${names(this.view.queries, this.queryBoxes)}`
      + `${this.keyLine === this.queryLine ? "" : names(this.view.keys, this.keyBoxes)}</g></svg>`;
  }
}

export const escapeXml = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }[c]));

/** Takes a canvas context's path calls and makes SVG path data of them. */
class Recorder {
  start() { this.path = ""; }
  moveTo(x, y) { this.path += `M${x.toFixed(1)} ${y.toFixed(1)}`; }
  lineTo(x, y) { this.path += `L${x.toFixed(1)} ${y.toFixed(1)}`; }
  bezierCurveTo(...numbers) { this.path += `C${numbers.map((n) => n.toFixed(1)).join(" ")}`; }
  arc(x, y, r) { this.path += `a${r} ${r} 0 1 1 ${-2 * r} 0a${r} ${r} 0 1 1 ${2 * r} 0`; }
}
