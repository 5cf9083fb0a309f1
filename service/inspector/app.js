// The page at /: one state, in the address; what changes is asked for and drawn.

import { ask, giveUp, hasKey, Problem, setKey } from "./api.js";
import { MAPS, SCALES, palette, theme, diverging } from "./color.js";
import { bytes, choice, count, find, h, milliseconds, percent } from "./dom.js";
import { Atlas, bars } from "./heads.js";
import { Heatmap, legend } from "./heatmap.js";
import { KINDS, MEAN, row, Segment } from "./maps.js";
import { Panel } from "./panel.js";
import * as save from "./save.js";
import { ASKING, ASKING_OTHER, read, state, write } from "./state.js";
import { STATIONS } from "./stations.js";
import { Threads } from "./threads.js";
import { GLOSSARY, KEYS } from "./words.js";

const SAFETENSORS = "application/vnd.safetensors";
let models = [];
let chosen = null; // of the models, the one in use
let loaded = null; // that of which the next line tells
let model = null; // what the server tells of the model; null without a look inside
let segment = null;
let other = null;
let plain = null; // {segment, text}: what /v1/translate says where this segment was looked into
let loading = null; // the newest load under way; what comes for an older one is not shown
let colors = null;
let hovered = null;
let isTable = false;
let limit = 8;

document.documentElement.classList.add("ready");

// --- the state and the address ---------------------------------------------------------------------------------------

function remember(isStep) {
  const fragment = write(state);
  if (fragment !== location.hash && !(fragment === "#" && !location.hash)) {
    history[isStep ? "pushState" : "replaceState"](null, "", fragment === "#" ? location.pathname : fragment);
  }
}

/** Change what is looked at. `isStep`: the browser's back button returns to before. */
function set(changes, isStep = false) {
  if ("kind" in changes && changes.kind !== state.kind) {
    changes = { layer: null, query: null, key: null, ...changes };
  }
  const changed = Object.keys(changes).filter((name) => JSON.stringify(changes[name]) !== JSON.stringify(state[name]));
  Object.assign(state, changes);
  remember(isStep);
  if (changed.some((name) => ASKING.includes(name))) {
    load();
  } else {
    if (changed.some((name) => ASKING_OTHER.includes(name))) {
      loadOther();
    }
    render();
  }
}

addEventListener("popstate", () => {
  const next = read(location.hash);
  const isOther = ASKING.some((name) => JSON.stringify(next[name]) !== JSON.stringify(state[name]));
  const isModel = next.model !== state.model;
  const isPair = next.otherText !== state.otherText || next.otherTarget !== state.otherTarget;
  Object.assign(state, next);
  fillForm();
  if (isModel) {
    changeModel();
  } else if (isOther) {
    load();
  } else {
    if (isPair) {
      loadOther();
    }
    render();
  }
});

function fillForm() {
  find("text").value = state.text;
  find("forced").value = state.forced;
  find("other-text").value = state.otherText;
  find("other-target").value = state.otherTarget;
  find("beam").value = state.beam;
}

// --- asking ----------------------------------------------------------------------------------------------------------

/** With the name of the model, where there is something to choose. */
const named = (body) => (models.length > 1 ? { ...body, model: chosen.name } : body);

function baseBody() {
  const body = named({ text: state.text, decoding: { beam_size: state.beam } });
  if (state.forced) {
    body.target_text = state.forced;
    delete body.decoding;
  } else if (state.prefix) {
    body.prefix_ids = state.prefix;
  } else {
    body.segment = state.segment;
  }
  return body;
}

/** The pair that is on the screen, by ids: no search runs. */
function pinnedBody() {
  return named({ text: segment.segment.source, target_ids: segment.segment.target_tokens.map((token) => token.id) });
}

async function load() {
  const output = find("output");
  problem(null);
  giveUpLoads();
  if (!state.text.trim()) {
    segment = other = null;
    output.textContent = "";
    find("facts").textContent = "Type a sentence.";
    clear();
    return;
  }
  if (!(await useModelOfText())) {
    return;
  }
  if (!model) {
    output.classList.add("pending");
    await translateOnly();
    output.classList.remove("pending");
    return;
  }
  const body = baseBody();
  if ("segment" in body) {
    body.segments = [body.segment];
    delete body.segment;
  }
  await loadMaps(body, SAFETENSORS);
}

function giveUpLoads() {
  giveUp("detect", "maps", "plain", "other", "score0", "score1");
  setLoading(null);
}

function setLoading(token) {
  loading = token;
  find("output").classList.toggle("pending", Boolean(token));
  if (token) {
    find("stage").setAttribute("aria-busy", "true");
  } else {
    find("stage").removeAttribute("aria-busy");
  }
}

/** Ask for maps and show them, unless something newer is asked for in the meantime. */
async function loadMaps(body, accept) {
  const mine = {};
  setLoading(mine);
  const started = performance.now();
  try {
    const received = await ask("maps", "/v1/attention", body, accept);
    if (loading !== mine) {
      return;
    }
    setLoading(null);
    receive(received, performance.now() - started);
  } catch (error) {
    if (error.name === "AbortError" || (loading && loading !== mine)) {
      return;
    }
    setLoading(null);
    dropResult();
    problem(error);
    if (error.status === 413 || error.status === 429) {
      translateOnly();
    }
    if (!(error instanceof Problem)) {
      throw error;
    }
  }
}

/** What a refused request leaves: nothing of the text before it. */
function dropResult() {
  segment = other = plain = null;
  find("output").textContent = find("facts").textContent = "";
  clear();
}

function receive({ answer, tensors }, elapsed) {
  const index = answer.segments.findIndex((found) => found.maps?.length);
  const chosen = answer.segments[index >= 0 ? index : Math.min(state.segment, answer.segments.length - 1)];
  const readable = answer.segments.find((found) => found.translated);
  if (chosen && !chosen.translated && readable) {
    state.segment = readable.index; // what was asked for has no words; another sentence has
    remember(false);
    load();
    return;
  }
  segment = chosen ? new Segment(answer, chosen, tensors, answer.selected) : null;
  plain = null;
  panel.reset();
  hovered = null;
  const output = find("output");
  output.lang = answer.target;
  output.textContent = answer.translation;
  const tokens = chosen?.translated ? `${chosen.source_tokens.length} source and ${chosen.rows.length} target tokens` : "nothing to translate";
  const size = Object.values(tensors).reduce((sum, { data }) => sum + data.length, 0);
  find("facts").textContent = [
    tokens, size ? `${count(size)} weights in ${milliseconds(elapsed / 1000)}` : "", `${answer.model.name} ${answer.precision}, revision ${answer.model.revision.slice(0, 8)}`,
    chosen?.windowed ? "a sentence was too long and was translated in parts" : "", chosen?.finish_reason === "length" ? "cut at the limit of target tokens" : "",
    state.forced ? "reading your translation" : state.prefix ? "going on from the word you chose" : "",
  ].filter(Boolean).join(" · ");
  clampState();
  remember(false);
  showSegments(answer);
  render();
  loadOther();
}

/** What /v1/translate says of the same text: station 1 compares. */
async function comparePlain() {
  if (plain || loading || !segment || state.forced || state.prefix) {
    return;
  }
  const mine = plain = { segment, text: "" };
  const body = named({ text: state.text, decoding: { beam_size: state.beam } });
  try {
    const answer = await ask("plain", "/v1/translate", body);
    mine.text = answer.translations[0].text;
    if (plain === mine && state.station === 1) {
      panel.draw();
    }
  } catch {
    if (plain === mine) {
      plain = null; // asked again when the station is next shown
    }
  }
}

/** Where looking inside is refused, the translation still comes. */
async function translateOnly() {
  try {
    const answer = await ask("plain", "/v1/translate", named({ text: state.text, decoding: { beam_size: state.beam } }));
    find("output").textContent = answer.translations[0].text;
  } catch (error) {
    if (error.name === "AbortError") {
      return;
    }
    dropResult();
    if (find("problem").hidden) {
      problem(error);
    }
  }
}

async function loadOther() {
  const box = find("compare");
  giveUp("other", "score0", "score1");
  other = null;
  if (!segment?.segment.translated || (!state.otherText && !state.otherTarget)) {
    box.hidden = true;
    box.replaceChildren();
    secondThreads = null;
    return;
  }
  const body = named({ text: state.otherText || segment.segment.source, segments: [0] });
  if (state.otherTarget) {
    body.target_text = state.otherTarget;
    delete body.segments;
  } else {
    body.decoding = { beam_size: state.beam };
  }
  try {
    const first = segment;
    const { answer, tensors } = await ask("other", "/v1/attention", body, SAFETENSORS);
    const found = answer.segments.find((one) => one.maps?.length);
    const second = found ? new Segment(answer, found, tensors, answer.selected) : null;
    const scores = await Promise.all([first, second].filter(Boolean).map((one, i) => ask(`score${i}`, "/v1/score", named({
      text: one.segment.source, target_ids: one.segment.target_tokens.map((token) => token.id) }))));
    if (segment !== first) {
      return;
    }
    other = second;
    showCompare(scores);
    render();
  } catch (error) {
    if (error.name !== "AbortError") {
      box.hidden = false;
      box.replaceChildren(h("p", { text: `The second text: ${error.message}` }));
    }
  }
}

let secondThreads = null;

function showCompare(scores) {
  const box = find("compare");
  box.hidden = false;
  const web = h("div", { class: "web" });
  const names = ["first", "second"];
  box.replaceChildren(
    h("p", { class: "caption", text: state.otherTarget ? "The same sentence, read with the other translation" : "The other sentence" }),
    web,
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Both compared" }, h("table", {},
      h("caption", { class: "sr", text: "Both compared" }),
      h("thead", {}, h("tr", {}, ["Which", "Translation", "Tokens", "−log p, nats", "A token", "Perplexity"].map((text, i) => h("th", { scope: "col", class: i > 1 ? "num" : null, text })))),
      h("tbody", {}, scores.map((score, i) => h("tr", {}, h("th", { scope: "row", text: names[i] }), h("td", { text: (i ? other : segment).segment.target }),
        ...[score.num_tokens, score.total_nats, score.mean_nats, score.perplexity].map((value, j) => h("td", { class: "num", title: String(value), text: j ? value.toFixed(3) : String(value) }))))))));
  secondThreads = new Threads(web, {
    hover: (side, index) => secondThreads.light(side === null ? null : { side, index }),
    pick: (side, index) => secondThreads.light({ side, index }),
  });
}

function problem(error) {
  const box = find("problem");
  box.hidden = !error;
  box.replaceChildren();
  showKey();
  if (!error) {
    return;
  }
  if (error.status === 401 || error.status === 403) {
    box.append(keyForm(error.message));
    find("key").focus();
    return;
  }
  const size = error.needed_bytes && error.limit_bytes
    ? `All these weights would be ${bytes(error.needed_bytes)}; the server sends at most ${bytes(error.limit_bytes)} at once.` : error.message;
  const parts = [h("p", { text: size })];
  if (error.nearest) {
    const { says, body, accept, needed_bytes: needed } = error.nearest;
    parts.push(h("button", { type: "button", text: `Show ${says}${needed ? ` (${bytes(needed)})` : ""}`, onclick: () => {
      problem(null);
      loadMaps(body, accept?.includes("safetensors") ? accept : SAFETENSORS);
    } }));
  }
  if ([0, 429, 503, 504].includes(error.status)) {
    parts.push(h("button", { type: "button", text: "Try again", onclick: load }));
  }
  box.append(...parts);
}

/** What a server with keys wants before it does anything. */
function keyForm(message) {
  return h("form", { class: "key", id: "key-form", onsubmit: (event) => {
    event.preventDefault();
    setKey(find("key").value.trim());
    problem(null);
    if (models.length) {
      load();
    } else {
      loadModels();
    }
  } }, h("label", { for: "key", text: hasKey() ? `This server does not take that API key: ${message}` : "This server asks for an API key." }),
  h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "key-note" }),
  h("button", { type: "submit", text: "Use this key" }),
  h("small", { id: "key-note", text: "It stays in this tab until the tab is closed, goes to this server alone, and is not in the link." }));
}

function showKey() {
  find("key-forget").hidden = !hasKey();
}

function forgetKey() {
  setKey("");
  giveUpLoads();
  dropResult();
  find("workbench").hidden = true;
  models = [];
  chosen = loaded = model = null;
  loadModels();
}

async function loadModels() {
  try {
    models = (await ask("models", "/v1/models", null)).models;
    find("model").replaceChildren(...(isFoundOut() ? [h("option", { value: "", text: "by the text" })] : []),
      ...models.map(({ name, source, target }) => h("option", { value: name, text: `${name} (${source} → ${target})` })));
    find("model").closest("label").hidden = models.length < 2;
    if (!models.some(({ name }) => name === state.model)) {
      state.model = "";
    }
    await loadModel(wanted());
    find("status").textContent = "";
    load();
  } catch (error) {
    if (error.status === 401 || error.status === 403) {
      find("status").textContent = "";
      find("workbench").hidden = true;
      problem(error);
      return;
    }
    find("status").textContent = error.status === 503 ? "The model is loading …" : `Not ready: ${error.message}`;
    setTimeout(loadModels, 1000);
  }
}

/** Nothing of the model before is drawn with the shape of this one. */
async function changeModel() {
  giveUpLoads();
  segment = other = plain = null;
  clear();
  try {
    await loadModel(wanted());
    load();
  } catch (error) {
    if (error.name !== "AbortError") {
      dropResult();
      problem(error);
    }
  }
}

/** The model that was chosen; without a choice the one in use, at first the first. */
const wanted = () => models.find(({ name }) => name === state.model) ?? models.find(({ name }) => name === chosen?.name) ?? models[0];

/** Whether models read different languages, so that a text can say which one it is for. */
const isFoundOut = () => new Set(models.map(({ source }) => source)).size > 1;

/** Where no model was chosen, the first one that reads the language of the text is used. False if something newer is asked for. */
async function useModelOfText() {
  if (!isFoundOut() || models.some(({ name }) => name === state.model)) {
    return true;
  }
  const mine = {};
  setLoading(mine);
  try {
    const [{ language }] = (await ask("detect", "/v1/detect", { text: state.text })).detections;
    // What cannot be told is taken for what was there before.
    const next = chosen.source === language ? chosen : models.find(({ source }) => source === language) ?? chosen;
    if (loading === mine && next !== loaded) {
      segment = other = plain = null;
      clear();
      await loadModel(next);
    }
  } catch (error) {
    if (loading === mine && error.name !== "AbortError") {
      setLoading(null);
      dropResult();
      problem(error);
    }
    return false;
  }
  if (loading !== mine) {
    return false;
  }
  setLoading(null);
  return true;
}

/** The other way round: what was written is read. */
function turnBack() {
  const back = models.find(({ source, target }) => source === chosen.target && target === chosen.source);
  const written = find("output").textContent.trim();
  Object.assign(state, { model: back.name, text: written || state.text, forced: "", otherText: "", otherTarget: "", prefix: null,
    segment: 0, layer: null, head: MEAN, query: null, key: null });
  fillForm();
  remember(true);
  changeModel();
}

async function loadModel(next) {
  chosen = next;
  find("model").value = models.some(({ name }) => name === state.model) || !isFoundOut() ? chosen.name : "";
  find("turn").hidden = !models.some(({ source, target }) => source === chosen.target && target === chosen.source);
  loaded = model = null;
  try {
    model = await ask("model", `/v1/models/${encodeURIComponent(chosen.name)}`, null);
  } catch (error) {
    if (error.status !== 404 && error.status !== 403) {
      throw error;
    }
  }
  loaded = next;
  // Without inspection, or with a key that may only translate, the page is a form that translates.
  find("workbench").hidden = !model;
  const names = new Intl.DisplayNames([navigator.language], { type: "language", fallback: "code" });
  find("source-label").textContent = names.of(chosen.source);
  find("target-label").textContent = names.of(chosen.target);
  find("text").lang = chosen.source;
}

// --- what is looked at -----------------------------------------------------------------------------------------------

const depth = (kind) => (kind === "encoder" ? model.num_encoder_layers : model.num_decoder_layers);
const layersHere = (kind) => (segment?.has(kind) ? segment.layerNumbers(kind) : Array.from({ length: depth(kind) }, (_, i) => i));

/** The chosen layer, or a good one: for cross-attention the one whose heads align words best. */
function layer(kind = state.kind) {
  const here = layersHere(kind);
  const last = here.at(-1);
  if (state.layer !== null) {
    return here.includes(state.layer) ? state.layer : last;
  }
  return here.length < depth(kind) ? last : Math.min(last, kind === "cross" ? aligningLayer() ?? last : kind === "encoder" ? 3 : 0);
}

/** The layer with most heads in the alignment recipe; of several the middle one. */
function aligningLayer() {
  const counts = new Map();
  for (const [l] of model.alignment_recipe?.heads ?? []) {
    counts.set(l, (counts.get(l) ?? 0) + 1);
  }
  const most = Math.max(...counts.values());
  const best = [...counts.keys()].filter((l) => counts.get(l) === most).sort((a, b) => a - b);
  return best[Math.floor(best.length / 2)];
}

const headNumber = (kind) => (state.head === MEAN ? (kind === "cross" && model.alignment_recipe?.heads?.find(([l]) => l === layer(kind))?.[1]) || 0 : Math.min(state.head, model.num_heads - 1));
const head = () => (state.head === MEAN || segment?.isMean ? MEAN : Math.min(state.head, model.num_heads - 1));

/** The chosen row as a token of this kind's queries. */
function position(kind = state.kind) {
  const total = kind === "encoder" ? segment.segment.source_tokens.length : segment.segment.rows.length;
  let query = state.query ?? 0;
  if (state.grain === "word" && kind === state.kind) {
    query = segment.words(kind, "query")[query]?.tokens[0] ?? 0;
  }
  return Math.max(0, Math.min(query, total - 1));
}

const sideDepth = () => (state.side === "encoder" ? model.num_encoder_layers : model.num_decoder_layers);
const sideLayer = () => Math.min(state.sideLayer ?? 0, sideDepth() - 1);

/** The token of the side that a station about one side shows: the one picked there, else the one chosen in the threads. */
function place() {
  const isEncoder = state.side === "encoder";
  const total = isEncoder ? segment.segment.source_tokens.length : segment.segment.rows.length;
  const axis = isEncoder ? { encoder: "query", cross: "key" }[state.kind] : { decoder: "query", cross: "query" }[state.kind];
  let found = state.place ?? (axis ? state[axis] : null) ?? 0;
  if (state.place === null && state.grain === "word" && axis) {
    found = segment.words(state.kind, axis)[found]?.tokens[0] ?? 0;
  }
  return Math.max(0, Math.min(found, total - 1));
}

function clampState() {
  if (!segment?.has(state.kind)) {
    return;
  }
  const { queries, keys } = segment.map(state.kind, layer(), head(), state.grain);
  if (state.query !== null && state.query >= queries) { state.query = null; }
  if (state.key !== null && state.key >= keys) { state.key = null; }
}

let lastView = null;

function view() {
  const [l, hd] = [layer(), head()];
  const same = [segment, state.kind, l, hd, state.grain];
  if (lastView && same.every((value, i) => value === lastView.of[i])) {
    return lastView.view;
  }
  lastView = { of: same, view: newView(l, hd) };
  return lastView.view;
}

function newView(l, hd) {
  const map = segment.map(state.kind, l, hd, state.grain);
  const names = (axis) => segment.labels(state.kind, axis, state.grain);
  return { map, queries: names("query"), keys: names("key"), kind: state.kind, layer: l, head: hd, grain: state.grain, answer: segment.answer, segment: segment.segment, source: segment.answer.source, target: segment.answer.target };
}

const headName = (hd) => (hd === MEAN ? "mean of heads" : `head ${hd}`);

// --- drawing ---------------------------------------------------------------------------------------------------------

const threads = new Threads(find("web"), {
  hover: (side, index) => preview(side === null ? null : { side, index }),
  pick: (side, index) => pick(side === "query" ? index : null, side === "key" ? index : null),
});

const mapBox = find("map");
const heatmap = new Heatmap(mapBox, {
  hover: (query, key, isKeyboard) => (isKeyboard ? pickQuietly(query, key) : preview(query === null ? null : { side: "query", index: query, other: key })),
  pick: (query, key) => pick(query, key),
});

const atlas = new Atlas(find("heads"), (l, hd) => set({ layer: l, head: hd }, true));

const panel = new Panel(find("station"), {
  state, baseBody, pinnedBody, position, layer, headNumber, place, sideLayer, sideDepth, set,
  get model() { return model; },
  get segment() { return segment; },
  get isLoading() { return loading !== null; },
  get colors() { return colors; },
  positionsShown: (kind) => Math.min(model.max_positions ?? Infinity, Math.max(64, kind === "encoder" ? segment.segment.source_tokens.length : segment.segment.rows.length)),
  plainTranslation: () => plain?.segment === segment && plain.text,
  go: (number) => go(number),
  choose: (before, id) => set({ prefix: [...before, id], forced: "", query: before.length, key: null, segment: state.segment }, true),
  fail: problem,
  say,
});

function clear() {
  find("workbench").classList.add("empty");
  threads.clear();
  for (const id of ["map", "heads", "row", "compare"]) {
    find(id).replaceChildren();
  }
  atlas.shown = null;
  find("compare").hidden = true;
  find("says").textContent = "";
  find("segments").hidden = true;
  if (model) {
    panel.show();
  }
}

function render() {
  if (!model) {
    return;
  }
  showStations();
  if (!segment?.segment.translated || !segment.has(state.kind)) {
    clear();
    return;
  }
  find("workbench").classList.remove("empty");
  colors ??= theme();
  clampState();
  controls();
  const now = view();
  threads.show(now, colors);
  secondThreads && other?.has(state.kind) && secondThreads.show(viewOf(other), colors);
  drawMap(now);
  drawHeads();
  focus();
  panel.show().then(() => state.station === 1 && comparePlain());
}

const viewOf = (one) => ({
  map: one.map(state.kind, layer(), head(), state.grain), queries: one.labels(state.kind, "query", state.grain), keys: one.labels(state.kind, "key", state.grain),
  kind: state.kind, source: one.answer.source, target: one.answer.target,
});

function drawMap(now) {
  if (!mapBox.contains(heatmap.frame)) {
    mapBox.replaceChildren(
      h("h3", { text: "The map" }), h("p", { class: "caption", id: "map-title" }), h("div", { class: "controls", id: "map-controls" }), heatmap.frame,
      h("div", { id: "map-legend" }), h("p", { class: "honesty", text: document.querySelector(".honesty").textContent }), h("p", { class: "cell", id: "cell" }), h("div", { class: "save", id: "save" }));
    saveButtons();
  }
  const second = state.difference && other?.has(state.kind) ? viewOf(other).map : null;
  const isDifference = second?.queries === now.map.queries && second?.keys === now.map.keys;
  const map = isDifference ? { ...now.map, data: now.map.data.map((value, i) => value - second.data[i]) } : now.map;
  const title = `${KINDS[state.kind].mean}, layer ${now.layer}, ${headName(now.head)}${isDifference ? ", first minus second" : ""}`;
  find("map-title").textContent = `${title}: rows look, columns are looked at`;
  heatmap.show({ map, queries: now.queries, keys: now.keys, scale: state.scale, cmap: state.cmap, isDifference, caption: title }, colors);
  mapControls(Boolean(other?.has(state.kind)), second && !isDifference);
  const ramp = isDifference ? diverging(colors.paper, colors.isDark) : palette(state.cmap, colors.paper, colors.isDark);
  find("map-legend").replaceChildren(legend(ramp, isDifference ? "first minus second" : `weight, ${SCALES[state.scale]}`));
}

function mapControls(canSubtract, isUnequal) {
  const option = (value, text, chosen) => h("option", { value, text, selected: value === chosen });
  find("map-controls").replaceChildren(
    h("label", {}, "Colours ", h("select", { id: "cmap", onchange: (event) => set({ cmap: event.target.value }) }, MAPS.map((name) => option(name, name, state.cmap)))),
    h("label", {}, "Scale ", h("select", { id: "scale", onchange: (event) => set({ scale: event.target.value }) }, Object.entries(SCALES).map(([value, text]) => option(value, text, state.scale)))),
    h("button", { type: "button", class: "plain", id: "as-table", "aria-pressed": String(isTable), text: isTable ? "Show the picture" : "Show as a table", onclick: () => {
      isTable = !isTable;
      heatmap.showAsTable(isTable);
      find("as-table").textContent = isTable ? "Show the picture" : "Show as a table";
      find("as-table").setAttribute("aria-pressed", String(isTable));
    } }),
    canSubtract ? h("label", {}, h("input", { type: "checkbox", checked: state.difference, onchange: (event) => set({ difference: event.target.checked }) }), " first minus second") : "",
    isUnequal ? h("span", { text: "the two maps have different shapes" }) : "");
}

function saveButtons() {
  const button = (text, run) => h("button", { type: "button", class: "plain", text, onclick: () => { run(view()); say(`${text} saved`); } });
  find("save").replaceChildren(h("span", { text: "Save:" }),
    button("Threads SVG", (now) => save.saveThreads(now, threads)), button("Map SVG", (now) => save.saveMapSvg(now, colors, state.cmap, state.scale)),
    button("Map PNG", (now) => save.saveMapPng(now, heatmap)), button("CSV", save.saveCsv), button("JSON", save.saveJson),
    h("button", { type: "button", class: "plain", text: "Copy the link", onclick: async () => {
      try {
        await navigator.clipboard.writeText(location.href);
        say("The link is copied. It holds the text.");
      } catch {
        say("The browser allowed no copying; the link is the address of this page.");
      }
    } }));
}

function drawHeads() {
  const box = find("heads");
  if (!box.querySelector("h3")) {
    box.prepend(h("h3", { text: "All heads" }), h("p", { class: "caption", id: "heads-title" }));
  }
  find("heads-title").textContent = `${KINDS[state.kind].mean}: layers from top to bottom, heads from left to right`;
  atlas.show(segment, state.kind, colors, state.cmap, state.scale);
  atlas.select(layer(), head());
}

function controls() {
  choice(find("kinds"), Object.entries(KINDS).map(([value, { label, says }]) => ({ value, label, title: says, disabled: !segment.has(value) })), state.kind, (kind) => set({ kind }, true));
  find("layer").replaceChildren(...layersHere(state.kind).map((i) => h("option", { value: i, text: String(i), selected: i === layer() })));
  find("head").replaceChildren(h("option", { value: MEAN, text: "mean", selected: head() === MEAN }), ...Array.from({ length: segment.isMean ? 0 : segment.maps[state.kind].heads }, (_, i) => h("option", { value: i, text: String(i), selected: i === head() })));
  choice(find("grains"), [{ value: "token", label: "pieces" }, { value: "word", label: "words" }], state.grain, (grain) => set({ grain, query: null, key: null }));
}

function showSegments(answer) {
  const box = find("segments");
  const parts = answer.segments;
  box.hidden = parts.length < 2;
  const at = segment?.segment.index ?? 0;
  const move = (step) => {
    let next = at + step;
    while (parts[next] && !parts[next].translated) { next += step; }
    return parts[next] ? next : null;
  };
  const go = (to) => set({ segment: to, query: null, key: null }, true);
  box.replaceChildren(
    h("button", { type: "button", disabled: move(-1) === null, text: "‹ before", onclick: () => go(move(-1)) }),
    h("span", { text: `sentence ${at + 1} of ${parts.length}` }),
    h("button", { type: "button", disabled: move(1) === null, text: "next ›", onclick: () => go(move(1)) }));
}

// --- the focus: hover previews, a click keeps --------------------------------------------------------------------------

let waiting = false;

function preview(focusOn) {
  hovered = focusOn && segment?.has(state.kind) ? { ...focusOn, view: view() } : null;
  if (!waiting) {
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      focus(true);
    });
  }
}

function pick(query, key) {
  const isSame = query === state.query && key === state.key;
  hovered = null;
  set(isSame ? { query: null, key: null, place: null } : { query, key, place: null });
  if (!isSame) {
    announce();
  }
}

/** The keyboard moves: what it stands on is kept at once. */
function pickQuietly(query, key) {
  hovered = null;
  state.query = query;
  state.key = key;
  state.place = null;
  remember(false);
  focus();
  announce();
  settleStation();
}

let settling;
function settleStation() {
  clearTimeout(settling);
  settling = setTimeout(() => panel.show(), 250);
}

function current() {
  if (hovered && segment?.has(state.kind) && hovered.view === view()) { // not another map's, which may be larger
    return hovered;
  }
  if (state.query !== null) {
    return { side: "query", index: state.query, other: state.key ?? undefined };
  }
  return state.key !== null ? { side: "key", index: state.key } : null;
}

function focus(isPreview = false) {
  if (!segment?.has(state.kind)) {
    return;
  }
  const on = current();
  const now = view();
  threads.light(on);
  heatmap.select(on?.side === "query" && on.other !== undefined ? { query: on.index, key: on.other } : on?.side === "query" ? { query: on.index, key: best(row(now.map, on.index)) } : null, isPreview);
  drawRow(now, on);
  const says = on ? sentence(now, on) : "";
  find("says").textContent = says || KINDS[state.kind].says + " — touch a word";
  if (find("cell")) {
    find("cell").textContent = on?.side === "query" && on.other !== undefined ? `${says}, exactly ${now.map.data[on.index * now.map.keys + on.other]}` : "";
  }
}

const best = (weights) => weights.indexOf(Math.max(...weights));

/** "predicting ▁plante, layer 5 head 3 looks at ▁plant 62.1 percent, 1 of 13" */
function sentence(now, on) {
  const place = `layer ${now.layer} ${headName(now.head)}`;
  const name = (label) => label.piece || label.text;
  if (on.side === "key") {
    const column = Float32Array.from({ length: now.map.queries }, (_, q) => now.map.data[q * now.map.keys + on.index]);
    const top = best(column);
    return `${name(now.keys[on.index])}, in ${place}, is looked at most by ${name(now.queries[top])}: ${percent(column[top]).replace("%", "percent")}`;
  }
  const weights = row(now.map, on.index);
  const key = on.other ?? best(weights);
  const rank = 1 + weights.reduce((n, w) => n + (w > weights[key] ? 1 : 0), 0);
  const who = now.queries[on.index];
  const subject = state.kind === "cross" ? `predicting ${name(who)}` : who.predicts ? `having read ${name(who)}` : name(who);
  return `${subject}, ${place} looks at ${name(now.keys[key])} ${percent(weights[key]).replace("%", "percent")}, ${rank} of ${weights.length}`;
}

function say(text) {
  find("live").textContent = text;
}

function announce() {
  const on = current();
  if (on && segment) {
    say(sentence(view(), on));
  }
}

let pickerOf = null;

function drawRow(now, on) {
  const box = find("row");
  if (!box.querySelector("h3")) {
    box.replaceChildren(h("h3", { text: "The row" }), h("p", { class: "caption", id: "row-title" }), h("div", { class: "picker", id: "row-picker", role: "group", "aria-label": "Who looks" }), h("div", { id: "row-bars" }), h("button", { type: "button", class: "plain", id: "row-all" }));
    find("row-all").addEventListener("click", () => {
      limit = limit === 8 ? 1000 : 8;
      focus();
    });
  }
  const isColumn = on?.side === "key";
  const index = on?.index ?? 0;
  const weights = isColumn ? Float32Array.from({ length: now.map.queries }, (_, q) => now.map.data[q * now.map.keys + index]) : row(now.map, index);
  const labels = isColumn ? now.queries : now.keys;
  const name = (isColumn ? now.keys : now.queries)[index];
  find("row-title").replaceChildren(isColumn ? "Who looks at " : state.kind === "cross" ? "Writing " : "From ", h("b", { text: name.text }), isColumn ? "" : state.kind === "cross" ? ", it looks at" : name.predicts ? ` (next: ${name.predicts}) it looks at` : " it looks at");
  const picker = find("row-picker");
  if (pickerOf !== now.queries || !picker.firstChild) {
    pickerOf = now.queries;
    picker.replaceChildren(...now.queries.map((label, i) => h("button", { type: "button", text: label.text, onclick: () => pick(i, null) })));
  }
  [...picker.children].forEach((button, i) => button.setAttribute("aria-pressed", String(!isColumn && i === index)));
  find("row-bars").replaceChildren(bars(weights, labels, {
    ramp: palette(state.cmap, colors.paper, colors.isDark), chosen: isColumn ? state.query : on?.other, limit,
    pick: (i) => (isColumn ? pick(i, index) : pick(index, i)),
  }));
  const all = find("row-all");
  all.hidden = labels.length <= 8;
  all.textContent = limit === 8 ? `all ${labels.length}` : "the 8 largest";
}

// --- stations --------------------------------------------------------------------------------------------------------

function go(number, isFocused = false) {
  const station = STATIONS[number - 1];
  set({ station: number, ...(station.kind && station.kind !== state.kind ? { kind: station.kind } : {}) }, true);
  if (isFocused) {
    find(`tab-${number}`).focus();
  }
}

function buildStations() {
  find("tabs").replaceChildren(...STATIONS.map(({ title }, i) => h("button", { type: "button", role: "tab", id: `tab-${i + 1}`, "aria-controls": "station", onclick: () => go(i + 1) },
    h("span", { class: "num", text: String(i + 1) }), h("span", { text: title }))));
  find("station-select").replaceChildren(...STATIONS.map(({ title }, i) => h("option", { value: i + 1, text: `${i + 1} ${title}` })));
  find("station-select").addEventListener("change", (event) => go(Number(event.target.value)));
  find("station-back").addEventListener("click", () => go(Math.max(1, state.station - 1)));
  find("station-on").addEventListener("click", () => go(Math.min(15, state.station + 1)));
  find("tabs").addEventListener("keydown", (event) => {
    const to = { ArrowDown: state.station + 1, ArrowRight: state.station + 1, ArrowUp: state.station - 1, ArrowLeft: state.station - 1, Home: 1, End: 15 }[event.key];
    if (to >= 1 && to <= 15) {
      event.preventDefault();
      go(to, true);
    }
  });
}

function showStations() {
  for (const tab of find("tabs").children) {
    const isChosen = tab.id === `tab-${state.station}`;
    tab.setAttribute("aria-selected", String(isChosen));
    tab.tabIndex = isChosen ? 0 : -1;
  }
  find("station-select").value = state.station;
  find("station-back").disabled = state.station === 1;
  find("station-on").disabled = state.station === 15;
  find("workbench").classList.toggle("attends", Boolean(STATIONS[state.station - 1].attends));
}

// --- keys, dialogs, light and dark -------------------------------------------------------------------------------------

let singleKeys = localStorage.getItem("keys") !== "off";

function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const isTyping = event.target.matches("input:not([type=range], [type=checkbox]), textarea, select") || document.querySelector("dialog[open]");
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    hovered = null;
    if (state.query !== null || state.key !== null) {
      set({ query: null, key: null });
      say("Nothing chosen");
    } else {
      focus();
    }
    return;
  }
  if (isTyping || !segment) {
    return;
  }
  const kinds = Object.keys(KINDS);
  const heads = [MEAN, ...Array(segment.isMean ? 0 : segment.maps[state.kind]?.heads ?? 0).keys()];
  const step = (list, now, by) => list[Math.max(0, Math.min(list.length - 1, list.indexOf(now) + by))];
  const actions = {
    PageUp: () => set({ layer: step(layersHere(state.kind), layer(), -1) }),
    PageDown: () => set({ layer: step(layersHere(state.kind), layer(), 1) }),
  };
  if (singleKeys) {
    Object.assign(actions, {
      "[": () => set({ head: step(heads, head(), -1) }),
      "]": () => set({ head: step(heads, head(), 1) }),
      "<": () => go(Math.max(1, state.station - 1)),
      ">": () => go(Math.min(15, state.station + 1)),
      "/": search,
      w: () => set({ grain: state.grain === "word" ? "token" : "word", query: null, key: null }),
      "?": () => find("help").showModal(),
    });
    kinds.forEach((kind, i) => { actions[String(i + 1)] = () => segment.has(kind) && set({ kind }, true); });
  }
  const run = actions[event.key];
  if (run) {
    event.preventDefault();
    run();
    if (event.key !== "/" && event.key !== "?") {
      say(`${KINDS[state.kind].mean}, layer ${layer()}, ${headName(head())}`);
    }
  }
}

/** Type a word, stand on it. */
function search() {
  const box = find("search") ?? h("input", { type: "search", id: "search", "aria-label": "Go to a word", placeholder: "a word …" });
  find("says").before(box);
  box.value = "";
  box.onkeydown = (event) => {
    if (event.key === "Escape") {
      box.remove();
    } else if (event.key === "Enter") {
      event.preventDefault(); // or it would press the word that gets the focus
      const wanted = box.value.trim().toLowerCase();
      const now = view();
      const at = (labels) => labels.findIndex((label) => wanted && label.text.toLowerCase().startsWith(wanted));
      const [query, key] = [at(now.queries), at(now.keys)];
      if (query < 0 && key < 0) {
        say(`No word begins with ${wanted}`);
        return;
      }
      box.remove();
      pick(query >= 0 ? query : null, query >= 0 ? null : key);
      threads.root.querySelector(".word.chosen")?.focus();
    }
  };
  box.focus();
}

function buildDialogs() {
  const close = (dialog) => h("form", { method: "dialog" }, h("button", { text: "Close", autofocus: true, onclick: () => dialog.close() }));
  const list = (pairs, wrap) => h("dl", {}, pairs.flatMap(([term, meaning]) => [h("dt", {}, wrap(term)), h("dd", { text: meaning })]));
  const help = find("help");
  help.append(h("h2", { id: "help-title", text: "Keyboard" }), list(KEYS, (keys) => h("kbd", { text: keys })),
    h("p", {}, h("label", {}, h("input", { type: "checkbox", checked: singleKeys, onchange: (event) => {
      singleKeys = event.target.checked;
      localStorage.setItem("keys", singleKeys ? "on" : "off");
    } }), " single letters and signs work as keys")), close(help));
  const glossary = find("glossary");
  glossary.classList.add("wide");
  glossary.append(h("h2", { id: "glossary-title", text: "Glossary" }), list(Object.entries(GLOSSARY), (term) => term), close(glossary));
  find("help-open").addEventListener("click", () => help.showModal());
  find("key-forget").addEventListener("click", forgetKey);
  find("glossary-open").addEventListener("click", () => glossary.showModal());
}

function setTheme(name) {
  if (name) {
    document.documentElement.dataset.theme = name;
  } else {
    delete document.documentElement.dataset.theme;
  }
  colors = theme();
  find("theme").textContent = colors.isDark ? "Light" : "Dark";
  find("theme").setAttribute("aria-label", colors.isDark ? "Change to light" : "Change to dark");
  render();
}

find("theme").addEventListener("click", () => {
  const name = theme().isDark ? "light" : "dark";
  localStorage.setItem("theme", name);
  setTheme(name);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(localStorage.getItem("theme")));

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const next = {
    text: find("text").value, forced: find("forced").value.trim(), otherText: find("other-text").value.trim(), otherTarget: find("other-target").value.trim(),
    beam: find("beam").valueAsNumber || 4,
  };
  const isNew = next.text !== state.text || next.forced !== state.forced;
  set({ ...next, ...(isNew ? { prefix: null, segment: 0, query: null, key: null } : {}) }, true);
  if (!isNew && !segment) {
    load();
  }
});
find("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    find("form").requestSubmit();
  }
});
find("model").addEventListener("change", (event) => {
  Object.assign(state, { model: event.target.value, prefix: null, segment: 0, layer: null, head: MEAN, query: null, key: null });
  remember(true);
  changeModel();
});
find("turn").addEventListener("click", turnBack);
find("layer").addEventListener("change", (event) => set({ layer: Number(event.target.value) }, true));
find("head").addEventListener("change", (event) => set({ head: event.target.value === MEAN ? MEAN : Number(event.target.value) }, true));
addEventListener("keydown", onKey);

Object.assign(state, read(location.hash));
fillForm();
buildStations();
buildDialogs();
setTheme(localStorage.getItem("theme"));
loadModels();
