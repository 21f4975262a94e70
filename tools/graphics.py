#!/usr/bin/env python3
"""Runs training, resumption, sampling and a task on a graphics device and compares the results with the CPU's.

  python3 tools/graphics.py BINARY [--device vulkan] [--picture FILE] [--fid WEIGHTS --images DIR]

BINARY is the program with the cargo feature of the device: `cargo build --release -p crossfade-cli --features vulkan`, or
`--features wgpu` for drivers that cannot take the engine's SPIR-V, such as the software device lavapipe of Mesa 22. With
--fid, the FID of samples in f32 and in half precision is measured against --images. Prints a table in Markdown and ends with 1
if a difference is beyond its tolerance. Needs numpy and Pillow. Scratch files go to --work, which is removed first.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

# Largest differences that count as rounding: of weights after training (relative rms) and of pixels (of 255, mean).
WEIGHTS, PIXELS = 2e-3, 0.5
# Without it some drivers complain on standard error.
ENVIRONMENT = {"XDG_RUNTIME_DIR": "/tmp", **os.environ}
CONFIG = """
[network]
resolution = 16
width = 32
mult = [1, 2]
blocks = 1
attention = [8]
dropout = 0.1
[optim]
lr = 1e-3
warmup = 5
ema_after = 5
ema_every = 1
[data]
kind = "procedural"
len = 256
[train]
batch = 8
checkpoint_every = 10
sample_every = 20
log_every = 1
keep = 9
"""


def weights(path):
    """The tensors of a checkpoint, in f32."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        if entry["dtype"] == "F32":
            start, end = entry["data_offsets"]
            found[name] = np.frombuffer(data[8 + size + start:8 + size + end], np.float32)
    return found


def distance(a, b):
    """The rms difference of all tensors of two checkpoints, relative to their size."""
    a, b = weights(a), weights(b)
    assert a.keys() == b.keys(), "the checkpoints have other tensors"
    difference = sum(float(np.square(a[n].astype(np.float64) - b[n]).sum()) for n in a)
    return (difference / sum(float(np.square(b[n].astype(np.float64)).sum()) for n in b)) ** 0.5


def pixels(a, b):
    """Mean and largest difference of the PNGs of two folders, or of two pictures, in steps of 255."""
    names = sorted(p.name for p in a.glob("*.png")) if a.is_dir() else [None]
    assert names, f"{a} has no pictures"
    load = lambda place, name: np.asarray(Image.open(place / name if name else place), np.float64)
    differences = [np.abs(load(a, name) - load(b, name)) for name in names]
    return float(np.mean([d.mean() for d in differences])), float(max(d.max() for d in differences))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--picture", type=Path, help="a photograph for the task")
    parser.add_argument("--count", type=int, default=16, help="pictures that are compared")
    parser.add_argument("--fid", type=Path, help="Inception weights")
    parser.add_argument("--images", type=Path, help="the real images, a folder or zip")
    parser.add_argument("--fid-count", type=int, default=1000)
    parser.add_argument("--work", type=Path, default=Path("graphics-scratch"))
    args = parser.parse_args()
    work, binary, device = args.work, args.binary.resolve(), args.device
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    failures = []

    def run(where, *words):
        """The seconds that the program took on that device; its error is the script's."""
        began = time.time()
        done = subprocess.run([binary, "--quiet", "--device", where, *map(str, words)], capture_output=True, text=True, env=ENVIRONMENT)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, words))} on {where}: {done.stderr.strip()}")
        return time.time() - began

    def row(what, value, limit, seconds):
        within = value <= limit
        if not within:
            failures.append(what)
        shown = " / ".join(f"{s:.1f}" for s in seconds)
        print(f"| {what} | {value:.2e} | {limit:.0e} | {'yes' if within else '**no**'} | {shown} |", flush=True)

    print(f"| {device} against cpu | difference | tolerance | within | seconds {device} / cpu |\n|---|---|---|---|---|")
    config = work / "run.toml"
    config.write_text(CONFIG)
    train = ["train", config, "--set", "train.steps=20", "--out"]
    seconds = [run(device, *train, work / "device"), run("cpu", *train, work / "cpu")]
    checkpoint = lambda out, step=20: work / out / "checkpoints" / f"step-{step:08}.safetensors"
    for step in (10, 20):
        row(f"weights after {step} steps, relative rms", distance(checkpoint("device", step), checkpoint("cpu", step)), WEIGHTS, seconds)
    # Interrupted at the first checkpoint, and resumed.
    words = [binary, "--quiet", "--device", device, *train, work / "cut"]
    child = subprocess.Popen([*map(str, words)], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    while child.poll() is None and not checkpoint("cut", 10).exists():
        time.sleep(0.05)
    child.terminate()
    child.wait()
    assert not checkpoint("cut").exists(), "the run had ended before it was interrupted"
    seconds = [run(device, "train", "--resume", "--out", work / "cut"), float("nan")]
    row("interrupted after 10 steps and resumed, against uninterrupted on the device", distance(checkpoint("cut"), checkpoint("device")), WEIGHTS, seconds)
    for sampler in ("alg2", "ab2"):
        words = ["--count", args.count, "--class", "all", "--steps", 10, "--sampler", sampler]
        seconds = [run(where, "sample", "emoji", *words, "--out", work / f"{sampler}-{where}") for where in (device, "cpu")]
        mean, largest = pixels(work / f"{sampler}-{device}", work / f"{sampler}-cpu")
        row(f"{args.count} pictures of `emoji` by {sampler}, mean of 255 (largest {largest:.0f})", mean, PIXELS, seconds)
    if args.picture:
        for verb in ("sr", "saliency"):
            outs = [work / f"{verb}-{where}.png" for where in (device, "cpu")]
            seconds = [run(where, verb, args.picture, out) for where, out in zip((device, "cpu"), outs)]
            mean, largest = pixels(*outs)
            row(f"`{verb}` of {args.picture.name}, mean of 255 (largest {largest:.0f})", mean, PIXELS, seconds)
    halves = []
    for precision in ("f16", "bf16"):
        words = ["--count", args.count, "--class", "all", "--steps", 10, "--sampler", "ab2", "--precision", precision]
        try:
            seconds = [run(device, "sample", "emoji", *words, "--out", work / precision), float("nan")]
        except RuntimeError as error:
            print(f"| `--precision {precision}` | {error} | | | |")
            continue
        mean, largest = pixels(work / precision, work / "ab2-cpu")
        row(f"`--precision {precision}` against f32 on the cpu, mean of 255 (largest {largest:.0f})", mean, 8 * PIXELS, seconds)
        halves.append(precision)
    if args.fid:
        for precision in ("f32", *halves):
            out = work / f"fid-{precision}"
            took = run(device, "sample", "emoji", "--count", args.fid_count, "--class", "random", "--precision", precision, "--out", out)
            command = [binary, "--quiet", "--json", "eval", "fid", args.images, out, "--weights", args.fid]
            done = subprocess.run([*map(str, command)], capture_output=True, text=True)
            print(f"| FID of {args.fid_count} pictures in {precision} | {done.stdout.strip() or done.stderr.strip()} | | | {took:.1f} |")
    if failures:
        sys.exit(f"beyond their tolerance: {', '.join(failures)}")


if __name__ == "__main__":
    main()
