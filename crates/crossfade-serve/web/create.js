// Pictures from noise.
import { bring, button, h, toast } from "./dom.js";
import { card } from "./card.js";
import { list, onJobs, start } from "./jobs.js";
import { wayDrawing } from "./samples.js";
import { settingsForm } from "./settings.js";
import { app, models } from "./state.js";

const RECENT = 6;

/** A page or a part of it that has nothing to show yet. */
export function empty(titleText, text, drawing = null) {
  return h("div", { class: "empty" }, drawing, h("h3", {}, titleText), h("p", {}, text));
}

/** Where a form says what it waits for, or what is wrong. */
export function statusLine() {
  const words = h("span", {});
  const stop = button("Stop waiting", { kind: "plain small", hidden: true });
  const el = h("div", { class: "notice", role: "status", hidden: true }, words, stop);
  return {
    el,
    say(text, kind = "", onstop = null) {
      words.textContent = text ?? "";
      el.className = `notice ${kind}`;
      el.hidden = !text;
      stop.hidden = !onstop;
      stop.onclick = onstop;
    },
  };
}

/** Runs `f({ onwait, signal })` with waiting and errors shown on a status line; `complain` may show an error elsewhere. */
export async function attempt(status, f, complain = () => false) {
  const abort = new AbortController();
  status.say(null);
  try {
    const made = await f({
      signal: abort.signal,
      onwait: (left, text) => status.say(left ? `${text} Trying again in ${left} s.` : "Trying again…", "wait", () => abort.abort()),
    });
    status.say(null);
    return made;
  } catch (error) {
    if (abort.signal.aborted) status.say(null);
    else if (complain(error)) status.say(null);
    else status.say(error.message, "error");
    return null;
  }
}

export function createView(root) {
  const able = models("generation");
  const gallery = h("div", { class: "gallery" });
  const status = statusLine();
  const heading = h("div", { class: "panel-head" }, h("h1", { id: "title-create", tabIndex: -1 }, "Create"), h("p", { class: "lede" }, "Pictures from noise. The seed names them: the same settings give the same bytes."));

  if (!able.length) {
    root.append(heading, empty("No model here makes pictures from noise", "Start the server with one, for example: crossfade serve emoji", wayDrawing()));
    return { shown() {} };
  }

  const form = settingsForm(able, app.limits, { fields: ["model", "class", "n", "steps", "seed"], advanced: ["sampler", "grid", "guidance"] });
  const fresh = h("input", { type: "checkbox", checked: true });
  const submit = h("button", { type: "submit", class: "primary wide" }, "Generate");
  const panel = h("form", {
    class: "panel",
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      const made = await attempt(status, (options) => start({ kind: "generation", ...form.get() }, {}, options), form.complain);
      submit.disabled = false;
      if (made) bring(gallery.firstElementChild);
      if (made && fresh.checked) form.newSeed();
    },
  }, heading, form.el, h("label", { class: "check" }, fresh, h("span", {}, "A new seed each time")), status.el, submit);

  const blank = empty("Nothing here yet", "Choose a class and press Generate. The pictures appear here while they form, from noise to the finished file.", wayDrawing());
  const older = h("p", { class: "quiet center" }, h("a", { href: "#history" }, "All jobs are in the history"));
  const right = h("div", { class: "results" }, h("h2", { class: "unseen" }, "Latest pictures"), blank, gallery, older);
  root.append(h("div", { class: "columns" }, panel, right));

  function check() {
    blank.hidden = gallery.childElementCount > 0;
    older.hidden = !blank.hidden;
  }

  onJobs((what, job) => {
    if (what === "added" && job.view.kind === "generation") {
      gallery.prepend(card(job, { lazy: false }));
      // What has moved out of sight is in the history.
      while (gallery.childElementCount > 24) gallery.lastElementChild.remove();
    }
    if (what === "removed") gallery.querySelector(`[data-job="${job.id}"]`)?.remove();
    check();
  });
  check();
  list({ kind: "generation", limit: RECENT }).then(({ jobs }) => {
    const there = new Set([...gallery.children].map((el) => el.dataset.job));
    gallery.append(...jobs.filter((job) => !there.has(job.id)).map((job) => card(job)));
    check();
  }, (error) => toast(error.message, "error"));

  return { shown() {}, fill: (settings) => form.set(settings) };
}
