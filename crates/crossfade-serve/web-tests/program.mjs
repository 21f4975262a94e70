// The program itself with the models that ship, in place of the mock: `CROSSFADE_BIN` names it.
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

/** Starts a server on a free port, with its store in a folder of its own. */
export async function start({ token } = {}) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "crossfade-page-"));
  const tokens = path.join(folder, "tokens");
  if (token) fs.writeFileSync(tokens, `${token}\n`);
  const args = ["serve", "--bind", "127.0.0.1:0", "--rate", "100000", ...(token ? ["--token-file", tokens] : [])];
  const child = spawn(path.resolve(process.env.CROSSFADE_BIN), args, { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const url = await new Promise((resolve, reject) => {
    let said = "";
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
    child.stdout.on("data", (part) => {
      said += part;
      const found = /http:\/\/[\d.]+:\d+/.exec(said);
      if (found) resolve(found[0]);
    });
  });
  return {
    url,
    async stop() {
      child.kill("SIGKILL");
      await ended;
      fs.rmSync(folder, { recursive: true, force: true });
    },
  };
}
