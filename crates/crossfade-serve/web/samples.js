// Drawings made here: samples to work on, and small ones for places that are empty.
import { h } from "./dom.js";

function canvasOf(width, height = width) {
  const canvas = h("canvas", { width, height });
  return [canvas, canvas.getContext("2d")];
}

function gradient(c, x0, y0, x1, y1, ...colours) {
  const g = c.createLinearGradient(x0, y0, x1, y1);
  colours.forEach((colour, k) => g.addColorStop(k / (colours.length - 1), colour));
  return g;
}

function disc(c, x, y, rx, fill, ry = rx) {
  c.fillStyle = fill;
  c.beginPath();
  c.ellipse(x, y, rx, ry, 0, 0, 2 * Math.PI);
  c.fill();
}

function shape(c, fill, ...points) {
  c.fillStyle = fill;
  c.beginPath();
  points.forEach(([x, y], k) => (k ? c.lineTo(x, y) : c.moveTo(x, y)));
  c.closePath();
  c.fill();
}

/** All draw on a square of side 1. */
const DRAWINGS = {
  Boat(c) {
    c.fillStyle = gradient(c, 0, 0, 0, 0.62, "#f6b26b", "#f9d9a8", "#fbeedb");
    c.fillRect(0, 0, 1, 0.62);
    disc(c, 0.72, 0.42, 0.1, "#fff4dc");
    shape(c, "#8a7f9c", [0, 0.62], [0.18, 0.4], [0.34, 0.55], [0.46, 0.47], [0.66, 0.62]);
    c.fillStyle = gradient(c, 0, 0.62, 0, 1, "#4d8aa8", "#1d4b66");
    c.fillRect(0, 0.62, 1, 0.38);
    for (let k = 0; k < 9; k++) {
      c.fillStyle = `rgb(255 240 210 / ${0.35 - k * 0.03})`;
      c.fillRect(0.62 - k * 0.012, 0.64 + k * 0.038, 0.2 + k * 0.02, 0.009);
    }
    shape(c, "#fdfaf3", [0.36, 0.24], [0.36, 0.68], [0.14, 0.68]);
    shape(c, "#d9523f", [0.385, 0.2], [0.385, 0.68], [0.58, 0.68]);
    c.fillStyle = "#4a3226";
    c.fillRect(0.365, 0.17, 0.016, 0.56);
    shape(c, "#5b3a29", [0.12, 0.72], [0.64, 0.72], [0.55, 0.82], [0.2, 0.82]);
  },
  Fruit(c) {
    c.fillStyle = gradient(c, 0, 0, 0.4, 0.7, "#3b4a5a", "#27323d");
    c.fillRect(0, 0, 1, 1);
    c.fillStyle = gradient(c, 0, 0.64, 0, 1, "#b98a5e", "#7d5636");
    c.fillRect(0, 0.64, 1, 0.36);
    disc(c, 0.52, 0.84, 0.36, "rgb(40 24 14 / .35)", 0.06);
    shape(c, "#e9e4da", [0.16, 0.58], [0.88, 0.58], [0.72, 0.84], [0.32, 0.84]);
    shape(c, "#cfc8ba", [0.62, 0.58], [0.88, 0.58], [0.72, 0.84], [0.6, 0.84]);
    const round = (x, y, r, light, dark) => {
      const g = c.createRadialGradient(x - r * 0.35, y - r * 0.4, r * 0.1, x, y, r);
      g.addColorStop(0, light);
      g.addColorStop(1, dark);
      disc(c, x, y, r, g);
    };
    round(0.34, 0.47, 0.15, "#ffd37a", "#d97a16");
    round(0.66, 0.48, 0.14, "#b9d36c", "#5e8a26");
    round(0.5, 0.4, 0.15, "#f4796a", "#a01f25");
    c.strokeStyle = "#3c2a17";
    c.lineWidth = 0.016;
    c.beginPath();
    c.moveTo(0.5, 0.27);
    c.quadraticCurveTo(0.5, 0.2, 0.55, 0.17);
    c.stroke();
    shape(c, "#e9e4da", [0.16, 0.565], [0.88, 0.565], [0.865, 0.61], [0.175, 0.61]);
  },
  House(c) {
    c.fillStyle = gradient(c, 0, 0, 0, 0.75, "#7fb2dc", "#d8e8f2");
    c.fillRect(0, 0, 1, 1);
    for (const [x, y, r] of [[0.2, 0.2, 0.07], [0.28, 0.18, 0.09], [0.37, 0.21, 0.06], [0.78, 0.13, 0.06], [0.85, 0.14, 0.07]]) disc(c, x, y, r, "#ffffffd9", r * 0.7);
    disc(c, 0.25, 0.95, 0.7, "#7ea65a", 0.3);
    disc(c, 0.85, 1.0, 0.6, "#6b954c", 0.3);
    c.fillStyle = "#f3e6d0";
    c.fillRect(0.28, 0.46, 0.4, 0.32);
    shape(c, "#b1452f", [0.22, 0.48], [0.48, 0.26], [0.74, 0.48]);
    c.fillStyle = "#6c3b25";
    c.fillRect(0.44, 0.6, 0.09, 0.18);
    for (const x of [0.32, 0.57]) {
      c.fillStyle = "#375a73";
      c.fillRect(x, 0.54, 0.08, 0.09);
      c.fillStyle = "#f8f4ea";
      c.fillRect(x + 0.036, 0.54, 0.008, 0.09);
      c.fillRect(x, 0.581, 0.08, 0.008);
    }
    c.fillStyle = "#5c4331";
    c.fillRect(0.825, 0.52, 0.03, 0.25);
    disc(c, 0.84, 0.45, 0.11, "#4a7a3b");
    disc(c, 0.8, 0.5, 0.08, "#568a44");
  },
};

export const SAMPLES = Object.keys(DRAWINGS);

/** A sample as a canvas. */
export function sample(name, side = 256) {
  const [canvas, c] = canvasOf(side);
  c.scale(side, side);
  DRAWINGS[name](c);
  return canvas;
}

/** A drawing between noise (0) and a sample (1). */
function between(name, share, side = 40) {
  const canvas = sample(name, side);
  const c = canvas.getContext("2d");
  const data = c.getImageData(0, 0, side, side);
  for (let i = 0; i < data.data.length; i += 4)
    for (let k = 0; k < 3; k++) {
      const noise = 128 + 90 * (Math.random() + Math.random() + Math.random() - 1.5);
      data.data[i + k] = share * data.data[i + k] + (1 - share) * noise;
    }
  c.putImageData(data, 0, 0);
  canvas.className = "shot";
  return canvas;
}

/** From noise to a picture, for an empty gallery. */
export const wayDrawing = () => h("div", { class: "drawing", "aria-hidden": "true" }, [0, 0.25, 0.5, 0.75, 1].map((share) => between("Boat", share)));

/** Two of the same, for an empty comparison. */
export const pairDrawing = () => h("div", { class: "drawing", "aria-hidden": "true" }, [0.72, 0.97].map((share) => between("Fruit", share)));
