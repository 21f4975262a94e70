#!/usr/bin/env python3
"""Compares the speed and memory of crossfade with PyTorch, onnxruntime and OpenVINO on one network.

    cargo build --release
    python3 tools/compare_peers.py --peers ../shared/peers

Every peer runs in a process of its own, in turn, for several rounds. What is printed are ratios of medians with the
least and the greatest ratio of a round, so that a machine whose speed drifts does not decide the result. CPU time that
other programs take is read from /proc/stat before and during every run; a run that was disturbed is repeated, and if
that does not help nothing is reported (exit code 3).

`--store FILE` keeps every run, so that a comparison can be made in pieces (`--what`, `--networks`, `--batch`) and
reported later (`--report`). Needs Linux; the peers are in tools/README.md.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS, BEST = "crossfade", "best torch"
PEERS = ["torch eager", "torch channels_last", "onnxruntime", "openvino"]
TORCH = PEERS[:2]
# Networks as width:decoders:blocks: the default of `bench unet`, and the reference's two on CIFAR-10.
NETWORKS = ["64:2:2", "160:1:3", "192:2:3"]
# Goals: at least this many times faster, at most this share of the memory.
SPEED = {"forward": (BEST, 2.0), "train": (BEST, 1.5), "sample": (BEST, 2.0)}
OPENVINO_FORWARD = 1.5
MEMORY = {"sample": 0.5, "train": 0.7}
SCALING, START_MS = 1.85, 200.0


class Busy(Exception):
    """The machine works for somebody else."""


# --- watching the machine ---------------------------------------------------------------------------------------------

def cpu_seconds():
    """Seconds that all processors have worked (or were taken away by a hypervisor) since boot."""
    fields = open("/proc/stat").readline().split()[1:9]
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def children_seconds():
    times = os.times()
    return times.children_user + times.children_system + times.user + times.system


class Watch:
    """The share of all processors that others use, from entering to leaving."""

    def __enter__(self):
        self.start = time.perf_counter(), cpu_seconds(), children_seconds()
        return self

    def __exit__(self, *_):
        wall, busy, ours = (b - a for a, b in zip(self.start, (time.perf_counter(), cpu_seconds(), children_seconds())))
        self.wall = wall
        # The counters move in hundredths of a second.
        self.foreign = max(0.0, busy - ours - 0.02) / (wall * os.cpu_count())


def wait_for_quiet(limit, patience):
    deadline = time.monotonic() + patience
    while True:
        with Watch() as watch:
            time.sleep(0.5)
        if watch.foreign <= limit:
            return
        if time.monotonic() > deadline:
            raise Busy(f"other programs use {watch.foreign:.0%} of the processors")


def measured(args, run):
    """The result of `run` from a time in which nobody disturbed it."""
    for _ in range(args.attempts):
        wait_for_quiet(args.foreign, args.patience)
        with Watch() as watch:
            result = run()
        if watch.foreign <= args.foreign:
            return {**result, "foreign": round(watch.foreign, 4)}
        print(f"  disturbed: other programs used {watch.foreign:.1%}; again", file=sys.stderr)
    raise Busy(f"{args.attempts} runs were disturbed, the last by {watch.foreign:.1%} of the processors")


# --- the runs ---------------------------------------------------------------------------------------------------------

def last_json(command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout[done.stdout.index("{"):])


def network(text):
    width, decoders, blocks = map(int, text.split(":"))
    return {"width": width, "decoders": decoders, "blocks": blocks}


def options(net, what, batch, threads, args):
    pairs = {**network(net), "what": what, "batch": batch, "threads": threads, "repeat": args.repeat,
             "steps": args.steps}
    return [part for key, value in pairs.items() for part in (f"--{key}", str(value))]


def export(net, batch, args, models):
    """The ONNX file of the peer's network, made once."""
    path = models / f"{net.replace(':', '-')}-b{batch}.onnx"
    if not path.exists():
        print(f"  exporting {net}, batch {batch}", file=sys.stderr)
        worker = ["export", str(path), *options(net, "forward", batch, args.threads, args)]
        subprocess.run([args.python, __file__, "--worker", *worker], check=True, cwd=args.peers, stdout=sys.stderr)
    return path


def run_peer(peer, net, what, batch, threads, args, models):
    chosen = options(net, what, batch, threads, args)
    if peer == OURS:
        return last_json([args.crossfade, "bench", "unet", "--json", *chosen])
    if peer in TORCH:
        return last_json([args.python, args.peers / "bench_torch.py", "--mode", peer.split()[1], *chosen])
    path = export(net, batch, args, models)
    return last_json([args.python, __file__, "--worker", peer, path, *chosen], cwd=args.peers)


def matching(runs, **which):
    return [r for r in runs if all(r.get(k) == v for k, v in which.items())]


def next_round(runs, **which):
    """Rounds of a comparison in pieces go on counting."""
    return 1 + max((r["round"] for r in matching(runs, **which)), default=-1)


def compare(net, what, batch, args, models, keep):
    peers = [OURS] + [p for p in args.only if p in TORCH or what != "train"]
    for peer in peers:
        if peer not in TORCH and peer != OURS:
            export(net, batch, args, models)
    first = next_round(keep.runs, kind="speed", network=net, what=what, batch=batch)
    for turn in range(first, first + args.rounds):
        # Another one begins each round.
        for peer in peers[turn % len(peers):] + peers[:turn % len(peers)]:
            run = measured(args, lambda: run_peer(peer, net, what, batch, args.threads, args, models))
            keep({"kind": "speed", "network": net, "what": what, "batch": batch, "peer": peer, "round": turn,
                  "threads": args.threads, "steps": args.steps, "ms": run["median_ms"], "rss_mb": run["peak_rss_mb"],
                  "foreign": run["foreign"]})


def scaling(net, what, batch, args, models, keep):
    first = next_round(keep.runs, kind="scaling", network=net, what=what, batch=batch)
    for turn in range(first, first + args.rounds):
        for threads in ([1, 2] if turn % 2 else [2, 1]):
            run = measured(args, lambda: run_peer(OURS, net, what, batch, threads, args, models))
            keep({"kind": "scaling", "network": net, "what": what, "batch": batch, "threads": threads, "round": turn,
                  "ms": run["median_ms"], "foreign": run["foreign"]})


def start(args, keep):
    """From the start of `crossfade sample` to its first evaluation, and the whole process with one step of one image."""
    with tempfile.TemporaryDirectory() as directory:
        run_dir = pathlib.Path(directory) / "run"
        subprocess.run([args.crossfade, "train", ROOT / "configs/tiny.toml", "--out", run_dir, "-q", "--set",
                        "train.steps=1", "--set", "train.sample_every=0"], check=True, stdout=subprocess.DEVNULL)
        command = [args.crossfade, "sample", run_dir, "--count", "1", "--steps", "1", "--out",
                   pathlib.Path(directory) / "pictures", "--json", "-q"]
        for turn in range(max(5, args.rounds)):
            def once():
                began = time.perf_counter()
                facts = last_json(command)
                return {"start_ms": facts["start_ms"], "process_ms": (time.perf_counter() - began) * 1e3}
            run = measured(args, once)
            keep({"kind": "start", "round": turn, "start_ms": run["start_ms"], "process_ms": run["process_ms"],
                  "foreign": run["foreign"]})


# --- the workers, in processes of their own, started in the directory of the peer's network ----------------------------

def worker(words):
    import numpy as np
    p = argparse.ArgumentParser()
    p.add_argument("peer")
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("--what", default="forward")
    for name in ["width", "decoders", "blocks", "batch", "threads", "repeat", "steps"]:
        p.add_argument(f"--{name}", type=int)
    a = p.parse_args(words)
    if a.peer == "export":
        return export_onnx(a)
    evaluate = {"onnxruntime": onnxruntime_network, "openvino": openvino_network}[a.peer](a)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((a.batch, 3, 32, 32), dtype=np.float32)
    t = rng.uniform(0.01, 0.99, a.batch).astype(np.float32)

    def sample():
        x, times = noise, np.linspace(1.0, 0.0, a.steps + 1, dtype=np.float32)
        for now, then in zip(times[:-1], times[1:]):
            phi, eps = evaluate(x, np.full(a.batch, now))
            x = x + phi * (then - now) + eps * (np.sqrt(then) - np.sqrt(now))

    work = sample if a.what == "sample" else lambda: evaluate(noise, t)
    for _ in range(2):
        work()
    times = []
    for _ in range(a.repeat):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1e3)
    import resource
    print(json.dumps({"peer": a.peer, "median_ms": round(statistics.median(times), 2),
                      "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


def export_onnx(a):
    import warnings

    import torch
    sys.path.insert(0, ".")
    from torch_unet import Adm
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    net = Adm(width=a.width, decoders=a.decoders, blocks=a.blocks).eval()
    x, t = torch.randn(a.batch, 3, 32, 32), torch.rand(a.batch) * 0.98 + 0.01
    torch.onnx.export(net, (x, t), a.model, input_names=["x", "t"], output_names=["phi", "eps"], dynamo=False)


def onnxruntime_network(a):
    import onnxruntime
    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = a.threads
    chosen.add_session_config_entry("session.set_denormal_as_zero", "1")
    session = onnxruntime.InferenceSession(a.model, chosen, providers=["CPUExecutionProvider"])
    return lambda x, t: session.run(None, {"x": x, "t": t})


def openvino_network(a):
    import openvino
    # Without this a processor with bfloat16 computes in it.
    chosen = {"INFERENCE_NUM_THREADS": a.threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY",
              "CPU_DENORMALS_OPTIMIZATION": True}
    model = openvino.Core().compile_model(a.model, "CPU", chosen)
    return lambda x, t: tuple(model([x, t]).values())


# --- the report -------------------------------------------------------------------------------------------------------

def by_round(runs, value, **which):
    """Values of the matching runs by their round."""
    return {r["round"]: r[value] for r in matching(runs, **which)}


def ratio(over, under):
    """The ratio of medians, and the least and the greatest ratio within a round."""
    rounds = [over[r] / under[r] for r in over if r in under]
    return {"ratio": statistics.median(over.values()) / statistics.median(under.values()),
            "least": min(rounds), "greatest": max(rounds), "rounds": len(rounds)} if rounds else None


def report(runs):
    cells = sorted({(r["network"], r["what"], r["batch"]) for r in runs if r["kind"] == "speed"},
                   key=lambda c: (int(c[0].split(":")[0]), ["forward", "train", "sample"].index(c[1]), c[2]))
    speed = []
    for net, what, batch in cells:
        of = lambda peer, value: by_round(runs, value, kind="speed", network=net, what=what, batch=batch, peer=peer)
        ours = of(OURS, "ms")
        if not ours:
            continue
        steps = {r["steps"] for r in matching(runs, kind="speed", network=net, what=what, batch=batch)}
        row = {"network": net, "what": what, "batch": batch, "steps": max(steps), "ours_ms": statistics.median(ours.values()),
               "ours_mb": max(of(OURS, "rss_mb").values()), "peers": {}}
        for peer in PEERS:
            times = of(peer, "ms")
            if times:
                row["peers"][peer] = {"ms": statistics.median(times.values()), "faster": ratio(times, ours),
                                      "mb": max(of(peer, "rss_mb").values())}
        torch = [p for p in TORCH if p in row["peers"]]
        if torch:
            row["best_torch"] = min(torch, key=lambda p: row["peers"][p]["ms"])
            row["memory"] = row["ours_mb"] / min(row["peers"][p]["mb"] for p in torch)
        speed.append(row)
    scales = []
    for cell in sorted({(r["network"], r["what"], r["batch"]) for r in runs if r["kind"] == "scaling"}):
        which = dict(zip(("network", "what", "batch"), cell), kind="scaling")
        found = ratio(by_round(runs, "ms", threads=1, **which), by_round(runs, "ms", threads=2, **which))
        if found:
            scales.append({**which, **found})
    starts = [r for r in runs if r["kind"] == "start"]
    result = {key: sorted({r[key] for r in runs}) for key in ("date", "cpu", "commit")}
    result |= {"speed": speed, "scaling": scales}
    if starts:
        result["start"] = {k: {"median": statistics.median(r[k] for r in starts), "least": min(r[k] for r in starts),
                               "greatest": max(r[k] for r in starts)} for k in ("start_ms", "process_ms")}
    return result


def name(net):
    n = network(net)
    return f"width {n['width']}, {'two decoders' if n['decoders'] == 2 else 'one decoder'}"


def label(row):
    return f"sample, {row['steps']} steps" if row["what"] == "sample" else row["what"]


def mark(value, goal, most=False):
    return "yes" if (value <= goal if most else value >= goal) else "**no**"


def show(found):
    return f"{found['ratio']:.2f}x ({found['least']:.2f}–{found['greatest']:.2f})" if found else "–"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def markdown(found):
    text = f"{', '.join(found['date'])}, {', '.join(found['cpu'])}, {os.cpu_count()} processors, f32, "
    text += f"commit {', '.join(found['commit'])}. "
    text += "Speed as time of the peer over ours: median (least–greatest of a round).\n\n"
    rows = []
    for row in found["speed"]:
        cell = [name(row["network"]), label(row), row["batch"], f"{row['ours_ms']:.1f}"]
        cell += [show(row["peers"].get(peer, {}).get("faster")) for peer in PEERS]
        best = row["peers"].get(row.get("best_torch"), {}).get("faster")
        goal = SPEED[row["what"]][1]
        met = [f"{goal} torch: {mark(best['ratio'], goal)}"] if best else []
        openvino = row["peers"].get("openvino")
        if row["what"] == "forward" and openvino:
            met.append(f"{OPENVINO_FORWARD} OpenVINO: {mark(openvino['faster']['ratio'], OPENVINO_FORWARD)}")
        rows.append(cell + ["; ".join(met) or "–"])
    text += table(["network", "what", "batch", "ours, ms", *PEERS, "goal met (best torch mode)"], rows) + "\n"
    rows = []
    for row in found["speed"]:
        goal = MEMORY.get(row["what"])
        torch = [f"{row['peers'][p]['mb']}" if p in row["peers"] else "–" for p in PEERS]
        if "memory" in row:
            met = f"≤ {goal}: {mark(row['memory'], goal, most=True)}" if goal else "–"
            rows.append([name(row["network"]), label(row), row["batch"], row["ours_mb"], *torch,
                         f"{row['memory']:.2f}", met])
    if rows:
        text += "Peak memory of the process, MiB; the ratio is to the smaller torch mode.\n\n"
        text += table(["network", "what", "batch", "ours", *PEERS, "ratio", "goal met"], rows) + "\n"
    if found["scaling"]:
        rows = [[name(s["network"]), s["what"], s["batch"], show(s), mark(s["ratio"], SCALING)]
                for s in found["scaling"]]
        text += table(["network", "what", "batch", "1 → 2 threads", f"≥ {SCALING}"], rows) + "\n"
    if "start" in found:
        rows = [[label, *(f"{found['start'][key][k]:.0f} ms" for k in ("median", "least", "greatest"))]
                for key, label in (("start_ms", "start to first evaluation"),
                                   ("process_ms", "whole process, one step of one image"))]
        text += table([f"`crossfade sample`, small model (goal ≤ {START_MS:.0f} ms)", "median", "least", "greatest"],
                      rows)
    return text


# --- the command ------------------------------------------------------------------------------------------------------

def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--crossfade", type=pathlib.Path, default=ROOT / "target/release/crossfade", help="the program")
    p.add_argument("--peers", type=pathlib.Path, default=ROOT.parent / "shared/peers",
                   help="directory of bench_torch.py and torch_unet.py")
    p.add_argument("--python", default=sys.executable, help="interpreter that has the peers installed")
    p.add_argument("--networks", nargs="+", default=NETWORKS, metavar="WIDTH:DECODERS:BLOCKS")
    p.add_argument("--batch", type=int, nargs="+", default=[4, 16], help="for forward and train")
    p.add_argument("--sample-batch", type=int, nargs="+", default=[1, 16])
    p.add_argument("--what", nargs="+", default=["forward", "train", "sample", "scaling", "start"],
                   choices=["forward", "train", "sample", "scaling", "start"])
    p.add_argument("--only", nargs="*", default=PEERS, choices=PEERS, help="peers to run")
    p.add_argument("--steps", type=int, default=10, help="of the sampling loop")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--repeat", type=int, default=3, help="timed repeats in a run, after two that are not counted")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--foreign", type=float, default=0.03, help="share of all processors that others may use")
    p.add_argument("--patience", type=float, default=20, help="seconds to wait for others to finish")
    p.add_argument("--attempts", type=int, default=3, help="tries for an undisturbed run")
    p.add_argument("--models", type=pathlib.Path, help="directory that keeps exported ONNX files [default: temporary]")
    p.add_argument("--store", type=pathlib.Path, help="append every run to this file, report all that is in it")
    p.add_argument("--report", action="store_true", help="run nothing, report what is in --store")
    p.add_argument("--json", action="store_true", help="print the report as JSON, not as Markdown tables")
    return p.parse_args()


def facts():
    """When, where and of what: kept with every run."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
               platform.machine())
    git = shutil.which("git") and subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True,
                                                 text=True).stdout.strip()
    return {"date": time.strftime("%Y-%m-%d"), "cpu": cpu, "commit": git or "unknown"}


def run_all(args, keep, models):
    for net in args.networks:
        for what in [w for w in ("forward", "train", "sample") if w in args.what]:
            for batch in args.sample_batch if what == "sample" else args.batch:
                compare(net, what, batch, args, models, keep)
    if "scaling" in args.what:
        for what in ("forward", "train"):
            scaling(args.networks[0], what, max(args.batch), args, models, keep)
    if "start" in args.what:
        start(args, keep)


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(sys.argv[2:])
    args = parse()
    args.peers, args.crossfade = args.peers.resolve(), args.crossfade.resolve()
    runs = []
    if args.store and args.store.exists():
        runs = [json.loads(line) for line in args.store.read_text().splitlines()]

    where = facts()

    def keep(run):
        run |= where
        runs.append(run)
        print("  " + json.dumps(run), file=sys.stderr)
        if args.store:
            with args.store.open("a") as file:
                file.write(json.dumps(run) + "\n")

    keep.runs = runs
    try:
        if not args.report:
            if not args.crossfade.exists():
                sys.exit(f"{args.crossfade} is missing: cargo build --release, or --crossfade PATH")
            with tempfile.TemporaryDirectory() as directory:
                models = (args.models or pathlib.Path(directory)).resolve()
                models.mkdir(parents=True, exist_ok=True)
                run_all(args, keep, models)
    except Busy as busy:
        print(f"nothing to report: {busy}. Stop other work, or wait.", file=sys.stderr)
        sys.exit(3)
    found = report(runs)
    print(json.dumps(found, indent=1) if args.json else markdown(found))


if __name__ == "__main__":
    main()
