// Pictures from noise, comparisons, the history.
import assert from "node:assert/strict";
import fs from "node:fs";
import { test } from "node:test";
import { shot } from "./browser.mjs";
import { LONG, base, done, generate, mockOnly, models, open, ownOnly, settled } from "./setup.mjs";

test("an empty gallery says what to do", { skip: ownOnly }, async (t) => {
  const page = await open(t);
  await page.getByText("Nothing here yet").waitFor();
  await shot(page, "empty");
  await page.goto(`${base}/#history`);
  await page.getByText("No jobs yet").waitFor();
});

test("pictures appear while they form, and a slider goes back over the way", async (t) => {
  const page = await open(t);
  // Enough steps that a real network does not finish before anybody looks.
  const card = await generate(page, { n: 4, steps: mockOnly ? 60 : 8 });
  await card.locator(".frame.forming").first().waitFor();
  await shot(page, "create-forming");
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
  // What is spoken follows what is seen after a moment.
  await page.locator("#live", { hasText: "Done: 4 pictures" }).waitFor({ state: "attached" });
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

test("the history says whose jobs it has, and shows those that come meanwhile", async (t) => {
  const page = await open(t, "history");
  await page.getByText(/on this server, by anybody|with your token/).waitFor();
  await page.locator("#view-history .gallery").waitFor({ state: "attached" });
  const model = models.find((m) => m.kinds.includes("generation")).id;
  const body = JSON.stringify({ kind: "generation", model, seed: 33, n: 1, steps: 2 });
  const answer = await fetch(`${base}/v1/jobs`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
  const { id } = await answer.json();
  await page.locator(`#view-history [data-job="${id}"][data-state="done"]`).waitFor(LONG);
});
