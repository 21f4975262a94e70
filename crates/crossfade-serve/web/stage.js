// Results of tasks: before and after under one slider, maps over their picture.
import { button, h } from "./dom.js";
import { picture } from "./api.js";
import { taskOf } from "./jobs.js";
import { field } from "./settings.js";

/** Two pictures in one frame; the slider moves the line between them. */
export function beforeAfter(before, after, { width, height, words = ["before", "after"] }) {
  const slider = h("input", { type: "range", min: 0, max: 100, step: 1, value: 50, class: "split-range", "aria-label": `Between ${words[0]} and ${words[1]}` });
  const frame = h("div", { class: "split" },
    h("img", { class: "shot", src: after, alt: words[1], draggable: false }),
    h("img", { class: "shot over", src: before, alt: words[0], draggable: false }),
    h("span", { class: "tag left", "aria-hidden": "true" }, words[0]), h("span", { class: "tag right", "aria-hidden": "true" }, words[1]),
    h("div", { class: "line", "aria-hidden": "true" }));
  frame.style.setProperty("--ratio", `${width} / ${height}`);
  const set = () => {
    frame.style.setProperty("--split", `${slider.value}%`);
    slider.style.setProperty("--fill", slider.value / 100);
    slider.setAttribute("aria-valuetext", `${slider.value} percent ${words[0]}`);
  };
  const drag = (event) => {
    const box = frame.getBoundingClientRect();
    slider.value = (100 * (event.clientX - box.left)) / box.width;
    set();
  };
  frame.addEventListener("pointerdown", (event) => { frame.setPointerCapture(event.pointerId); drag(event); });
  frame.addEventListener("pointermove", (event) => { if (frame.hasPointerCapture(event.pointerId)) drag(event); });
  slider.addEventListener("input", set);
  set();
  const el = h("div", { class: "stage-part" }, frame, slider);
  el.style.setProperty("--aspect", width / height);
  return el;
}

const SHOW = { tint: "In colour", map: "As it is", cut: "Cut out" };

/** A map over its picture, with an opacity. */
export function overlay(base, map, { width, height, start = "tint" }) {
  const canvas = h("canvas", { width, height, class: "shot over-all", "aria-hidden": "true" });
  const picture = h("img", { class: "shot", src: base, alt: "the picture under its map", draggable: false });
  const frame = h("div", { class: "overlay" }, picture, canvas);
  frame.style.setProperty("--ratio", `${width} / ${height}`);
  frame.style.setProperty("--aspect", width / height);
  const source = new Image(), under = new Image();

  const how = field("Map", h("select", {}, Object.entries(SHOW).map(([value, text]) => h("option", { value, selected: value === start }, text))));
  const opacity = field("Opacity", h("input", { type: "range", min: 0, max: 100, step: 1, value: 80 }));
  const update = () => {
    canvas.style.opacity = opacity.control.value / 100;
    opacity.control.style.setProperty("--fill", opacity.control.value / 100);
    opacity.control.setAttribute("aria-valuetext", `${opacity.control.value} percent`);
  };
  function draw() {
    if (!source.naturalWidth) return;
    const c = canvas.getContext("2d", { willReadFrequently: true });
    c.clearRect(0, 0, width, height);
    c.drawImage(source, 0, 0, width, height);
    const kind = how.control.value;
    picture.classList.toggle("faded", kind === "cut");
    if (kind === "map") return;
    const data = c.getImageData(0, 0, width, height);
    let colours = null;
    if (kind === "cut" && under.naturalWidth) {
      c.drawImage(under, 0, 0, width, height);
      colours = c.getImageData(0, 0, width, height).data;
    }
    for (let i = 0; i < data.data.length; i += 4) {
      const value = (data.data[i] + data.data[i + 1] + data.data[i + 2]) / 3;
      // A colour that pictures seldom have, so that the map is told from what is under it.
      data.data.set(colours ? [colours[i], colours[i + 1], colours[i + 2], value] : [255, 45, 120, value], i);
    }
    c.putImageData(data, 0, 0);
  }
  source.onload = draw;
  under.onload = draw;
  source.src = map;
  under.src = base;
  how.control.addEventListener("change", draw);
  opacity.control.addEventListener("input", update);
  update();
  return h("div", { class: "stage-part" }, frame, h("div", { class: "row fields" }, how.el, opacity.el));
}

/** The picture `index` of a task with what it was made of. */
export function result(job, index) {
  const image = job.image(index), task = taskOf(job.view);
  const el = h("div", { class: "stage-part loading" }, h("p", { class: "quiet" }, "Loading…"));
  async function load() {
    try {
      const [before, after] = await Promise.all([picture(`v1/jobs/${job.id}/inputs/image`), picture(image.url)]);
      const size = { width: image.width, height: image.height };
      el.classList.remove("loading");
      if (["edge", "saliency", "depth"].includes(task)) {
        // A map may be smaller than its picture, which then gives the frame.
        const bitmap = await createImageBitmap(before.blob);
        el.replaceChildren(overlay(before.url, after.url, { width: bitmap.width, height: bitmap.height, start: task === "depth" ? "map" : "tint" }));
      } else {
        const words = { sr: ["before", "enlarged"], inpaint: ["before", "filled"], vary: ["before", "variation"], sketch: ["sketch", "picture"] }[task];
        el.replaceChildren(beforeAfter(before.url, after.url, { ...size, words: words ?? ["before", "after"] }));
      }
    } catch (error) {
      el.replaceChildren(h("p", { class: "notice error" }, error.message), button("Try again", { onclick: load }));
    }
  }
  load();
  return el;
}
