// A picture looked at closely: its way, its settings, its recipe.
import { button, count, h, toast } from "./dom.js";
import { picture, recipe } from "./api.js";
import { copyCommand, copyCurl, download, factList } from "./card.js";
import { facts, taskOf, title } from "./jobs.js";
import { app } from "./state.js";
import { live, pictureView, waySlider } from "./tile.js";
import { result } from "./stage.js";

const PLAY = 120;

/** Opens the dialog for picture `index` of a job. */
export function openViewer(job, index) {
  const dialog = document.getElementById("viewer");
  let timer = null;
  const stopPlaying = () => { clearInterval(timer); timer = null; };
  dialog.onclose = () => { stopPlaying(); dialog.replaceChildren(); };

  function show(k, focus) {
    stopPlaying();
    dialog.replaceChildren(...content(k));
    if (focus) (dialog.querySelector(`[data-go="${focus}"]:not(:disabled)`) ?? dialog.querySelector(".close")).focus();
  }

  function content(k) {
    const image = job.image(k), task = taskOf(job.view);
    const close = button("Close", { name: "close", bare: true, kind: "plain close", onclick: () => dialog.close() });
    const go = (to, name, text, key) => {
      const b = button(text, { name, bare: true, kind: "plain", disabled: to < 0 || to >= job.size, onclick: () => show(to, key) });
      b.dataset.go = key;
      return b;
    };
    const head = h("header", { class: "sheet-head" },
      h("h2", { id: "viewer-title" }, image?.class ?? title(job), job.size > 1 ? h("span", { class: "quiet" }, ` ${k + 1} of ${job.size}`) : null),
      h("div", { class: "row tight" }, job.size > 1 && go(k - 1, "previous", "Previous picture", "previous"), job.size > 1 && go(k + 1, "next", "Next picture", "next"), close));

    const left = h("div", { class: "viewer-left" });
    if (task && job.view.inputs.includes("image") && image) left.append(result(job, k));
    else left.append(...wayOf(k));

    const rows = facts(job);
    if (image) rows.push(["number", image.image], ["size", `${image.width}×${image.height}`], ["file", count(image.bytes, "byte")]);
    const text = h("pre", { class: "recipe", tabIndex: 0 }, "Reading…");
    const fold = h("details", { class: "fold" }, h("summary", {}, "Recipe in the file"), text);
    fold.addEventListener("toggle", async () => {
      if (!fold.open || !image) return;
      try {
        const found = await recipe((await picture(image.url)).blob);
        text.textContent = found ? pretty(found) : "The file has no recipe.";
      } catch (error) {
        text.textContent = error.message;
      }
    });
    const right = h("div", { class: "viewer-right" },
      factList(job, rows),
      h("div", { class: "stack" },
        button("Download PNG", { name: "download", kind: "primary", disabled: !image, onclick: () => download(job, k) }),
        job.view.kind === "generation" && button("Same seed with…", { name: "again", onclick: () => { dialog.close(); app.again(job, k); } }),
        button("Work on it", { name: "picture", disabled: !image, onclick: async () => {
          try {
            const { blob } = await picture(image.url);
            dialog.close();
            app.work(blob, `${job.view.model}-${image.seed}.png`);
          } catch (error) {
            toast(error.message, "error");
          }
        } }),
        h("div", { class: "row tight" },
          button("Command line", { name: "terminal", kind: "plain small", "aria-label": "Copy as command line", onclick: () => copyCommand(job) }),
          button("curl", { name: "copy", kind: "plain small", "aria-label": "Copy as curl", onclick: () => copyCurl(job, k) }))),
      image ? fold : null);
    return [head, h("div", { class: "viewer-body" }, left, right)];
  }

  function wayOf(k) {
    const view = pictureView(job, k);
    view.el.classList.add("large");
    const way = waySlider(job, k, view);
    const words = h("span", { class: "quiet" });
    const play = button("Play the way", { name: "play", bare: true, kind: "plain", onclick: () => {
      if (timer) return stopPlaying();
      let at = 0;
      way.go(0);
      timer = setInterval(() => {
        at++;
        way.go(at);
        if (at >= way.end) stopPlaying();
      }, PLAY);
    } });
    const row = h("div", { class: "way-row" }, play, way.el);
    const update = () => {
      view.render();
      way.update();
      row.hidden = way.el.hidden;
      words.textContent = way.el.hidden ? (job.following ? "Reading the way…" : "The server no longer has the way of this picture.") : way.text();
    };
    way.el.addEventListener("moved", () => { words.textContent = way.text(); });
    update();
    live(job, view.el, update);
    if (job.over && !job.wayLoaded && !job.ways.size) job.follow();
    return [view.el, row, words];
  }

  show(index);
  if (!dialog.open) dialog.showModal();
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 1); } catch { return text; }
}
