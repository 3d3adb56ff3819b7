#!/usr/bin/env python3
"""joiner_times.py BUILD/tools [--size MIB] [--uplink MIB_PER_S] [--archive MIB_PER_S] [--repeat N]: how long a worker that joins takes for
a version, from its origin, from an archive, and from both, at capped rates. The floor is the size over the rates together."""

import argparse
import pathlib
import shutil
import time

from archive_rates import Objects, published, timed


def join(fleet, *words):
    """Returns the seconds until a new worker has the version, and what it says of how that came."""
    begin = time.monotonic()
    address = fleet.log("origin").split(" listens on ")[1].split(",")[0]
    daemon = fleet.daemon("joiner", "--role", "worker", "--origin", address, *words)
    try:
        fleet.run("ready", "--state", fleet.scratch / "joiner", "--with-version", "--timeout", 600)
        took = time.monotonic() - begin
        how = next(line for line in fleet.log("joiner").splitlines() if "is installed after" in line)
        return took, how.split("; ")[0].split(": ", 1)[1]
    finally:
        fleet.end(daemon)
        shutil.rmtree(fleet.scratch / "joiner")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--size", type=int, default=256, help="MiB")
    parser.add_argument("--uplink", type=float, default=12, help="MiB/s that the origin sends")
    parser.add_argument("--archive", type=float, default=12, help="MiB/s that the archive sends")
    parser.add_argument("--repeat", type=int, default=3)
    flags = parser.parse_args()
    Objects.rate = flags.archive * (1 << 20)
    with published(flags.tools, flags.size, "--pack", "never", "--uplink", f"{flags.uplink}MiB/s") as (fleet, server):
        server.handle_error = lambda *_: None  # a worker that has its version is killed
        fleet.run("archive", "--state", fleet.scratch / "origin", "--to", Objects.root)
        floor_s = flags.size / (flags.uplink + flags.archive)
        print(f"{flags.size} MiB; origin {flags.uplink} MiB/s, archive {flags.archive} MiB/s; floor {floor_s:.2f} s, peers "
              f"{flags.size / flags.uplink:.2f} s, archive {flags.size / flags.archive:.2f} s")
        for _ in range(flags.repeat):
            peers_s, _ = join(fleet)
            archive_s = timed(fleet.program, "fetch", "--from", server.place, "-o", fleet.scratch / "fetched")
            shutil.rmtree(fleet.scratch / "fetched")
            both_s, how = join(fleet, "--archive", server.place)
            print(f"peers {peers_s:.2f} s, archive (fetch) {archive_s:.2f} s, both {both_s:.2f} s, {both_s / floor_s:.2f} of the floor; "
                  f"{how}", flush=True)


if __name__ == "__main__":
    main()
