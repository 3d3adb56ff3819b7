#!/usr/bin/env python3
"""How long it takes from a trainer's publish_sparse() until engines on other hosts answer under the new version.

Usage: tests/oracles/run.sh --torch bench/publish/publish_to_tokens.py PROGRAMS [--layers 26] [--link 1gbit] [--changed 0.01] ...

A model of Qwen3's shapes with random weights in BF16, an origin and two workers whose links are capped, and
`weightcast-engine serve` at each, which is asked for one token after the other all the time. The floor is the patch at
the link's rate and what the worker takes to apply it, as `weightcast trace` has it. WEIGHTCAST_LIBRARY names the
client library.
"""

import argparse
import json
import pathlib
import statistics
import sys
import threading
import time
import urllib.request

root = pathlib.Path(__file__).resolve().parents[2]
for folder in (root / "bench" / "decode", root / "bench" / "loop", root / "python", root / "tests" / "oracles"):
    sys.path.insert(0, str(folder))
import torch_shims  # noqa: F401  before transformers
import torch
import weightcast
from beside_transformers import made_model
from fleet import Failed, Fleet, run

NAMES = ["w1", "w2"]
PROMPT = [1, 2, 3, 5, 8, 13, 21, 34]


class Asker(threading.Thread):
    """Asks a server for a token again and again, and notes when the first answer came under each version."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.first, self.seconds, self.ended, self.failure = address, {}, [], False, None
        self.start()

    def run(self):
        try:
            while not self.ended:
                begin = time.monotonic()
                version = self.ask()
                end = time.monotonic()
                self.seconds.append(end - begin)
                self.first.setdefault(version, end)
        except (OSError, ValueError, KeyError) as failure:
            self.failure = failure

    def ask(self):
        body = {"model": "model", "prompt": PROMPT, "max_tokens": 1, "temperature": 0}
        request = urllib.request.Request(f"http://{self.address}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(json.load(answer)["weight_version"])

    def when(self, version, seconds):
        deadline = time.monotonic() + seconds
        while version not in self.first:
            if self.failure or time.monotonic() > deadline:
                raise Failed(f"{self.address} does not answer under version {version}: {self.failure or 'too late'}")
            time.sleep(0.001)
        return self.first[version]


def make_model(directory, layers):
    model = made_model(layers, 32768)
    model.save_pretrained(directory)
    return {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}


def step_of(weights, share, generator):
    """Changes so many cells of each tensor by their last bit, and lists them."""
    changes = {}
    for name, tensor in weights.items():
        cells = tensor.view(-1).view(torch.int16)
        places = torch.rand(cells.numel(), generator=generator).lt(share).nonzero().view(-1).to(torch.int32)
        cells[places.long()] ^= 1
        changes[name] = (places, tensor.view(-1)[places.long()])
    return changes


def phases(fleet, version):
    """Seconds by what the origin and a worker did, at the worker that took longest."""
    trace = json.loads(fleet.call("weightcast", "trace", version, "--state", fleet.directory / "origin"))
    longest = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            longest[event["name"]] = max(longest.get(event["name"], 0), event["dur"] / 1e6)
    return longest


def rate_of(link):
    return float(link.removesuffix("gbit")) * 1e9 / 8 if link.endswith("gbit") else float(link.removesuffix("mbit")) * 1e6 / 8


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs")
    parser.add_argument("--layers", type=int, default=26)
    parser.add_argument("--link", default="1gbit", help="of each host, both ways: Ngbit or Nmbit")
    parser.add_argument("--changed", type=float, default=0.01)
    parser.add_argument("--versions", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    fleet = Fleet(options.programs, {}, prefix="weightcast-tokens-")
    askers = []
    try:
        model = fleet.directory / "model"
        weights = make_model(model, options.layers)
        print(f"{sum(t.numel() for t in weights.values()) * 2 / 2**30:.2f} GiB of BF16 in {len(weights)} tensors", flush=True)
        fleet.start_origin("--uplink", options.link)
        for name in NAMES:
            fleet.start_daemon(name, "--uplink", options.link, "--downlink", options.link)
        generator = torch.Generator().manual_seed(1)
        with weightcast.Publisher(fleet.directory / "origin") as publisher:
            files = {path.name: path.read_bytes() for path in model.iterdir() if path.suffix == ".json"}
            version = publisher.publish(weights, files=files, timeout=300)
            publisher.wait(version, installed=1.0, timeout=300)
            for name in NAMES:
                address = fleet.reserve(f"{name}-serve")
                fleet.start(name, "weightcast-engine", "serve", model, "--name", "model", "--listen", address, "--state",
                            fleet.directory / name)
                askers.append(Asker(address)) if serves(fleet, address) else None
            results = []
            for _ in range(2 + options.versions):  # the first make the files that all others reuse
                for asker in askers:
                    asker.when(version, 120)
                time.sleep(3)
                changes = step_of(weights, options.changed, generator)
                time.sleep(3)
                begin = time.monotonic()
                version = publisher.publish_sparse(changes, base=version, timeout=300)
                called = time.monotonic()
                seconds = [asker.when(version, 120) - begin for asker in askers]
                time.sleep(1)
                spent = phases(fleet, version)
                patch = publisher.wait(version, installed=1.0, timeout=300).payload_bytes
                results.append({"all": max(seconds), "call": called - begin, "patch_bytes": patch,
                                "line": patch / rate_of(options.link), **spent})
        report(results[2:], askers)
    finally:
        for asker in askers:
            asker.ended = True
        fleet.remove()
    return 0


def serves(fleet, address):
    def asked():
        try:
            return urllib.request.urlopen(f"http://{address}/health", timeout=5).status == 200
        except OSError:
            return False
    return fleet.wait(f"the server at {address}", asked, 120)


def report(results, askers):
    def text(name):
        values = sorted(1e3 * one.get(name, 0) for one in results)
        return f"{statistics.median(values):.0f} ms ({values[0]:.0f} to {values[-1]:.0f})"
    print(f"publish to tokens at both: {text('all')}")
    for name in sorted(set().union(*results) - {"all", "patch_bytes"}):
        print(f"  {name}: {text(name)}")
    print(f"  one token, while nothing else happens or does: {1e3 * statistics.median(s for a in askers for s in a.seconds):.0f} ms")
    print(f"patch {statistics.median(one['patch_bytes'] for one in results) / 2**20:.1f} MiB; over line and apply "
          f"{statistics.median(one['all'] / (one['line'] + one['apply']) for one in results):.2f}")


if __name__ == "__main__":
    run(main, weightcast.Error)
