"""Faults under a running `crossfade serve`: its store fails or the process is killed at a call, and the next server must finish
every job that was accepted, to the bytes of `crossfade sample`. Random kills are a test: `cargo test --test serve -- --ignored`."""
import errno
import http.client
import json
import os
import select
import shutil
import sqlite3
import subprocess
import time

from cases import Case, program
from runner import KINDS
from campaigns import spread

JOBS = 3
CASE = Case("serve", [])
# Nothing here takes longer.
PATIENCE = 30


class Server:
    def __init__(self, runner, faults=None):
        env = {"PATH": os.environ["PATH"], "HOME": str(runner.home), **(faults or {})}
        command = [str(runner.binary), "--threads", "1", "serve", f"m={runner.inputs / 'run'}", "--bind", "127.0.0.1:0", "--store",
                   "result.sqlite", "--rate", "100000"]
        self.process = subprocess.Popen(command, cwd=runner.work, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        ready = select.select([self.process.stdout], [], [], PATIENCE)[0]
        line = self.process.stdout.readline().decode() if ready else ""
        self.address = line.strip().rpartition("http://")[2] if "http://" in line else None

    def ask(self, method, path, body=None):
        """Status and bytes; (0, b"") if there is no answer."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        try:
            connection.request(method, path, body and json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def accepted(self):
        """The jobs that the server takes."""
        jobs = {}
        for seed in range(JOBS):
            status, body = self.ask("POST", "/v1/jobs", {"model": "m", "seed": seed, "n": 2, "steps": 2})
            if status == 202:
                jobs[seed] = json.loads(body)["id"]
        return jobs

    def ended(self, job):
        """The job when it has ended, or nothing."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            status, body = self.ask("GET", f"/v1/jobs/{job}")
            found = json.loads(body) if status == 200 else {}
            if found.get("state") in ("done", "failed", "cancelled"):
                return found
            if self.process.poll() is not None or status not in (200,):
                return None
            time.sleep(0.01)
        return None

    def pictures(self, job):
        answers = [self.ask("GET", f"/v1/jobs/{job}/images/{k}") for k in range(2)]
        return [body if status == 200 else None for status, body in answers]

    def stop(self):
        self.process.kill()
        return self.process.communicate()[1].decode(errors="replace")


def expected(runner):
    made = {}
    for seed in range(JOBS):
        out = runner.root / f"expected-{seed}"
        shutil.rmtree(out, ignore_errors=True)
        args = ["sample", runner.inputs / "run", "--seed", seed, "--count", "2", "--steps", "2", "--out", out]
        assert program(runner.binary, args, runner.root, runner.home).returncode == 0
        made[seed] = [(out / f"{k:06}.png").read_bytes() for k in range(2)]
    return made


def one(runner, campaign, pictures, faults, where):
    """A server under faults, then one without."""
    runner.fresh(CASE)
    server = Server(runner, faults)
    jobs = {}
    if server.address:
        jobs = server.accepted()
        for seed, job in jobs.items():
            server.ended(job)
            for found, wanted in zip(server.pictures(job), pictures[seed]):
                if found not in (None, wanted):
                    runner.finding(campaign, CASE, f"{where}: another picture is served")
    message = server.stop()
    runner.count(campaign, CASE, "served" if server.address else "does not start")
    if "panicked" in message:
        runner.finding(campaign, CASE, f"{where}: {message.strip()[-300:]}")
    if not server.address and server.process.returncode not in (1, 2, -9):
        runner.finding(campaign, CASE, f"{where}: exit code {server.process.returncode}: {message.strip()[-300:]}")
    runner.count(campaign, CASE, "jobs accepted", len(jobs))
    after = Server(runner)
    if not after.address:
        runner.finding(campaign, CASE, f"{where}: the next server does not start: {after.stop()[-300:]}")
        return
    for seed, job in jobs.items():
        found = after.ended(job)
        state = found and found["state"]
        if state == "done" and after.pictures(job) == pictures[seed]:
            runner.count(campaign, CASE, "jobs done, same bytes")
        elif state == "failed" and found.get("error"):
            runner.count(campaign, CASE, "jobs failed with a reason")
        else:
            runner.finding(campaign, CASE, f"{where}: an accepted job ends as {state}: {found}")
    after.stop()
    store = sqlite3.connect(runner.work / "result.sqlite")
    if store.execute("PRAGMA integrity_check").fetchone() != ("ok",):
        runner.finding(campaign, CASE, f"{where}: the store is damaged")
    store.close()


def campaign(runner, points):
    pictures = expected(runner)
    shim = {"LD_PRELOAD": str(runner.shim), "FAULT_PREFIX": str(runner.work), "FAULT_OPS": KINDS}
    log = runner.root / "calls.log"
    log.unlink(missing_ok=True)
    one(runner, "serve undisturbed", pictures, {**shim, "FAULT_LOG": str(log)}, "undisturbed")
    calls = sum(line.split("\t")[0] in KINDS.split(",") for line in log.read_text().splitlines())
    print(f"serve: {calls} calls that write", flush=True)
    for name, what, sticky in (
        ("serve: kill before a call", "kill", {}),
        ("serve: one call fails (EIO)", str(errno.EIO), {}),
        ("serve: all calls from one on fail (ENOSPC)", str(errno.ENOSPC), {"FAULT_STICKY": "1"}),
    ):
        for at in spread(calls, points):
            one(runner, name, pictures, {**shim, "FAULT_AT": str(at), "FAULT_DO": what, **sticky}, f"call {at}")
