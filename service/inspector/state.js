// What is being looked at. All of it lives in the address' fragment, which browsers never send: texts reach no log.

export const SEED = "Ninja moved the plant near the window because it needed more sunlight.";

const DEFAULTS = {
  text: SEED, model: "", beam: 4, forced: "", prefix: null, otherText: "", otherTarget: "",
  segment: 0, station: 1, kind: "cross", layer: null, head: "mean", query: null, key: null,
  side: "encoder", place: null, sideLayer: null, grain: "token", cmap: "cividis", scale: "unit", difference: false,
};

const NAMES = {
  text: "t", model: "m", beam: "b", forced: "y", prefix: "p", otherText: "ot", otherTarget: "oy", segment: "g", station: "s", kind: "k",
  layer: "l", head: "h", query: "q", key: "c", side: "e", place: "i", sideLayer: "el", grain: "w", cmap: "map", scale: "sc", difference: "d",
};

/** Changing one of these asks the server for new maps. */
export const ASKING = ["text", "model", "beam", "forced", "prefix", "segment"];
export const ASKING_OTHER = [...ASKING, "otherText", "otherTarget"];

export const state = { ...DEFAULTS };

const integer = (text) => (/^\d{1,6}$/.test(text) ? Number(text) : null);

const READERS = {
  beam: (text) => Math.min(16, Math.max(1, integer(text) ?? 4)),
  prefix: (text) => (text && /^\d+(\.\d+)*$/.test(text) ? text.split(".").map(Number) : null),
  segment: (text) => integer(text) ?? 0,
  station: (text) => Math.min(15, Math.max(1, integer(text) ?? 1)),
  kind: (text) => (["cross", "encoder", "decoder"].includes(text) ? text : "cross"),
  layer: integer,
  head: (text) => integer(text) ?? "mean",
  query: integer,
  key: integer,
  side: (text) => (text === "decoder" ? "decoder" : "encoder"),
  place: integer,
  sideLayer: integer,
  grain: (text) => (text === "word" ? "word" : "token"),
  cmap: (text) => (["cividis", "viridis", "grey"].includes(text) ? text : "cividis"),
  scale: (text) => (["unit", "row", "gamma"].includes(text) ? text : "unit"),
  difference: (text) => text === "1",
};

export function read(fragment) {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const found = { ...DEFAULTS };
  for (const [name, short] of Object.entries(NAMES)) {
    const text = given.get(short);
    if (text !== null) {
      found[name] = READERS[name] ? READERS[name](text) : text;
    }
  }
  return found;
}

export function write(values) {
  const parts = new URLSearchParams();
  for (const [name, short] of Object.entries(NAMES)) {
    const value = values[name];
    if (value !== null && JSON.stringify(value) !== JSON.stringify(DEFAULTS[name])) {
      parts.set(short, Array.isArray(value) ? value.join(".") : value === true ? "1" : String(value));
    }
  }
  return `#${parts}`;
}
