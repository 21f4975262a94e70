"""Runs of a case in a fresh directory, undisturbed or under faults, and the checks after them."""
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import visible
from cases import program

# An error is reported by these; 101 is a panic, negative numbers are signals.
ERROR_CODES = (1, 2)
KINDS = "write,fsync,rename,open,mkdir,truncate"


class Runner:
    """Directories, the program and the shim that all campaigns share."""

    def __init__(self, binary, root):
        self.binary, self.root = Path(binary).resolve(), Path(root).resolve()
        self.inputs, self.home, self.work = self.root / "inputs", self.root / "home", self.root / "work"
        self.shim = self.root / "shim.so"
        self.findings, self.table = [], {}

    def compile_shim(self):
        source = Path(__file__).with_name("shim.c")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.shim, source, "-ldl"], check=True)

    def fresh(self, case):
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        case.prepare(self.inputs, self.work)

    def whole(self, case, **more):
        """Runs the case to its end."""
        return program(self.binary, case.args, self.work, self.home, **more)

    def reference(self, case):
        """What two undisturbed runs write, and the shorter time they took."""
        found, times = [], []
        for _ in range(2):
            self.fresh(case)
            began = time.monotonic()
            done = self.whole(case)
            times.append(time.monotonic() - began)
            if done.returncode:
                raise RuntimeError(f"{case.name}, undisturbed: {done.stderr.decode()}")
            found.append(visible.picture(self.work))
        broken = visible.broken(self.work)
        if broken:
            raise RuntimeError(f"{case.name}: the checks do not know these files: {broken}")
        return visible.Reference(*found), min(times)

    def faulty(self, case, at=0, do="", kinds=KINDS, sticky=False, log=None):
        """Runs the case with the shim: the `at`-th call fails or kills."""
        env = {"LD_PRELOAD": str(self.shim), "FAULT_PREFIX": str(self.work), "FAULT_OPS": kinds, "FAULT_AT": str(at),
               "FAULT_DO": str(do)}
        env |= {"FAULT_STICKY": "1"} if sticky else {}
        env |= {"FAULT_LOG": str(log)} if log else {}
        return self.whole(case, env=env)

    def calls(self, case, kinds=KINDS):
        """The calls of an undisturbed run below its directory: (kind, path, second path)."""
        self.fresh(case)
        log = self.root / "calls.log"
        log.unlink(missing_ok=True)
        done = self.faulty(case, kinds=kinds, log=log)
        if done.returncode:
            raise RuntimeError(f"{case.name} with the shim: {done.stderr.decode()}")
        if not log.exists():
            return []
        return [tuple(line.split("\t")) for line in log.read_text().splitlines()]

    def finding(self, campaign, case, text):
        self.findings.append({"campaign": campaign, "case": case.name, "finding": text})
        print(f"  FINDING {campaign}, {case.name}: {text}", flush=True)

    def count(self, campaign, case, outcome, n=1):
        self.table.setdefault(campaign, {}).setdefault(case.name, Counter())[outcome] += n

    def check_visible(self, campaign, case, where):
        for text in visible.broken(self.work):
            self.finding(campaign, case, f"{where}: partial file {text}")

    def check_end(self, campaign, case, reference, where):
        """The same command again, undisturbed: it must succeed with the files of a run that was never disturbed."""
        done = self.whole(case)
        if done.returncode:
            self.finding(campaign, case, f"{where}: the next run fails: {done.stderr.decode().strip()}")
            return False
        problems = reference.differences(self.work)
        if problems:
            self.finding(campaign, case, f"{where}: after the next run {'; '.join(problems[:4])}")
        self.check_visible(campaign, case, f"{where}, after the next run")
        return not problems

    def check_refusal(self, campaign, case, done, where, reasons):
        """A failed run must say which path failed and why."""
        message = done.stderr.decode(errors="replace").strip()
        if done.returncode not in ERROR_CODES:
            self.finding(campaign, case, f"{where}: exit code {done.returncode}: {message[-300:]}")
        elif "panicked" in message:
            self.finding(campaign, case, f"{where}: {message[-300:]}")
        elif not any(reason in message for reason in reasons):
            self.finding(campaign, case, f"{where}: no reason in '{message[-300:]}'")
        elif not re.search(r"result|work", message):
            self.finding(campaign, case, f"{where}: no path in '{message[-300:]}'")

    def start(self, case):
        """Starts the case without waiting for its end."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "XDG_CACHE_HOME": f"{self.home}/cache",
               "XDG_DATA_HOME": f"{self.home}/data"}
        command = [str(self.binary), "--threads", "1", "--quiet", *map(str, case.args)]
        return subprocess.Popen(command, cwd=self.work, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def killed_after(process, seconds):
    """Kills the process after a while; False if it had ended before."""
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
