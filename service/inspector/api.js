// Talking to the server: JSON, safetensors, problem documents. One request of a kind at a time; the older one is given up.

export class Problem extends Error {
  constructor(problem) {
    super(problem.detail ?? "The server gave no reason.");
    Object.assign(this, problem);
  }
}

const running = new Map();

const KEY = "api-key";

/** The key for a server that asks for one: kept for this tab alone, sent to this server alone. */
export const hasKey = () => sessionStorage.getItem(KEY) !== null;

export function setKey(key) {
  if (key) {
    sessionStorage.setItem(KEY, key);
  } else {
    sessionStorage.removeItem(KEY);
  }
}

/** Headers that show the key, if there is one. A header holds letters of Latin 1; no key has others. */
export function keyHeaders() {
  const key = sessionStorage.getItem(KEY);
  return key !== null && /^[\x21-\x7e]+$/.test(key) ? { "X-API-Key": key } : {};
}

/** Like fetch; a newer call with the same slot aborts this one, which then throws an AbortError. */
export async function ask(slot, path, body, accept = "application/json") {
  running.get(slot)?.abort();
  const controller = new AbortController();
  running.set(slot, controller);
  const headers = { Accept: accept, ...(body ? { "Content-Type": "application/json" } : {}), ...keyHeaders() };
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal: controller.signal });
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    throw new Problem({ status: 0, detail: "The server cannot be reached. Is it running?" });
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Problem({ status: response.status, detail: `The server answered ${response.status}.`, retry: response.headers.get("Retry-After"), ...problem });
  }
  if (accept.includes("safetensors")) {
    return safetensors(await response.arrayBuffer());
  }
  return accept.includes("json") ? response.json() : response.blob();
}

export const giveUp = (...slots) => slots.forEach((slot) => running.get(slot)?.abort());

const TYPES = {
  F32: (buffer, at, n) => new Float32Array(buffer.slice(at, at + 4 * n)),
  U8: (buffer, at, n) => Float32Array.from(new Uint8Array(buffer, at, n), (value) => value / 255),
  F16: (buffer, at, n) => Float32Array.from(new Uint16Array(buffer.slice(at, at + 2 * n)), half),
};

function half(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const size = exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15);
  return bits & 0x8000 ? -size : size;
}

/** The format of huggingface/safetensors: length of the header, header, numbers. {answer, tensors: {name: {shape, data}}} */
export function safetensors(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: offsets }] of Object.entries(header)) {
    if (name !== "__metadata__" && TYPES[dtype]) {
      tensors[name] = { shape, data: TYPES[dtype](buffer, 8 + length + offsets[0], shape.reduce((a, b) => a * b, 1)) };
    }
  }
  return { answer: header.__metadata__?.json ? JSON.parse(header.__metadata__.json) : {}, tensors };
}
