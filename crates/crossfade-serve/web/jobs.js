// Jobs as the page knows them: the server's description, and the way of each picture as far as it was told.
import { announce, count, duration } from "./dom.js";
import { call, follow, getJson, sendJob, write } from "./api.js";
import { app } from "./state.js";

// More estimates than this per picture are thinned out; a slider cannot show them anyway.
const KEPT_STEPS = 120;

const known = new Map();
const listeners = new Set();

export const TASKS = {
  sr: { title: "Enlarge", done: "Enlarged", hint: "More pixels, with the detail the network expects there." },
  inpaint: { title: "Fill", done: "Filled", hint: "Paint over what should go; the network fills the hole." },
  edge: { title: "Edges", done: "Edges", hint: "A map of contours over the picture." },
  saliency: { title: "Saliency", done: "Saliency", hint: "What draws the eye, as a map over the picture." },
  depth: { title: "Depth", done: "Depth", hint: "How far away things are, as a map." },
  sketch: { title: "Sketch", done: "From a sketch", hint: "A picture from a drawing." },
  vary: { title: "Vary", done: "Variations", hint: "Adds noise to the picture and goes back from there." },
};

export class Job {
  constructor(view) {
    this.view = view;
    this.ways = new Map();
    this.reached = new Map();
    this.quarter = 0;
    this.spokenAt = Date.now();
    this.tile = null;
    this.watchers = new Set();
    this.following = null;
    this.wayLoaded = false;
    this.lost = null;
  }

  get id() { return this.view.id; }
  get over() { return ["done", "failed", "cancelled"].includes(this.view.state); }
  get size() { return this.view.progress.images; }

  /** The estimates of picture `index` on its way, in order. */
  way(index) { return this.ways.get(index) ?? []; }
  image(index) { return this.view.images.find((image) => image.index === index); }

  watch(f) {
    this.watchers.add(f);
    return () => this.watchers.delete(f);
  }

  /** Takes an answer, unless events have told more by now: a job that is over does not change. */
  take(view) { if (!this.following && !this.over) this.view = view; }

  changed() { for (const f of this.watchers) f(this); }

  /** Follows the events until the job is over; for one that is over this brings its way, if the server still has it. */
  follow() {
    this.following ??= this.listen().finally(() => { this.following = null; });
    return this.following;
  }

  async listen() {
    const quiet = this.over;
    this.lost = null;
    try {
      await follow(this.id, (event, data) => this.hear(event, data, quiet));
      this.wayLoaded = true;
    } catch (error) {
      this.lost = error.message;
      if (error.status === 404) forget(this);
    }
    this.changed();
  }

  hear(event, data, quiet) {
    const { view } = this;
    if (event === "job" || event === "end") {
      this.view = data;
      if (event === "end" && !quiet) announce(this.spoken());
    } else if (event === "image") {
      if (!this.image(data.index)) {
        view.images = [...view.images, data.image].sort((a, b) => a.index - b.index);
        view.progress.images_done = view.images.length;
        if (!quiet && view.progress.images > 1) announce(`${view.images.length} of ${count(view.progress.images, "picture")} done.`);
      }
    } else if (event === "step") {
      if (!quiet) this.progress(data);
      // The preview of a tile is not one of the picture.
      if (data.tiles > 1) this.ways.delete(data.index);
      else if (data.preview) this.add(data);
    }
    this.changed();
  }

  /** Counts by the place of a step and not by events: a stream first repeats what the description has counted already. */
  progress({ index, step, steps, tile = 0, tiles = 1 }) {
    this.reached.set(index, Math.max(this.reached.get(index) ?? 0, tile * steps + step + 1));
    const { progress } = this.view;
    if (tiles > 1) progress.steps = Math.max(progress.steps, progress.images * steps * tiles);
    const sum = [...this.reached.values()].reduce((a, b) => a + b, 0);
    progress.steps_done = Math.min(progress.steps, Math.max(progress.steps_done, sum));
    this.tile = tiles > 1 ? { tile, tiles } : null;
    // Quarters of what takes long are worth a word; more would be noise.
    const quarter = Math.floor((4 * progress.steps_done) / progress.steps);
    if (quarter > this.quarter && quarter < 4 && Date.now() - this.spokenAt > 2500) {
      this.spokenAt = Date.now();
      announce(`${25 * quarter} percent.`);
    }
    this.quarter = quarter;
  }

  add({ index, step, steps, t, preview, evaluations }) {
    const way = this.ways.get(index) ?? [];
    this.ways.set(index, way);
    const entry = { step, steps, t, preview, evaluations };
    const at = way.findIndex((other) => other.step >= step);
    if (at < 0) {
      const thin = Math.ceil(steps / KEPT_STEPS);
      // The newest is always there, so that the picture forms; the one before it stays if it is on the thinned grid.
      if (thin > 1 && way.length && way.at(-1).step % thin) way.pop();
      way.push(entry);
    } else way.splice(at, way[at].step === step ? 1 : 0, entry);
  }

  spoken() {
    const { view } = this;
    if (view.state === "done") return `Done: ${count(view.images.length, "picture")} in ${duration(view.milliseconds.running)}.`;
    return view.state === "failed" ? `Failed: ${view.error?.message ?? ""}` : "Cancelled.";
  }

  async cancel() {
    const view = await getJson(`v1/jobs/${this.id}/cancel`, { method: "POST" });
    this.take(view);
    this.changed();
  }

  async remove() {
    await call(`v1/jobs/${this.id}`, { method: "DELETE" });
    forget(this);
  }
}

function forget(job) {
  known.delete(job.id);
  for (const listener of listeners) listener("removed", job);
}

/** The job of a description, always the same object for an id. */
export function jobOf(view) {
  const found = known.get(view.id);
  if (!found) {
    const job = new Job(view);
    known.set(view.id, job);
    return job;
  }
  found.take(view);
  return found;
}

/** Tells of jobs that were `added` or `removed`. */
export const onJobs = (listener) => listeners.add(listener);

/** Sends a job and follows it. */
export async function start(fields, pictures, options) {
  const view = await sendJob({ ...fields, previews: true }, pictures, options);
  const job = jobOf(view);
  for (const listener of listeners) listener("added", job);
  announce(`Started: ${title(job)}.`);
  job.follow();
  return job;
}

/** A page of the history. */
export async function list(query) {
  const params = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  const { data, has_more: more } = await getJson(`v1/jobs?${params}`);
  const jobs = data.map(jobOf);
  for (const job of jobs) if (!job.over) job.follow();
  return { jobs, more };
}

export const taskOf = (view) => (view.kind === "variation" ? "vary" : view.kind === "edit" ? "inpaint" : view.task);

/** What a job is called. */
export function title({ view }) {
  const task = taskOf(view);
  if (task) return TASKS[task]?.done ?? task;
  const wanted = view.settings.class;
  const model = app.models.find((m) => m.id === view.model);
  if (model && !model.classes?.length) return view.model;
  const classes = [...new Set(view.images.map((image) => image.class).filter(Boolean))];
  if (wanted && !["random", "all", "none"].includes(String(wanted))) return /^\d+$/.test(wanted) && classes.length === 1 ? classes[0] : String(wanted).split(",").join(", ");
  if (wanted === "all") return "All classes";
  if (wanted === "none") return "Without a class";
  if (classes.length === 1 && view.state === "done") return classes[0];
  if (classes.length > 1 && view.state === "done") return classes.slice(0, 4).join(", ") + (classes.length > 4 ? ` and ${classes.length - 4} more` : "");
  return classes.length || model ? "Random classes" : view.model;
}

/** The settings that are worth a line, as pairs of a name and a value. */
export function facts({ view }) {
  const { settings } = view;
  const rows = [["model", view.model], ["seed", settings.seed]];
  if (settings.first) rows.push(["first", settings.first]);
  rows.push(["sampler", settings.sampler]);
  if (settings.steps !== undefined) rows.push(["steps", settings.steps]);
  rows.push(["grid", settings.grid]);
  if (settings.guidance !== undefined && settings.guidance !== 1) rows.push(["guidance", settings.guidance]);
  if (settings.strength !== undefined) rows.push(["strength", settings.strength]);
  if (settings.threshold !== undefined) rows.push(["threshold", settings.threshold]);
  rows.push(["evaluations", view.evaluations]);
  if (view.milliseconds.running !== null && view.state === "done") rows.push(["time", duration(view.milliseconds.running)]);
  return rows;
}

const quote = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;

/** The request of a job for curl. Of a picture `index` alone it gets the file. The token stays out of the clipboard. */
export function curl({ view }, token, index = null) {
  const settings = { ...view.settings };
  const base = new URL(".", location.href).href.replace(/\/$/, "");
  const auth = token ? ` \\\n  -H "Authorization: Bearer $CROSSFADE_TOKEN"` : "";
  if (view.kind === "generation") {
    if (index !== null) Object.assign(settings, { first: (settings.first ?? 0) + index, n: 1 });
    const one = settings.n === 1;
    const body = write({ ...settings, response_format: one ? "png" : "url" });
    return `curl ${base}/v1/images/generations${auth} \\\n  -H 'Content-Type: application/json' \\\n  -d ${quote(body)}${one ? " -o picture.png" : ""}`;
  }
  const { task, ...rest } = settings;
  const route = { variation: "images/variations", edit: "images/edits" }[view.kind] ?? `tasks/${task ?? view.task}`;
  if (index !== null && view.kind !== "variation") Object.assign(rest, { seed: BigInt(rest.seed) + BigInt(index), n: 1 });
  const one = rest.n === 1;
  const form = Object.entries({ ...rest, response_format: one ? "png" : "url" }).map(([key, value]) => `-F ${quote(`${key}=${value}`)}`);
  for (const name of view.inputs) form.push(`-F ${name}=@${name === "image" ? quote(settings.name ?? "picture.png") : "mask.png"}`);
  return `curl ${base}/v1/${route}${auth} \\\n  ${form.join(" \\\n  ")}${one ? " \\\n  -o result.png" : ""}`;
}

/** The name under which a picture is saved. */
export function fileName({ view }, image) {
  const what = taskOf(view) ?? image.class ?? "picture";
  return [view.model, what, `seed${image.seed}`, String(image.image).padStart(6, "0")].join("-").replace(/[^\w.-]+/g, "_") + ".png";
}
