// The same seed with other settings: a dialog that starts from those of a job.
import { button, h, toast } from "./dom.js";
import { start } from "./jobs.js";
import { settingsForm } from "./settings.js";
import { app, models } from "./state.js";

/** The settings of a job with changes. What belongs to another model is left to that model. */
export function merged(settings, changes) {
  if (changes.model !== undefined && changes.model !== settings.model) {
    const { seed, n, first } = settings;
    return { seed, n, first, ...changes };
  }
  const next = { ...settings, ...changes };
  // Guidance moves away from pictures without a class, which these are.
  if (next.class === "none") delete next.guidance;
  if (next.guidance === undefined || next.guidance === 1) delete next.guidance_interval;
  return next;
}

/** Asks what to change; of the whole job or of its picture `index` alone. */
export function openAgain(job, index = null) {
  const dialog = document.getElementById("again");
  const settings = { ...job.view.settings };
  if (index !== null) Object.assign(settings, { first: (settings.first ?? 0) + index, n: 1 });
  // One picture of a list of classes would get the first of the list; it keeps its own.
  if (index !== null && job.image(index)?.class && settings.class !== "none") settings.class = job.image(index).class;
  const form = settingsForm(models("generation"), app.limits, { fields: ["model", "class", "steps", "sampler", "grid", "guidance"] });
  form.set(settings);
  const trouble = h("p", { class: "notice error", role: "alert", hidden: true });
  const wanted = () => ({ kind: "generation", ...merged(settings, form.get()) });

  const make = h("button", { type: "submit", class: "primary" }, "Make");
  const body = h("form", {
    class: "stack-form",
    onsubmit: async (event) => {
      event.preventDefault();
      trouble.hidden = true;
      make.disabled = true;
      try {
        await start(wanted(), {}, { onwait: (left, text) => { trouble.textContent = `${text} Trying again in ${left} s.`; trouble.hidden = !left; } });
        dialog.close();
        location.hash = "#create";
        toast("Started with the same seed.");
      } catch (error) {
        if (!form.complain(error)) {
          trouble.textContent = error.message;
          trouble.hidden = false;
        }
      } finally {
        make.disabled = false;
      }
    },
  },
  h("header", { class: "sheet-head" }, h("h2", { id: "again-title" }, "Same seed with…"), button("Close", { name: "close", bare: true, kind: "plain", onclick: () => dialog.close() })),
  h("p", { class: "quiet" }, index === null ? `Seed ${settings.seed}, ${settings.n} ${settings.n === 1 ? "picture" : "pictures"}. Change what should be different.` : `Seed ${settings.seed}, picture ${settings.first}. Change what should be different.`),
  form.el, trouble,
  h("div", { class: "row end" },
    button("Compare with before", { onclick: () => {
      if (!body.reportValidity()) return;
      dialog.close();
      app.compare(settings, merged(settings, form.get()));
    } }), make));
  dialog.replaceChildren(body);
  dialog.onclose = () => dialog.replaceChildren();
  dialog.showModal();
}
