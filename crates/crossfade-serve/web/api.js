// Requests to the server: the token, errors as sentences, waiting where the server asks for it, events, pictures.
import { sentence } from "./dom.js";

export class ApiError extends Error {
  constructor(status, message, param = null) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

const KEY = "crossfade-token";
let token = read();
let asking = null;

function read() {
  try { return sessionStorage.getItem(KEY); } catch { return null; }
}

export const hasToken = () => Boolean(token);

/** Asks for the token once, whoever needs it. Resolves to whether one was given. */
function askToken() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token");
    const form = document.getElementById("token-form");
    const value = document.getElementById("token-value");
    if (token) document.getElementById("token-why").textContent = "The server does not know this token. It is a line of the server’s token file.";
    value.value = "";
    let given = false;
    form.onsubmit = () => {
      token = value.value.trim();
      given = true;
      try { sessionStorage.setItem(KEY, token); } catch { /* Then it is asked for again after a reload. */ }
    };
    document.getElementById("token-cancel").onclick = () => dialog.close();
    dialog.onclose = () => { asking = null; resolve(given); };
    dialog.showModal();
  });
  return asking;
}

/** Sleeps; rejects when the signal does. */
export function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

async function refusal(response) {
  const body = await response.json().catch(() => null);
  const message = body?.error?.message ?? `The server answered ${response.status} ${response.statusText}`.trim();
  return new ApiError(response.status, sentence(message), body?.error?.param ?? null);
}

/** Seconds until the server wants to hear of us again; null if it did not say. */
function retryAfter(response) {
  const text = response.headers.get("retry-after");
  if (!text) return null;
  const seconds = /^\d+$/.test(text.trim()) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.min(600, Math.max(1, seconds)) : null;
}

/**
 * A request. After 401 the token is asked for; after 429 or 503 with `Retry-After` it is sent again at that time, `onwait`
 * being told the seconds that are left and the server's sentence.
 */
export async function call(path, { onwait, signal, headers = {}, ...options } = {}) {
  for (let tries = 0; ; tries++) {
    let response;
    const sent = token;
    try {
      const auth = token ? { Authorization: `Bearer ${token}` } : {};
      response = await fetch(path, { ...options, headers: { ...headers, ...auth }, signal, cache: "no-store" });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError(0, "The server cannot be reached. It may have been stopped; try again when it runs.");
    }
    if (response.ok) return response;
    if (response.status === 401) {
      // Another request may have brought a token meanwhile.
      if (token !== sent || (await askToken())) continue;
      throw await refusal(response);
    }
    const seconds = response.status === 429 || response.status === 503 ? retryAfter(response) : null;
    const error = await refusal(response);
    if (seconds === null || tries >= 20) throw error;
    for (let left = Math.ceil(seconds); left > 0; left--) {
      onwait?.(left, error.message);
      await sleep(1000, signal);
    }
    onwait?.(0, error.message);
  }
}

/** JSON of the server. Seeds that a number of JavaScript cannot hold stay texts, and are written as numbers again. */
const parse = (text) => JSON.parse(text.replace(/"seed":\s*(\d{16,})/g, '"seed":"$1"'));
export const write = (value) => JSON.stringify(value).replace(/"seed":"(\d+)"/g, '"seed":$1');

export const getJson = async (path, options) => parse(await (await call(path, options)).text());

/** Sends a job; `pictures` are blobs by the names of their fields. */
export async function sendJob(fields, pictures = {}, options = {}) {
  const names = Object.keys(pictures);
  const body = names.length ? new FormData() : write(fields);
  if (names.length) {
    for (const [key, value] of Object.entries(fields)) body.append(key, Array.isArray(value) ? value.join(",") : String(value));
    for (const name of names) body.append(name, pictures[name], `${name}.png`);
  }
  const headers = names.length ? {} : { "Content-Type": "application/json" };
  return getJson("v1/jobs", { method: "POST", headers, body, ...options });
}

/** Reads server-sent events from a stream: `tell(event, data, id)` for each. */
async function readEvents(stream, tell) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    // A carriage return at the end may be half of a line end; it waits for the next part.
    const blocks = rest.replace(/\r\n/g, "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      let event = "message", id = null;
      const data = [];
      for (const line of block.split("\n")) {
        const colon = line.indexOf(":");
        if (colon <= 0) continue;
        const name = line.slice(0, colon), text = line.slice(colon + 1).replace(/^ /, "");
        if (name === "event") event = text;
        if (name === "id") id = text;
        if (name === "data") data.push(text);
      }
      if (data.length) tell(event, parse(data.join("\n")), id);
    }
  }
}

// A browser opens six connections to a server at most; streams must leave some for pictures.
const STREAMS = 3;
let open = 0;
const waiting = [];

async function enter() {
  if (open >= STREAMS) await new Promise((go) => waiting.push(go));
  else open++;
}

function leave() {
  const next = waiting.shift();
  if (next) next();
  else open--;
}

/** Follows a job until its last event; comes back where it was after an interruption. */
export async function follow(id, tell) {
  await enter();
  try {
    let last = null;
    for (let failures = 0; ; ) {
      let ended = false;
      try {
        const response = await call(`v1/jobs/${id}/events`, { headers: last ? { "Last-Event-ID": last } : {} });
        await readEvents(response.body, (event, data, number) => {
          last = number ?? last;
          failures = 0;
          ended ||= event === "end";
          tell(event, data);
        });
      } catch (error) {
        if (error instanceof ApiError && error.status >= 400 && error.status < 500) throw error;
        if (failures >= 7) throw error instanceof ApiError ? error : new ApiError(0, "The connection to the server was lost.");
      }
      if (ended) return;
      failures++;
      if (failures > 8) throw new ApiError(0, "The connection to the server was lost.");
      await sleep(Math.min(8000, 250 * 2 ** failures));
    }
  } finally {
    leave();
  }
}

const KEPT = 400;
const pictures = new Map();

/** A picture as a blob and an address for it, fetched once. `<img>` alone could not send the token. */
export function picture(path) {
  let found = pictures.get(path);
  if (!found) {
    // Relative to the page: behind a proxy the server may be known under a path, which its addresses begin with.
    found = call(path.slice(path.indexOf("v1/"))).then(async (response) => {
      const blob = await response.blob();
      return { blob, url: URL.createObjectURL(blob) };
    });
    found.catch(() => pictures.delete(path));
    pictures.set(path, found);
    if (pictures.size > KEPT) {
      const [oldest, value] = pictures.entries().next().value;
      pictures.delete(oldest);
      // What still shows it has decoded it by then.
      value.then(({ url }) => setTimeout(() => URL.revokeObjectURL(url), 60000)).catch(() => {});
    }
  }
  return found;
}

const decodeText = (bytes, how) => new TextDecoder(how).decode(bytes);

/** The recipe in a PNG: the text chunk `crossfade`; null without one. */
export async function recipe(blob) {
  const data = new DataView(await blob.arrayBuffer());
  for (let at = 8; at + 8 <= data.byteLength; ) {
    const length = data.getUint32(at);
    const name = decodeText(new Uint8Array(data.buffer, at + 4, 4), "latin1");
    if ((name === "tEXt" || name === "iTXt") && at + 8 + length <= data.byteLength) {
      const body = new Uint8Array(data.buffer, at + 8, length);
      const end = body.indexOf(0);
      if (decodeText(body.subarray(0, end), "latin1") === "crossfade") {
        if (name === "tEXt") return decodeText(body.subarray(end + 1), "latin1");
        // iTXt: a flag for compression, its method, a language, a translated keyword, the text. Ours is not compressed.
        const language = body.indexOf(0, end + 3), keyword = body.indexOf(0, language + 1);
        return body[end + 1] === 0 ? decodeText(body.subarray(keyword + 1), "utf-8") : null;
      }
    }
    if (name === "IEND") return null;
    at += length + 12;
  }
  return null;
}
