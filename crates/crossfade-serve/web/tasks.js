// Tasks on a picture: enlarge, fill, edges, saliency and what else the server has a network for.
import { bring, button, h, toast } from "./dom.js";
import { copyCommand, copyCurl, download, factList, progressBar, troubleOf } from "./card.js";
import { attempt, empty, statusLine } from "./create.js";
import { start, TASKS } from "./jobs.js";
import { maskEditor } from "./mask.js";
import { SAMPLES, sample } from "./samples.js";
import { fillSelect, field, numberField, settingsForm } from "./settings.js";
import { result } from "./stage.js";
import { app, models } from "./state.js";
import { live, pictureView, tile } from "./tile.js";
import { picture } from "./api.js";

const SIDES = [64, 128, 256, 512, 1024, 2048];
// Networks on a CPU take minutes for photographs; who wants that can ask for it.
const USUAL_SIDE = 256;

const modelsFor = (task) => (task === "vary" ? models("variation") : models("task", task));

export function tasksView(root) {
  let original = null, name = "picture.png", file = null, task = null, form = null, strength = null, editor = null, running = null;
  const heading = h("div", { class: "panel-head" }, h("h1", { id: "title-tasks", tabIndex: -1 }, "Tasks"), h("p", { class: "lede" }, "Work on a picture of yours. It goes to this server and nowhere else."));
  const status = statusLine();
  const stage = h("div", { class: "stage" });

  // The picture.
  const chooser = h("input", { type: "file", accept: "image/png,image/jpeg,image/webp,image/*", class: "unseen", tabIndex: -1, "aria-label": "Choose a picture" });
  const thumb = h("div", { class: "thumb" });
  const drop = h("div", { class: "drop" }, thumb, h("div", { class: "drop-text" }, h("p", {}, "Drop a picture here, paste one, or"), button("Choose a file", { kind: "small", onclick: () => chooser.click() })), chooser);
  const samples = h("div", { class: "row tight samples" }, h("span", { class: "quiet" }, "Or a sample:"), SAMPLES.map((label) => h("button", { type: "button", class: "sample", "aria-label": `Sample: ${label}`, title: label, onclick: () => use(sample(label, 256), `${label.toLowerCase()}.png`, null, 128) }, sample(label, 88))));
  const side = field("Longest side that is sent", h("select"));
  chooser.addEventListener("change", () => { if (chooser.files[0]) open(chooser.files[0]); chooser.value = ""; });
  for (const over of ["dragenter", "dragover"]) root.addEventListener(over, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const gone of ["dragleave", "drop"]) root.addEventListener(gone, () => drop.classList.remove("over"));
  root.addEventListener("drop", (event) => { event.preventDefault(); if (event.dataTransfer.files[0]) open(event.dataTransfer.files[0]); });
  document.addEventListener("paste", (event) => {
    const found = [...(event.clipboardData?.files ?? [])].find((f) => f.type.startsWith("image/"));
    if (found && !root.hidden) open(found);
  });

  async function open(blob, as = blob.name ?? "picture.png") {
    try {
      const bitmap = await createImageBitmap(blob);
      const canvas = h("canvas", { width: bitmap.width, height: bitmap.height });
      canvas.getContext("2d").drawImage(bitmap, 0, 0);
      // A JPEG may say that it is to be turned, which only browsers do; PNG and WebP can go as they are.
      use(canvas, as, ["image/png", "image/webp"].includes(blob.type) ? blob : null);
    } catch {
      status.say("This file is not a picture that the browser can read. PNG, JPEG and WebP work.", "error");
    }
  }

  function use(canvas, as, blob, start = null) {
    [original, name, file] = [canvas, as, blob];
    const longest = Math.max(canvas.width, canvas.height);
    const fits = (s) => (canvas.width * canvas.height * s * s) / (longest * longest) <= app.limits.max_pixels;
    const choices = SIDES.filter((s) => s < longest && fits(s)).map((s) => [String(s), `${s} pixels`]);
    if (fits(longest)) choices.push([String(longest), `${longest} pixels (as it is)`]);
    const wanted = String(start && start < longest ? start : longest <= USUAL_SIDE ? longest : USUAL_SIDE);
    fillSelect(side.control, choices, choices.some(([v]) => v === wanted) ? wanted : choices.at(-1)[0]);
    const small = scaled(96);
    small.className = "shot";
    thumb.replaceChildren(small);
    drop.classList.add("filled");
    side.el.hidden = choices.length < 2;
    status.say(null);
    running = null;
    show();
  }

  function scaled(longest) {
    const factor = Math.min(1, longest / Math.max(original.width, original.height));
    const canvas = h("canvas", { width: Math.max(1, Math.round(original.width * factor)), height: Math.max(1, Math.round(original.height * factor)) });
    const c = canvas.getContext("2d");
    c.imageSmoothingQuality = "high";
    c.drawImage(original, 0, 0, canvas.width, canvas.height);
    return canvas;
  }
  side.control.addEventListener("change", () => { running = null; show(); });

  // The task.
  const settings = h("div", {});
  const choice = h("fieldset", { class: "choices" }, h("legend", { class: "label" }, "Task"));
  const hint = h("p", { class: "hint" });
  for (const [key, { title }] of Object.entries(TASKS)) {
    const able = modelsFor(key).length > 0;
    // Of the tasks that no network here does, those that everyone expects are still named.
    if (!able && !["sr", "inpaint", "edge", "saliency"].includes(key)) continue;
    const radio = h("input", { type: "radio", name: "task", value: key, disabled: !able });
    radio.addEventListener("change", () => choose(key));
    choice.append(h("label", { title: able ? "" : `No network for this is served; add one: crossfade serve ${key}=runs/${key}` }, radio, h("span", {}, title)));
  }
  const missing = Object.keys(TASKS).filter((key) => ["sr", "inpaint", "edge", "saliency"].includes(key) && !modelsFor(key).length);

  function choose(key) {
    task = key;
    running = null;
    choice.querySelector(`[value="${key}"]`).checked = true;
    hint.textContent = TASKS[key].hint;
    const vary = key === "vary";
    form = settingsForm(modelsFor(key), app.limits, { fields: vary ? ["model", "class", "n", "steps"] : ["model", "steps"], advanced: vary ? ["sampler", "grid", "guidance", "seed"] : key === "inpaint" || key === "sketch" ? ["n", "sampler", "grid", "seed"] : ["sampler", "grid", "seed"] });
    form.set({ ...form.model.defaults, model: form.model.id, n: vary ? Math.min(4, app.limits.max_count) : 1 });
    strength = vary ? numberField("Strength", { min: 0, max: 1, step: 0.05, value: 0.6, hint: "0 leaves the picture, 1 starts from noise." }) : null;
    settings.replaceChildren(form.el, ...(strength ? [strength.el] : []));
    submit.textContent = { sr: "Enlarge", inpaint: "Fill", edge: "Find edges", saliency: "Find what stands out", vary: "Vary" }[key] ?? "Run";
    show();
  }

  // The stage.
  function show() {
    editor = null;
    submit.disabled = !original || !form;
    if (!original) {
      stage.replaceChildren(empty("No picture yet", "Drop one anywhere on this view, paste it, choose a file, or take one of the samples.", h("div", { class: "drawing", "aria-hidden": "true" }, SAMPLES.map((label) => { const c = sample(label, 96); c.className = ""; return c; }))));
      return;
    }
    const canvas = scaled(Number(side.control.value));
    if (task === "inpaint") {
      editor = maskEditor(canvas);
      editor.el.addEventListener("painted", () => status.say(null));
      stage.replaceChildren(h("p", { class: "stage-hint" }, "Paint over what the network should fill."), editor.el);
    } else {
      canvas.className = "shot";
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${name}, ${canvas.width} by ${canvas.height} pixels`);
      const frame = h("div", { class: "overlay" }, canvas);
      frame.style.setProperty("--ratio", `${canvas.width} / ${canvas.height}`);
      frame.style.setProperty("--aspect", canvas.width / canvas.height);
      stage.replaceChildren(h("div", { class: "stage-part" }, frame, h("p", { class: "quiet" }, `${name} · ${canvas.width}×${canvas.height}`)));
    }
  }

  function showJob(job) {
    const bar = progressBar(job), trouble = h("p", { class: "notice error", role: "alert", hidden: true });
    const place = h("div", {}), tools = h("div", { class: "actions" }), strip = h("div", { class: "tiles strip" });
    const forming = pictureView(job, 0);
    forming.el.classList.add("large");
    const body = h("div", {}, bar.el, trouble, place, strip, tools);
    place.append(forming.el);
    // The editor stays as it was, for another try with the same mask.
    const before = [...stage.childNodes];
    stage.replaceChildren(body);
    bring(stage);
    let finished = false;
    const back = button(task === "inpaint" ? "Paint again" : "Back to the picture", { name: "undo", kind: "plain small", onclick: () => { running = null; stage.replaceChildren(...before); } });

    function pick(k) {
      place.replaceChildren(result(job, k));
      tools.replaceChildren(
        button("Download PNG", { name: "download", kind: "primary small", onclick: () => download(job, k) }),
        button("Use the result", { name: "picture", kind: "plain small", onclick: () => picture(job.image(k).url).then(({ blob }) => open(blob, `result-${name}`), (error) => toast(error.message, "error")) }),
        back,
        button("Command line", { name: "terminal", kind: "plain small", "aria-label": "Copy as command line", onclick: () => copyCommand(job) }),
        button("curl", { name: "copy", kind: "plain small", "aria-label": "Copy as curl", onclick: () => copyCurl(job, k) }),
        factList(job));
    }

    function update() {
      if (running !== job) return;
      bar.update();
      forming.render();
      trouble.textContent = troubleOf(job) ?? "";
      trouble.hidden = !trouble.textContent;
      if (!job.over || finished) return;
      finished = true;
      if (!job.view.images.length) {
        place.replaceChildren();
        tools.replaceChildren(back);
        return;
      }
      pick(0);
      if (job.size > 1) strip.replaceChildren(...job.view.images.map((image) => tile(job, image.index, { open: (_, k) => pick(k) }).el));
    }
    update();
    live(job, body, update);
  }

  async function run(options) {
    const whole = Number(side.control.value) >= Math.max(original.width, original.height);
    const canvas = scaled(Number(side.control.value));
    const asIs = whole && file;
    const image = asIs ? file : await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    const pictures = { image };
    const fields = { ...(task === "vary" ? { kind: "variation", strength: strength.control.valueAsNumber, fit: "crop" } : { kind: "task", task }), ...form.get() };
    fields.name = (asIs ? name : name.replace(/\.[^.]*$/, "") + ".png").slice(-200);
    if (editor) pictures.mask = await editor.blob();
    const job = await start(fields, pictures, options);
    running = job;
    showJob(job);
    return job;
  }

  const submit = h("button", { type: "submit", class: "primary wide" }, "Run");
  const panel = h("form", {
    class: "panel",
    onsubmit: async (event) => {
      event.preventDefault();
      if (!original) return status.say("Choose a picture first.", "error");
      // After a result the editor is off the stage; its mask is still the one to fill.
      if (task === "inpaint" && editor.empty) return status.say("The mask is empty: paint over what should be filled, or add a rectangle by numbers.", "error");
      submit.disabled = true;
      await attempt(status, run, form.complain);
      submit.disabled = false;
      return undefined;
    },
  }, heading, h("div", { class: "field" }, h("span", { class: "label" }, "Picture"), drop, samples), side.el, choice, hint,
  missing.length ? h("p", { class: "hint" }, `No network for ${missing.map((key) => TASKS[key].title.toLowerCase()).join(", ")} is served. Add one at the start: crossfade serve ${missing[0]}=runs/${missing[0]}`) : null,
  settings, status.el, submit);
  side.el.hidden = true;
  root.append(h("div", { class: "columns" }, panel, h("div", { class: "results" }, h("h2", { class: "unseen" }, "Picture"), stage)));
  const first = Object.keys(TASKS).find((key) => modelsFor(key).length);
  if (first) choose(first);
  else show();

  return { shown() {}, work: (blob, as) => open(blob, as) };
}
