"""Peak memory of every verb on hostile files and numbers: at most one gigabyte, and an exit code that is no crash."""
import os
import resource
import shutil
import signal
import subprocess
import time

import corpus

MOST = 1_000_000_000
# Long work on large files is no finding; what it took until then is counted.
SECONDS = 20
BIG = "1000000000"
LAST = str(2**62)


def commands(bad, inputs):
    """(name, arguments) of every run."""
    run, ae, task = inputs / "run", inputs / "ae", inputs / "task"
    config = inputs / "run.toml"
    images = sorted(path for path in bad.iterdir() if path.suffix in (".png", ".jpg", ".webp") and path.name != "good.png")
    good = inputs / "squares/0.png"
    found = []
    for image in images:
        name = image.name
        alone = bad / "folders" / name.replace(".", "-")
        found += [
            (f"data check {name}", ["data", "check", "--kind", "folder", "--path", alone]),
            (f"imresize {name}", ["data", "imresize", image, "out.png", "--scale", "1/4"]),
            (f"imresize up {name}", ["data", "imresize", image, "out.png", "--scale", "4"]),
            (f"sr {name}", ["sr", image, "out.png", "--checkpoint", task, "--steps", "1"]),
            (f"inpaint {name}", ["inpaint", good, "out.png", "--mask", image, "--steps", "1"]),
            (f"edit {name}", ["edit", image, "out.png", "--checkpoint", run, "--strength", "0.5"]),
            (f"edit crop {name}", ["edit", image, "out.png", "--checkpoint", run, "--strength", "0.5", "--fit", "crop"]),
            (f"reconstruct {name}", ["reconstruct", ae, image, "out"]),
            (f"reproduce {name}", ["reproduce", image, "--checkpoint", run]),
            (f"train {name}", ["train", config, "--set", f"data={{kind='folder',path='{alone}'}}", "--out", "out"]),
            (f"psnr {name}", ["eval", "psnr", image, image]),
            (f"ssim {name}", ["eval", "ssim", image, image]),
            (f"ms-ssim {name}", ["eval", "ms-ssim", image, image]),
            (f"eval saliency {name}", ["eval", "saliency", image, image]),
            (f"eval edges {name}", ["eval", "edges", image, image]),
            (f"eval regions {name}", ["eval", "regions", image, image]),
            (f"nearest {name}", ["eval", "nearest", alone, alone, "out.png"]),
            (f"pixel-frechet {name}", ["eval", "pixel-frechet", alone, alone]),
            (f"lab {name}", ["lab", "--images", alone]),
        ]
    for name in ("bomb.zip", "entries.zip", "labels.zip"):
        found += [(f"data check {name}", ["data", "check", "--kind", "zip", "--path", bad / name]),
                  (f"train {name}", ["train", config, "--set", f"data={{kind='zip',path='{bad / name}'}}",
                                     "--set", "network.classes=2", "--out", "out"]),
                  (f"convert {name}", ["convert", bad / name, "out.safetensors"])]
    for name in ("numbers.npz", "single.npz", "images.npz", "entries.zip"):
        found += [(f"fid {name}", ["eval", "fid", bad / name, bad / name]), (f"kid {name}", ["eval", "kid", bad / name, bad / name]),
                  (f"pixel-frechet {name}", ["eval", "pixel-frechet", bad / name, bad / name]),
                  (f"merge {name}", ["eval", "merge", bad / name, bad / name, "out.npz"]),
                  (f"calibrate {name}", ["calibrate", run, "--images", bad / name])]
    found += [("data check idx", ["data", "check", "--kind", "idx", "--path", bad / "images-idx3-ubyte.gz"]),
              ("data check cifar", ["data", "check", "--kind", "cifar10", "--path", bad / "cifar"])]
    for name in sorted(path.name for path in bad.iterdir() if path.suffix in (".safetensors", ".pt")):
        file = bad / name
        found += [(f"sample {name}", ["sample", file, "--out", "out"]), (f"convert {name}", ["convert", file, "out.safetensors"]),
                  (f"convert to unet {name}", ["convert", file, "out.safetensors", "--network", "adm-cifar10"]),
                  (f"cost {name}", ["cost", file]), (f"pack {name}", ["models", "pack", file, "out.safetensors"]),
                  (f"get {name}", ["models", "get", "edges", "--from", file]),
                  (f"weights {name}", ["weights", "get", "inception", "--from", file]),
                  (f"lpips weights {name}", ["eval", "lpips", good, good, "--weights", file]),
                  (f"fid weights {name}", ["eval", "fid", inputs / "squares", inputs / "squares", "--weights", file]),
                  (f"train from {name}", ["train", "--from", file, "--out", "out"]),
                  (f"latent {name}", ["train", inputs / "latent.toml", "--set", f"latent.autoencoder='{file}'", "--out", "out"]),
                  (f"cache {name}", ["train", inputs / "latent.toml", "--set", f"latent.cache='{file}'", "--out", "out"])]
    found += [("eval edges mat", ["eval", "edges", good, bad / "bomb.mat"])]
    for name in sorted(path.name for path in bad.glob("*.toml")):
        found += [(f"{' '.join(verb)} {name}", [*verb, bad / name, *more])
                  for verb, more in ((["config", "check"], []), (["train"], ["--out", "out"]), (["sweep"], ["--out", "out"]))]
    for name in ("report.json", "objects.json"):
        found += [(f"summary {name}", ["eval", "summary", bad / name]),
                  (f"ttest {name}", ["eval", "ttest", bad / name, "--", bad / name])]
    found += [(f"resume with {name}", ["train", config, "--out", f"{name}.run", "--resume", "--set", "train.steps=13"])
              for name in ("log.jsonl", "lines.jsonl")]
    sample = lambda *more: ["sample", run, "--out", "out", *more]
    numbers = [
        sample("--count", BIG, "--steps", "1"), sample("--count", LAST), sample("--count", "64", "--batch", LAST),
        sample("--count", BIG, "--batch", "65536"), sample("--steps", "1000000", "--trajectory", "--count", "1"),
        sample("--interpolate", "0,1", "--count", BIG), sample("--class", ",".join(["0"] * 50_000)),
        ["calibrate", run, "--count", "4000000000"], ["calibrate", run, "--times", "--count", "4000000000"],
        ["calibrate", run, "--times", "--evaluations", "10000", "--candidates", "10000"],
        ["lab", "--samples", "1000000000000", "--out", "out"], ["lab", "--dim", BIG], ["lab", "--evaluations", BIG],
        ["compare", run, inputs / "flow", "--metric", "pixel-frechet", "--count", BIG, "--out", "out"],
        ["edit", good, "out", "--checkpoint", run, "--strength", "0.5", "--count", "100000"],
        ["edit", good, "out.png", "--checkpoint", run, "--strength", "0.5", "--steps", "1000000"],
        ["data", "imresize", good, "out.png", "--scale", "1000000"], ["data", "imresize", good, "out.png", "--scale", "4000"],
        ["sr", good, "out.png", "--checkpoint", task, "--tile", BIG], ["sr", good, "out.png", "--checkpoint", task, "--tile", "8192"],
        ["cost", run, "--batch", "65536"], ["cost", run, "--batch", BIG],
        ["bench", "unet", "--width", "4096", "--batch", "65536"], ["bench", "unet", "--resolution", "4096", "--batch", "64"],
        ["distill", run, "--to", "1073741824", "--out", "out"], ["distill", run, "--to", "4", "--from", LAST, "--out", "out"],
        ["average", inputs / "profiles", "--sweep", "0.05..0.1", "--count", BIG, "--metric", "pixel-frechet", "--out", "out"],
        ["eval", "kid", inputs / "squares", inputs / "squares", "--subsets", BIG, "--subset-size", BIG],
        ["eval", "is", inputs / "squares", "--splits", LAST], ["eval", "pr", inputs / "squares", inputs / "squares", "--neighbours", LAST],
        ["eval", "nearest", f"{inputs / 'squares'}[0:{LAST}]", inputs / "squares", "out.png"],
        ["reconstruct", ae, good, "out", "--resolution", "4096"], ["demo", "--out", "out"],
    ]
    for key in ("train.batch", "data.len", "train.steps", "train.accumulate", "train.loader_threads", "network.resolution",
                "network.width", "network.blocks", "train.log_every", "sample.steps", "network.classes"):
        numbers.append(["train", config, "--set", f"{key}={LAST}", "--out", "out"])
        numbers.append(["train", config, "--set", f"{key}=4096", "--out", "out"])
    found += [(" ".join(str(part)[-60:] for part in args), args) for args in numbers]
    return found


def measured(runner, args):
    """Exit code, peak memory in bytes, seconds, message."""
    shutil.rmtree(runner.work, ignore_errors=True)
    runner.work.mkdir(parents=True)
    for name in ("log.jsonl", "lines.jsonl"):
        if f"{name}.run" in args:
            shutil.copytree(runner.inputs / "run", runner.work / f"{name}.run")
            (runner.work / f"{name}.run/log.jsonl").unlink()
            os.link(runner.root / "hostile" / name, runner.work / f"{name}.run/log.jsonl")
    env = {"PATH": os.environ["PATH"], "HOME": str(runner.home), "XDG_DATA_HOME": f"{runner.home}/data"}
    command = [str(runner.binary), "--threads", "1", "--quiet", *map(str, args)]
    # A limit on the address space, so that a finding does not take the machine down.
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    began = time.monotonic()
    with open(runner.root / "message", "wb") as message:
        process = subprocess.Popen(command, cwd=runner.work, env=env, stdout=subprocess.DEVNULL, stderr=message, preexec_fn=limit)
        ended = 0
        while not ended and time.monotonic() - began < SECONDS:
            time.sleep(0.02)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if not ended:
            process.send_signal(signal.SIGKILL)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    text = (runner.root / "message").read_text(errors="replace").strip()
    code = process.returncode if ended else "still working"
    return code, usage.ru_maxrss * 1024, time.monotonic() - began, text


def campaign(runner, quick, only):
    folder = runner.root / "hostile"
    if not folder.exists():
        corpus.make(folder)
    wanted = [(name, args) for name, args in commands(folder, runner.inputs) if not only or any(word in name for word in only.split(","))]
    peaks = []
    for name, args in wanted[:: 12 if quick else 1]:
        code, peak, seconds, message = measured(runner, args)
        peaks.append({"run": name, "exit": code, "bytes": peak, "seconds": round(seconds, 1), "message": message[-300:]})
        problem = None
        if peak > MOST:
            problem = f"{peak / 1e6:.0f} MB"
        elif code not in (0, 1, 2, "still working") or "panicked" in message:
            problem = f"exit code {code}: {message[-300:]}"
        if problem:
            runner.findings.append({"campaign": "memory", "case": name, "finding": problem})
            print(f"  FINDING memory, {name}: {problem}", flush=True)
    return peaks


def markdown(peaks):
    """The largest peak of each verb."""
    if not peaks:
        return ""
    lines = ["", "| verb | runs | refused | largest peak, MB | by |", "|---|---|---|---|---|"]
    verbs = {}
    for peak in peaks:
        words = peak["run"].split()
        verbs.setdefault(" ".join(words[:2]) if words[0] in ("eval", "data") else words[0], []).append(peak)
    for verb, runs in verbs.items():
        largest = max(runs, key=lambda run: run["bytes"])
        refused = sum(run["exit"] in (1, 2) for run in runs)
        lines.append(f"| {verb} | {len(runs)} | {refused} | {largest['bytes'] / 1e6:.0f} | {largest['run'][:70]} |")
    return "\n".join(lines)
