// Starts the page: asks the server for its models and limits, builds the views, goes from one to another.
import { button, h, toast } from "./dom.js";
import { getJson } from "./api.js";
import { app } from "./state.js";
import { compareView } from "./compare.js";
import { createView } from "./create.js";
import { historyView } from "./history.js";
import { openAgain } from "./again.js";
import { openViewer } from "./viewer.js";
import { tasksView } from "./tasks.js";

const root = document.documentElement;
const main = document.getElementById("main");
const VIEWS = { create: createView, compare: compareView, tasks: tasksView, history: historyView };
const built = {};
let current = null;

/** A preference that is an attribute of the document and outlives a reload. */
function preference(id) {
  const group = document.getElementById(id);
  for (const radio of group.querySelectorAll("input")) {
    radio.checked = radio.value === root.dataset[id];
    radio.addEventListener("change", () => {
      root.dataset[id] = radio.value;
      try { localStorage.setItem(`crossfade-${id}`, radio.value); } catch { /* Then it holds for this visit. */ }
    });
  }
}

function go(focus) {
  const name = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "create";
  if (name === current) return;
  current = name;
  for (const section of document.querySelectorAll(".view")) section.hidden = section.id !== `view-${name}`;
  for (const link of document.querySelectorAll(".tabs a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const title = name[0].toUpperCase() + name.slice(1);
  document.title = `${title} · Crossfade`;
  view(name).shown();
  if (focus) document.getElementById(`title-${name}`)?.focus({ preventScroll: true });
  scrollTo(0, 0);
}

const view = (name) => (built[name] ??= VIEWS[name](document.getElementById(`view-${name}`)));

async function begin() {
  const [server, list] = await Promise.all([getJson("v1/server"), getJson("v1/models")]);
  app.server = server;
  Object.assign(app.limits, server.limits);
  app.models = list.data;
  const store = { sqlite: "SQLite", postgres: "PostgreSQL", postgresql: "PostgreSQL" }[server.store] ?? server.store;
  document.getElementById("server-line").textContent = `Server ${server.version} · store ${store} · ${app.models.length} ${app.models.length === 1 ? "model" : "models"}`;
  app.open = openViewer;
  app.again = openAgain;
  app.compare = (a, b) => { location.hash = "#compare"; go(true); view("compare").compare(a, b); };
  app.work = (blob, name) => { location.hash = "#tasks"; go(true); view("tasks").work(blob, name); };
  addEventListener("hashchange", () => { if (location.hash !== "#main") go(true); });
  go(false);
}

async function boot() {
  main.querySelector(".boot")?.remove();
  main.setAttribute("aria-busy", "true");
  try {
    await begin();
  } catch (error) {
    main.append(h("div", { class: "boot empty", role: "alert" }, h("h1", {}, "The server does not answer as it should"), h("p", {}, error.message), button("Try again", { kind: "primary", onclick: boot })));
  }
  main.removeAttribute("aria-busy");
}

// `theme.js` has none of these where storage is forbidden.
root.dataset.theme ??= "auto";
root.dataset.scaling ??= "pixels";
preference("theme");
preference("scaling");
const menu = document.getElementById("display");
document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
menu.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !menu.open) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});
// A click beside a dialog closes it, except the one that asks for the token.
for (const id of ["viewer", "again"]) {
  const dialog = document.getElementById(id);
  dialog.addEventListener("pointerdown", (event) => {
    const box = dialog.getBoundingClientRect();
    const inside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
    if (event.target === dialog && !inside) dialog.close();
  });
}
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("unhandledrejection", (event) => { if (event.reason?.name === "ApiError" || event.reason?.status !== undefined) toast(event.reason.message, "error"); });
boot();
