// A stand-in for `crossfade serve` with made-up pictures: the routes of docs/SERVING.md, to develop and test the page without a network.
//
//   node mock.mjs [PORT]      MOCK_TOKEN=… asks for a token, MOCK_PACE=40 milliseconds a step
import crypto from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { decode, encode, face, resize, task as doTask } from "./pictures.mjs";

const WEB = path.join(path.dirname(fileURLToPath(import.meta.url)), "..", "web");
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };
const LIMITS = { max_body: 33554432, max_pixels: 4194304, max_count: 64, max_steps: 1000, max_queue: 256, max_queue_per_client: 64, requests_per_minute: 600, keep_seconds: 604800, keep_bytes: 1073741824, wait_seconds: 600 };
const SAMPLERS = ["alg2", "first-order", "ab2", "data-2m", "pc", "alg2-second", "midpoint"];
const GRIDS = ["reference", "uniform-t", "images", "karras", "power"];

const model = (id, more) => ({
  id, object: "model", created: 1795000000, owned_by: "crossfade", digest: `crc32:${crypto.createHash("md5").update(id).digest("hex").slice(0, 8)}`,
  task: "generate", kinds: ["generation", "variation"], tasks: [], process: "adm", width: 64, height: 64, channels: 3, scale: 1, classes: [],
  guidable: false, parameters: 5312000, loaded: true, samplers: SAMPLERS, grids: GRIDS,
  defaults: { sampler: "ab2", steps: 10, grid: "reference", class: "random", guidance: 1.0 }, ...more,
});
const map = (id, name, more) => model(id, { task: name, kinds: name === "inpaint" ? ["task", "edit"] : ["task"], tasks: [name], width: null, height: null, loaded: false, defaults: { sampler: "ab2", steps: 5, grid: "reference", class: "none", guidance: 1.0 }, ...more });
const MODELS = [
  model("emoji", { classes: ["bear", "cat", "cow", "dog", "fox", "frog", "koala", "lion", "monkey", "mouse", "panda", "pig", "rabbit", "tiger", "wolf"], guidable: true }),
  model("cifar10", { classes: ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"], guidable: true, width: 32, height: 32, parameters: 1400000, loaded: false }),
  model("things", { classes: Array.from({ length: 100 }, (_, k) => `thing ${k}`), guidable: true }),
  model("faces", { parameters: 12500000, loaded: false }),
  map("enlarge", "sr", { scale: 4 }), map("fill", "inpaint"), map("edges", "edge"), map("salient", "saliency"),
];

const jobs = new Map();
const busy = new Set();

class Refusal extends Error {
  constructor(status, message, param = null, code = null, headers = {}) {
    super(message);
    Object.assign(this, { status, param, code, headers });
  }
}

function readBody(request) {
  return new Promise((resolve, reject) => {
    const parts = [];
    let size = 0;
    request.on("data", (part) => {
      size += part.length;
      if (size <= LIMITS.max_body) parts.push(part);
    });
    request.on("end", () => (size > LIMITS.max_body ? reject(new Refusal(413, `the body has ${size} bytes; at most ${LIMITS.max_body} are read`)) : resolve(Buffer.concat(parts))));
    request.on("error", reject);
  });
}

async function fieldsOf(request) {
  const body = await readBody(request);
  const type = request.headers["content-type"] ?? "";
  if (type.startsWith("multipart/form-data")) {
    const form = await new Response(body, { headers: { "content-type": type } }).formData();
    const fields = {};
    for (const [key, value] of form)
      fields[key] = typeof value === "string" ? (/^-?[\d.]+$/.test(value) ? Number(value) : value === "true" ? true : value === "false" ? false : value) : Buffer.from(await value.arrayBuffer());
    return fields;
  }
  if (!type.startsWith("application/json")) throw new Refusal(415, "the body must be application/json or multipart/form-data");
  try {
    const fields = JSON.parse(body.toString());
    for (const key of ["image", "mask"]) if (fields[key]) fields[key] = Buffer.from(fields[key].replace(/^data:[^,]*,/, ""), "base64");
    return fields;
  } catch {
    throw new Refusal(400, "the body is not JSON");
  }
}

const KNOWN = new Set("prompt model n seed steps sampler grid rho eta churn blend clip free_first_step class guidance guidance_interval first image mask strength fit task tile overlap flip_test threshold name response_format async previews user kind".split(" "));

function create(fields) {
  const kind = fields.kind;
  for (const key of Object.keys(fields)) if (!KNOWN.has(key)) throw new Refusal(422, `there is no field \`${key}\``, key);
  const fits = (m) => m.kinds.includes(kind) && (kind !== "task" || m.tasks.includes(fields.task));
  const chosen = fields.model ? MODELS.find((m) => m.id === fields.model) : MODELS.find(fits);
  if (!chosen) throw new Refusal(404, `no model is called \`${fields.model}\``, "model");
  if (!fits(chosen)) throw new Refusal(422, `\`${chosen.id}\` does not do this`, "model");
  const n = fields.n ?? 1;
  if (!(n >= 1 && n <= LIMITS.max_count)) throw new Refusal(422, `n is ${n}; it must be from 1 to ${LIMITS.max_count}`, "n");
  const steps = fields.steps ?? chosen.defaults.steps;
  if (!(steps >= 1 && steps <= LIMITS.max_steps)) throw new Refusal(422, `steps is ${steps}; it must be from 1 to ${LIMITS.max_steps}`, "steps");
  const wanted = String(fields.class ?? "random");
  if (chosen.classes.length && !["random", "all", "none"].includes(wanted) && !wanted.split(",").every((c) => chosen.classes.includes(c.trim())))
    throw new Refusal(422, `no class is called \`${wanted}\`; the classes are ${chosen.classes.join(", ")}`, "class", "unknown_class");
  // Two seeds stand for what cannot be made to happen otherwise.
  if (fields.seed === 429 && !busy.delete("429")) {
    busy.add("429");
    throw new Refusal(429, "the queue is full: 256 jobs wait", null, "queue_full", { "retry-after": "2" });
  }
  const seed = fields.seed ?? crypto.randomInt(1e9);
  const settings = { model: chosen.id, seed, n, sampler: fields.sampler ?? chosen.defaults.sampler, steps, grid: fields.grid ?? "reference", clip: 1.0 };
  if (kind === "generation") settings.first = fields.first ?? 0;
  if (kind === "generation" || kind === "variation") Object.assign(settings, { class: wanted, guidance: fields.guidance ?? 1 });
  if (kind === "variation") settings.strength = fields.strength ?? 0.6;
  if (kind === "task") settings.task = fields.task;
  if (kind !== "generation") settings.name = fields.name ?? "picture.png";
  const inputs = {};
  for (const name of ["image", "mask"]) if (fields[name]) inputs[name] = { file: fields[name], picture: decode(fields[name]) };
  if (kind !== "generation" && !inputs.image) throw new Refusal(422, "a picture is needed", "image");
  if (fields.task === "inpaint" && !inputs.mask) throw new Refusal(422, "`inpaint` needs a mask", "mask");
  const command = kind === "generation" ? `crossfade sample runs/${chosen.id} --count ${n}${settings.first ? ` --first ${settings.first}` : ""} --steps ${steps} --sampler ${settings.sampler} --seed ${seed} --grid ${settings.grid}${wanted !== "random" ? ` --class ${wanted}` : ""} --out pictures` : `crossfade ${fields.task ?? "edit"} ${settings.name} out.png --checkpoint runs/${chosen.id} --steps ${steps} --seed ${seed}`;
  const job = {
    view: {
      id: `job_${crypto.randomBytes(8).toString("hex")}`, object: "job", kind, task: fields.task ?? null, state: "queued", model: chosen.id, digest: chosen.digest, user: null,
      created: Date.now() / 1000, started: null, finished: null, expires: null, settings,
      evaluations: ["midpoint"].includes(settings.sampler) ? 2 * steps : steps, position: 0,
      progress: { steps: n * steps, steps_done: 0, images: n, images_done: 0 }, images: [], inputs: Object.keys(inputs), command, milliseconds: { waiting: 0, running: null }, error: null,
    },
    model: chosen, inputs, files: [], events: [], followers: new Set(), cancelled: false, previews: fields.previews !== false,
  };
  jobs.set(job.view.id, job);
  tell(job, "job", job.view);
  return job;
}

function tell(job, event, data) {
  const text = `event: ${event}\nid: mock-${job.events.length}\ndata: ${JSON.stringify(data)}\n\n`;
  job.events.push(text);
  for (const follower of job.followers) follower.write(text);
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function run(job, pace) {
  await pause(pace);
  const { view } = job, { settings } = view, { n, steps } = settings;
  Object.assign(view, { state: "running", started: Date.now() / 1000, position: null });
  tell(job, "job", view);
  job.model.loaded = true;
  const size = job.model.width ?? 64;
  const final = [];
  for (let k = 0; k < n; k++) {
    const seed = settings.seed * 64 + (settings.first ?? 0) + k;
    const names = settings.class === "random" || settings.class === "all" ? job.model.classes : String(settings.class ?? "").split(",");
    const name = job.model.classes.length ? names[(settings.class === "random" ? seed * 7 : k) % names.length] : null;
    const kind = job.model.classes.indexOf(name) + 1;
    // Fewer steps leave a softer picture, so that comparisons show something.
    final.push(view.kind === "generation" || view.kind === "variation"
      ? { name, at: (d) => face(size, seed, kind, d * Math.min(1, 0.75 + steps / 60)) }
      : { name: null, result: doTask(view.task ?? "inpaint", job.inputs.image.picture, job.inputs.mask?.picture, job.model.scale) });
  }
  // Larger pictures of tasks are done in tiles, whose number is known after the first, as in the server.
  const tiles = view.kind === "task" && Math.max(job.inputs.image.picture.width, job.inputs.image.picture.height) > 96 ? 4 : 1;
  for (let all = 0; all < steps * tiles; all++) {
    const step = all % steps, tile = Math.floor(all / steps);
    const about = view.kind === "task" ? { tile, tiles: tile ? tiles : 1 } : {};
    await pause(pace);
    if (job.cancelled) return end(job, "cancelled");
    if (settings.seed === 500 && step === 2) return end(job, "failed", "the network gave numbers that are not finite at t = 0.31");
    for (let k = 0; k < n; k++) {
      const detail = (step + 1) / steps;
      const small = final[k].at ? final[k].at(0.15 + 0.8 * detail) : shrink(final[k].result);
      view.progress.steps_done++;
      tell(job, "step", { index: k, step, steps, t: 1 - detail, evaluations: step + 1, preview: job.previews ? `data:image/png;base64,${encode(small).toString("base64")}` : null, ...about });
    }
  }
  for (let k = 0; k < n; k++) {
    const picture = final[k].at ? final[k].at(1) : final[k].result;
    const file = encode(picture, { settings, image: (settings.first ?? 0) + k, digest: view.digest });
    job.files.push(file);
    const image = { index: k, image: (settings.first ?? 0) + k, seed: settings.seed, class: final[k].name, width: picture.width, height: picture.height, bytes: file.length, sha256: crypto.createHash("sha256").update(file).digest("hex"), url: `/v1/jobs/${view.id}/images/${k}` };
    view.images.push(image);
    view.progress.images_done++;
    tell(job, "image", { index: k, image });
  }
  end(job, "done");
}

function shrink(picture) {
  const factor = Math.min(1, 96 / Math.max(picture.width, picture.height));
  return resize(picture, Math.max(1, Math.round(picture.width * factor)), Math.max(1, Math.round(picture.height * factor)));
}

function end(job, state, message) {
  const now = Date.now() / 1000, { view } = job;
  Object.assign(view, { state, finished: now, expires: now + LIMITS.keep_seconds, error: message ? { message } : null });
  view.milliseconds = { waiting: 1000 * (view.started - view.created), running: 1000 * (now - view.started) };
  tell(job, "end", view);
  for (const follower of job.followers) follower.end();
  job.followers.clear();
}

function find(id) {
  const job = jobs.get(id);
  if (!job) throw new Refusal(404, `there is no job \`${id}\``);
  return job;
}

async function answer(request, response, { token, pace }) {
  const url = new URL(request.url, "http://mock");
  const json = (status, body, headers = {}) => response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
  const file = (type, body) => response.writeHead(200, { "content-type": type, "cache-control": "no-cache", "content-security-policy": CSP }).end(body);
  const parts = url.pathname.split("/").filter(Boolean);
  if (url.pathname === "/") return file(TYPES.html, fs.readFileSync(path.join(WEB, "index.html")));
  if (parts[0] === "assets" && parts.length === 2) {
    const name = path.join(WEB, path.basename(parts[1]));
    if (!fs.existsSync(name)) throw new Refusal(404, "no such route");
    return file(TYPES[name.split(".").pop()] ?? "application/octet-stream", fs.readFileSync(name));
  }
  if (parts[0] !== "v1") throw new Refusal(404, "no such route");
  if (token && request.headers.authorization !== `Bearer ${token}`) throw new Refusal(401, "a token is needed: send `Authorization: Bearer TOKEN`", null, "unauthorized");
  const [, what, id, more, which] = parts;
  const { method } = request;
  if (what === "server") return json(200, { version: "0.1.0", auth: token ? "token" : "none", store: "sqlite", draining: false, limits: LIMITS });
  if (what === "models") return json(200, id ? MODELS.find((m) => m.id === id) : { object: "list", data: MODELS });
  if (what !== "jobs") throw new Refusal(404, "this route is not in the mock");
  if (!id && method === "POST") {
    const job = create(await fieldsOf(request));
    run(job, pace).catch((error) => end(job, "failed", error.message));
    return json(202, job.view, { "crossfade-job": job.view.id });
  }
  if (!id) {
    const q = url.searchParams;
    let list = [...jobs.values()].map((job) => job.view).reverse().filter((v) => ["state", "kind", "model"].every((key) => !q.get(key) || v[key] === q.get(key)));
    if (q.get("before")) list = list.slice(list.findIndex((v) => v.id === q.get("before")) + 1);
    const limit = Number(q.get("limit") ?? 20);
    return json(200, { object: "list", data: list.slice(0, limit), has_more: list.length > limit });
  }
  const job = find(id);
  if (more === "cancel" && method === "POST") {
    job.cancelled = true;
    return json(200, job.view);
  }
  if (!more && method === "DELETE") {
    job.cancelled = true;
    jobs.delete(id);
    return response.writeHead(204).end();
  }
  if (!more) return json(200, job.view);
  if (more === "images") {
    if (!job.files[which]) throw new Refusal(404, "this picture is not done");
    return file("image/png", job.files[which]);
  }
  if (more === "inputs") {
    if (!job.inputs[which]) throw new Refusal(404, "nothing of this name was sent");
    return file("image/png", job.inputs[which].file);
  }
  if (more === "events") {
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
    const last = /^mock-(\d+)$/.exec(request.headers["last-event-id"] ?? "");
    for (const text of job.events.slice(last ? Number(last[1]) + 1 : 0)) response.write(text);
    if (["done", "failed", "cancelled"].includes(job.view.state)) return response.end();
    job.followers.add(response);
    request.on("close", () => job.followers.delete(response));
    return undefined;
  }
  throw new Refusal(404, "no such route");
}

/** Starts a server; resolves to its address and a function that stops it. */
export function start({ port = 0, token = null, pace = 40 } = {}) {
  const server = http.createServer((request, response) => {
    answer(request, response, { token, pace }).catch((error) => {
      const status = error.status ?? 500;
      const body = { error: { message: error.message, type: status < 500 ? "invalid_request_error" : "server_error", param: error.param ?? null, code: error.code ?? null } };
      if (!response.headersSent) response.writeHead(status, { "content-type": "application/json", ...error.headers });
      response.end(JSON.stringify(body));
    });
  });
  return new Promise((resolve) => {
    server.listen(port, "127.0.0.1", () => resolve({ url: `http://127.0.0.1:${server.address().port}`, stop: () => { server.closeAllConnections(); server.close(); } }));
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await start({ port: Number(process.argv[2] ?? 7861), token: process.env.MOCK_TOKEN, pace: Number(process.env.MOCK_PACE ?? 40) });
  console.log(url);
}
