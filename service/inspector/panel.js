// One station on the page: its words, numbers, checks, and the numpy tab.

import { ask, giveUp } from "./api.js";
import { choice, download, fmt, formula, h } from "./dom.js";
import { STATIONS, worded } from "./stations.js";

const KEPT = 40;

export class Panel {
  /** @param host {state, model, segment, colors, set, go, choose, fail, say, baseBody, pinnedBody, position, layer, head} */
  constructor(root, host) {
    this.root = root;
    this.host = host;
    this.answers = new Map();
    this.extra = Object.fromEntries(STATIONS.map(({ name }) => [name, {}]));
    this.tab = "numbers";
  }

  /** Forget what belongs to another text. */
  reset() {
    this.answers.clear();
    this.#forget();
    for (const extra of Object.values(this.extra)) {
      delete extra.swap;
    }
  }

  #forget() {
    this.answer = this.answerOf = null;
  }

  get station() {
    return STATIONS[this.host.state.station - 1];
  }

  /** Which attention this station is about: its own kind where it has one, else the chosen one. */
  get kind() {
    return this.station.kind ?? (this.station.uses.includes("side") ? this.host.state.side : this.host.state.kind);
  }

  body() {
    const { host, station } = this;
    const extra = this.extra[station.name];
    const uses = new Set(station.uses);
    const body = station.whole ? host.baseBody() : host.pinnedBody();
    body.stations = [station.name];
    if (uses.has("kind") || uses.has("side")) { body.kind = this.kind; }
    if (uses.has("layer")) { body.layer = host.layer(this.kind); }
    if (uses.has("head")) { body.head = host.headNumber(this.kind); }
    if (uses.has("query")) { body.position = host.position(this.kind); }
    if (uses.has("sideLayer")) { body.layer = host.sideLayer(); }
    if (uses.has("place")) { body.position = host.place(); }
    if (uses.has("compared")) { body.compared_position = extra.compared ?? -1; }
    if (uses.has("sublayer") && !(extra.sublayer === "cross" && this.kind === "encoder")) { body.sublayer = extra.sublayer ?? "attention"; }
    const whatIf = {};
    if (uses.has("activation") && extra.activation) { whatIf.activation = extra.activation; }
    if (uses.has("swap") && extra.swap) { whatIf.text = extra.swap; }
    if (Object.keys(whatIf).length) { body.what_if = whatIf; }
    if (uses.has("sampling") && extra.sampling) { body.sampling = extra.sampling; }
    if (uses.has("smoothing") && extra.smoothing) { body.label_smoothing = extra.smoothing; }
    if (station.name === "positions") { body.count = host.positionsShown(this.kind); }
    return body;
  }

  /** Show the chosen station; asks the server unless it has answered the same before. */
  async show() {
    const { host, station } = this;
    const { segment } = host;
    this.#head();
    if (host.isLoading) {
      // What is asked for by the new text would be drawn with the old one's words: it waits for its maps.
      giveUp("station");
      this.#forget();
      this.parts.setAttribute("aria-busy", "true");
      return;
    }
    if (!segment?.segment.translated) {
      giveUp("station");
      this.#forget();
      this.parts.removeAttribute("aria-busy");
      this.parts.replaceChildren(h("p", { class: "caption", text: "There is nothing to look into: no sentence, or one without words." }));
      this.checks.replaceChildren();
      return;
    }
    const body = this.body();
    const key = JSON.stringify(body);
    if (!this.answers.has(key)) {
      this.parts.setAttribute("aria-busy", "true");
      this.#forget();
      let answer;
      try {
        answer = await ask("station", "/v1/trace", body);
      } catch (error) {
        if (error.name !== "AbortError" && station === this.station && segment === host.segment) {
          this.parts.removeAttribute("aria-busy");
          this.parts.replaceChildren(h("p", { text: error.message }));
          this.checks.replaceChildren();
          if (error.status === 413) {
            host.fail(error);
          }
        }
        return;
      }
      this.answers.set(key, answer.stations[0]);
      if (this.answers.size > KEPT) {
        this.answers.delete(this.answers.keys().next().value);
      }
      if (station !== this.station || segment !== host.segment) {
        return; // there is a newer call
      }
    } else {
      giveUp("station");
    }
    this.parts.removeAttribute("aria-busy");
    this.answer = this.answers.get(key);
    this.answerOf = segment;
    this.draw();
  }

  #head() {
    const { host, station } = this;
    if (this.headOf === station.name) {
      return;
    }
    this.headOf = station.name;
    this.tab = "numbers";
    this.parts = h("div", { class: "parts" });
    this.checks = h("ul", { class: "checks", "aria-label": "Checks" });
    this.tabs = h("div", { class: "choice", role: "group", "aria-label": "Numbers or numpy" });
    this.where = h("p", { class: "tag" });
    this.root.setAttribute("aria-labelledby", `tab-${host.state.station}`);
    this.root.dataset.station = station.name;
    this.root.replaceChildren(
      h("header", {}, h("h2", {}, h("span", { class: "ordinal", text: `${host.state.station} ` }), station.title), this.where, this.tabs),
      h("p", { class: "lead", text: worded(station.lead, host.model) }),
      formula(worded(station.formula, host.model)),
      this.parts, this.checks,
      h("p", { class: "ask-yourself", text: station.question }));
    this.#tabs();
  }

  #tabs() {
    choice(this.tabs, [{ value: "numbers", label: "Numbers" }, { value: "numpy", label: "numpy" }], this.tab, (tab) => {
      this.tab = tab;
      this.#tabs();
      this.draw();
      this.tabs.querySelector('[aria-pressed="true"]').focus();
    });
  }

  draw() {
    const { host, station, answer } = this;
    if (!answer || this.answerOf !== host.segment) {
      return;
    }
    const { kind } = this;
    const attends = station.attends;
    const uses = station.uses;
    this.where.textContent = [
      attends && !station.kind ? KIND_NAMES[kind] : "",
      uses.includes("sideLayer") ? `${kind} layer ${host.sideLayer()}` : "",
      uses.includes("layer") ? `layer ${host.layer(kind)}` : "",
      uses.includes("head") ? `head ${host.headNumber(kind)}${host.state.head === "mean" ? " (a mean has no numbers of its own)" : ""}` : "",
    ].filter(Boolean).join(" · ");
    const own = [];
    const focused = document.activeElement;
    const hadFocus = this.parts.contains(focused) ? [...this.parts.querySelectorAll(FOCUSABLE)].indexOf(focused) : -1;
    if (this.tab === "numpy") {
      this.parts.replaceChildren(this.#numpy());
    } else {
      const context = {
        values: answer.values, seg: host.segment, model: host.model, state: host.state, colors: host.colors, kind, extra: this.extra[station.name],
        layer: host.layer(kind), position: uses.includes("side") ? host.place() : host.position(kind), sideLayer: host.sideLayer(), sideDepth: host.sideDepth(), set: host.set, choose: host.choose, compare: host.plainTranslation?.(),
        go: (name) => host.go(STATIONS.findIndex((other) => other.name === name) + 1),
        check: (says, value, tolerance) => own.push({ says, value, tolerance, passed: value <= tolerance, isHere: true }),
        refresh: (changes) => { Object.assign(this.extra[station.name], changes); this.draw(); },
        ask: (changes) => {
          Object.assign(this.extra[station.name], changes);
          if (station.name === "block") { Object.assign(this.extra.residual, changes); }
          this.show();
        },
      };
      this.parts.replaceChildren(...station.view(context).flat().filter(Boolean));
    }
    if (hadFocus >= 0) {
      this.parts.querySelectorAll(FOCUSABLE)[hadFocus]?.focus({ preventScroll: true });
    }
    this.checks.replaceChildren(...own.map(checkLine), ...answer.checks.map(checkLine));
  }

  #numpy() {
    const { answer, host } = this;
    const { numpy } = answer;
    if (!numpy) {
      return h("p", { text: "This server sends no code for this station." });
    }
    const save = async (event) => {
      event.target.disabled = true;
      try {
        download(numpy.file, await ask("npz", "/v1/trace", this.body(), "application/x-npz"));
        host.say(`${numpy.file} is saved.`);
      } catch (error) {
        host.fail(error);
      }
      event.target.disabled = false;
    };
    return h("div", { class: "numpy" },
      h("p", {}, "These lines compute the station’s ", h("code", { text: numpy.result }), ` from its numbers, with numpy alone, to within ${fmt(numpy.tolerance)}. Put the file beside them.`),
      h("pre", { tabindex: 0, "aria-label": "numpy code" }, h("code", { text: numpy.code })),
      h("div", { class: "save" }, h("button", { type: "button", text: `Save ${numpy.file}`, onclick: save }),
        h("button", { type: "button", text: "Save the code", onclick: () => download(`${answer.name}.py`, numpy.code, "text/x-python") }),
        h("button", { type: "button", text: "Save the numbers as JSON", onclick: () => download(`${answer.name}.json`, JSON.stringify(answer, null, 1), "application/json") })));
  }
}

const FOCUSABLE = "button, input, select, textarea, summary, [tabindex='0']";
const KIND_NAMES = { encoder: "encoder self-attention", decoder: "decoder self-attention", cross: "cross-attention" };

function checkLine({ says, value, tolerance, passed, isHere }) {
  return h("li", { class: passed ? "passed" : "failed" },
    h("span", { class: "mark", text: `${passed ? "holds" : "fails"}, ${isHere ? "here" : "server"}` }),
    h("span", { text: says }),
    h("span", { class: "num", title: `${value} of at most ${tolerance}`, text: value === 0 ? "equal" : `off by ${power(value)}` }));
}

const power = (value) => (value === null ? "no number" : value < 0.01 ? value.toExponential(0).replace("-", "−") : fmt(value));
