// Tasks on pictures.
import assert from "node:assert/strict";
import { test } from "node:test";
import { shot } from "./browser.mjs";
import { decode, encode, face } from "./pictures.mjs";
import { LONG, base, mockOnly, models, open, settled, unless } from "./setup.mjs";

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
    if (!mockOnly) await page.getByText(/tile [2-4] of 4/).waitFor();
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
