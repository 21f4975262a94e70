// Chromium of the system, as it can be started without a display and as root.
import fs from "node:fs";
import path from "node:path";
import { chromium } from "playwright-core";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export const launch = () => chromium.launch({ executablePath: process.env.CROSSFADE_CHROMIUM ?? "/usr/bin/chromium", headless: true, args: FLAGS });

/** Saves a screenshot into the folder CROSSFADE_SHOTS, if it is set. */
export async function shot(page, name, options = {}) {
  const folder = process.env.CROSSFADE_SHOTS;
  if (!folder) return;
  fs.mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: path.join(folder, `${name}.png`), ...options });
}
