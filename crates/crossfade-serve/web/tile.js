// A picture of a job: noise at first, then the estimates as they come, then the file; a slider goes back over them.
import { h, perFrame } from "./dom.js";
import { picture } from "./api.js";

let noise = null;
/** A small picture of noise, which stands for one that has not begun. */
function noiseUrl() {
  if (!noise) {
    const canvas = h("canvas", { width: 24, height: 24 });
    const context = canvas.getContext("2d");
    const data = context.createImageData(24, 24);
    for (let i = 0; i < data.data.length; i += 4) {
      const grey = 128 + 46 * (Math.random() + Math.random() + Math.random() - 1.5);
      data.data.set([grey, grey, grey, 255], i);
    }
    context.putImageData(data, 0, 0);
    noise = canvas.toDataURL();
  }
  return noise;
}

// Pictures of a long history are fetched when they come into view.
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    seen.unobserve(entry.target);
    entry.target.dispatchEvent(new Event("seen"));
  }
}, { rootMargin: "300px" });

/** Words for the picture `index` of a job. */
export function alt(job, index) {
  const image = job.image(index);
  const { settings } = job.view;
  const what = image?.class ?? (job.view.kind === "generation" ? "picture" : job.view.task ?? job.view.kind);
  return `${what}, seed ${image?.seed ?? settings.seed}, number ${image?.image ?? (settings.first ?? 0) + index}`;
}

/** The picture alone: `show(k)` shows estimate k of the way, `show(null)` the newest there is. */
export function pictureView(job, index, { lazy = false } = {}) {
  const img = h("img", { class: "shot", alt: "", src: noiseUrl(), draggable: false });
  let at = null, fetched = null, wanted = !lazy;
  const el = h("div", { class: "frame pending" }, img);

  function render() {
    const way = job.way(index), image = job.image(index);
    img.alt = image ? alt(job, index) : `${alt(job, index)}, not finished`;
    if (image) el.style.setProperty("--ratio", `${image.width} / ${image.height}`);
    const step = at === null || at >= way.length ? null : way[at];
    el.classList.toggle("pending", !image && !way.length && !job.over);
    el.classList.toggle("forming", !image && way.length > 0 && !job.over);
    if (step) img.src = step.preview;
    else if (fetched) img.src = fetched;
    else if (image && wanted) {
      if (way.length) img.src = way.at(-1).preview;
      picture(image.url).then(({ url }) => { fetched = url; render(); }, () => el.classList.add("missing"));
    } else if (way.length) img.src = way.at(-1).preview;
    el.dispatchEvent(new Event("rendered"));
  }

  if (lazy) {
    el.addEventListener("seen", () => { wanted = true; render(); });
    seen.observe(el);
  }
  render();
  return { el, img, render, show(k) { at = k; render(); } };
}

/** A slider over the way of a picture; the last place is the finished file. It hides itself while there is no way. */
export function waySlider(job, index, view, label = `Way of picture ${index + 1}`) {
  const slider = h("input", { type: "range", min: 0, max: 0, value: 0, class: "way", "aria-label": label });
  let pinned = true;

  function ends() {
    const way = job.way(index);
    return way.length - (job.image(index) ? 0 : 1);
  }

  function text() {
    const way = job.way(index), k = slider.valueAsNumber;
    const step = way[k];
    const words = step ? `step ${step.step + 1} of ${step.steps}, t = ${step.t?.toFixed(2) ?? "–"}` : "finished";
    slider.setAttribute("aria-valuetext", words);
    return words;
  }

  function update() {
    const way = job.way(index), end = Math.max(0, ends());
    slider.max = end;
    slider.hidden = way.length < 2 && !(way.length && job.image(index));
    if (pinned) slider.value = end;
    slider.style.setProperty("--fill", end ? slider.valueAsNumber / end : 1);
    text();
  }

  function go(k) {
    slider.value = k;
    pinned = slider.valueAsNumber >= ends();
    view.show(pinned ? null : slider.valueAsNumber);
    slider.style.setProperty("--fill", ends() ? slider.valueAsNumber / ends() : 1);
    text();
    slider.dispatchEvent(new Event("moved"));
  }

  slider.addEventListener("input", () => go(slider.valueAsNumber));
  update();
  return { el: slider, update, go, text, get end() { return Math.max(0, ends()); } };
}

/** A picture in a gallery, with its slider. `open` is called to look at it closely. */
export function tile(job, index, { lazy, open, caption } = {}) {
  const view = pictureView(job, index, { lazy });
  const way = waySlider(job, index, view);
  const words = h("figcaption", { class: "caption" });
  const opener = h("button", { type: "button", class: "opener", onclick: () => open?.(job, index) }, view.el);
  const el = h("figure", { class: "tile" }, opener, way.el, words);
  const update = () => {
    view.render();
    way.update();
    opener.setAttribute("aria-label", `Look at ${alt(job, index)}`);
    const text = caption ? caption(job.image(index)) : job.image(index)?.class ?? "";
    words.textContent = text;
    words.hidden = !text;
  };
  update();
  return { el, update, way };
}

/** Calls `update` with every change of a job until the element has left the page. */
export function live(job, el, update) {
  let shown = false;
  const stop = job.watch(perFrame(() => {
    shown ||= el.isConnected;
    if (shown && !el.isConnected) stop();
    else update();
  }));
}
