// Drives the page in Chromium. CROSSFADE_URL names a running server; without it the mock is started.
// CROSSFADE_SHOTS names a folder for screenshots.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, shot } from "./browser.mjs";
import { start } from "./mock.mjs";
import { decode, encode, face } from "./pictures.mjs";

const GIVEN = process.env.CROSSFADE_URL?.replace(/\/$/, "");
const WEB = path.join(path.dirname(fileURLToPath(import.meta.url)), "..", "web");
const mockOnly = GIVEN ? "needs the mock" : false;
const LONG = { timeout: 60000 };
let browser, mock, base, models;

before(async () => {
  mock = GIVEN ? null : await start({ pace: 50 });
  base = GIVEN ?? mock.url;
  browser = await launch();
  models = (await (await fetch(`${base}/v1/models`)).json()).data;
});
after(async () => {
  await browser.close();
  mock?.stop();
});

const has = (kind, task) => models.some((m) => m.kinds.includes(kind) && (!task || m.tasks.includes(task)));
const unless = (kind, task) => (has(kind, task) ? false : `no model for ${task ?? kind}`);

/** A page of its own, which fails the test if a script fails, the policy is broken or another host is asked. */
async function open(t, view = "create", { width = 1280, height = 900, url = base, ...options } = {}) {
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
async function generate(page, { n = 2, steps = 6, seed = 7, more = async () => {} } = {}) {
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

const done = (card) => card.and(card.page().locator('[data-state="done"]')).waitFor(LONG);
const settled = (page) => page.waitForFunction(() => [...document.querySelectorAll("img")].every((img) => img.complete));

test("the page is small", () => {
  const bytes = fs.readdirSync(WEB).reduce((sum, name) => sum + fs.statSync(path.join(WEB, name)).size, 0);
  assert.ok(bytes <= 150_000, `${bytes} bytes`);
});

test("an empty gallery says what to do", { skip: mockOnly }, async (t) => {
  const page = await open(t);
  await page.getByText("Nothing here yet").waitFor();
  await shot(page, "empty");
  await page.goto(`${base}/#history`);
  await page.getByText("No jobs yet").waitFor();
});

test("pictures appear while they form, and a slider goes back over the way", async (t) => {
  const page = await open(t);
  const card = await generate(page, { n: 4, steps: 8 });
  if (!GIVEN) {
    await card.locator(".frame.forming").first().waitFor();
    await shot(page, "create-forming");
  }
  await done(card);
  await settled(page);
  await shot(page, "create-done");
  const slider = card.getByRole("slider", { name: "Way of picture 1", exact: true }), picture = card.locator("img").first();
  assert.match(await picture.getAttribute("src"), /^blob:/);
  await slider.focus();
  await page.keyboard.press("Home");
  assert.match(await slider.getAttribute("aria-valuetext"), /^step 1 of \d+, t = /);
  assert.match(await picture.getAttribute("src"), /^data:image\/png/);
  await page.keyboard.press("ArrowRight");
  assert.match(await slider.getAttribute("aria-valuetext"), /^step 2 of/);
  await card.getByRole("slider", { name: "Way of all" }).focus();
  await page.keyboard.press("Home");
  for (const src of await card.locator(".tile img").evaluateAll((all) => all.map((img) => img.src))) assert.match(src, /^data:/);
  await shot(page, "create-way");
  await page.keyboard.press("End");
  assert.match(await picture.getAttribute("src"), /^blob:/);
  assert.match(await page.locator("#live").textContent(), /Done: 4 pictures/);
});

test("a picture is looked at, downloaded with its recipe and copied as commands", async (t) => {
  const page = await open(t);
  const card = await generate(page);
  await done(card);
  await card.locator(".opener").nth(1).click();
  const dialog = page.locator("#viewer");
  await dialog.getByRole("button", { name: "Download PNG" }).waitFor();
  await settled(page);
  await shot(page, "viewer");
  const [download] = await Promise.all([page.waitForEvent("download"), dialog.getByRole("button", { name: "Download PNG" }).click()]);
  assert.match(download.suggestedFilename(), /seed7-000001\.png$/);
  const file = fs.readFileSync(await download.path());
  assert.equal(file.toString("latin1", 1, 4), "PNG");
  assert.ok(file.includes("crossfade"), "the file has its recipe");
  await dialog.getByText("Recipe in the file").click();
  await dialog.locator(".recipe").filter({ hasText: "seed" }).waitFor();
  await dialog.getByRole("button", { name: "Copy as command line" }).click();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^crossfade sample .*--seed 7\b/);
  await dialog.getByRole("button", { name: "Copy as curl" }).click();
  const curl = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(curl, /\/v1\/images\/generations/);
  assert.match(curl, /"first":1/);
  await dialog.getByRole("button", { name: "Previous picture" }).click();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
});

test("the request for curl is one that the server takes", async (t) => {
  const page = await open(t);
  const card = await generate(page, { n: 1 });
  await done(card);
  await card.getByRole("button", { name: "Copy as curl" }).click();
  const curl = await page.evaluate(() => navigator.clipboard.readText());
  const body = JSON.parse(/-d '(.*)'/.exec(curl)[1]);
  const { response_format: _, ...fields } = body;
  const answer = await fetch(`${base}/v1/jobs`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ kind: "generation", ...fields }) });
  assert.equal(answer.status, 202, await answer.clone().text());
});

test("the same seed with another setting", async (t) => {
  const page = await open(t);
  const card = await generate(page, { seed: 11 });
  await done(card);
  await card.getByRole("button", { name: "Same seed with…" }).click();
  const dialog = page.locator("#again");
  await dialog.getByLabel("Steps").fill("3");
  await shot(page, "again");
  await dialog.getByRole("button", { name: "Make" }).click();
  await dialog.waitFor({ state: "hidden" });
  const next = page.locator("#view-create .card").filter({ hasText: "steps3" }).first();
  await done(next);
  assert.match(await next.locator(".facts").textContent(), /seed11/);
});

test("two settings side by side", async (t) => {
  const page = await open(t, "compare");
  const form = page.locator("#view-compare form");
  await form.getByLabel("Pictures").fill("4");
  await form.getByLabel("Seed", { exact: true }).fill("21");
  await form.getByLabel("Steps").nth(0).fill("12");
  await form.getByLabel("Steps").nth(1).fill("4");
  await form.getByRole("button", { name: "Compare" }).click();
  await page.locator(".verdict").filter({ hasText: "instead of" }).waitFor(LONG);
  await page.locator(".pair-note").filter({ hasText: /mean difference|identical/ }).nth(3).waitFor();
  const numbers = await page.locator(".numbers").allTextContents();
  assert.equal(numbers.length, 2);
  for (const text of numbers) assert.match(text, /evaluations\d+time[\d.]+ m?s/);
  assert.equal(await page.locator(".pairs .pair").count(), 4);
  await settled(page);
  await shot(page, "compare");
  const jobs = (await (await fetch(`${base}/v1/jobs?limit=2`)).json()).data;
  assert.deepEqual(jobs.map((job) => job.settings.seed), [21, 21]);
  assert.deepEqual(jobs.map((job) => job.settings.steps), [4, 12]);
});

/** Drops a PNG on the view. */
async function drop(page, file, name = "dropped.png") {
  const data = await page.evaluateHandle(([base64, as]) => {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], as, { type: "image/png" }));
    return transfer;
  }, [file.toString("base64"), name]);
  await page.dispatchEvent("#view-tasks .drop", "drop", { dataTransfer: data });
}

const newest = async () => (await (await fetch(`${base}/v1/jobs?limit=1`)).json()).data[0];

test("a dropped picture is enlarged, with before and after", async (t) => {
  if (unless("task", "sr")) return t.skip(unless("task", "sr"));
  const page = await open(t, "tasks");
  await page.locator("#view-tasks form").waitFor();
  await shot(page, "tasks-empty");
  await drop(page, encode(face(48, 3, 1)));
  await page.getByLabel("Enlarge").check();
  await page.getByRole("button", { name: "Enlarge" }).click();
  const slider = page.getByRole("slider", { name: "Between before and enlarged" });
  await slider.waitFor(LONG);
  await settled(page);
  const frame = page.locator(".split");
  const place = () => frame.evaluate((el) => el.style.getPropertyValue("--split"));
  assert.equal(await place(), "50%");
  await slider.focus();
  await page.keyboard.press("Home");
  assert.equal(await place(), "0%");
  const box = await frame.boundingBox();
  await page.mouse.click(box.x + box.width * 0.5, box.y + box.height / 2);
  assert.match(await place(), /^(49|50|51)%$/);
  await shot(page, "tasks-enlarge");
  const job = await newest();
  assert.equal(job.settings.name, "dropped.png");
  const model = models.find((m) => m.id === job.model);
  assert.equal(job.images[0].width, 48 * model.scale);
});

test("a mask is painted, undone, set by numbers, and filled", async (t) => {
  if (unless("task", "inpaint")) return t.skip(unless("task", "inpaint"));
  const page = await open(t, "tasks");
  await page.getByRole("button", { name: "Sample: Boat" }).click();
  await page.getByLabel("Longest side that is sent").selectOption("64");
  await page.getByLabel("Fill", { exact: true }).check();
  await page.getByRole("button", { name: "Fill" }).click();
  await page.getByText("The mask is empty").waitFor();
  const canvas = page.locator(".paint");
  await canvas.scrollIntoViewIfNeeded();
  const painted = () => canvas.evaluate((el) => el.getContext("2d").getImageData(0, 0, el.width, el.height).data.filter((v, i) => i % 4 === 3 && v > 127).length);
  const box = await canvas.boundingBox();
  await page.mouse.move(box.x + box.width * 0.35, box.y + box.height * 0.5);
  await page.mouse.down();
  for (let k = 1; k <= 8; k++) await page.mouse.move(box.x + box.width * (0.35 + 0.04 * k), box.y + box.height * (0.5 + 0.03 * Math.sin(k)));
  await page.mouse.up();
  const stroke = await painted();
  assert.ok(stroke > 50, `${stroke} pixels painted`);
  await shot(page, "tasks-mask");
  await page.getByRole("button", { name: "Undo" }).click();
  assert.equal(await painted(), 0);
  await page.getByText("Rectangle by numbers", { exact: true }).click();
  for (const [label, value] of [["Left", 20], ["Top", 10], ["Width", 16], ["Height", 30]]) await page.getByLabel(label, { exact: true }).fill(String(value));
  await page.getByRole("button", { name: "Add rectangle" }).click();
  assert.equal(await painted(), 16 * 30);
  await page.getByRole("button", { name: "Redo" }).isDisabled();
  await page.getByRole("button", { name: "Fill", exact: true }).click();
  await page.getByRole("slider", { name: "Between before and filled" }).waitFor(LONG);
  await settled(page);
  await shot(page, "tasks-fill");
  const job = await newest();
  assert.deepEqual([...job.inputs].sort(), ["image", "mask"]);
  const mask = decode(Buffer.from(await (await fetch(`${base}/v1/jobs/${job.id}/inputs/mask`)).arrayBuffer()));
  let holes = 0;
  for (let i = 0; i < mask.width * mask.height; i++) {
    const inside = i % mask.width >= 20 && i % mask.width < 36 && Math.floor(i / mask.width) >= 10 && Math.floor(i / mask.width) < 40;
    assert.equal(mask.rgb[i * 3], inside ? 0 : 255);
    holes += inside;
  }
  assert.equal(holes, 16 * 30);
});

for (const [task, label] of [["edge", "Edges"], ["saliency", "Saliency"]])
  test(`${label.toLowerCase()} over the picture, with an opacity`, async (t) => {
    if (unless("task", task)) return t.skip(unless("task", task));
    const page = await open(t, "tasks");
    await page.getByRole("button", { name: "Sample: Fruit" }).click();
    await page.getByLabel(label, { exact: true }).check();
    await page.locator("#view-tasks form button[type=submit]").click();
    if (!GIVEN) await page.getByText(/tile [2-4] of 4/).waitFor();
    const map = page.locator(".over-all");
    await map.waitFor(LONG);
    await page.getByLabel("Opacity").fill("40");
    assert.equal(await map.evaluate((el) => el.style.opacity), "0.4");
    await page.getByLabel("Map").selectOption("cut");
    await page.getByLabel("Map").selectOption("tint");
    await page.getByLabel("Opacity").fill("85");
    await shot(page, `tasks-${task}`);
  });

test("variations of a picture, one of which is looked at", async (t) => {
  if (unless("variation")) return t.skip(unless("variation"));
  const page = await open(t, "tasks");
  await page.getByRole("button", { name: "Sample: House" }).click();
  await page.getByLabel("Vary", { exact: true }).check();
  const form = page.locator("#view-tasks form");
  await form.getByLabel("Pictures").fill("3");
  await form.getByLabel("Steps").fill("6");
  await form.getByLabel("Strength").fill("0.5");
  await form.getByRole("button", { name: "Vary" }).click();
  await page.getByRole("slider", { name: "Between before and variation" }).waitFor(LONG);
  assert.equal(await page.locator(".strip .tile").count(), 3);
  await page.locator(".strip .opener").nth(2).click();
  await page.getByRole("slider", { name: "Between before and variation" }).waitFor();
  await settled(page);
  await shot(page, "tasks-vary");
  const job = await newest();
  assert.equal(job.kind, "variation");
  assert.equal(job.settings.strength, 0.5);
});

test("many classes are searched, and a wrong one is told of", { skip: mockOnly }, async (t) => {
  const page = await open(t);
  const form = page.locator("#view-create form");
  await form.getByLabel("Model").selectOption("things");
  const wanted = form.getByLabel("Class");
  assert.equal(await wanted.evaluate((el) => el.list.options.length), 103);
  await wanted.fill("nothing");
  await form.getByRole("button", { name: "Generate" }).click();
  await form.getByText("No class is called `nothing`").waitFor();
  await wanted.fill("thing 7");
  await done(await generate(page, { n: 1 }));
});

test("a reload finds the history, and a running job goes on", async (t) => {
  const page = await open(t);
  const first = await generate(page, { seed: 31 });
  await done(first);
  const id = await first.getAttribute("data-job");
  const second = await generate(page, { seed: 32, steps: 20 });
  const running = await second.getAttribute("data-job");
  await page.reload();
  await page.locator(`#view-create [data-job="${running}"][data-state="done"]`).waitFor(LONG);
  await page.getByRole("link", { name: "History", exact: true }).click();
  const card = page.locator(`#view-history [data-job="${id}"]`);
  await card.waitFor();
  await card.scrollIntoViewIfNeeded();
  await card.locator('img[src^="blob:"]').first().waitFor();
  await card.getByRole("button", { name: "Show the way" }).click();
  await card.getByRole("slider", { name: "Way of picture 1", exact: true }).waitFor();
  await page.evaluate(() => scrollTo(0, 0));
  await settled(page);
  await shot(page, "history");
  await page.getByLabel("State").selectOption("failed");
  await page.locator(`#view-history [data-job="${id}"]`).waitFor({ state: "detached" });
  await page.getByLabel("State").selectOption("");
  await card.waitFor();
  await card.getByRole("button", { name: "Delete" }).click();
  await card.getByRole("button", { name: "Delete for good?" }).click();
  await card.waitFor({ state: "detached" });
  assert.equal((await fetch(`${base}/v1/jobs/${id}`)).status, 404);
});

test("the keyboard alone is enough, and the focus can be seen", async (t) => {
  const page = await open(t);
  await page.locator("#view-create form").waitFor();
  const focus = () => page.evaluate(() => {
    const el = document.activeElement;
    const words = el.getAttribute("aria-label") ?? el.labels?.[0]?.textContent ?? el.textContent;
    const shown = el.matches(".segments input, .choices input") ? el.nextElementSibling : el;
    return { words: words.trim(), outline: getComputedStyle(shown).outlineStyle, width: parseFloat(getComputedStyle(shown).outlineWidth), top: shown.getBoundingClientRect().top };
  });
  async function tabTo(words, most = 60) {
    for (let k = 0; k < most; k++) {
      await page.keyboard.press("Tab");
      const at = await focus();
      assert.ok(at.outline !== "none" && at.width >= 2, `the focus on ${at.words} can be seen`);
      if (words instanceof RegExp ? words.test(at.words) : at.words === words) return;
    }
    assert.fail(`no way to ${words} by Tab`);
  }
  await page.keyboard.press("Tab");
  assert.equal((await focus()).words, "Skip to content");
  await page.keyboard.press("Enter");
  await tabTo("Pictures");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("2");
  await tabTo("Seed");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("41");
  await tabTo("Generate");
  await page.keyboard.press("Enter");
  const card = page.locator("#view-create .card").filter({ hasText: "seed41" }).first();
  await done(card);
  await tabTo(/^Look at .*seed 41, number 0$/);
  await shot(page, "keyboard-focus");
  await tabTo("Way of picture 1");
  await page.keyboard.press("ArrowLeft");
  assert.match(await card.getByRole("slider").first().getAttribute("aria-valuetext"), /^step/);
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Enter");
  await page.locator("#viewer[open]").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("#viewer[open]").waitFor({ state: "hidden" });
  assert.match((await focus()).words, /^Look at/, "the focus comes back to the picture");
});

test("everything that can be operated has a name", async (t) => {
  const page = await open(t);
  for (const view of ["create", "compare", "tasks", "history"]) {
    await page.goto(`${base}/#${view}`);
    await page.locator(`#title-${view}`).waitFor();
    const nameless = await page.locator(`#view-${view}`).evaluate((root) => [...root.querySelectorAll("button, input:not([aria-hidden]), select, a, canvas[tabindex], progress")]
      .filter((el) => !(el.getAttribute("aria-label") || el.textContent.trim() || el.labels?.[0]?.textContent.trim()))
      .map((el) => el.outerHTML));
    assert.deepEqual(nameless, []);
    const ids = await page.evaluate(() => { const all = [...document.querySelectorAll("[id]")].map((el) => el.id); return all.filter((id, k) => all.indexOf(id) !== k); });
    assert.deepEqual(ids, [], "no id is used twice");
  }
});

test("a phone of 360 pixels needs no scrolling to the side", async (t) => {
  const page = await open(t, "create", { width: 360, height: 740, deviceScaleFactor: 2, hasTouch: true, isMobile: true });
  const fits = async (what) => {
    const wide = await page.evaluate(() => {
      const most = document.documentElement.clientWidth;
      const over = [...document.querySelectorAll("main *, header *, dialog[open] *")].filter((el) => el.getBoundingClientRect().right > most + 0.5 && !el.closest(".unseen") && el.getBoundingClientRect().width > 0);
      return { scroll: document.documentElement.scrollWidth - most, over: over.slice(0, 3).map((el) => el.outerHTML.slice(0, 120)) };
    });
    assert.deepEqual(wide, { scroll: 0, over: [] }, what);
  };
  const card = await generate(page, { n: 4 });
  await done(card);
  await fits("create");
  await settled(page);
  await page.evaluate(() => scrollTo(0, 0));
  await shot(page, "phone-create");
  await card.evaluate((el) => el.scrollIntoView());
  await page.evaluate(() => scrollBy(0, -100));
  await shot(page, "phone-gallery");
  await page.locator("#display summary").click();
  await fits("menu");
  await shot(page, "phone-menu");
  await page.locator("#display summary").click();
  await card.locator(".opener").first().click();
  await page.locator("#viewer[open]").waitFor();
  await settled(page);
  await fits("viewer");
  await shot(page, "phone-viewer");
  await page.keyboard.press("Escape");
  await page.goto(`${base}/#compare`);
  const form = page.locator("#view-compare form");
  await form.getByLabel("Pictures").fill("2");
  await form.getByRole("button", { name: "Compare" }).click();
  await page.locator(".verdict").filter({ hasText: /./ }).waitFor(LONG);
  await fits("compare");
  await page.locator(".comparison").evaluate((el) => el.scrollIntoView());
  await page.evaluate(() => scrollBy(0, -100));
  await settled(page);
  await shot(page, "phone-compare");
  await page.goto(`${base}/#tasks`);
  await page.getByRole("button", { name: "Sample: House" }).click();
  await fits("tasks");
  await shot(page, "phone-tasks");
  if (has("task", "inpaint")) {
    await page.getByLabel("Fill", { exact: true }).check();
    await page.getByText("Rectangle by numbers", { exact: true }).click();
    await page.getByRole("button", { name: "Add rectangle" }).click();
    await fits("mask");
    await page.locator(".mask-editor").evaluate((el) => el.scrollIntoView());
    await page.evaluate(() => scrollBy(0, -100));
    await shot(page, "phone-mask");
  }
  await page.goto(`${base}/#history`);
  await page.locator("#view-history .card").first().waitFor();
  await fits("history");
  await settled(page);
  await shot(page, "phone-history");
});

test("dark by the system, light by the switch, kept over a reload", async (t) => {
  const page = await open(t, "create", { colorScheme: "dark" });
  const brightness = () => page.evaluate(() => {
    const canvas = document.createElement("canvas").getContext("2d");
    canvas.fillStyle = getComputedStyle(document.body).backgroundColor;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data[0];
  });
  assert.ok((await brightness()) < 60);
  const card = await generate(page, { n: 4, seed: 51 });
  await done(card);
  await settled(page);
  await shot(page, "dark-create");
  await page.goto(`${base}/#compare`);
  await page.locator("#view-compare form").waitFor();
  await shot(page, "dark-compare");
  await page.locator("#display summary").click();
  await page.getByLabel("Light").check();
  assert.ok((await brightness()) > 200);
  await page.getByLabel("Smooth").check();
  await page.reload();
  await page.locator("#view-compare form").waitFor();
  assert.ok((await brightness()) > 200);
  assert.equal(await page.evaluate(() => document.documentElement.dataset.scaling), "smooth");
  await page.goto(`${base}/#create`);
  await page.locator("#view-create img.shot").first().waitFor();
  assert.equal(await page.locator("#view-create img.shot").first().evaluate((el) => getComputedStyle(el).imageRendering), "auto");
});

test("the server's sentence stands at the field it is about", async (t) => {
  const page = await open(t);
  await page.locator("#view-create form").waitFor();
  // Past the checks of the browser, as a page older than its server would.
  await page.locator("#view-create form").evaluate((form) => { form.noValidate = true; });
  await page.locator("#view-create").getByLabel("Steps").fill("0");
  await page.getByRole("button", { name: "Generate" }).click();
  const error = page.locator("#view-create .field-error:not([hidden])");
  await error.waitFor();
  assert.match(await error.textContent(), /from 1 to \d+/);
  assert.equal(await page.evaluate(() => document.activeElement.labels[0].textContent), "Steps");
});

test("429 is waited for, a failed job says why", { skip: mockOnly }, async (t) => {
  const page = await open(t);
  await page.locator("#view-create form").waitFor();
  await page.getByLabel("Seed", { exact: true }).fill("429");
  await page.getByRole("button", { name: "Generate" }).click();
  await page.getByText(/The queue is full: 256 jobs wait\. Trying again in \d s\./).waitFor();
  await shot(page, "waiting");
  await done(page.locator("#view-create .card").filter({ hasText: "seed429" }).first());
  const card = await generate(page, { seed: 500 });
  await card.getByText("The network gave numbers that are not finite").waitFor();
  await shot(page, "failed");
});

test("a job is cancelled", { skip: mockOnly }, async (t) => {
  const page = await open(t);
  const card = await generate(page, { seed: 61, steps: 400 });
  await card.getByRole("button", { name: "Cancel" }).click();
  await card.getByText("Cancelled before a picture was done.").waitFor();
});

test("a server that is gone is told of", { skip: mockOnly }, async (t) => {
  const other = await start({ pace: 20 });
  const page = await open(t, "create", { url: other.url });
  await page.locator("#view-create form").waitFor();
  other.stop();
  await page.getByRole("button", { name: "Generate" }).click();
  await page.getByText("The server cannot be reached.").waitFor();
});

test("a token is asked for and kept for the tab", { skip: mockOnly }, async (t) => {
  const guarded = await start({ token: "correct-horse-battery", pace: 20 });
  t.after(() => guarded.stop());
  const page = await open(t, "create", { url: guarded.url });
  const dialog = page.locator("#token");
  await dialog.getByLabel("Token").fill("wrong-horse-battery-x");
  await shot(page, "token");
  await page.keyboard.press("Enter");
  await dialog.getByText("does not know this token").waitFor();
  await dialog.getByLabel("Token").fill("correct-horse-battery");
  await dialog.getByRole("button", { name: "Continue" }).click();
  const card = await generate(page);
  await done(card);
  await card.locator('img[src^="blob:"]').first().waitFor();
  await card.getByRole("button", { name: "Copy as curl" }).click();
  const curl = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(curl, /Bearer \$CROSSFADE_TOKEN/);
  assert.ok(!curl.includes("correct-horse"), "the token stays out of the clipboard");
  await page.reload();
  await page.locator("#view-create .card").first().waitFor();
  assert.equal(await dialog.evaluate((el) => el.open), false);
});
