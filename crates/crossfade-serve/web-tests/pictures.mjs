// PNG files and pictures for the mock server: enough to judge the page by, and nothing else.
import zlib from "node:zlib";

const SIGNATURE = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);

function chunk(name, data) {
  const body = Buffer.concat([Buffer.from(name, "latin1"), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(crc32(body), body.length + 4);
  return out;
}

const TABLE = Array.from({ length: 256 }, (_, n) => {
  let c = n;
  for (let k = 0; k < 8; k++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
  return c >>> 0;
});

function crc32(data) {
  let c = 0xffffffff;
  for (const byte of data) c = TABLE[(c ^ byte) & 255] ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
}

/** A PNG of RGB bytes, with a text chunk as the recipe. */
export function encode({ width, height, rgb }, recipe) {
  const rows = Buffer.alloc(height * (width * 3 + 1));
  for (let y = 0; y < height; y++) Buffer.from(rgb.buffer, rgb.byteOffset + y * width * 3, width * 3).copy(rows, y * (width * 3 + 1) + 1);
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const parts = [SIGNATURE, chunk("IHDR", head)];
  if (recipe) parts.push(chunk("tEXt", Buffer.from(`crossfade\0${JSON.stringify(recipe)}`, "latin1")));
  parts.push(chunk("IDAT", zlib.deflateSync(rows)), chunk("IEND", Buffer.alloc(0)));
  return Buffer.concat(parts);
}

/** The RGB bytes of an 8-bit PNG without interlacing, as browsers write them. */
export function decode(file) {
  if (!file.subarray(0, 8).equals(SIGNATURE)) throw new Error("the picture is not a PNG");
  let at = 8, head, data = [];
  while (at < file.length) {
    const length = file.readUInt32BE(at);
    const name = file.toString("latin1", at + 4, at + 8);
    const body = file.subarray(at + 8, at + 8 + length);
    if (name === "IHDR") head = body;
    if (name === "IDAT") data.push(body);
    at += length + 12;
  }
  const width = head.readUInt32BE(0), height = head.readUInt32BE(4);
  const channels = { 0: 1, 2: 3, 4: 2, 6: 4 }[head[9]];
  const raw = zlib.inflateSync(Buffer.concat(data));
  const stride = width * channels;
  const out = Buffer.alloc(height * stride);
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (stride + 1)];
    for (let i = 0; i < stride; i++) {
      const a = i >= channels ? out[y * stride + i - channels] : 0;
      const b = y ? out[(y - 1) * stride + i] : 0;
      const c = y && i >= channels ? out[(y - 1) * stride + i - channels] : 0;
      const p = a + b - c, pa = Math.abs(p - a), pb = Math.abs(p - b), pc = Math.abs(p - c);
      const paeth = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
      out[y * stride + i] = raw[y * (stride + 1) + 1 + i] + [0, a, b, (a + b) >> 1, paeth][filter];
    }
  }
  const rgb = new Uint8Array(width * height * 3);
  for (let i = 0; i < width * height; i++)
    for (let k = 0; k < 3; k++) rgb[i * 3 + k] = out[i * channels + (channels < 3 ? 0 : k)];
  return { width, height, rgb };
}

/** A small generator of numbers in [0, 1). */
export function random(seed) {
  let a = (seed ^ 0x9e3779b9) >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function colour(hue, light, chroma) {
  return [0, 1 / 3, 2 / 3].map((k) => 255 * Math.min(1, Math.max(0, light + chroma * Math.cos(2 * Math.PI * (hue - k)))));
}

/** A made-up picture: a face on a gradient. `detail` below 1 is a blurred estimate on the way. */
export function face(size, seed, kind, detail = 1) {
  const next = random(seed * 31 + kind * 977);
  const hue = next(), other = hue + 0.12 + 0.3 * next();
  const sky = colour(hue, 0.62, 0.2), ground = colour(other, 0.42, 0.2), skin = colour(0.06 + 0.12 * next(), 0.72, 0.22);
  const cx = 0.5 + 0.08 * (next() - 0.5), cy = 0.54 + 0.08 * (next() - 0.5), r = 0.28 + 0.08 * next();
  const ears = kind % 3, mouth = next(), eye = 0.1 + 0.03 * next();
  const soft = 0.012 + 0.5 * (1 - detail) ** 2;
  const noise = random(seed + 5);
  const rgb = new Uint8Array(size * size * 3);
  const inside = (d) => 1 / (1 + Math.exp(Math.max(-40, Math.min(40, d / soft * 2))));
  for (let y = 0; y < size; y++)
    for (let x = 0; x < size; x++) {
      const u = (x + 0.5) / size, v = (y + 0.5) / size;
      const put = [0, 1, 2].map((k) => sky[k] * (1 - v) + ground[k] * v);
      const mix = (d, c) => { const w = inside(d); for (let k = 0; k < 3; k++) put[k] += (c[k] - put[k]) * w; };
      const dist = (px, py) => Math.hypot(u - px, v - py);
      if (ears) for (const s of [-1, 1]) mix(dist(cx + s * r * (ears === 1 ? 0.72 : 0.95), cy - r * (ears === 1 ? 0.8 : 0.1)) - r * 0.34, skin.map((c) => c * 0.82));
      mix(dist(cx, cy) - r, skin.map((c) => c * (1.08 - 0.5 * (v - cy))));
      for (const s of [-1, 1]) mix(dist(cx + s * r * 0.4, cy - r * 0.15) - eye * r * 1.3, [30, 26, 34]);
      mix(Math.max(dist(cx, cy + r * 0.2) - r * 0.5, -(dist(cx, cy + r * (0.2 - 0.25 * mouth)) - r * 0.5), cy + r * 0.25 - v), [70, 24, 30]);
      for (let k = 0; k < 3; k++) {
        const rough = (noise() - 0.5) * 40 * (1 - detail);
        rgb[(y * size + x) * 3 + k] = Math.max(0, Math.min(255, put[k] * detail ** 0.4 + 118 * (1 - detail ** 0.4) + rough));
      }
    }
  return { width: size, height: size, rgb };
}

/** The picture of another size, by linear interpolation. */
export function resize({ width, height, rgb }, w, h) {
  const out = new Uint8Array(w * h * 3);
  for (let y = 0; y < h; y++)
    for (let x = 0; x < w; x++) {
      const u = Math.max(0, Math.min(width - 1, ((x + 0.5) * width) / w - 0.5)), v = Math.max(0, Math.min(height - 1, ((y + 0.5) * height) / h - 0.5));
      const x0 = Math.floor(u), y0 = Math.floor(v), x1 = Math.min(width - 1, x0 + 1), y1 = Math.min(height - 1, y0 + 1);
      for (let k = 0; k < 3; k++) {
        const at = (px, py) => rgb[(py * width + px) * 3 + k];
        const top = at(x0, y0) + (at(x1, y0) - at(x0, y0)) * (u - x0), low = at(x0, y1) + (at(x1, y1) - at(x0, y1)) * (u - x0);
        out[(y * w + x) * 3 + k] = top + (low - top) * (v - y0);
      }
    }
  return { width: w, height: h, rgb: out };
}

/** A stand-in for a task: enlarges, fills with the mean of what is known, or draws a map. */
export function task(name, picture, mask, scale) {
  const { width, height, rgb } = picture;
  if (name === "sr") return resize(picture, width * scale, height * scale);
  const out = new Uint8Array(rgb);
  if (name === "inpaint") {
    const mean = [0, 0, 0];
    let known = 0;
    for (let i = 0; i < width * height; i++)
      if (mask.rgb[i * 3] > 127) { known++; for (let k = 0; k < 3; k++) mean[k] += rgb[i * 3 + k]; }
    for (let i = 0; i < width * height; i++)
      if (mask.rgb[i * 3] <= 127) for (let k = 0; k < 3; k++) out[i * 3 + k] = mean[k] / Math.max(1, known);
    return { width, height, rgb: out };
  }
  const grey = (x, y) => { const i = (Math.max(0, Math.min(height - 1, y)) * width + Math.max(0, Math.min(width - 1, x))) * 3; return (rgb[i] + rgb[i + 1] + rgb[i + 2]) / 3; };
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const edge = Math.min(255, 3 * Math.hypot(grey(x + 1, y) - grey(x - 1, y), grey(x, y + 1) - grey(x, y - 1)));
      const centre = 255 * Math.exp(-8 * (((x / width - 0.5) ** 2) + ((y / height - 0.55) ** 2)));
      const value = name === "edge" ? edge : name === "saliency" ? centre : grey(x, y);
      out.fill(value, (y * width + x) * 3, (y * width + x) * 3 + 3);
    }
  return { width, height, rgb: out };
}
