#!/usr/bin/env python3
"""Runs the program as several ranks of Open MPI and compares every byte with one process.

  python3 tools/ranks.py BINARY kinds     every kind of training on 1 to 4 ranks, and resumed from 4 on 2
  python3 tools/ranks.py BINARY kills     SIGKILL of a random rank at 20 moments (--kills), each time resumed on another number of
                                          ranks; of the kinds of --only, unconditional by default, `all` for all of them
  python3 tools/ranks.py BINARY verbs     sample, sweep, eval stats and tasks over folders; ranks that fail
  python3 tools/ranks.py BINARY speed     two ranks of one thread against one process of two threads, on a machine at rest
  python3 tools/ranks.py BINARY hosts     two hosts, which are network namespaces (as root): bytes, and one of them cut off
  python3 tools/ranks.py BINARY times     seconds and bytes of a step on two such hosts, against the formula of docs/SCALING.md

BINARY is the program with the feature mpi. Scratch files go to --work, which is removed first.
"""
import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

TRAIN = """
[train]
steps = 50
batch = 2
accumulate = 4
checkpoint_every = 10
log_every = 1
sample_every = 50
keep = 5
loader_threads = 1
"""
SMALL = """
[optim]
lr = 1e-3
warmup = 5
ema_after = 5
ema_every = 1
[data]
kind = "procedural"
len = 64
""" + TRAIN
UNET = """
[network]
resolution = 8
width = 16
mult = [1, 2]
blocks = 1
attention = [4]
dropout = 0.1
"""
TASK = """
[network]
kind = "cond-unet"
channels = 3
condition_channels = 4
width = 16
mult = [1, 2]
heads = 1
encoder = { kind = "unet", width = 16, stride = 2 }
condition_windows = [[4, 4], [2, 2]]
feature_windows = [[4, 4], [2, 2]]
[task]
kind = "inpainting"
size = 16
mask_channel = true
"""
AUTOENCODER = """
[autoencoder]
resolution = 16
channels = 3
width = 32
mult = [1, 1]
blocks = 1
[loss]
perceptual = 0.0
disc_start = 10
disc_width = 8
disc_depth = 2
""" + SMALL.replace("sample_every = 50\n", "sample_every = 50\n")
BASELINES = ["ddpm", "ddpm-x0", "vp", "ve", "edm", "flow", "lsgm", "cld"]
ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Ranks that wait leave the cores to the others: there may be more ranks than cores.
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


class Failed(Exception):
    """A check that does not hold."""


def program(binary, ranks, *words):
    """The command line on that many ranks; none for one process without mpirun."""
    start = [] if ranks is None else ["mpirun", "-n", str(ranks)]
    return [*start, str(binary), "--threads", "1", "--quiet", *map(str, words)]


def run(command, **more):
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, **more)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def result(directory):
    """Checkpoints and sheets of all runs below a directory by their hash, and their losses."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.suffix in (".safetensors", ".png"):
            found[name] = digest(path)
        elif path.name == "log.jsonl":
            # Time is not the same in any two runs.
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = [{k: v for k, v in line.items() if k != "images_per_second"} for line in lines]
    if not found:
        raise Failed(f"{directory} has no results")
    return found


def must_equal(got, wanted, what):
    if got != wanted:
        names = [name for name in sorted({*got, *wanted}) if got.get(name) != wanted.get(name)]
        raise Failed(f"{what}: {', '.join(names[:5])} of one process are different")


def kinds(work, steps=50, every=10):
    """The command line of every kind of training, by name, without its directory: of so many steps, with a checkpoint every few."""

    def config(name, text):
        path = work / f"{name}.toml"
        path.write_text(text.replace("\nsteps = 50\n", f"\nsteps = {steps}\n").replace("checkpoint_every = 10", f"checkpoint_every = {every}"))
        return path

    train = {"unconditional": UNET + SMALL, "task": TASK + SMALL, "autoencoder": AUTOENCODER}
    unclipped = "[sample]\nclip = 0.0\n"
    latent = f'[latent]\nautoencoder = "{work}/autoencoder/alone"\n'
    for name in BASELINES:
        # Two outputs for a process with two targets.
        decoders = "conv" if name == "ddpm-x0" else "one"
        # LSGM is defined on latents.
        ahead = unclipped + latent if name == "lsgm" else ""
        train[name] = ahead + f'[process]\nkind = "{name}"\n' + UNET.replace("[network]", f'[network]\ndecoders = "{decoders}"') + SMALL
    train["latent"] = unclipped + latent + UNET + SMALL
    cache = f'cache = "{work}/latents-RANKS.safetensors"\n'
    train["latent-cache"] = unclipped + latent + cache + UNET + SMALL
    found = {name: ["train", config(name, text)] for name, text in train.items()}
    teacher = work / "unconditional/alone"
    sets = ["--set", "train.accumulate=4", "--set", f"train.checkpoint_every={every}"]
    found["distillation"] = ["distill", teacher, "--to", "2,1", "--steps", steps, *sets]
    return found


def one_kind(binary, work, name, words):
    def begin(label, ranks, *more):
        # A cache names its file in the configuration, so each number of ranks has the same name in turn.
        if name == "latent-cache":
            (work / "latents-RANKS.safetensors").unlink(missing_ok=True)
        return program(binary, ranks, *words, "--out", work / name / label, *more)

    run(begin("alone", None))
    wanted = result(work / name / "alone")
    cache = work / "latents-RANKS.safetensors"
    latents = digest(cache) if name == "latent-cache" else None
    for ranks in (1, 2, 3, 4):
        run(begin(str(ranks), ranks))
        must_equal(result(work / name / str(ranks)), wanted, f"{name} on {ranks} ranks")
        if latents and digest(cache) != latents:
            raise Failed(f"{name} on {ranks} ranks: other latents in the cache")
    out = work / name / "resumed"
    seen = kill_when(begin("resumed", 4), lambda: any(out.rglob("step-00000020.safetensors")))
    run(program(binary, 2, *words, "--out", out, "--resume"))
    got = result(out)
    last = [key for key in wanted if key.endswith("00000050.safetensors") or key.endswith("log.jsonl")]
    must_equal({key: got.get(key) for key in last}, {key: wanted[key] for key in last}, f"{name} resumed")
    print(f"{name}: {len(wanted)} files the same on 1, 2, 3 and 4 ranks; killed after step {seen} on 4, resumed on 2", flush=True)


def newest(directory):
    steps = [int(path.stem.split("-")[1]) for path in directory.rglob("checkpoints/step-*.safetensors")]
    return max(steps, default=0)


def ranks_of(mpirun):
    """The processes that mpirun has started, on this machine."""
    text = subprocess.run(["pgrep", "-P", str(mpirun.pid)], capture_output=True, text=True).stdout
    return [int(pid) for pid in text.split()]


def kill_when(command, due):
    """Starts the command and kills a random rank when `due()`; the last step that was saved."""
    out = Path(command[command.index("--out") + 1])
    child = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while child.poll() is None and not due():
        time.sleep(0.002)
    pids = ranks_of(child)
    if child.poll() is not None or not pids:
        raise Failed(f"{' '.join(command)} ended before it could be killed: {child.stderr.read()}")
    os.kill(random.choice(pids), signal.SIGKILL)
    child.communicate(timeout=60)
    if child.returncode == 0:
        raise Failed("mpirun has not noticed that a rank was killed")
    return newest(out)


def test_kinds(binary, work, only, _kills):
    began = time.time()
    wanted = {name: words for name, words in kinds(work).items() if not only or name in only}
    for name, words in wanted.items():
        one_kind(binary, work, name, words)
    print(f"{len(wanted)} kinds in {time.time() - began:.0f} s")


def test_kills(binary, work, only, kills):
    steps = 300
    every_kind = kinds(work, steps, 3)
    wanted = list(every_kind) if only == ["all"] else only or ["unconditional"]
    # Latents and students need the results of these.
    for name in [name for name in every_kind if name in wanted or name in ("unconditional", "autoencoder")]:
        run(program(binary, None, *every_kind[name], "--out", work / name / "alone"))
    for name in wanted:
        kills_of_kind(binary, work, name, every_kind[name], kills, f"step-{steps:08}.safetensors")


def kills_of_kind(binary, work, name, words, wanted, last):
    """Kills a random rank `wanted` times, in as many runs as that takes; each must end with the checkpoints of one process."""

    def ends(directory):
        return {key: value for key, value in result(directory).items() if key.endswith(last)}

    alone = ends(work / name / "alone")
    if not alone:
        raise Failed(f"{name}: one process has not made {last}")
    kills, runs, slowest, steps = 0, 0, 0.0, []
    while kills < wanted:
        out, runs = work / name / f"killed-{runs}", runs + 1
        # The next run encodes its images again.
        (work / "latents-RANKS.safetensors").unlink(missing_ok=True)
        ended = False
        while not ended:
            # After the last kill the run is finished.
            more = ["--resume"] if newest(out) else []
            command = program(binary, random.choice([2, 3, 4]), *words, "--out", out, *more)
            child = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if kills < wanted:
                time.sleep(random.uniform(0.2, 2.5))
            pids = ranks_of(child)
            if kills < wanted and child.poll() is None and pids:
                try:
                    os.kill(random.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    # It has ended meanwhile.
                    child.communicate(timeout=600)
                    continue
                killed = time.time()
                child.communicate(timeout=60)
                slowest, kills = max(slowest, time.time() - killed), kills + 1
                steps.append(newest(out))
            else:
                _, err = child.communicate(timeout=600)
                if child.returncode != 0:
                    raise Failed(f"{name}: a resumed run ended with {child.returncode}: {err}")
                ended = True
        must_equal(ends(out), alone, f"{name}, after kills at {steps}")
    print(f"{name}: {kills} kills of a random rank in {runs} runs, after the checkpoints {steps}: the last checkpoint is always that "
          f"of one process; mpirun had ended {slowest:.1f} s after a kill at the latest", flush=True)


def test_speed(binary, work, _only, _kills):
    config = Path(__file__).resolve().parents[1] / "studies/cifar10-mini.toml"
    sets = ["data.kind=procedural", "train.batch=16", "train.accumulate=2", "train.steps=40", "train.log_every=1",
            "train.sample_every=0", "train.checkpoint_every=40"]
    words = ["train", config, *[word for value in sets for word in ("--set", value)], "--out"]

    def speed(ranks, threads, label):
        command = program(binary, ranks, *words, work / label)
        command[command.index("--threads") + 1] = str(threads)
        run(command)
        lines = (work / label / "log.jsonl").read_text().splitlines()
        # The first steps fill caches and pools.
        return statistics.median(json.loads(line)["images_per_second"] for line in lines[10:])

    rounds = []
    for k in range(4):
        rounds.append((speed(None, 2, f"threads-{k}"), speed(2, 1, f"ranks-{k}")))
        print(f"one process of two threads {rounds[-1][0]:.1f} images/s, two ranks of one thread {rounds[-1][1]:.1f}, "
              f"ratio {rounds[-1][1] / rounds[-1][0]:.3f}", flush=True)
    print(f"median ratio {statistics.median(b / a for a, b in rounds):.3f}")


def tree(directory):
    return {str(p.relative_to(directory)): digest(p) for p in sorted(directory.rglob("*")) if p.is_file()}


def test_verbs(binary, work, _only, _kills):
    shared = Path(os.environ.get("CROSSFADE_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    config = work / "run.toml"
    config.write_text(UNET + SMALL)
    run(program(binary, None, "train", config, "--out", work / "run"))
    photos = work / "photos"
    run(program(binary, None, "sample", "emoji", "--class", "all", "--count", "7", "--steps", "2", "--out", photos))
    (photos / "sheet.png").unlink()
    (work / "study.toml").write_text(
        'title = "Ranks"\nbase = "run.toml"\n[[model]]\nname = "Adm"\nsamplers = ["alg2", "ab2"]\n[[model]]\nname = "Flow"\n'
        'set = ["process.kind=flow"]\nsamplers = ["heun"]\n[sample]\nevaluations = [1, 3]\nseeds = [0, 1]\ncount = 20\n'
        '[evaluate]\nmetric = "pixel-frechet"\n')
    weights = shared / "data/weights/inception_fid_2015-12-05_fp32.safetensors"
    verbs = {
        "sample": ["sample", work / "run", "--count", "21", "--steps", "4", "--batch", "2", "--trajectory", "--out", "OUT"],
        "interpolate": ["sample", work / "run", "--interpolate", "3,8", "--count", "9", "--out", "OUT"],
        "classes": ["sample", "emoji", "--class", "all", "--count", "48", "--steps", "2", "--out", "OUT"],
        "sr": ["sr", photos, "OUT", "--steps", "1"],
        "inpaint": ["inpaint", photos, "OUT", "--random-mask", "--steps", "1"],
        "edge": ["edge", photos, "OUT", "--steps", "1"],
        "sweep": ["sweep", work / "study.toml", "--out", "OUT"],
        "stats": ["eval", "stats", photos, "OUT/all.npz", "--weights", weights],
    }
    for name, words in verbs.items():
        if name == "stats" and not weights.exists():
            print(f"skipped: no weights in {weights}")
            continue

        def make(label, ranks):
            out = work / name / label
            out.mkdir(parents=True)
            run(program(binary, ranks, *[str(word).replace("OUT", str(out)) for word in words]))
            if name == "sweep":
                return {part: digest(out / part) for part in ("results.json", "results.csv", "table.md", "chart.svg")}
            return tree(out)

        wanted = make("alone", None)
        for ranks in (1, 2, 3, 4):
            must_equal(make(str(ranks), ranks), wanted, f"{name} on {ranks} ranks")
        print(f"{name}: {len(wanted)} files the same on 1, 2, 3 and 4 ranks", flush=True)
    failing(binary, work, photos)


def fail(command, *texts):
    """The command must fail within seconds, and say each of the texts."""
    began = time.time()
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    said = re.sub(r"\s+", " ", done.stderr)
    missing = [text for text in texts if text not in said]
    if done.returncode == 0 or missing:
        raise Failed(f"{' '.join(command)}: {done.returncode}, without {missing}:\n{done.stderr}")
    return time.time() - began


def failing(binary, work, photos):
    """Errors of one rank stop all of them with its number and reason."""
    broken = work / "broken"
    shutil.copytree(photos, broken)
    (broken / "000001.png").write_bytes(b"no picture")
    took = fail(program(binary, 3, "sr", broken, work / "failed", "--steps", "50"),
                "rank 1: error", "000001.png", "rank 0: error: rank 1 has failed", "rank 2: error: rank 1 has failed")
    print(f"a broken picture of rank 1 stops three ranks after {took:.1f} s, with its number and reason on all of them")
    other = program(binary, None, "train", work / "run.toml", "--out", work / "disagree")
    took = fail([*program(binary, 1, *other[4:]), "--seed", "1", ":", "-n", "1", *other, "--seed", "2"],
                "the configuration of rank", "rank 0: error", "rank 1: error")
    print(f"another configuration on rank 1 stops both after {took:.1f} s")
    diverging = ["optim.lr=1e30", "optim.clip=0", "optim.warmup=0", "train.accumulate=1"]
    sets = [word for value in diverging for word in ("--set", value)]
    took = fail(program(binary, 3, "train", work / "run.toml", "--out", work / "diverged", *sets),
                "rank 0: error", "rank 1: error", "rank 2: error", "rank 0 has failed: step", "not finite")
    print(f"a loss of rank 0 that is not finite stops three ranks after {took:.1f} s, with its number and reason")
    # The same path and names on two hosts, here in two directories, but one picture is another one.
    for name in ("one", "two"):
        shutil.copytree(photos, work / name / "photos")
    shutil.copy(photos / "000000.png", work / "two/photos/000003.png")
    folder = (UNET + SMALL).replace('kind = "procedural"\nlen = 64', 'kind = "folder"\npath = "photos"')
    (work / "folder.toml").write_text(folder)
    train = program(binary, None, "train", work / "folder.toml", "--out", work / "other-data")
    took = fail(["mpirun", "-n", "1", "-wdir", str(work / "one"), *train, ":", "-n", "1", "-wdir", str(work / "two"), *train],
                "rank 0: error", "rank 1: error", "the data of rank", "with the digest")
    print(f"another picture of the same name on rank 1 stops both after {took:.1f} s, before the first step")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("tests", nargs="+", choices=["kinds", "kills", "verbs", "speed", "hosts", "times"])
    parser.add_argument("--only", nargs="*", help="only these kinds")
    parser.add_argument("--kills", type=int, default=20, help="kills of each kind [default: 20]")
    parser.add_argument("--work", type=Path, default=Path("/tmp/crossfade-ranks"))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random.seed(args.seed)
    for name in args.tests:
        work = args.work / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            if name in ("hosts", "times"):
                import ranks_hosts
                (ranks_hosts.test if name == "hosts" else ranks_hosts.times)(args.binary.resolve(), work)
            else:
                {"kinds": test_kinds, "kills": test_kills, "verbs": test_verbs, "speed": test_speed}[name](
                    args.binary.resolve(), work, args.only, args.kills)
        except Failed as failure:
            sys.exit(f"{name}: {failure}")


if __name__ == "__main__":
    main()
