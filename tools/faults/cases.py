"""The verbs that the campaigns run, with inputs small enough that each takes a fraction of a second.

A command writes only paths that begin with `result`, relative to its directory, so that messages can be searched for them.
"""
import os
import shutil
import struct
import subprocess
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

RUN = """
seed = 4
[network]
resolution = 8
width = 8
mult = [1, 2]
blocks = 1
attention = []
dropout = 0.0
{network}
[data]
kind = "procedural"
len = 64
[optim]
lr = 1e-3
warmup = 2
ema_after = 3
ema_every = 1
{optim}
[train]
steps = {steps}
batch = 4
checkpoint_every = 4
sample_every = 6
log_every = 1
keep = 2
loader_threads = 1
{train}
"""

AUTOENCODER = """
seed = 4
[autoencoder]
resolution = 16
width = 32
mult = [1, 1]
blocks = 1
latent = 2
[data]
kind = "procedural"
len = 8
[loss]
perceptual = 0.0
disc_start = 100
[train]
steps = 4
batch = 2
checkpoint_every = 1
sample_every = 2
log_every = 1
keep = 2
loader_threads = 1
"""

LATENT = """
seed = 4
[latent]
autoencoder = "{inputs}/ae"
cache = "result-cache/latents.safetensors"
[network]
resolution = 8
channels = 2
width = 8
mult = [1]
blocks = 1
attention = []
[data]
kind = "procedural"
len = 96
[train]
steps = 4
batch = 2
checkpoint_every = 2
sample_every = 2
log_every = 1
loader_threads = 1
[sample]
clip = 0.0
"""

TASK = """
[task]
kind = "super-resolution"
scale = 2
size = 16
low = "enlarged"
[data]
kind = "procedural"
len = 8
[network]
kind = "cond-unet"
width = 8
mult = [1, 2]
encoder = {{ kind = "unet", width = 8, stride = 1 }}
condition_windows = [[2, 2], [1, 1]]
feature_windows = [[2, 2], [1, 1]]
[train]
steps = 4
batch = 2
sample_every = 2
checkpoint_every = 1
log_every = 1
keep = 2
loader_threads = 1
[optim]
ema_after = 0
warmup = 0
"""

STUDY = """
title = "interrupted"
base = "run.toml"
set = ["train.steps=8", "train.sample_every=0"]
[[model]]
name = "adm"
[[model]]
name = "flow"
set = ["process.kind=flow"]
[sample]
steps = [1, 2]
seeds = [0, 1]
count = 12
[evaluate]
metric = "pixel-frechet"
"""


@dataclass
class Case:
    """A command and what it needs."""

    name: str
    args: list
    # Copies what the command changes into the directory that it runs in.
    prepare: Callable = lambda inputs, work: None
    # The command only prints, so that a full disk is no failure.
    writes: bool = True
    # It takes seconds, and gets a smaller share of the points.
    slow: bool = False
    environment: dict = field(default_factory=dict)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, pixel):
    """A PNG of 8-bit RGB; `pixel(x, y)` gives three numbers."""
    rows = b"".join(b"\0" + bytes(v for x in range(width) for v in pixel(x, y)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def pictures(folder, count, width, height):
    folder.mkdir(parents=True)
    for k in range(count):
        shade = lambda x, y: ((7 * x + 31 * k) % 256, (11 * y) % 256, (3 * x * y + k) % 256)
        (folder / f"{k}.png").write_bytes(png(width, height, shade))


def run_toml(network="", optim="", train="", steps=12):
    return RUN.format(network=network, optim=optim, train=train, steps=steps)


def program(binary, args, cwd, home, timeout=300, **more):
    """Runs the program to its end in a clean environment; more variables are given as `env`."""
    base = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_CACHE_HOME": f"{home}/cache", "XDG_DATA_HOME": f"{home}/data"}
    env = {**base, **more.pop("env", {})}
    command = [str(binary), "--threads", "1", "--quiet", *map(str, args)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, timeout=timeout, **more)


def make_inputs(binary, inputs, home):
    """Configurations, trained networks and pictures that the cases share."""
    inputs.mkdir(parents=True)
    home.mkdir(parents=True, exist_ok=True)
    configs = {
        "run": run_toml(train="tensorboard = true"),
        "profiles": run_toml(optim="ema_profiles = [0.05, 0.1]", train="average_every = 4"),
        "classes": run_toml(network="classes = 6", train="label_dropout = 0.1"),
        "flow": run_toml(network='decoders = "one"') + '[process]\nkind = "flow"\n',
        "ae": AUTOENCODER,
        "latent": LATENT.format(inputs=inputs),
        "task": TASK.format(),
    }
    for name, text in configs.items():
        (inputs / f"{name}.toml").write_text(text)
    (inputs / "study.toml").write_text(STUDY)
    pictures(inputs / "pictures", 3, 12, 9)
    pictures(inputs / "squares", 6, 8, 8)
    pictures(inputs / "faces", 3, 16, 16)
    (inputs / "lines").mkdir()
    for k in range(2):
        line = png(16, 16, lambda x, y: (255 * (x == 7 + k),) * 3)
        (inputs / "lines" / f"{k}.png").write_bytes(line)
    for name in ("run", "profiles", "flow", "ae", "task"):
        done = program(binary, ["train", inputs / f"{name}.toml", "--out", inputs / name], inputs, home)
        if done.returncode:
            raise SystemExit(f"training {name}: {done.stderr.decode()}")


def all_cases(inputs, inception):
    """Every long verb, and short ones that write."""
    train = lambda name: ["train", inputs / f"{name}.toml", "--out", "result", "--resume"]
    copy_run = lambda i, work: shutil.copytree(i / "run", work / "result")
    checkpoint = "checkpoints/step-00000012.safetensors"
    few = ["--steps", "2"]
    cases = [
        Case("train", train("run")),
        Case("train averages", train("profiles")),
        Case("train classes", train("classes")),
        Case("train flow", train("flow")),
        Case("train autoencoder", train("ae"), slow=True),
        Case("train latent, encoding a cache", train("latent")),
        Case("train task", train("task"), slow=True),
        Case("train from a model", ["train", "--from", inputs / "run", "--out", "result", "--resume", "--set", "train.steps=8",
                                     "--set", "train.checkpoint_every=3"]),
        Case("distill", ["distill", inputs / "run", "--to", "2,1", "--steps", "6", "--out", "result", "--resume"]),
        Case("sample", ["sample", inputs / "run", "--count", "12", "--batch", "4", "--trajectory", *few, "--out", "result"]),
        Case("sr", ["sr", inputs / "pictures", "result", "--checkpoint", inputs / "task", "--steps", "1"]),
        Case("edge", ["edge", inputs / "pictures", "result", "--steps", "1"], slow=True),
        Case("inpaint", ["inpaint", inputs / "faces", "result", "--mask", inputs / "faces/0.png", "--steps", "1"], slow=True),
        Case("edit", ["edit", inputs / "squares", "result", "--checkpoint", inputs / "run", "--strength", "0.6", "--steps", "5"]),
        Case("edit to noise", ["edit", inputs / "squares/1.png", "result.png", "--checkpoint", inputs / "run", "--invert",
                               "--steps", "5", "--noise", "result-noise.safetensors"]),
        Case("sweep", ["sweep", inputs / "study.toml", "--out", "result", "--batch", "8"]),
        Case("compare", ["compare", inputs / "run", inputs / "flow", "--out", "result", "--metric", "pixel-frechet",
                         "--count", "12", "--seeds", "0,1", "--evaluations", "2"]),
        Case("average", ["average", inputs / "profiles", "--sigma", "0.07", "--out", "result.safetensors"]),
        Case("average sweep", ["average", inputs / "profiles", "--sweep", "0.05..0.1", "--points", "2", "--out", "result",
                               "--metric", "pixel-frechet", "--count", "12", "--seeds", "0,1", "--evaluations", "2"]),
        Case("calibrate, saving", ["calibrate", "result", "--times", "--save", "--count", "12", "--candidates", "4",
                                   "--evaluations", "3"], prepare=copy_run),
        Case("convert", ["convert", inputs / "run" / checkpoint, "result.safetensors", "--weights", "model"]),
        Case("models pack", ["models", "pack", inputs / "run", "result.safetensors"]),
        Case("models get", ["models", "get", "edges", "--out", "result.safetensors"]),
        Case("reconstruct", ["reconstruct", inputs / "ae", inputs / "faces", "result"]),
        Case("data imresize", ["data", "imresize", inputs / "pictures", "result", "--scale", "1/3"]),
        Case("eval nearest", ["eval", "nearest", inputs / "squares", inputs / "squares", "result.png"]),
        Case("eval edges", ["eval", "edges", inputs / "lines", inputs / "lines", "--thresholds", "9", "--out", "result",
                            "--plot", "result-plot.svg", "--per-image", "result.csv"]),
        Case("demo", ["demo", "--out", "result"], slow=True),
        Case("lab", ["lab", "--samplers", "ab2,ddim", "--evaluations", "3,6", "--samples", "40", "--out", "result"]),
    ]
    if inception:
        cases += [Case("eval stats", ["eval", "stats", inputs / "squares", "result.npz", "--weights", inception], slow=True)]
    return cases
