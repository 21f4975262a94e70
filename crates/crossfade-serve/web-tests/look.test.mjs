// Keyboard, names, phone, themes.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { shot } from "./browser.mjs";
import { LONG, base, done, generate, has, open, settled } from "./setup.mjs";

const WEB = path.join(path.dirname(fileURLToPath(import.meta.url)), "..", "web");

test("the page is small", () => {
  const bytes = fs.readdirSync(WEB).reduce((sum, name) => sum + fs.statSync(path.join(WEB, name)).size, 0);
  assert.ok(bytes <= 150_000, `${bytes} bytes`);
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
