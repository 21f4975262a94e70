// A job in a gallery: its pictures, its settings, and what can be done with it.
import { ago, announce, button, copy, count, duration, h, sentence, toast } from "./dom.js";
import { hasToken, picture } from "./api.js";
import { curl, facts, fileName, taskOf, title } from "./jobs.js";
import { app } from "./state.js";
import { live, tile } from "./tile.js";

const SHOWN = 8;

/** Saves a picture as the server wrote it, with its recipe. */
export async function download(job, index) {
  const image = job.image(index);
  if (!image) return;
  try {
    const { url } = await picture(image.url);
    h("a", { href: url, download: fileName(job, image) }).click();
  } catch (error) {
    toast(error.message, "error");
  }
}

/** The settings as a line of names and values. */
export function factList(job, rows = facts(job)) {
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value)))));
}

/** How far a job is, in words. */
export function progressText(job) {
  const { view } = job, { progress } = view;
  if (view.state === "queued") return view.position ? `Waiting, ${count(view.position, "job")} before it` : "Waiting";
  if (view.state === "running") {
    const tile = job.tile ? `tile ${job.tile.tile + 1} of ${job.tile.tiles}` : null;
    const pictures = progress.images > 1 ? `${progress.images_done} of ${progress.images} pictures` : null;
    return [pictures, tile, `${progress.steps_done} of ${count(progress.steps, "step")}`].filter(Boolean).join(" · ");
  }
  return { done: `Done in ${duration(view.milliseconds.running)}`, failed: "Failed", cancelled: "Cancelled" }[view.state];
}

/** A bar and words that follow a job; gone when it is done. */
export function progressBar(job) {
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Progress of the job" });
  const words = h("span", { class: "quiet" });
  const stop = button("Cancel", { name: "stop", kind: "plain small", onclick: () => job.cancel().catch((error) => toast(error.message, "error")) });
  const el = h("div", { class: "progress" }, bar, words, stop);
  const update = () => {
    const { state, progress } = job.view;
    el.hidden = job.over;
    if (state === "running" && progress.steps) bar.value = progress.steps_done / progress.steps;
    else bar.value = 0;
    words.textContent = progressText(job);
  };
  update();
  return { el, update };
}

/** What went wrong with a job, as the server says it. */
export function troubleOf(job) {
  const { view } = job;
  if (view.state === "failed") return sentence(view.error?.message ?? "the job failed");
  if (view.state === "cancelled" && !view.images.length) return "Cancelled before a picture was done.";
  return job.over ? null : job.lost;
}

export const copyCommand = (job) => copy(job.view.command, "Command");
export const copyCurl = (job, index = null) => copy(curl(job, hasToken(), index), "Request");

/** The card of a job. `all` shows every picture, else the first few. */
export function card(job, { lazy = true, all = false } = {}) {
  const name = h("h3", {}), when = h("span", { class: "quiet" }), chip = h("span", { class: "chip" });
  const grid = h("div", { class: "tiles" });
  const trouble = h("p", { class: "notice error", role: "alert", hidden: true });
  const bottom = h("div", { class: "card-facts" });
  const bar = progressBar(job);
  let tiles = [], complete = all, state = null, removing = false;

  const more = button("", { kind: "plain small", onclick: () => { complete = true; build(); } });
  const together = h("label", { class: "together", hidden: true }, h("span", {}, "Way of all"));
  const master = h("input", { type: "range", class: "way", min: 0, max: 1, step: 0.01, value: 1, "aria-label": "Way of all pictures" });
  master.addEventListener("input", () => {
    for (const { way } of tiles) way.go(Math.round(way.end * master.valueAsNumber));
    master.style.setProperty("--fill", master.value);
  });
  together.append(master);

  const showWay = button("Show the way", { name: "way", kind: "plain small", onclick: async () => {
    showWay.disabled = true;
    await job.follow();
    showWay.disabled = false;
    if (!job.ways.size) toast("The server keeps the way of its latest jobs only; of this one just the pictures are left.");
    else announce("The way is shown under each picture.");
  } });
  const again = button("Same seed with…", { name: "again", kind: "plain small", onclick: () => app.again(job) });
  const remove = button("Delete", { name: "trash", kind: "plain small", onclick: async () => {
    // Asked twice: there is no way back.
    if (!removing) {
      removing = true;
      remove.classList.add("danger");
      remove.lastChild.textContent = "Delete for good?";
      setTimeout(() => { removing = false; remove.classList.remove("danger"); remove.lastChild.textContent = "Delete"; }, 4000);
      return;
    }
    try {
      await job.remove();
      announce("Deleted.");
    } catch (error) {
      toast(error.message, "error");
    }
  } });
  const actions = h("div", { class: "actions" },
    job.view.kind === "generation" ? again : null, showWay,
    button("Command line", { name: "terminal", kind: "plain small", "aria-label": "Copy as command line", onclick: () => copyCommand(job) }),
    button("curl", { name: "copy", kind: "plain small", "aria-label": "Copy as curl", onclick: () => copyCurl(job) }),
    remove);

  const el = h("article", { class: "card" },
    h("header", { class: "card-head" }, h("div", { class: "card-title" }, name, when), chip),
    bar.el, trouble, grid, more, together, bottom, actions);
  el.dataset.job = job.id;

  function build() {
    const shown = complete ? job.size : Math.min(job.size, SHOWN);
    tiles = Array.from({ length: shown }, (_, index) => tile(job, index, { lazy, open: app.open }));
    grid.replaceChildren(...tiles.map((t) => t.el));
    grid.classList.toggle("few", shown <= 2);
    more.hidden = shown >= job.size;
    more.lastChild.textContent = `Show all ${job.size} pictures`;
  }

  function update() {
    const { view } = job;
    name.textContent = title(job);
    when.textContent = ago(view.created);
    el.dataset.state = view.state;
    chip.textContent = { queued: "waiting", running: "running", done: "done", failed: "failed", cancelled: "cancelled" }[view.state];
    chip.className = `chip ${view.state}`;
    chip.hidden = view.state === "done";
    bar.update();
    for (const t of tiles) t.update();
    trouble.textContent = troubleOf(job) ?? "";
    trouble.hidden = !trouble.textContent;
    trouble.classList.toggle("error", view.state !== "cancelled");
    grid.hidden = job.over && !view.images.length && !job.ways.size;
    together.hidden = job.size < 2 || !job.ways.size || !job.over;
    showWay.hidden = !job.over || job.wayLoaded || job.ways.size > 0 || !view.images.length;
    if (state !== view.state) bottom.replaceChildren(factList(job));
    state = view.state;
    again.disabled = Boolean(taskOf(view));
  }

  build();
  update();
  live(job, el, update);
  return el;
}
