// The same seeds under two settings, side by side.
import { bring, button, count, duration, h } from "./dom.js";
import { copyCommand, progressBar, troubleOf } from "./card.js";
import { attempt, empty, statusLine } from "./create.js";
import { start } from "./jobs.js";
import { merged } from "./again.js";
import { settingsForm } from "./settings.js";
import { app, models } from "./state.js";
import { live, tile } from "./tile.js";
import { picture } from "./api.js";
import { pairDrawing } from "./samples.js";

/** The mean difference of two pictures of one size, in levels of 255; null for others. */
async function difference(a, b) {
  if (a.width !== b.width || a.height !== b.height) return null;
  const pixels = async (image) => {
    const bitmap = await createImageBitmap((await picture(image.url)).blob);
    const canvas = h("canvas", { width: image.width, height: image.height });
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(bitmap, 0, 0);
    return context.getImageData(0, 0, image.width, image.height).data;
  };
  const [x, y] = await Promise.all([pixels(a), pixels(b)]);
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += Math.abs(x[i] - y[i]);
  // Alpha is the same in both and does not count.
  return sum / ((x.length / 4) * 3);
}

// A grid of explicit times has its number of steps, and settings with one name none.
const steps = (settings) => (settings.steps === undefined ? "" : `, ${count(settings.steps, "step")}`);

/** The head of a side: its settings, evaluations and milliseconds. */
function side(letter, job) {
  const { settings } = job.view;
  const bar = progressBar(job);
  const evaluations = h("dd", {}), time = h("dd", {});
  const trouble = h("p", { class: "notice error", role: "alert", hidden: true });
  const el = h("div", { class: "side-head" },
    h("h3", {}, h("span", { class: `letter ${letter.toLowerCase()}` }, letter), ` ${settings.sampler}${steps(settings)}`),
    h("p", { class: "quiet" }, [job.view.model, `grid ${settings.grid}`, settings.guidance !== undefined && settings.guidance !== 1 ? `guidance ${settings.guidance}` : null].filter(Boolean).join(" · ")),
    h("dl", { class: "numbers" }, h("div", {}, h("dt", {}, "evaluations"), evaluations), h("div", {}, h("dt", {}, "time"), time)),
    bar.el, trouble,
    button("Command line", { name: "terminal", kind: "plain small", "aria-label": `Copy ${letter} as command line`, onclick: () => copyCommand(job) }));
  const update = () => {
    evaluations.textContent = String(job.view.evaluations);
    time.textContent = job.view.state === "done" ? duration(job.view.milliseconds.running) : "–";
    trouble.textContent = troubleOf(job) ?? "";
    trouble.hidden = !trouble.textContent;
    bar.update();
  };
  update();
  live(job, el, update);
  return el;
}

/** What B costs against A, in a sentence. */
function verdict(a, b) {
  const [m, n] = [a.view.evaluations, b.view.evaluations];
  const ratio = a.view.milliseconds.running / b.view.milliseconds.running;
  const first = m === n ? "Both take " + count(n, "evaluation") : `B takes ${count(n, "evaluation")} instead of ${m}`;
  // Below a few percent the clock says nothing.
  if (!Number.isFinite(ratio) || Math.abs(ratio - 1) < 0.05) return `${first} and as much time.`;
  const second = ratio > 1 ? `${ratio.toFixed(1)} times as fast` : `${(1 / ratio).toFixed(1)} times as slow`;
  return `${first}${m === n ? "; B is" : " and is"} ${second}.`;
}

export function compareView(root) {
  const able = models("generation");
  const heading = h("div", { class: "panel-head" }, h("h1", { id: "title-compare", tabIndex: -1 }, "Compare"), h("p", { class: "lede" }, "The same seeds under two settings. One side runs after the other, so that the times can be compared."));
  if (!able.length) {
    root.append(heading, empty("Nothing to compare", "No model of this server makes pictures from noise."));
    return { shown() {}, compare() {} };
  }
  const shared = settingsForm(able, app.limits, { fields: ["class", "n", "seed"] });
  const sideFields = { fields: ["model", "sampler", "steps"], advanced: ["grid", "guidance"] };
  const a = settingsForm(able, app.limits, sideFields), b = settingsForm(able, app.limits, sideFields);
  // Half of the steps is the question that is asked most.
  b.set({ ...b.model.defaults, model: b.model.id, steps: Math.max(1, Math.round(b.model.defaults.steps / 2)) });
  a.el.addEventListener("model", () => { if (shared.model.id !== a.model.id) shared.setModel(a.model.id); });
  let base = { a: {}, b: {} };

  const status = statusLine();
  const out = h("div", { class: "comparison" });
  const blank = empty("Two settings, the same noise", "Choose what differs and press Compare. Each row is one seed; evaluations and milliseconds stand above.", pairDrawing());
  const submit = h("button", { type: "submit", class: "primary wide" }, "Compare");
  const swap = button("Swap A and B", { name: "swap", kind: "plain small", onclick: () => {
    const [x, y] = [a.get(), b.get()];
    a.set(y);
    b.set(x);
    base = { a: base.b, b: base.a };
  } });

  function wanted(form, carried) {
    const own = form.get();
    const common = shared.get();
    if (!form.model.classes?.length) delete common.class;
    const fields = { ...common, ...own };
    if (fields.class === "none") delete fields.guidance;
    return { kind: "generation", ...(carried.model === own.model ? merged(carried, fields) : fields) };
  }

  // The side whose job is being started, where a refusal belongs.
  let starting = a;

  async function run(options) {
    starting = a;
    const first = await start(wanted(a, base.a), {}, options);
    const loading = app.models.find((m) => m.id === first.view.model)?.loaded === false;
    out.replaceChildren();
    blank.hidden = true;
    const rows = h("div", { class: "pairs" });
    const headA = side("A", first), slotB = h("div", { class: "side-head" }, h("h3", {}, h("span", { class: "letter b" }, "B"), ` ${b.get().sampler}${steps(b.get())}`), h("p", { class: "quiet" }, "Starts when A is done."));
    const heads = h("div", { class: "pair heads" }, headA, slotB);
    const words = h("p", { class: "verdict", role: "status" });
    out.append(heads, words, rows);
    const pairs = Array.from({ length: first.size }, (_, k) => {
      const left = tile(first, k, { open: app.open, caption: () => "" });
      const right = h("div", { class: "tile waiting" }, h("div", { class: "frame" }));
      const note = h("p", { class: "pair-note quiet" });
      rows.append(h("div", { class: "pair" }, left.el, right, note));
      return { left, right, note };
    });
    bring(out);
    live(first, heads, () => pairs.forEach((pair) => pair.left.update()));
    await first.follow();
    if (first.view.state !== "done") return first;
    starting = b;
    const second = await start(wanted(b, base.b), {}, options);
    slotB.replaceWith(side("B", second));
    for (const [k, pair] of pairs.entries()) {
      const made = tile(second, k, { open: app.open, caption: () => "" });
      pair.right.replaceWith(made.el);
      pair.right = made;
    }
    live(second, heads, () => pairs.forEach((pair) => pair.right.update()));
    await second.follow();
    if (second.view.state !== "done") return second;
    words.textContent = verdict(first, second) + (loading ? " The time of A includes loading the model; compare once more for a fair one." : "");
    for (const m of app.models) if (m.id === first.view.model || m.id === second.view.model) m.loaded = true;
    for (const [k, pair] of pairs.entries()) {
      const x = first.image(k), y = second.image(k);
      const d = x && y ? await difference(x, y).catch(() => null) : null;
      pair.note.textContent = [x && (x.class ?? `number ${x.image}`), d === null ? null : d === 0 ? "identical" : `mean difference ${d.toFixed(1)} of 255`].filter(Boolean).join(" · ");
    }
    return second;
  }

  const panel = h("form", {
    class: "panel three",
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      await attempt(status, run, (error) => shared.complain(error) || starting.complain(error));
      submit.disabled = false;
    },
  }, heading, shared.el,
  h("fieldset", { class: "side" }, h("legend", {}, h("span", { class: "letter a" }, "A"), " First setting"), a.el),
  h("fieldset", { class: "side" }, h("legend", {}, h("span", { class: "letter b" }, "B"), " Second setting"), b.el),
  h("div", { class: "submit" }, status.el, swap, submit));
  root.append(panel, h("div", { class: "results" }, h("h2", { class: "unseen" }, "Side by side"), blank, out));

  return {
    shown() {},
    compare(before, after) {
      base = { a: before, b: after };
      a.set(before);
      b.set(after);
      shared.set(before);
      if (panel.reportValidity()) panel.requestSubmit();
    },
  };
}
