// What the tests share: a browser, the server, a page, the form. CROSSFADE_URL names a running server, CROSSFADE_BIN the program
// that is started for each file of tests; without them the mock is. CROSSFADE_SHOTS names a folder for screenshots.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { launch } from "./browser.mjs";
import * as mock from "./mock.mjs";
import * as program from "./program.mjs";

export const GIVEN = process.env.CROSSFADE_URL?.replace(/\/$/, "");
const PROGRAM = process.env.CROSSFADE_BIN;
/** Reasons to skip a test: it needs answers that only the mock gives, or a server of its own. */
export const mockOnly = GIVEN || PROGRAM ? "needs the mock" : false;
export const ownOnly = GIVEN ? "needs a server of its own" : false;
/** Starts a server of a test. */
export const start = PROGRAM ? program.start : mock.start;
export const LONG = { timeout: 60000 };
export let base, models;
let browser, own;

before(async () => {
  own = GIVEN ? null : await start({ pace: 50 });
  base = GIVEN ?? own.url;
  browser = await launch();
  models = (await (await fetch(`${base}/v1/models`)).json()).data;
});
after(async () => {
  await browser.close();
  await own?.stop();
});

export const has = (kind, task) => models.some((m) => m.kinds.includes(kind) && (!task || m.tasks.includes(task)));
export const unless = (kind, task) => (has(kind, task) ? false : `no model for ${task ?? kind}`);

/** A page of its own, which fails the test if a script fails, the policy is broken or another host is asked. */
export async function open(t, view = "create", { width = 1280, height = 900, url = base, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, permissions: ["clipboard-read", "clipboard-write"], ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(String(error.stack)));
  page.on("console", (m) => { if (m.type() === "error" && !/Failed to load resource/.test(m.text())) wrong.push(m.text()); });
  page.on("request", (r) => { if (/^https?:/.test(r.url()) && new URL(r.url()).origin !== new URL(url).origin) wrong.push(`asked ${r.url()}`); });
  t.after(async () => {
    await context.close();
    assert.deepEqual(wrong, []);
  });
  page.setDefaultTimeout(60000);
  await page.goto(`${url}/#${view}`);
  return page;
}

/** Fills the form of the view and sends it; resolves to the card of the new job. */
export async function generate(page, { n = 2, steps = 6, seed = 7, more = async () => {} } = {}) {
  const form = page.locator("#view-create form");
  await form.waitFor();
  await form.getByLabel("Pictures").fill(String(n));
  await form.getByLabel("Steps").fill(String(steps));
  await form.getByLabel("Seed", { exact: true }).fill(String(seed));
  await more(form);
  const accepted = page.waitForResponse((response) => response.request().method() === "POST" && response.status() === 202);
  await form.getByRole("button", { name: "Generate" }).click();
  const { id } = await (await accepted).json();
  const card = page.locator(`#view-create [data-job="${id}"]`);
  await card.waitFor();
  return card;
}

export const done = (card) => card.and(card.page().locator('[data-state="done"]')).waitFor(LONG);
export const settled = (page) => page.waitForFunction(() => [...document.querySelectorAll("img")].every((img) => img.complete));
