// Jobs from the server's store, newest first.
import { button, h } from "./dom.js";
import { card } from "./card.js";
import { empty } from "./create.js";
import { list, onJobs } from "./jobs.js";
import { wayDrawing } from "./samples.js";
import { field } from "./settings.js";
import { app } from "./state.js";

const PAGE = 12;
// How often jobs of others are looked for.
const REFRESH = 5000;

export function historyView(root) {
  const select = (label, options) => field(label, h("select", {}, options.map(([value, text]) => h("option", { value }, text))));
  const kind = select("Kind", [["", "All"], ["generation", "Created"], ["task", "Tasks"], ["variation", "Variations"], ["edit", "Edits"]]);
  const state = select("State", [["", "All"], ["done", "Done"], ["running", "Running"], ["queued", "Waiting"], ["failed", "Failed"], ["cancelled", "Cancelled"]]);
  const model = select("Model", [["", "All"], ...app.models.map((m) => [m.id, m.id])]);
  const gallery = h("div", { class: "gallery" });
  const trouble = h("div", { class: "notice error", role: "alert", hidden: true });
  const more = button("Show older", { hidden: true, onclick: () => load(true) });
  const blank = h("div", { hidden: true });
  let last = null, turn = 0, stale = true;

  async function load(further = false) {
    const mine = ++turn;
    const filters = { kind: kind.control.value, state: state.control.value, model: model.control.value };
    more.disabled = true;
    trouble.hidden = true;
    try {
      const { jobs, more: has } = await list({ ...filters, limit: PAGE, before: further ? last : null });
      // A filter may have changed while this was on its way.
      if (mine !== turn) return;
      if (!further) gallery.replaceChildren();
      const focus = further ? gallery.childElementCount : null;
      gallery.append(...jobs.map((job) => card(job)));
      if (focus !== null) gallery.children[focus]?.querySelector("button")?.focus();
      last = jobs.at(-1)?.id ?? last;
      more.hidden = !has;
      stale = false;
      check(Object.values(filters).some(Boolean));
    } catch (error) {
      trouble.replaceChildren(h("span", {}, error.message), button("Try again", { kind: "small", onclick: () => load(further) }));
      trouble.hidden = false;
    } finally {
      more.disabled = false;
    }
  }

  /** Puts jobs that came meanwhile before the others, and tells those that are shown what the server says of them. */
  async function refresh() {
    const mine = turn;
    const filters = { kind: kind.control.value, state: state.control.value, model: model.control.value };
    const { jobs } = await list({ ...filters, limit: PAGE });
    if (mine !== turn) return;
    const first = gallery.firstElementChild;
    for (const job of jobs) {
      if (gallery.querySelector(`[data-job="${job.id}"]`)) job.changed();
      else gallery.insertBefore(card(job), first);
    }
    stale = false;
    check(Object.values(filters).some(Boolean));
  }

  // What fails is tried again; the view says so when it is opened.
  setInterval(() => { if (!root.hidden && !document.hidden && trouble.hidden) refresh().catch(() => {}); }, REFRESH);

  function check(filtered) {
    blank.hidden = gallery.childElementCount > 0;
    blank.replaceChildren(filtered ? empty("No job matches", "Other filters may show more.") : empty("No jobs yet", "What you make is kept in the server’s store and found here, also after a reload.", wayDrawing()));
  }

  for (const part of [kind, state, model]) part.control.addEventListener("change", () => load());
  onJobs((what, job) => {
    if (what === "removed") {
      gallery.querySelector(`[data-job="${job.id}"]`)?.remove();
      if (!gallery.childElementCount) check(false);
    } else stale = true;
  });
  root.append(
    h("div", { class: "panel-head" }, h("h1", { id: "title-history", tabIndex: -1 }, "History"), h("p", { class: "lede" }, keeping())),
    h("div", { class: "row fields filters" }, kind.el, state.el, model.el), trouble, blank, gallery, h("div", { class: "row center" }, more));
  return { shown() { if (stale || !gallery.childElementCount) load(); } };
}

function keeping() {
  const days = (app.limits.keep_seconds ?? 0) / 86400;
  const how = days >= 1 ? ` Results are kept for ${Math.round(days)} ${Math.round(days) === 1 ? "day" : "days"}.` : "";
  const whose = app.server.auth === "none" ? "Everything that was made on this server, by anybody." : "Everything that was made with your token.";
  return `${whose}${how}`;
}
