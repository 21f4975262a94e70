"""Kills, failing calls, full disks and hostile files against every verb of the program that writes.

    python3 tools/faults BINARY --quick                     about a minute
    python3 tools/faults BINARY --out faults.json           all campaigns; an hour or more
    python3 tools/faults BINARY --only sample --campaigns kills,calls
    python3 tools/faults BINARY --campaigns memory          peak memory on hostile inputs

Needs Linux, a C compiler for the shim, and root for full disks (they are skipped otherwise). BINARY is a release build.
The exit code is 1 if anything was found.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import campaigns
import memory
import server
from cases import all_cases, make_inputs
from runner import Runner

ALL = ["kills", "calls", "disks", "output", "durability", "serve", "memory"]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--quick", action="store_true", help="a few points of each campaign")
    parser.add_argument("--only", help="cases whose name contains one of these, with commas between them")
    parser.add_argument("--campaigns", default=",".join(ALL), help=f"of {', '.join(ALL)}")
    parser.add_argument("--points", type=int, default=20, help="random kills of each case, and calls that fail in each way")
    parser.add_argument("--inception", type=Path, help="weights of Inception, for `eval stats`")
    parser.add_argument("--dir", type=Path, help="directory for inputs and results [default: a temporary one]")
    parser.add_argument("--out", type=Path, help="file for the report as JSON; the table goes to standard output")
    return parser.parse_args()


def disturb(runner, case, wanted, points, with_disks):
    """All campaigns of a case."""
    points = max(2, points // 4) if case.slow else points
    reference, seconds = runner.reference(case)
    calls = runner.calls(case)
    number = campaigns.calls_that_count(calls)
    print(f"{case.name}: {seconds:.2f} s, {number} calls that write", flush=True)
    if "durability" in wanted:
        campaigns.order_of_calls(runner, case, calls)
    if "kills" in wanted:
        campaigns.kills_at_random(runner, case, reference, seconds, points)
        campaigns.kills_at_calls(runner, case, reference, number, points)
    if "calls" in wanted:
        campaigns.failing_calls(runner, case, reference, number, points)
        campaigns.short_writes(runner, case, reference, sum(kind == "write" for kind, _, _ in calls), max(2, points // 4))
    if "disks" in wanted and with_disks:
        campaigns.full_disks(runner, case, reference, max(2, points // 4))
    if "output" in wanted:
        campaigns.full_output(runner, case)


def markdown(runner):
    lines = []
    for campaign, cases in runner.table.items():
        outcomes = sorted({outcome for counts in cases.values() for outcome in counts})
        lines += ["", f"| {campaign} | {' | '.join(outcomes)} |", "|---" * (len(outcomes) + 1) + "|"]
        for name, counts in cases.items():
            lines.append(f"| {name} | {' | '.join(str(counts[outcome]) for outcome in outcomes)} |")
        total = [sum(counts[outcome] for counts in cases.values()) for outcome in outcomes]
        lines.append(f"| all | {' | '.join(map(str, total))} |")
    return "\n".join(lines)


def save(runner, path, peaks, began):
    """Writes the report so far, so that a long campaign can be watched and stopped."""
    seconds = round(time.monotonic() - began)
    report = {"seconds": seconds, "table": runner.table, "memory": peaks, "findings": runner.findings}
    if path:
        path.write_text(json.dumps(report, indent=1) + "\n")
    return seconds


def main():
    args = options()
    wanted = args.campaigns.split(",")
    if unknown := set(wanted) - set(ALL):
        raise SystemExit(f"unknown campaigns: {', '.join(unknown)}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        runner = Runner(args.binary, args.dir or temporary)
        runner.root.mkdir(parents=True, exist_ok=True)
        runner.compile_shim()
        if not runner.inputs.exists():
            make_inputs(runner.binary, runner.inputs, runner.home)
        cases = all_cases(runner.inputs, args.inception and args.inception.resolve())
        if args.quick:
            cases = [case for case in cases if case.name in ("train", "sample", "sr", "sweep", "convert")]
        cases = sorted((case for case in cases if not args.only or any(word in case.name for word in args.only.split(","))), key=lambda case: case.slow)
        with_disks = campaigns.may_mount(runner)
        if not with_disks and "disks" in wanted:
            print("skipped: full disks, because a tmpfs cannot be mounted here", flush=True)
        if set(wanted) & {"kills", "calls", "disks", "output", "durability"}:
            for case in cases:
                try:
                    disturb(runner, case, wanted, 2 if args.quick else args.points, with_disks)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    runner.finding("all", case, str(error))
                save(runner, args.out, [], began)
        if "serve" in wanted and not args.only:
            server.campaign(runner, 2 if args.quick else args.points)
        peaks = memory.campaign(runner, args.quick, args.only) if "memory" in wanted else []
    print(markdown(runner), memory.markdown(peaks), sep="\n")
    print(f"\n{len(runner.findings)} findings in {save(runner, args.out, peaks, began)} s")
    return 1 if runner.findings else 0


if __name__ == "__main__":
    sys.exit(main())
