"""Hosts that are network namespaces, each behind its own link to a router: used by ranks.py, and alone for a shell on them.

  python3 tools/ranks_hosts.py HOSTS [--rate 100mbit] -- COMMAND …     runs mpirun with one rank on each host; root only
"""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# How soon mpirun notices that a host is gone: after 5 s without traffic it asks every second, three times. The same for the
# connections between ranks would need TCP_USER_TIMEOUT, which Open MPI cannot set; mpirun ends the ranks itself.
KEEPALIVE = ["--mca", "oob_tcp_keepalive_time", "5", "--mca", "oob_tcp_keepalive_intvl", "1", "--mca", "oob_tcp_keepalive_probes", "3"]
AGENT = """#!/bin/sh
# In place of ssh: enters the namespace of the host and does what mpirun wants there.
host=$1; shift
exec ip netns exec "cf-$host" unshare --uts sh -c 'hostname "$0"; exec sh -c "$1"' "$host" "$*"
"""
SSHD = "/usr/sbin/sshd"
SSHD_CONFIG = """
ListenAddress {address}
HostKey {dir}/key
AuthorizedKeysFile {dir}/key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
"""
SSH_AGENT = """#!/bin/sh
exec ssh -i {dir}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes "$@"
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Hosts:
    """`count` hosts, named host0, host1, …, until `close`. mpirun reaches them by ssh where a server of OpenSSH is installed."""

    def __init__(self, count):
        self.names = [f"host{i}" for i in range(count)]
        self.dir = Path(tempfile.mkdtemp(prefix="ranks-hosts-"))
        self.servers = []
        self.close(keep=True)
        ip("netns", "add", "cf-router")
        self.forward(True)
        table = "127.0.0.1 localhost\n" + "".join(f"10.77.{i}.1 {name}\n" for i, name in enumerate(self.names))
        for i, name in enumerate(self.names):
            space, own, far = f"cf-{name}", f"cf{i}", f"cf{i}r"
            ip("netns", "add", space)
            ip("link", "add", own, "netns", space, "type", "veth", "peer", "name", far, "netns", "cf-router")
            ip("-n", space, "addr", "add", f"10.77.{i}.1/24", "dev", own)
            ip("-n", "cf-router", "addr", "add", f"10.77.{i}.254/24", "dev", far)
            for where, link in ((space, "lo"), (space, own), ("cf-router", far)):
                ip("-n", where, "link", "set", link, "up")
            ip("-n", space, "route", "add", "default", "via", f"10.77.{i}.254")
            place = Path(f"/etc/netns/{space}")
            place.mkdir(parents=True, exist_ok=True)
            (place / "hosts").write_text(table)
        self.agent = self.dir / "agent"
        self.agent.write_text(self.ssh() if Path(SSHD).exists() else AGENT)
        self.agent.chmod(0o755)

    def ssh(self):
        """Starts a server of ssh on each host. Returns the script that mpirun calls in place of ssh, with the key of these hosts."""
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.dir / "key"], check=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        for i, name in enumerate(self.names):
            config = self.dir / f"sshd-{name}"
            config.write_text(SSHD_CONFIG.format(address=f"10.77.{i}.1", dir=self.dir))
            inside = ["ip", "netns", "exec", f"cf-{name}", "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', name]
            self.servers.append(subprocess.Popen([*inside, SSHD, "-D", "-f", config]))
        return SSH_AGENT.format(dir=self.dir)

    def close(self, keep=False):
        for server in self.servers:
            server.terminate()
            server.wait()
        for name in ["router", *self.names]:
            if Path(f"/run/netns/cf-{name}").exists():
                ip("netns", "del", f"cf-{name}")
            shutil.rmtree(f"/etc/netns/cf-{name}", ignore_errors=True)
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)

    def forward(self, on):
        """Without forwarding packets vanish on the way, and no end of a connection hears of it."""
        path = "/proc/sys/net/ipv4/ip_forward"
        subprocess.run(["ip", "netns", "exec", "cf-router", "sh", "-c", f"echo {int(on)} > {path}"], check=True)

    def link(self, name, state):
        space, i = f"cf-{name}", self.names.index(name)
        ip("-n", space, "link", "set", f"cf{i}", state)
        if state == "up":
            # A link that goes down takes its route with it.
            ip("-n", space, "route", "replace", "default", "via", f"10.77.{i}.254")

    def limit(self, rate):
        """What each host can send."""
        for i, name in enumerate(self.names):
            shape = ["tbf", "rate", rate, "burst", "128kb", "latency", "200ms"]
            subprocess.run(["tc", "-n", f"cf-{name}", "qdisc", "replace", "dev", f"cf{i}", "root", *shape], check=True)

    def sent(self, name):
        """Bytes that a host has sent, with all headers."""
        text = subprocess.run(["ip", "-s", "-n", f"cf-{name}", "link", "show", f"cf{self.names.index(name)}"],
                              capture_output=True, text=True, check=True).stdout
        return int(re.search(r"TX:[^\n]*\n\s*(\d+)", text)[1])

    def mpirun(self, *words, hosts=None):
        """The command line of mpirun, on the first host, with one rank on each."""
        hosts = hosts or self.names
        table = self.dir / "hostfile"
        table.write_text("".join(f"{name} slots=1\n" for name in hosts))
        start = ["ip", "netns", "exec", "cf-host0", "unshare", "--uts", "sh", "-c", 'hostname host0; exec "$@"', "mpirun"]
        options = ["--hostfile", table, "--mca", "plm_rsh_agent", self.agent, "--mca", "btl", "tcp,self", "--bind-to", "none"]
        return [*start, "mpirun", "-n", str(len(hosts)), *map(str, options), *KEEPALIVE, *map(str, words)]


def test(binary, work):
    """Two hosts make the bytes of one process; one is cut off in two ways, and the run is resumed."""
    import ranks

    config = work / "hosts.toml"
    text = (ranks.UNET + ranks.SMALL).replace("steps = 50", "steps = 400").replace("width = 16", "width = 64")
    config.write_text(text)
    ranks.run(ranks.program(binary, None, "train", config, "--out", work / "alone"))
    last = "checkpoints/step-00000400.safetensors"
    hosts = Hosts(2)
    try:
        train = [binary, "--threads", "1", "--quiet", "train", config, "--out"]
        ranks.run(hosts.mpirun(*train, work / "both"))
        ranks.must_equal(ranks.result(work / "both"), ranks.result(work / "alone"), "two hosts")
        by = "ssh" if hosts.servers else "entering their namespaces, because no server of ssh is installed"
        print(f"two hosts, reached by {by}: the bytes of one process", flush=True)
        for name, cut, mend in (
            ("packets vanish on the way", lambda: hosts.forward(False), lambda: hosts.forward(True)),
            ("the link of host1 is down", lambda: hosts.link("host1", "down"), lambda: hosts.link("host1", "up")),
        ):
            out = work / re.sub(r"\W", "-", name)
            child = subprocess.Popen(hosts.mpirun(*train, out), env=ranks.ENVIRONMENT, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, start_new_session=True)
            while child.poll() is None and ranks.newest(out) < 50:
                time.sleep(0.01)
            cut()
            began = time.time()
            try:
                said, _ = child.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                raise ranks.Failed(f"{name}: mpirun has not ended after two minutes") from None
            took = time.time() - began
            left = wait_for_end(str(out))
            if child.returncode == 0 or "host1" not in said:
                raise ranks.Failed(f"{name}: {child.returncode}, and nothing of host1:\n{said}")
            mend()
            step = ranks.newest(out)
            print(f"{name}: after {took:.0f} s mpirun ends with {child.returncode}, after {left:.0f} s more no rank is left; it says:")
            print("".join(f"    {line}\n" for line in said.splitlines() if line.strip()), end="")
            ranks.run(hosts.mpirun(*train, out, "--resume"))
            if ranks.digest(out / last) != ranks.digest(work / "alone" / last):
                raise ranks.Failed(f"{name}: the resumed run ends with other bytes")
            print(f"  resumed from step {step}: the bytes of one process", flush=True)
    finally:
        hosts.close()


def times(binary, work):
    """Seconds of a step on two hosts against the formula of docs/SCALING.md, and what a host sends, at several rates."""
    import ranks

    steps, accumulate = 60, 2
    config = work / "times.toml"
    text = (ranks.UNET + ranks.SMALL).replace("width = 16", "width = 64").replace("steps = 50", f"steps = {steps}")
    text = text.replace("accumulate = 4", f"accumulate = {accumulate}")
    text = text.replace("checkpoint_every = 10", f"checkpoint_every = {steps}").replace("sample_every = 50", "sample_every = 0")
    config.write_text(text)
    counted = json.loads(ranks.run(ranks.program(binary, None, "cost", config, "--count-only", "--json")))
    parameters = counted["parameters"]

    def seconds(out):
        lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        return statistics.median(2 * accumulate / line["images_per_second"] for line in lines[10:])

    ranks.run(ranks.program(binary, None, "train", config, "--out", work / "alone"))
    one = seconds(work / "alone") / accumulate
    print(f"{parameters} parameters, a micro-batch takes {one:.4f} s")
    n = 2
    message = 4 * parameters * (accumulate / n + 1) * (n - 1) / n
    handling = None
    for rate, bits in ((None, None), ("1gbit", 1e9), ("300mbit", 3e8), ("100mbit", 1e8)):
        hosts = Hosts(n)
        try:
            if rate:
                hosts.limit(rate)
            before = hosts.sent("host0")
            out = work / f"at-{rate}"
            ranks.run(hosts.mpirun(binary, "--threads", "1", "--quiet", "train", config, "--out", out))
            sent = (hosts.sent("host0") - before) / steps
        finally:
            hosts.close()
        took = seconds(out)
        if rate is None:
            handling = (took - accumulate / n * one) / message
            model = f"which gives e = {1e9 * handling:.2f} ns a byte"
        else:
            model = f"by the formula {accumulate / n * one + message * (8 / bits + handling):.4f} s"
        print(f"{rate or 'no limit'}: a step takes {took:.4f} s, {model}; host0 sends {sent / message:.3f} times the formula's "
              f"{message:.0f} bytes, with all headers", flush=True)


def wait_for_end(text):
    """Seconds until no process has this text in its command line: also the ranks on the lost host must end."""
    began = time.time()
    while time.time() - began < 120:
        if subprocess.run(["pgrep", "-f", f"train .*{re.escape(text)}"], capture_output=True).returncode != 0:
            return time.time() - began
        time.sleep(0.1)
    raise RuntimeError("ranks are left on the lost host")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts", type=int)
    parser.add_argument("--rate", help="what each host can send, as tc writes it")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    hosts = Hosts(args.hosts)
    try:
        if args.rate:
            hosts.limit(args.rate)
        before = hosts.sent("host0")
        code = subprocess.run(hosts.mpirun(*args.command)).returncode
        print(f"host0 has sent {hosts.sent('host0') - before} bytes", file=sys.stderr)
    finally:
        hosts.close()
    sys.exit(code)


if __name__ == "__main__":
    main()
