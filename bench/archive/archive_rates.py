#!/usr/bin/env python3
"""archive_rates.py BUILD/tools [--size MIB] [--repeat N] [--rate MIB_PER_S]: what archive and fetch reach against curl, in turn.
curl moves the same objects to and from the same server over as many connections. The server is on loopback, its objects in memory."""

import argparse
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

CONNECTIONS = 4


class Objects(http.server.BaseHTTPRequestHandler):
    """PUT, HEAD and GET with Range, by the kernel's own copying where there is some."""

    protocol_version = "HTTP/1.1"
    root = ""
    rate = 0.0  # bytes per second of all connections; 0: as fast as it goes
    lock = threading.Lock()
    free_at = 0.0

    def pace(self, size):
        """Waits until a link of that rate would have carried so much."""
        if not Objects.rate:
            return
        with Objects.lock:
            Objects.free_at = max(Objects.free_at, time.monotonic()) + size / Objects.rate
            until = Objects.free_at
        time.sleep(max(0.0, until - time.monotonic()))

    def log_message(self, *_):
        pass

    def path_of(self):
        return os.path.join(self.root, os.path.basename(self.path))

    def do_PUT(self):
        left = int(self.headers["Content-Length"])
        with open(self.path_of() + ".new", "wb") as file:
            while left > 0:
                piece = self.rfile.read(min(left, 1 << 20))
                self.pace(len(piece))
                file.write(piece)
                left -= len(piece)
        os.rename(self.path_of() + ".new", self.path_of())
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, with_body):
        try:
            file = open(self.path_of(), "rb")
        except FileNotFoundError:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            begin, end = 0, size
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if asked:
                begin, end = int(asked[1]), int(asked[2]) + 1
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
            self.send_header("Content-Length", str(end - begin))
            self.end_headers()
            if with_body:
                self.wfile.flush()
                while begin < end:
                    sent = os.sendfile(self.connection.fileno(), file.fileno(), begin, min(end - begin, 1 << 20))
                    self.pace(sent)
                    begin += sent


class Fleet:
    def __init__(self, program, scratch):
        self.program, self.scratch, self.daemons = program, scratch, []

    def run(self, *words):
        subprocess.run([str(self.program), *map(str, words)], check=True, stdout=subprocess.DEVNULL)

    def daemon(self, name, *words):
        log = open(self.scratch / f"{name}.log", "wb")
        words = [self.program, "daemon", "--state", self.scratch / name, "--name", name, "--insecure", "--listen", "127.0.0.1:0",
                 "--versions-in", "disk", *words]
        self.daemons.append(subprocess.Popen(list(map(str, words)), stdout=log, stderr=log))
        return self.daemons[-1]

    def log(self, name):
        return (self.scratch / f"{name}.log").read_text()

    def end(self, daemon):
        daemon.kill()
        daemon.wait()
        self.daemons.remove(daemon)


def write_snapshot(path, mib):
    size = mib << 20
    head = json.dumps({"weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for _ in range(mib):
            file.write(os.urandom(1 << 20))


@contextlib.contextmanager
def published(tools, mib, *origin):
    """A fleet whose origin, with those flags, has published so many MiB, and a server for its archive."""
    with tempfile.TemporaryDirectory(prefix="weightcast-bench-", dir="/dev/shm") as name:
        fleet = Fleet(tools / "weightcast", pathlib.Path(name))
        Objects.root = f"{name}/objects"
        os.mkdir(Objects.root)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Objects)
        server.place = f"http://127.0.0.1:{server.server_port}/objects"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            fleet.daemon("origin", "--role", "origin", *origin)
            state, model = fleet.scratch / "origin", fleet.scratch / "model.safetensors"
            fleet.run("ready", "--state", state)
            write_snapshot(model, mib)
            fleet.run("publish", model, "--version", 1, "--state", state)
            model.unlink()
            yield fleet, server
        finally:
            for daemon in list(fleet.daemons):
                fleet.end(daemon)
            server.shutdown()


def timed(*words):
    begin = time.monotonic()
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0, help="MiB/s of the server's link; 0: none")
    flags = parser.parse_args()
    Objects.rate = flags.rate * (1 << 20)
    if shutil.which("curl") is None:
        print("skipped: curl, which it compares with, is not installed")
        sys.exit(77)
    with published(flags.tools, flags.size) as (fleet, server):
        for _ in range(flags.repeat):
            seconds = {}
            parts = pathlib.Path(Objects.root)
            shutil.rmtree(parts, ignore_errors=True)
            parts.mkdir()
            seconds["archive"] = timed(fleet.program, "archive", "--state", fleet.scratch / "origin", "--to", server.place,
                                       "--connections", CONNECTIONS)
            objects = sorted(parts.glob("*.0*"))
            # curl gets files of the same sizes, and puts them under other names.
            copies = fleet.scratch / "copies"
            copies.mkdir()
            words = ["curl", "-sSf", "-Z", "--parallel-max", CONNECTIONS]
            for each in objects:
                words += ["-o", copies / each.name, f"{server.place}/{each.name}"]
            seconds["curl get"] = timed(*words)
            seconds["fetch"] = timed(fleet.program, "fetch", "--from", server.place, "-o", fleet.scratch / "fetched", "--connections",
                                     CONNECTIONS)
            shutil.rmtree(fleet.scratch / "fetched")
            shutil.rmtree(parts)
            parts.mkdir()
            words = ["curl", "-sSf", "-Z", "--parallel-max", CONNECTIONS]
            for each in sorted(copies.iterdir()):
                words += ["-T", each, f"{server.place}/{each.name}"]
            seconds["curl put"] = timed(*words)
            shutil.rmtree(copies)
            print(", ".join(f"{what} {flags.size / took:.0f} MiB/s" for what, took in seconds.items()),
                  f"| archive {seconds['curl put'] / seconds['archive']:.2f} of curl,",
                  f"fetch {seconds['curl get'] / seconds['fetch']:.2f} of curl")


if __name__ == "__main__":
    main()
