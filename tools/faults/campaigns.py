"""The campaigns: kills, calls that fail, full disks, and the order of calls that makes results durable."""
import errno
import os
import random
import subprocess
from pathlib import Path

import visible
from runner import KINDS, killed_after

FULL = ["No space left on device"]
BROKEN = ["Input/output error"]


def spread(count, most):
    """Numbers from 1 to `count`: all of them, or about `most`: the first ones, in which folders and locks are made, and others at
    equal distances up to the last."""
    if count <= most:
        return list(range(1, count + 1))
    first = most // 3
    return sorted({*range(1, first + 1), *(first + round((k + 1) * (count - first) / (most - first)) for k in range(most - first))})


def kills_at_random(runner, case, reference, seconds, points, seed=1):
    """SIGKILL at random times, up to three in a row, then the same command to its end."""
    chance, done = random.Random(f"{seed}{case.name}"), 0
    while done < points:
        runner.fresh(case)
        for _ in range(min(chance.randint(1, 3), points - done)):
            # Later kills of a row come when the run has been continued.
            if not killed_after(runner.start(case), chance.uniform(0.02, 1.05) * seconds):
                runner.count("kill at a random time", case, "ended before")
                done += 1
                break
            done += 1
            runner.count("kill at a random time", case, "killed")
            runner.check_visible("kill at a random time", case, "after a kill")
        if runner.check_end("kill at a random time", case, reference, "after kills"):
            runner.count("kill at a random time", case, "same end")


def kills_at_calls(runner, case, reference, calls, most):
    """SIGKILL just before a call that changes files, for as many of them as asked for."""
    campaign = "kill before a call"
    for at in spread(calls, most):
        runner.fresh(case)
        code = runner.faulty(case, at, "kill").returncode
        runner.count(campaign, case, "killed" if code < 0 else "ended before")
        runner.check_visible(campaign, case, f"call {at}")
        if runner.check_end(campaign, case, reference, f"call {at}"):
            runner.count(campaign, case, "same end")


def failing_calls(runner, case, reference, calls, most):
    """One call fails: the n-th write, fsync, rename, open or mkdir, with EIO, or this and all later ones with ENOSPC."""
    for campaign, number, sticky, reasons in (
        ("one call fails (EIO)", errno.EIO, False, BROKEN),
        ("all calls from one on fail (ENOSPC)", errno.ENOSPC, True, FULL),
    ):
        for at in spread(calls, most):
            runner.fresh(case)
            done = runner.faulty(case, at, number, sticky=sticky)
            where = f"call {at}"
            if done.returncode == 0:
                problems = reference.differences(runner.work)
                if problems:
                    runner.finding(campaign, case, f"{where}: success, but {'; '.join(problems[:4])}")
                runner.count(campaign, case, "same end at once")
                continue
            runner.count(campaign, case, "refused")
            runner.check_refusal(campaign, case, done, where, reasons)
            runner.check_visible(campaign, case, where)
            left = visible.hidden(runner.work)
            if left:
                runner.finding(campaign, case, f"{where}: hidden files stay: {left[:4]}")
            if runner.check_end(campaign, case, reference, where):
                runner.count(campaign, case, "same end afterwards")


def short_writes(runner, case, reference, calls, most):
    """A write takes only half of its bytes: the rest must follow."""
    campaign = "a write is short"
    for at in spread(calls, most):
        runner.fresh(case)
        done = runner.faulty(case, at, "short", kinds="write")
        problems = [done.stderr.decode()] if done.returncode else reference.differences(runner.work)
        runner.count(campaign, case, "failed" if problems else "same end at once")
        if problems:
            runner.finding(campaign, case, f"write {at}: {'; '.join(problems[:4])}")


def mounted(work, kilobytes):
    options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(work)]
    return subprocess.run(["mount", *options], capture_output=True).returncode == 0


def may_mount(runner):
    runner.work.mkdir(parents=True, exist_ok=True)
    if not mounted(runner.work, 64):
        return False
    subprocess.run(["umount", str(runner.work)], check=True)
    return True


def full_disks(runner, case, reference, points):
    """A small tmpfs for the results, of several sizes; then space is freed and the command runs again."""
    campaign = "full disk"
    runner.fresh(case)
    before = sum(path.stat().st_blocks for path in visible.files(runner.work)) // 2
    runner.whole(case)
    needed = sum(path.stat().st_blocks for path in visible.files(runner.work)) // 2
    # The larger ones may be enough, because more is needed for a moment than stays.
    sizes = [max(4, before + 4 + (needed - before) * k // points // 4 * 4) for k in range(points)]
    for size in dict.fromkeys(sizes):
        runner.fresh(case)
        subprocess.run(["rm", "-rf", str(runner.work)], check=True)
        runner.work.mkdir()
        assert mounted(runner.work, 1 << 20)
        try:
            case.prepare(runner.inputs, runner.work)
            if subprocess.run(["mount", "-o", f"remount,size={size}k", str(runner.work)], capture_output=True).returncode:
                runner.count(campaign, case, "too small for the inputs")
                continue
            done = runner.whole(case)
            where = f"{size} KiB"
            if done.returncode:
                runner.count(campaign, case, "refused")
                runner.check_refusal(campaign, case, done, where, FULL)
                runner.check_visible(campaign, case, where)
                left = visible.hidden(runner.work)
                if left:
                    runner.finding(campaign, case, f"{where}: hidden files stay: {left[:4]}")
            else:
                runner.count(campaign, case, "enough space")
            subprocess.run(["mount", "-o", f"remount,size={1 << 20}k", str(runner.work)], check=True)
            if runner.check_end(campaign, case, reference, where):
                runner.count(campaign, case, "same end afterwards")
        finally:
            subprocess.run(["umount", str(runner.work)], check=True)


def full_output(runner, case):
    """Standard output is a full device: an error, not a result that nobody gets."""
    runner.fresh(case)
    with open("/dev/full", "w") as full:
        env = {"PATH": os.environ["PATH"], "HOME": str(runner.home)}
        command = [str(runner.binary), "--threads", "1", "--json", "--quiet", *map(str, case.args)]
        done = subprocess.run(command, cwd=runner.work, env=env, stdout=full, stderr=subprocess.PIPE)
    message = done.stderr.decode()
    runner.count("full standard output", case, "refused" if done.returncode else "success")
    if done.returncode not in (1, 2) or "No space left" not in message or "standard output" not in message:
        runner.finding("full standard output", case, f"exit code {done.returncode}: '{message.strip()}'")


def order_of_calls(runner, case, calls):
    """What is renamed was flushed before, and its directory and those created for it are flushed before the end; an old file
    is only removed when what replaces it is durable."""
    campaign = "durability"
    unsynced, waiting, renames = {}, {}, 0
    absolute = lambda path: os.path.normpath(path)
    for kind, path, second in calls:
        path, second = absolute(path), absolute(second)
        if kind in ("write", "truncate"):
            unsynced[path] = kind
        elif kind == "fsync":
            unsynced.pop(path, None)
            waiting = {name: folder for name, folder in waiting.items() if folder != path}
        elif kind == "rename":
            renames += 1
            if path in unsynced:
                runner.finding(campaign, case, f"{second} was renamed before it was flushed")
            waiting[second] = os.path.dirname(second)
        elif kind == "mkdir":
            waiting[path] = os.path.dirname(path)
        elif kind == "unlink" and not Path(path).name.startswith("."):
            folder = os.path.dirname(path)
            if folder in waiting.values():
                runner.finding(campaign, case, f"{path} was removed before its directory was flushed")
        if kind == "unlink":
            unsynced.pop(path, None)
    for name in waiting:
        if Path(name).exists():
            runner.finding(campaign, case, f"the directory of {os.path.relpath(name, runner.work)} is not flushed")
    named = sorted({visible.EVENTS.match(Path(path).name) and "event files" or Path(path).name for path in unsynced if Path(path).exists() and not Path(path).name.startswith(".")})
    runner.count(campaign, case, "renamed, all flushed before and after", renames)
    if named:
        runner.count(campaign, case, f"appended without flushing: {', '.join(named)[:80]}")


def calls_that_count(calls):
    return sum(kind in KINDS.split(",") for kind, _, _ in calls)
