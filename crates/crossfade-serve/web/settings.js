// The form of settings: which fields there are depends on the model.
import { button, h, unique } from "./dom.js";

export const newSeed = () => crypto.getRandomValues(new Uint32Array(1))[0] % 1_000_000_000;

const SELECT_AT_MOST = 60;

/** A labelled control. */
export function field(label, control, { hint, id = unique("field") } = {}) {
  control.id ||= id;
  const hintId = `${control.id}-hint`, errorId = `${control.id}-error`;
  const error = h("p", { class: "field-error", id: errorId, hidden: true });
  control.setAttribute("aria-describedby", [hint && hintId, errorId].filter(Boolean).join(" "));
  const el = h("div", { class: "field" }, h("label", { htmlFor: control.id, class: "label" }, label), control, hint && h("p", { class: "hint", id: hintId }, hint), error);
  const say = (text) => {
    error.textContent = text ?? "";
    error.hidden = !text;
    if (text) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
  };
  control.addEventListener("input", () => say(null));
  return { el, control, say };
}

/** A number with a slider beneath it. The slider is for pointers; the number already answers to arrow keys. */
export function numberField(label, { min, max, soft = max, step = 1, value, hint }) {
  const control = h("input", { type: "number", min, max, step: step < 1 ? "any" : step, value, required: true, inputMode: step < 1 ? "decimal" : "numeric" });
  const made = field(label, control, { hint });
  const slider = h("input", { type: "range", min, max: soft, step, value, tabIndex: -1, "aria-hidden": "true" });
  slider.addEventListener("input", () => { control.value = slider.value; control.dispatchEvent(new Event("input", { bubbles: true })); });
  const fill = () => { slider.value = control.value; slider.style.setProperty("--fill", (slider.value - min) / (soft - min || 1)); };
  control.addEventListener("input", fill);
  fill();
  made.el.classList.add("with-slider");
  made.el.insertBefore(slider, control.nextSibling);
  return { ...made, set(next) { control.value = next; fill(); } };
}

export function fillSelect(select, values, chosen) {
  const options = values.map((value) => (Array.isArray(value) ? value : [value, value]));
  if (chosen !== undefined && !options.some(([value]) => value === chosen)) options.push([chosen, chosen]);
  select.replaceChildren(...options.map(([value, text]) => h("option", { value }, text)));
  if (chosen !== undefined) select.value = chosen;
}

/** What to call a model in a list. */
export const modelLabel = (model) => (model.width ? `${model.id} · ${model.width}×${model.height}` : model.id);

/**
 * The form for `kinds` of fields among model, class, n, steps, sampler, grid, guidance, seed. `advanced` fields are folded away.
 * `get()` gives what a request takes, `set()` takes the settings of a job.
 */
export function settingsForm(models, limits, { fields, advanced = [] }) {
  const parts = {};
  const has = (name) => fields.includes(name) || advanced.includes(name);
  let model = models[0];

  if (has("model")) {
    const select = h("select", {}, models.map((m) => h("option", { value: m.id }, modelLabel(m))));
    parts.model = field("Model", select);
    select.addEventListener("change", () => choose(select.value));
  }
  if (has("class")) {
    const slot = h("div", { class: "slot" });
    parts.class = { el: slot, control: null, say: () => {} };
  }
  if (has("n")) parts.n = numberField("Pictures", { min: 1, max: limits.max_count, soft: Math.min(16, limits.max_count), value: Math.min(4, limits.max_count) });
  if (has("steps")) parts.steps = numberField("Steps", { min: 1, max: limits.max_steps, soft: Math.min(50, limits.max_steps), value: 10 });
  if (has("sampler")) parts.sampler = field("Sampler", h("select"));
  if (has("grid")) parts.grid = field("Time grid", h("select"));
  if (has("guidance")) parts.guidance = numberField("Guidance", { min: 0, max: 100, soft: 5, step: 0.1, value: 1, hint: "1 is without; more follows the class more closely." });
  if (has("seed")) {
    const control = h("input", { type: "number", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, value: newSeed(), required: true, inputMode: "numeric" });
    const made = field("Seed", control);
    const fresh = button("New seed", { name: "dice", bare: true, onclick: () => { control.value = newSeed(); control.dispatchEvent(new Event("input", { bubbles: true })); } });
    const row = h("div", { class: "row tight" });
    control.replaceWith(row);
    row.append(control, fresh);
    parts.seed = { ...made, set(value) { control.value = value; } };
  }

  function classField(value) {
    const { classes } = model;
    if (!classes?.length) {
      parts.class.el.replaceChildren();
      parts.class.control = null;
      return;
    }
    const special = [["random", "Random"], ["all", "All in turn"], ["none", "None"]];
    let made;
    if (classes.length <= SELECT_AT_MOST) {
      const select = h("select");
      fillSelect(select, [...special, ...classes], value);
      made = field("Class", select);
    } else {
      const list = h("datalist", { id: unique("classes") }, [...special.map(([v]) => v), ...classes].map((v) => h("option", { value: v })));
      const input = h("input", { type: "text", value, spellcheck: false, autocomplete: "off" });
      input.setAttribute("list", list.id);
      made = field("Class", input, { hint: `${classes.length} classes; type to search. Several with commas, or random, all, none.` });
      made.el.append(list);
    }
    made.control.addEventListener("input", showGuidance);
    parts.class.el.replaceChildren(made.el);
    parts.class.control = made.control;
    parts.class.say = made.say;
  }

  /** Guidance moves away from pictures without a class: those cannot be guided. */
  const guided = () => model.guidable && parts.class?.control?.value.trim() !== "none";
  function showGuidance() {
    if (parts.guidance) parts.guidance.el.hidden = !guided();
  }

  function choose(id, values = {}) {
    model = models.find((m) => m.id === id) ?? models[0];
    if (!model) return;
    const defaults = { ...model.defaults, ...values };
    if (parts.model) parts.model.control.value = model.id;
    if (parts.class) classField(String(defaults.class ?? "random"));
    parts.steps?.set(defaults.steps);
    if (parts.sampler) fillSelect(parts.sampler.control, model.samplers, defaults.sampler);
    if (parts.grid) fillSelect(parts.grid.control, model.grids, defaults.grid);
    if (parts.guidance) {
      // Settings of a job say what it had; a model's own guidance is for those that say nothing.
      parts.guidance.set(defaults.guidance ?? 1);
      showGuidance();
    }
    el.dispatchEvent(new CustomEvent("model", { detail: model }));
  }

  const pick = (names) => names.filter((name) => parts[name]).map((name) => parts[name].el);
  const folded = advanced.length ? h("details", { class: "fold" }, h("summary", {}, "More settings"), h("div", { class: "fold-body" }, pick(advanced))) : null;
  const el = h("div", { class: "settings" }, pick(fields), folded);
  // A field that is folded away could not be shown as the wrong one.
  el.addEventListener("invalid", (event) => { if (folded?.contains(event.target)) folded.open = true; }, true);
  choose(model?.id);

  return {
    el,
    get model() { return model; },
    setModel: choose,
    get() {
      const value = {};
      if (parts.model) value.model = model.id;
      for (const name of ["n", "steps", "seed"]) if (parts[name]) value[name] = parts[name].control.valueAsNumber;
      for (const name of ["sampler", "grid"]) if (parts[name]) value[name] = parts[name].control.value;
      if (parts.class?.control) value.class = parts.class.control.value.trim() || "random";
      // A grid of explicit times has its number of steps.
      if (value.grid?.startsWith("explicit")) delete value.steps;
      if (parts.guidance && guided()) value.guidance = parts.guidance.control.valueAsNumber;
      return value;
    },
    set(settings) {
      choose(settings.model, settings);
      parts.n?.set(settings.n ?? 1);
      if (settings.seed !== undefined) parts.seed?.set(settings.seed);
    },
    newSeed() { parts.seed.set(newSeed()); },
    /** Shows the server's sentence at the field it is about; false if there is no such field. */
    complain(error) {
      const part = parts[error.param];
      if (!part?.control) return false;
      if (folded && advanced.includes(error.param)) folded.open = true;
      part.say(error.message);
      part.control.focus();
      return true;
    },
  };
}
