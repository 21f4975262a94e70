// Painting a mask over a picture: brush, eraser, rectangles by numbers, undo.
import { announce, button, count, h } from "./dom.js";
import { field } from "./settings.js";

const PAINT = "rgb(255 45 120)";

/** An editor over `source`, a canvas. `blob()` gives the mask: white is known, black is filled. */
export function maskEditor(source) {
  const { width, height } = source;
  const side = Math.max(width, height);
  const paint = h("canvas", { width, height, class: "paint", tabIndex: 0, role: "img", "aria-label": "The mask. Paint with the pointer; with the keyboard use Rectangle by numbers." });
  const context = paint.getContext("2d", { willReadFrequently: true });
  const ring = h("div", { class: "ring", hidden: true, "aria-hidden": "true" });
  source.className = "shot";
  const frame = h("div", { class: "overlay painting" }, source, paint, ring);
  frame.style.setProperty("--ratio", `${width} / ${height}`);
  frame.style.setProperty("--aspect", width / height);

  let done = [], undone = [], stroke = null;

  function draw(op) {
    context.globalCompositeOperation = op.erase ? "destination-out" : "source-over";
    context.fillStyle = context.strokeStyle = PAINT;
    if (op.rect) return context.fillRect(...op.rect);
    const { points, size } = op;
    context.lineCap = context.lineJoin = "round";
    context.lineWidth = size;
    context.beginPath();
    points.forEach(([x, y], k) => (k ? context.lineTo(x, y) : context.moveTo(x, y)));
    if (points.length === 1) context.lineTo(points[0][0] + 0.01, points[0][1]);
    return context.stroke();
  }

  function redraw() {
    context.clearRect(0, 0, width, height);
    done.forEach(draw);
    if (stroke) draw(stroke);
    undo.disabled = !done.length;
    redo.disabled = !undone.length;
    clear.disabled = !done.length;
    el.dispatchEvent(new Event("painted"));
  }

  function add(op) {
    done.push(op);
    undone = [];
    redraw();
  }

  const size = field("Brush size", h("input", { type: "range", min: 1, max: Math.max(8, Math.round(side / 3)), step: 1, value: Math.max(4, Math.round(side / 10)) }));
  const sizeWords = () => {
    const { control } = size;
    control.setAttribute("aria-valuetext", count(control.valueAsNumber, "pixel"));
    control.style.setProperty("--fill", (control.value - control.min) / (control.max - control.min));
  };
  size.control.addEventListener("input", sizeWords);
  sizeWords();
  const erase = h("input", { type: "checkbox" });
  const undo = button("Undo", { name: "undo", kind: "plain small", onclick: () => { undone.push(done.pop()); redraw(); announce("Undone."); } });
  const redo = button("Redo", { name: "redo", kind: "plain small", onclick: () => { done.push(undone.pop()); redraw(); announce("Done again."); } });
  const clear = button("Clear", { name: "trash", kind: "plain small", onclick: () => { add({ rect: [0, 0, width, height], erase: true }); announce("The mask is empty."); } });

  const place = (event) => {
    const box = paint.getBoundingClientRect();
    return [((event.clientX - box.left) * width) / box.width, ((event.clientY - box.top) * height) / box.height];
  };
  const follow = (event) => {
    const box = paint.getBoundingClientRect(), across = (size.control.valueAsNumber * box.width) / width;
    ring.hidden = false;
    ring.style.width = ring.style.height = `${across}px`;
    ring.style.left = `${event.clientX - box.left - across / 2}px`;
    ring.style.top = `${event.clientY - box.top - across / 2}px`;
  };
  paint.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    paint.setPointerCapture(event.pointerId);
    stroke = { points: [place(event)], size: size.control.valueAsNumber, erase: erase.checked || event.shiftKey };
    redraw();
  });
  paint.addEventListener("pointermove", (event) => {
    follow(event);
    if (!stroke) return;
    for (const part of event.getCoalescedEvents?.() ?? [event]) stroke.points.push(place(part));
    redraw();
  });
  const finish = () => {
    if (!stroke) return;
    const op = stroke;
    stroke = null;
    add(op);
  };
  paint.addEventListener("pointerup", finish);
  paint.addEventListener("pointercancel", finish);
  paint.addEventListener("pointerleave", () => { ring.hidden = true; });

  const number = (label, value, max) => field(label, h("input", { type: "number", min: 0, max, step: 1, value, inputMode: "numeric" }));
  const x = number("Left", Math.round(width * 0.35), width), y = number("Top", Math.round(height * 0.35), height);
  const w = number("Width", Math.round(width * 0.3), width), t = number("Height", Math.round(height * 0.3), height);
  const values = () => [x, y, w, t].map((part) => part.control.valueAsNumber || 0);
  const rectangle = h("details", { class: "fold" }, h("summary", {}, "Rectangle by numbers"),
    h("div", { class: "fold-body" },
      h("div", { class: "row fields four" }, x.el, y.el, w.el, t.el),
      h("div", { class: "row tight" },
        button("Add rectangle", { kind: "small", onclick: () => { add({ rect: values(), erase: false }); announce(`Rectangle added; ${share()} percent are to be filled.`); } }),
        button("Erase rectangle", { kind: "plain small", onclick: () => { add({ rect: values(), erase: true }); announce(`Rectangle erased; ${share()} percent are to be filled.`); } }))));

  function holes() {
    const { data } = context.getImageData(0, 0, width, height);
    let n = 0;
    for (let i = 3; i < data.length; i += 4) n += data[i] > 127;
    return n;
  }
  const share = () => Math.round((100 * holes()) / (width * height));

  const el = h("div", { class: "stage-part mask-editor" }, frame,
    h("div", { class: "row fields tools" }, size.el, h("label", { class: "check" }, erase, h("span", {}, "Erase")), h("div", { class: "row tight" }, undo, redo, clear)),
    rectangle);
  el.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || event.target.type === "number") return;
    event.preventDefault();
    (event.shiftKey ? redo : undo).click();
  });
  redraw();

  return {
    el,
    get empty() { return holes() === 0; },
    /** The mask as a PNG without shades of grey: edges of strokes are smooth on the screen only. */
    blob() {
      const data = context.getImageData(0, 0, width, height);
      for (let i = 0; i < data.data.length; i += 4) {
        const value = data.data[i + 3] > 127 ? 0 : 255;
        data.data.set([value, value, value, 255], i);
      }
      const canvas = h("canvas", { width, height });
      canvas.getContext("2d").putImageData(data, 0, 0);
      return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    },
  };
}
