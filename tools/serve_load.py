"""Load on a running `crossfade serve` on loopback: pictures per second and latencies by the number of clients.

    crossfade serve --rate 1000000 --max-queue 4096 --max-queue-per-client 4096
    python tools/serve_load.py http://127.0.0.1:7860 --clients 1,4,16,64 --seconds 10 --steps 5
    python tools/serve_load.py http://127.0.0.1:7860 --clients 4 --hang 300    # beside peers that hang
    python tools/serve_load.py http://127.0.0.1:7860 --overload 60 --steps 5   # with a small --max-queue

Only loopback addresses are accepted, and every measurement is bounded in time. Needs nothing but Python.
"""

import argparse
import collections
import http.client
import json
import socket
import threading
import time
import urllib.parse


def measure(host, clients, seconds, request, path="/v1/images/generations", accept=(200,)):
    """Requests of so many clients, one after the other each, for some seconds: latencies, statuses, jobs, time."""
    latencies, statuses, jobs, lock = [], collections.Counter(), [], threading.Lock()
    began = time.perf_counter()
    until = began + seconds

    def work(client):
        connection = http.client.HTTPConnection(host, timeout=300)
        number = 0
        while time.perf_counter() < until:
            body = dict(request, seed=1000 * client + number)
            number += 1
            start = time.perf_counter()
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
            took = time.perf_counter() - start
            with lock:
                statuses[answer.status] += 1
                if answer.status in accept:
                    latencies.append(took)
                    if answer.status == 202:
                        jobs.append(json.loads(data)["id"])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(clients)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return sorted(latencies), statuses, jobs, time.perf_counter() - began


def get(host, path):
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", path)
    return connection.getresponse().read()


def gauge(host, name):
    lines = get(host, "/metrics").decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"crossfade_{name} "))


def hang(host, count):
    """Connections that hold still: half a head, half a body, and readers of a large answer that read nothing."""
    name, port = host.split(":")
    head = f"POST /v1/images/generations HTTP/1.1\r\nhost: {host}\r\n"
    body = json.dumps({"n": 16, "steps": 1, "seed": 1})
    whole = f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    texts = [head, whole[:-5], whole]
    held = []
    for k in range(count):
        peer = socket.socket()
        # A window so small that the answer cannot be sent as a whole.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        peer.connect((name, int(port)))
        # Few readers: each of them costs the server pictures.
        peer.sendall(texts[k % 2 if k % 30 else 2].encode())
        held.append(peer)
    return held


def overload(host, seconds, request):
    """Eight clients that never wait for a picture: only 202 and 429 may come, and every accepted job ends."""
    memory, stop = [], threading.Event()

    def watch():
        while not stop.wait(1.0):
            memory.append(gauge(host, "resident_bytes"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, statuses, jobs, took = measure(host, 8, seconds, request, "/v1/jobs", (202,))
    while gauge(host, "queue_length") + gauge(host, "jobs_running") > 0:
        time.sleep(0.2)
    stop.set()
    watcher.join()
    states = collections.Counter(json.loads(get(host, f"/v1/jobs/{job}"))["state"] for job in jobs)
    third = max(len(memory) // 3, 1)
    factor = sum(statuses.values()) / max(statuses[202], 1)
    print(f"{took:.0f} s, {factor:.0f} times what was accepted: answers {dict(statuses)}, accepted jobs {dict(states)}")
    print(f"memory: {max(memory[:third]) / 2**20:.0f} MiB in the first third, {max(memory[-third:]) / 2**20:.0f} in the last")
    assert set(statuses) <= {202, 429} and set(states) == {"done"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:7860")
    parser.add_argument("--clients", default="1,4,16,64")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--model")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--n", type=int, default=1)
    parser.add_argument("--hang", type=int, default=0, metavar="N", help="hold so many connections still meanwhile")
    parser.add_argument("--overload", type=float, metavar="SECONDS")
    args = parser.parse_args()
    host = urllib.parse.urlsplit(args.url).netloc
    assert host.split(":")[0] in ("127.0.0.1", "localhost"), "loopback only"
    request = {"n": args.n, "steps": args.steps, "response_format": "url"}
    if args.model:
        request["model"] = args.model
    if args.overload:
        del request["response_format"]
        overload(host, args.overload, request)
        return
    measure(host, 1, 1, request)
    held = hang(host, args.hang)
    while gauge(host, "queue_length") + gauge(host, "jobs_running") > 0:
        time.sleep(0.1)
    print("clients  pictures/s  p50 ms  p99 ms  images a pass")
    for clients in map(int, args.clients.split(",")):
        passes, images = gauge(host, "batch_images_count"), gauge(host, "batch_images_sum")
        latencies, statuses, _, took = measure(host, clients, args.seconds, request)
        assert set(statuses) == {200}, statuses
        passes, images = gauge(host, "batch_images_count") - passes, gauge(host, "batch_images_sum") - images
        at = lambda share: 1e3 * latencies[min(int(share * len(latencies)), len(latencies) - 1)]
        rate = args.n * len(latencies) / took
        print(f"{clients:7}  {rate:10.2f}  {at(0.5):6.0f}  {at(0.99):6.0f}  {images / max(passes, 1):13.1f}")
    if held:
        print(f"{len(held)} connections were held still meanwhile; the server has {gauge(host, 'connections'):.0f} open")


if __name__ == "__main__":
    main()
