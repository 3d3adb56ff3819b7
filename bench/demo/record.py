#!/usr/bin/env python3
"""Records what a daemon tells at its port for operators, and leaves the page with the recording inside, as one file.

Usage: record.py ADDRESS_FILE PAGE OUTPUT. ADDRESS_FILE is DIR/http_address of the daemon, PAGE the build's
web/page.html. Records until SIGTERM, also over restarts of the daemon, then writes OUTPUT. Python's standard library
alone.
"""

import json
import pathlib
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

MARK = "<!-- recording -->"
LEARNER_EVERY_S = 2.0
ENGINES_S_MAX = 3.0
PUBLICATIONS_MAX = 300
PLAN_SWEEP = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Recorder:
    """Follows /events and asks for /learner on two threads, until stop()."""

    def __init__(self, address_file):
        self.address_file = pathlib.Path(address_file)
        self.lock = threading.Lock()
        self.events = []  # {"event", "data"}
        self.publications = {}  # version -> reply, of those that have ended
        self.ended_at = {}  # version -> when that was seen
        self.fleet = {"nodes": {}, "publications": {}, "head": {}}
        self.stopping = threading.Event()
        self.threads = [
            threading.Thread(target=self.again, args=(work,), daemon=True)
            for work in (self.follow, self.ask_learner, self.ask_publications)
        ]
        for thread in self.threads:
            thread.start()

    def url(self, path=""):
        return f"http://{self.address_file.read_text().strip()}/{path}"

    def again(self, work):
        """The daemon may not run yet, or run again in a moment."""
        while not self.stopping.is_set():
            try:
                work()
            except (OSError, ValueError, urllib.error.URLError):
                pass
            self.stopping.wait(0.2)

    def get(self, path):
        with urllib.request.urlopen(self.url(path), timeout=10) as answer:
            return json.loads(answer.read())

    def follow(self):
        with urllib.request.urlopen(self.url("events"), timeout=20) as answer:
            kind = ""
            for line in answer:
                if self.stopping.is_set():
                    return
                name, _, text = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = text
                elif name == "data":
                    self.take(kind, json.loads(text))

    def ask_learner(self):
        told = self.get("learner")
        self.take("learner", {**told, "unix_ms": int(time.time() * 1000)})
        self.stopping.wait(LEARNER_EVERY_S)

    def ask_publications(self):
        """While the daemon knows them, and again for as long as engines may need to take one that has ended."""
        with self.lock:
            ended = [version for version, entry in self.fleet["publications"].items() if entry["state"] != "under way"]
        for version in ended:
            since = self.ended_at.setdefault(version, time.monotonic())
            if str(version) not in self.publications or time.monotonic() - since < ENGINES_S_MAX:
                reply = self.get(f"publications/{version}")
                self.publications[str(version)] = {key: reply[key] for key in ("workers", "workers_total")}
        self.stopping.wait(0.5)

    def take(self, event, data):
        with self.lock:
            self.events.append({"event": event, "data": data})
            if event == "learner":
                return
            if event == "state":
                self.fleet = {"nodes": {}, "publications": {}, "head": data}
            for node in data.get("nodes", []):
                self.fleet["nodes"].setdefault((node["role"], node["name"]), {}).update(node)
            for entry in data.get("publications", []):
                self.fleet["publications"][entry["version"]] = entry

    def plan(self):
        """The planner's answer for the fleet as it is now; None if its links are not known."""
        with self.lock:
            nodes = list(self.fleet["nodes"].values())
            sizes = [
                entry["snapshot_bytes"] for entry in self.fleet["publications"].values() if entry["snapshot_bytes"]
            ]
        absent = ("lost", "awaited", "standby")
        workers = [node for node in nodes if node["role"] == "worker" and node["state"] not in absent]
        origin = next((node for node in nodes if node["role"] == "origin"), None)
        down = sorted(node["downlink_bytes_per_s"] for node in workers if node["downlink_bytes_per_s"] > 0)
        up = sorted(node["uplink_bytes_per_s"] for node in workers if node["uplink_bytes_per_s"] > 0)
        if not (origin and origin["uplink_bytes_per_s"] > 0 and down and up and sizes):
            return None
        count = len(workers)
        sweep = sorted({number for number in PLAN_SWEEP if number < 2 * count} | {count, count + 1})
        return self.get(
            f"plan?workers={count}&size_bytes={sizes[-1]}&uplink_bps={8 * origin['uplink_bytes_per_s']}"
            f"&peer_bps={8 * down[len(down) // 2]}&peer_uplink_bps={8 * up[len(up) // 2]}"
            f"&sweep={','.join(map(str, sweep))}"
        )

    def stop(self):
        """The recording. The daemon should still run, so that it says what it knows of its publications."""
        recording = {}
        try:
            self.ask_publications()
            recording["plan"] = self.plan()
        except (OSError, ValueError, urllib.error.URLError):
            pass
        self.stopping.set()
        with self.lock:
            recording["events"] = list(self.events)
        recording["publications"] = dict(
            sorted(self.publications.items(), key=lambda one: int(one[0]))[-PUBLICATIONS_MAX:]
        )
        return recording


def write_page(page, recording, output):
    """`page` with `recording` inside. False if nothing was recorded."""
    text = pathlib.Path(page).read_text()
    if MARK not in text:
        raise ValueError(f"{page} is not the page of this build: it has no place for a recording")
    if not any(event["event"] == "state" for event in recording["events"]):
        return False
    # A script's text ends at the first </script>, whatever it says.
    data = json.dumps(recording, separators=(",", ":")).replace("<", "\\u003c")
    pathlib.Path(output).write_text(
        text.replace(MARK, f'<script type="application/json" id="recording">{data}</script>')
    )
    return True


def main():
    if len(sys.argv) != 4:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    recorder = Recorder(sys.argv[1])
    stopped.wait()
    if write_page(sys.argv[2], recorder.stop(), sys.argv[3]):
        return 0
    print("record: the daemon told nothing", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
