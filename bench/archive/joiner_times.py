#!/usr/bin/env python3
"""joiner_times.py BUILD/tools [--size MIB] [--uplink MIB_PER_S] [--archive MIB_PER_S] [--repeat N]: how long a worker that joins takes for
a version, from its origin, from an archive, and from both, at capped rates. The floor is the size over the rates together."""

import argparse
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
from http.server import ThreadingHTTPServer

from archive_rates import Objects, write_snapshot


class Fleet:
    def __init__(self, program, scratch):
        self.program, self.scratch, self.daemons = program, scratch, []

    def run(self, *words):
        return subprocess.run([str(self.program), *map(str, words)], check=True, capture_output=True, text=True).stdout

    def daemon(self, name, *words):
        log = open(self.scratch / f"{name}.log", "wb")
        words = [self.program, "daemon", "--state", self.scratch / name, "--name", name, "--insecure", "--listen", "127.0.0.1:0",
                 "--versions-in", "disk", *words]
        self.daemons.append(subprocess.Popen(list(map(str, words)), stdout=log, stderr=log))
        return self.daemons[-1]

    def end(self, daemon):
        daemon.kill()
        daemon.wait()
        self.daemons.remove(daemon)

    def address(self, name):
        log = (self.scratch / f"{name}.log").read_text()
        return log.split(" listens on ")[1].split(",")[0]

    def join(self, *words):
        """Returns the seconds until a new worker has the version, and what it says of how that came."""
        begin = time.monotonic()
        daemon = self.daemon("joiner", "--role", "worker", "--origin", self.address("origin"), *words)
        try:
            self.run("ready", "--state", self.scratch / "joiner", "--with-version", "--timeout", 600)
            took = time.monotonic() - begin
            log = (self.scratch / "joiner.log").read_text()
            how = next(line for line in log.splitlines() if "is installed after" in line)
            return took, how.split("; ")[0].split(": ", 1)[1]
        finally:
            self.end(daemon)
            shutil.rmtree(self.scratch / "joiner")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--size", type=int, default=256, help="MiB")
    parser.add_argument("--uplink", type=float, default=12, help="MiB/s that the origin sends")
    parser.add_argument("--archive", type=float, default=12, help="MiB/s that the archive sends")
    parser.add_argument("--repeat", type=int, default=3)
    flags = parser.parse_args()
    Objects.rate = flags.archive * (1 << 20)
    with tempfile.TemporaryDirectory(prefix="weightcast-bench-", dir="/dev/shm") as name:
        scratch = pathlib.Path(name)
        Objects.root = str(scratch / "objects")
        pathlib.Path(Objects.root).mkdir()
        server = ThreadingHTTPServer(("127.0.0.1", 0), Objects)
        server.handle_error = lambda *_: None  # a worker that has its version is killed
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}/objects"
        fleet = Fleet(flags.tools / "weightcast", scratch)
        try:
            fleet.daemon("origin", "--role", "origin", "--pack", "never", "--uplink", f"{flags.uplink}MiB/s")
            fleet.run("ready", "--state", scratch / "origin")
            write_snapshot(scratch / "model.safetensors", flags.size)
            fleet.run("publish", scratch / "model.safetensors", "--version", 1, "--state", scratch / "origin")
            fleet.run("archive", "--state", scratch / "origin", "--to", scratch / "objects")
            print(f"{flags.size} MiB; origin {flags.uplink} MiB/s, archive {flags.archive} MiB/s; floor "
                  f"{flags.size / (flags.uplink + flags.archive):.2f} s, peers {flags.size / flags.uplink:.2f} s, archive "
                  f"{flags.size / flags.archive:.2f} s")
            for _ in range(flags.repeat):
                peers_s, _ = fleet.join()
                begin = time.monotonic()
                fleet.run("fetch", "--from", place, "-o", scratch / "fetched")
                archive_s = time.monotonic() - begin
                shutil.rmtree(scratch / "fetched")
                both_s, how = fleet.join("--archive", place)
                floor_s = flags.size / (flags.uplink + flags.archive)
                print(f"peers {peers_s:.2f} s, archive (fetch) {archive_s:.2f} s, both {both_s:.2f} s, {both_s / floor_s:.2f} of the floor; "
                      f"{how}", flush=True)
        finally:
            for daemon in list(fleet.daemons):
                fleet.end(daemon)
            server.shutdown()


if __name__ == "__main__":
    main()
