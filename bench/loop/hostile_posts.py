#!/usr/bin/env python3
"""What one worker with stolen keys costs a learner: its steps per second with and without the attack, by turns.

Usage: hostile_posts.py PROGRAMS [--minutes 60] [--window 20] [--seed N] [--json FILE] ...

A learner with keys, two honest workers, and hostile_client.py with the keys of a third, at the least priority. Windows
with and without the attack alternate within the run, so that the ratio holds on a busy machine. Exit status 1, and a
line for each, if

  the ratio of steps per second with and without the attack is below --ratio,
  the learner's memory grew by more than --memory-mib beyond what it has without the attack,
  the learner or a worker ended, or trained no step in a window,
  the learner's log warns that it could not read its revocations or write a checkpoint.
"""

import argparse
import collections
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import time

import hostile_client
from fleet import Failed, Fleet, Trial, run

LEARNER = dict(preset="arithmetic", dtype="bfloat16", sft_steps=100, max_staleness=4, publish_interval=1,
               checkpoint_interval=20, total_training_steps=10_000_000)
WORKER = dict(running_max=32)
HONEST = ("w0", "w1")
THIEF = "thief"
# Of each window: what the one before left behind is not counted.
SETTLE_SHARE = 0.2


class Bench(Trial):
    def __init__(self, options):
        super().__init__(Fleet(options.programs, LEARNER, WORKER, "weightcast-hostile-", with_keys=True), options)
        self.windows = []  # (is_attack, steps, seconds, processor seconds of the learner)
        self.memory_kib = {True: [], False: []}
        self.answers = collections.defaultdict(collections.Counter)
        self.attacker = None
        self.row = {}

    def status_kib(self, name):
        """A line of the learner's /proc/PID/status, in KiB."""
        text = pathlib.Path(f"/proc/{self.fleet.processes['learner'].pid}/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(name + ":"))

    def begin_attack(self, number):
        self.attacker = subprocess.Popen(
            [sys.executable, hostile_client.__file__, self.fleet.addresses["learner"], str(self.fleet.keys_of(THIEF)), "--seed",
             str(self.options.seed * 100_000 + number), "--connections", str(self.options.connections),
             "--kinds", *self.options.kinds],
            stdout=subprocess.PIPE, text=True)

    def end_attack(self):
        self.attacker.send_signal(signal.SIGTERM)
        try:
            text, _ = self.attacker.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.attacker.kill()
            text, _ = self.attacker.communicate()
        if self.attacker.returncode != 0 or not text:
            raise Failed(f"the attacker ended with status {self.attacker.returncode}")
        self.attacker = None
        for kind, counts in json.loads(text).items():
            self.answers[kind].update(counts)

    def count_steps(self):
        rows = self.steps.read()
        if rows:
            self.row = rows[-1]
        return len(rows)

    def window(self, is_attack, number):
        if is_attack:
            self.begin_attack(number)
        begin = time.monotonic()
        counted_from = begin + SETTLE_SHARE * self.options.window
        steps, cpu_before, first = 0, None, begin
        while (now := time.monotonic()) < begin + self.options.window:
            time.sleep(0.2)
            self.fleet.check()
            if is_attack and self.attacker.poll() is not None:
                raise Failed(f"the attacker ended with status {self.attacker.returncode}")
            new = self.count_steps()
            self.memory_kib[is_attack].append(self.status_kib("RssAnon"))
            if now >= counted_from:
                if cpu_before is None:
                    cpu_before, first = self.fleet.cpu_s("learner"), now
                else:
                    steps += new
        seconds, cpu = time.monotonic() - first, self.fleet.cpu_s("learner") - (cpu_before or 0)
        self.windows.append((is_attack, steps, seconds, cpu))
        print(f"   {'attack' if is_attack else 'quiet ':6}  {steps / seconds:6.2f} steps/s  learner "
              f"{self.memory_kib[is_attack][-1] / 1024:6.0f} MiB, {cpu / seconds:.2f} processors", flush=True)
        if steps == 0:
            self.fail(f"no step in a window of {self.options.window:g} s {'with' if is_attack else 'without'} the attack")
        if is_attack:
            self.end_attack()

    def run(self):
        self.fleet.start_origin()
        self.fleet.start_learner()
        self.fleet.start_workers(HONEST)
        self.fleet.keys_of(THIEF)
        self.fleet.wait("the first step", self.count_steps, 300)
        end = time.monotonic() + 60 * self.options.minutes
        number = 0
        try:
            # In pairs, so that neither kind has more windows.
            while number % 2 or time.monotonic() < end:
                self.window(number % 2 == 1, number)
                number += 1
        finally:
            if self.attacker is not None:
                self.attacker.kill()
                self.attacker.wait()
        self.judge()

    def judge(self):
        def rate(is_attack):
            chosen = [window for window in self.windows if window[0] == is_attack]
            return sum(steps for _, steps, _, _ in chosen) / sum(seconds for _, _, seconds, _ in chosen)

        quiet, attack = rate(False), rate(True)
        usual, most = statistics.median(self.memory_kib[False]), max(self.memory_kib[True])
        if attack < self.options.ratio * quiet:
            self.fail(f"{attack:.2f} steps/s with the attack and {quiet:.2f} without: {attack / quiet:.2f} of it, of at "
                      f"least {self.options.ratio:g}")
        if most - usual > 1024 * self.options.memory_mib:
            self.fail(f"the learner took {most / 1024:.0f} MiB, {usual / 1024:.0f} MiB without the attack")
        log = self.fleet.log("learner")
        for words in ("revoked keys:", "checkpoint not written", "Too many open files"):
            if words in log:
                self.fail(f"the learner's log has: {next(line for line in log.splitlines() if words in line)}")
        self.report({
            "minutes": self.options.minutes, "window_s": self.options.window, "seed": self.options.seed, "kinds": self.options.kinds,
            "windows": len(self.windows), "steps_per_s": {"quiet": round(quiet, 3), "attack": round(attack, 3)},
            "ratio": round(attack / quiet, 3) if quiet else None,
            "ratio_of_pairs": [round(b[1] / b[2] / (a[1] / a[2]), 3) for a, b in
                               zip(self.windows[::2], self.windows[1::2]) if a[1]],
            "learner_processors": {name: round(statistics.fmean(w[3] / w[2] for w in self.windows if w[0] == kind), 2)
                                   for name, kind in (("quiet", False), ("attack", True))},
            "learner_mib": {"quiet_median": round(usual / 1024), "attack_most": round(most / 1024),
                            "peak": round(self.status_kib("VmHWM") / 1024)},
            "refused": {key.split("/")[-1]: value for key, value in self.row.items() if key.startswith("rollouts/refused/")},
            "malformed": self.row.get("rollouts/malformed"), "admitted": self.row.get("rollouts/admitted"),
            "reward": self.row.get("critic/score/mean"), "answers": self.answers, "failures": self.failures})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--window", type=float, default=20.0, help="seconds with, or without, the attack")
    parser.add_argument("--ratio", type=float, default=0.9, help="least steps per second with the attack, of those without")
    parser.add_argument("--memory-mib", type=float, default=512, help="most that the attack costs the learner")
    parser.add_argument("--connections", type=int, default=3000, help="silent ones at a time")
    parser.add_argument("--kinds", nargs="+", default=hostile_client.NAMES, choices=hostile_client.NAMES)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--json", help="where the result goes")
    options = parser.parse_args()
    print(f"== {options.minutes:g} minutes in windows of {options.window:g} s, --seed {options.seed}", flush=True)
    return Bench(options).status()


if __name__ == "__main__":
    run(main)
