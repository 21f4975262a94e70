// What goes wrong, and how the page says so.
import assert from "node:assert/strict";
import { test } from "node:test";
import { shot } from "./browser.mjs";
import { done, generate, mockOnly, open, ownOnly, start } from "./setup.mjs";

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

test("a refusal of the second setting stands at the second setting", async (t) => {
  const page = await open(t, "compare");
  const form = page.locator("#view-compare form");
  await form.waitFor();
  await form.evaluate((el) => { el.noValidate = true; });
  await form.getByLabel("Pictures").fill("1");
  await form.getByLabel("Steps").nth(0).fill("2");
  await form.getByLabel("Steps").nth(1).fill("0");
  await form.getByRole("button", { name: "Compare" }).click();
  const error = page.locator("#view-compare .field-error:not([hidden])");
  await error.waitFor();
  assert.equal(await error.count(), 1);
  assert.equal(await form.getByLabel("Steps").nth(1).getAttribute("aria-invalid"), "true");
  assert.equal(await form.getByLabel("Steps").nth(0).getAttribute("aria-invalid"), null);
});

test("pictures without a class are not guided", { skip: mockOnly }, async (t) => {
  const page = await open(t);
  const form = page.locator("#view-create form");
  await form.locator("summary").click();
  const guidance = form.getByLabel("Guidance");
  await guidance.fill("2");
  await form.getByLabel("Class").selectOption("none");
  await guidance.waitFor({ state: "hidden" });
  const sent = page.waitForRequest((request) => request.method() === "POST");
  await form.getByRole("button", { name: "Generate" }).click();
  const fields = (await sent).postDataJSON();
  assert.deepEqual([fields.class, fields.guidance], ["none", undefined]);
  await form.getByLabel("Class").selectOption("random");
  await guidance.waitFor({ state: "visible" });
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

test("a job is cancelled", async (t) => {
  const page = await open(t);
  const card = await generate(page, { seed: 61, steps: 400 });
  await card.getByRole("button", { name: "Cancel" }).click();
  await card.getByText("Cancelled before a picture was done.").waitFor();
});

test("a server that is gone is told of", { skip: ownOnly }, async (t) => {
  const other = await start({ pace: 20 });
  const page = await open(t, "create", { url: other.url });
  await page.locator("#view-create form").waitFor();
  await other.stop();
  await page.getByRole("button", { name: "Generate" }).click();
  await page.locator("#view-create").getByText("The server cannot be reached.").waitFor();
});

test("a token is asked for and kept for the tab", { skip: ownOnly }, async (t) => {
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
