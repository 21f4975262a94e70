// Elements, icons, messages.

/** An element: properties, `on*` handlers, `class`, `data-*` and `aria-*`; null children are left out. */
export function h(tag, props = {}, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key === "class") el.className = value;
    else if (key in el && !key.includes("-") && key !== "list" && key !== "form" && key !== "role") el[key] = value;
    else el.setAttribute(key, value === true ? "" : value);
  }
  el.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return el;
}

const ICONS = {
  dice: "M4 4h16v16H4zM8.5 8.5h.01M15.5 8.5h.01M12 12h.01M8.5 15.5h.01M15.5 15.5h.01",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  terminal: "M4 5h16v14H4zM7.5 9.5l2.5 2.5-2.5 2.5M12.5 15h4",
  download: "M12 4v11m0 0l-4.5-4.5M12 15l4.5-4.5M4 20h16",
  close: "M6 6l12 12M18 6L6 18",
  play: "M8 5.5v13l10.5-6.5z",
  pause: "M8 5.5v13M16 5.5v13",
  previous: "M14.5 5.5L8 12l6.5 6.5",
  next: "M9.5 5.5L16 12l-6.5 6.5",
  undo: "M8 5L4 9l4 4M4 9h10a5.5 5.5 0 0 1 0 11H9",
  redo: "M16 5l4 4-4 4M20 9H10a5.5 5.5 0 0 0 0 11h5",
  trash: "M5 7h14M10 7V4.5h4V7M7 7l1 13h8l1-13",
  again: "M4 12a8 8 0 0 1 13.7-5.7L20 8.5M20 4v4.5h-4.5M20 12a8 8 0 0 1-13.7 5.7L4 15.5M4 20v-4.5h4.5",
  stop: "M7 7h10v10H7z",
  way: "M4 17c4 0 4-10 8-10s4 10 8 10",
  picture: "M4 5h16v14H4zM4 16l4.5-4.5 4 4 3-3L20 17M15.5 9.5h.01",
  swap: "M7 4v13m0 0l-3-3m3 3l3-3M17 20V7m0 0l-3 3m3-3l3 3",
};

/** A drawing for a button; it says nothing to screen readers. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** A button with an icon and a text; with `bare` the text is for screen readers and the tooltip only. */
export function button(text, { name, bare = false, kind = "", ...props } = {}) {
  const label = bare ? { "aria-label": text, title: text } : {};
  return h("button", { type: "button", class: `${kind}${bare ? " bare" : ""}`.trim(), ...label, ...props }, name && icon(name), bare ? null : h("span", {}, text));
}

let counter = 0;
/** An id that no other element has. */
export const unique = (name) => `${name}-${++counter}`;

let pending = null;
/** Tells screen readers; of messages in quick succession only the last is read. */
export function announce(text) {
  clearTimeout(pending);
  pending = setTimeout(() => { document.getElementById("live").textContent = text; }, 150);
}

/** A message at the edge of the window. */
export function toast(text, kind = "note") {
  const el = h("div", { class: `toast ${kind}`, role: kind === "error" ? "alert" : "status" }, h("span", {}, text));
  el.append(button("Close", { name: "close", bare: true, onclick: () => el.remove() }));
  // A message outside of an open dialog could not be reached.
  (document.querySelector("dialog[open]") ?? document.getElementById("toasts")).append(el);
  setTimeout(() => el.remove(), kind === "error" ? 12000 : 3500);
}

/** Copies a text and says so. */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages that are not on loopback or HTTPS have no clipboard; an old command does the same.
    const area = h("textarea", { value: text, class: "unseen" });
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast(`${what} copied.`);
}

/** Brings what was just made into view, if it is not. */
export function bring(el) {
  const { top } = el.getBoundingClientRect();
  if (top >= 0 && top < innerHeight * 0.6) return;
  el.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

/** Calls `f` at most once a frame. */
export function perFrame(f) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; f(); });
  };
}

export const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".") : "");

/** Milliseconds for people. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60000 ? `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s` : `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

/** When something was, for people; `seconds` since 1970. */
export function ago(seconds) {
  const gone = Date.now() / 1000 - seconds;
  if (gone < 45) return "just now";
  if (gone < 3600) return `${Math.max(1, Math.round(gone / 60))} min ago`;
  if (gone < 86400) return `${Math.round(gone / 3600)} h ago`;
  return new Date(seconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

/** A number with a unit in the right count. */
export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
