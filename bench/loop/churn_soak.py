#!/usr/bin/env python3
"""Runs a whole loop while its processes are killed and paused, and says what that broke.

Usage: churn_soak.py PROGRAMS [--minutes 2] [--workers 3] [--every 10] [--seed N] [--json FILE] ...

Every --every seconds a worker's engine, its daemon or both are killed or paused. In the first half of the time the
learner is killed three times and the origin twice; the second half shows whether memory grows. All real processes, with
a model that is small enough to learn sums of two digits meanwhile. Exit status 1, and a line for each, if

  a rollout was trained on that is older than max_staleness,
  the learner refused a rollout for a reason that no restart explains,
  the learner stood still for --still seconds,
  the memory of a process grew in the second half of its life,
  the reward fell,
  a process ended by itself.
"""

import argparse
import pathlib
import random
import signal
import statistics
import time

from fleet import Fleet, Trial, run

STALENESS_MAX = 4
LIFE_MIN_S = 600  # of a process whose memory is judged: a learner of LibTorch takes minutes to come to its level
GROWTH_MAX = 1.10
GROWTH_MAX_KIB = 4096
# What a learner that goes on from a checkpoint may say of rollouts: they are of weights that it never had, or that are
# too old now; or their group was completed or given up. A worker that was paused, or whose daemon was, begins late what
# was leased to it: then the lease is over.
EXPECTED_REFUSALS = {"stale", "version_unknown", "version_never_published", "group_closed", "lease_ended"}
EDGE_STEPS = 40  # whose mean reward is compared

LEARNER = dict(
    preset="arithmetic", dtype="bfloat16", sft_steps=250, max_staleness=STALENESS_MAX, async_generation_ratio=2, publish_interval=1,
    checkpoint_interval=10, total_training_steps=10_000_000)
WORKER = dict(running_max=32)


class Memory:
    """Resident memory of each process over its life, in KiB."""

    def __init__(self):
        self.lives = {}  # by process id: its name, and [(seconds, KiB)]

    def sample(self, now, processes):
        for name, process in processes.items():
            try:
                pages = int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            except (OSError, IndexError):
                continue
            self.lives.setdefault(process.pid, (name, []))[1].append((now, 4 * pages))

    def judged(self):
        """(name, seconds, KiB in the second quarter, KiB in the last quarter) of lives that are long enough."""
        rows = []
        for name, samples in self.lives.values():
            life = samples[-1][0] - samples[0][0]
            if life < LIFE_MIN_S:
                continue

            def median(begin, end):
                begin, end = samples[0][0] + begin * life, samples[0][0] + end * life
                return statistics.median(kib for at, kib in samples if begin <= at <= end)

            rows.append((name, life, median(0.25, 0.5), median(0.75, 1)))
        return rows


class Soak(Trial):
    def __init__(self, options):
        super().__init__(Fleet(options.programs, LEARNER, WORKER, "weightcast-churn-"), options)
        self.random = random.Random(options.seed)
        self.memory = Memory()
        self.names = [f"w{i}" for i in range(options.workers)]
        self.counts = {}
        self.trained_steps = self.violations = 0
        self.lag_max = 0.0
        self.rewards_first, self.rewards_last = [], []
        self.row = {}
        self.begin = self.advanced_at = time.monotonic()
        self.restarts = []  # (when, what to call)
        self.shown_at = 0.0

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    # ---- what happens to processes

    def later(self, seconds, action):
        self.restarts.append((time.monotonic() + seconds, action))

    def is_whole(self, name):
        return name in self.fleet.processes and f"{name}-daemon" in self.fleet.processes

    def disturb_a_worker(self):
        """The first worker is paused and never killed: it shows whether memory grows."""
        whole = [name for name in self.names if self.is_whole(name) and name not in self.paused()]
        if not whole:
            return
        name = self.random.choice(whole)
        what = self.random.choice([[name], [f"{name}-daemon"], [name, f"{name}-daemon"]])
        if name == self.names[0] or self.random.random() < 0.4:
            for each in what:
                self.fleet.processes[each].send_signal(signal.SIGSTOP)
            seconds = self.random.choice([1, 5, 25])
            self.later(seconds, lambda: self.go_on(what))
            self.count(f"pauses of {seconds} s")
            return
        for each in what:
            self.fleet.kill(each)
            self.count("kills of daemons" if each.endswith("daemon") else "kills of workers")
        self.later(self.random.choice([0.5, 3]), lambda: self.start_again(name))

    def paused(self):
        names = set()
        for name, process in self.fleet.processes.items():
            state = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            if state == "T":
                names.add(name.removesuffix("-daemon"))
        return names

    def go_on(self, names):
        for name in names:
            if name in self.fleet.processes:
                self.fleet.processes[name].send_signal(signal.SIGCONT)

    def start_again(self, name):
        if f"{name}-daemon" not in self.fleet.processes:
            self.fleet.start_daemon(name)
        if name not in self.fleet.processes:
            self.fleet.start_worker(name)

    def kill_learner(self):
        self.read_steps()
        self.fleet.kill("learner")
        self.count("kills of the learner")
        self.later(2, self.start_learner)

    def start_learner(self):
        (self.fleet.directory / "run" / "rollout_address").unlink(missing_ok=True)
        self.fleet.start_learner()
        self.steps.begin_again()
        self.advanced_at = time.monotonic()

    def kill_origin(self):
        self.fleet.kill("origin")
        self.count("kills of the origin")
        self.later(2, self.fleet.start_origin)

    # ---- what is looked at

    def read_steps(self):
        rows = self.steps.read()
        for row in rows:
            self.trained_steps += 1
            self.row = row
            self.lag_max = max(self.lag_max, row["off_policy/max"])
            self.violations += row["off_policy/max"] > STALENESS_MAX
            reward = row["critic/score/mean"]
            if len(self.rewards_first) < EDGE_STEPS:
                self.rewards_first.append(reward)
            self.rewards_last = (self.rewards_last + [reward])[-EDGE_STEPS:]
        now = time.monotonic()
        if rows:
            self.advanced_at = now
        elif "learner" in self.fleet.processes and now - self.advanced_at > self.options.still:
            self.fail(f"the learner stands still at step {self.steps.last:.0f} since {now - self.begin:.0f} s: "
                      f"{self.fleet.last_line('learner')}")
            self.advanced_at = now

    def look(self, now):
        self.fleet.check()
        self.read_steps()
        self.memory.sample(now - self.begin, self.fleet.processes)
        if now - self.shown_at >= 30:
            self.shown_at = now
            learner = self.fleet.processes.get("learner")
            _, samples = self.memory.lives.get(learner.pid if learner else None, ("", [(0, 0)]))
            print(f"   {now - self.begin:5.0f} s  step {self.steps.last:6.0f}  reward "
                  f"{statistics.fmean(self.rewards_last) if self.rewards_last else 0:.3f}  lag max {self.lag_max:.0f}  "
                  f"learner {samples[-1][1] / 1024:.0f} MiB", flush=True)

    def run(self):
        seconds = 60 * self.options.minutes
        # The learner at 1, 3 and 5 twelfths, the origin at 2 and 4.
        kills = {"learner": self.kill_learner, "origin": self.kill_origin}
        great = [(seconds * i / 12, "learner" if i % 2 else "origin") for i in range(1, 6)]
        self.fleet.start_origin()
        self.fleet.start_learner()
        for name in self.names:
            self.start_again(name)
        # A learner that is killed in its warm-up begins anew, and would never end it.
        self.fleet.wait("the first step", lambda: self.steps.read(), 300)
        self.begin = self.advanced_at = time.monotonic()
        next_at = self.begin + self.options.every
        while (now := time.monotonic()) < self.begin + seconds:
            self.look(now)
            for entry in [each for each in self.restarts if each[0] <= now]:
                self.restarts.remove(entry)
                entry[1]()
            # In a short soak what is to be killed may still be down.
            if great and now - self.begin >= great[0][0] and great[0][1] in self.fleet.processes:
                kills[great.pop(0)[1]]()
            if now >= next_at:
                next_at += self.options.every
                self.disturb_a_worker()
            time.sleep(0.5)
        for _, action in self.restarts:
            action()
        self.end()

    def end(self):
        self.read_steps()
        for name in self.names:
            if self.fleet.kill(name, signal.SIGTERM, 60) != 0:
                self.fail(f"{name} ended badly: {self.fleet.last_line(name)}")
        if self.fleet.kill("learner", signal.SIGTERM, 60) != 0:
            self.fail(f"the learner ended badly: {self.fleet.last_line('learner')}")
        if self.violations:
            self.fail(f"{self.violations} steps trained on rollouts that lag by more than {STALENESS_MAX}")
        refused = {key.split("/")[-1]: count for key, count in self.row.items() if key.startswith("rollouts/refused/")}
        for reason in refused.keys() - EXPECTED_REFUSALS:
            self.fail(f"{refused[reason]:.0f} rollouts were refused as {reason}")
        if self.row.get("rollouts/malformed"):
            self.fail(f"{self.row['rollouts/malformed']:.0f} rollouts were malformed")
        first, last = (statistics.fmean(each) if each else 0 for each in (self.rewards_first, self.rewards_last))
        if last < first - 0.02:
            self.fail(f"the reward fell from {first:.3f} to {last:.3f}")
        memory = self.memory.judged()
        for name, life, before, after in memory:
            if after > before * GROWTH_MAX + GROWTH_MAX_KIB:
                self.fail(f"{name} grew from {before / 1024:.1f} to {after / 1024:.1f} MiB in a life of {life:.0f} s")
        self.report({
            "seconds": round(time.monotonic() - self.begin, 1), "seed": self.options.seed, "events": self.counts,
            "steps": self.trained_steps, "admitted": self.row.get("rollouts/admitted"),
            "duplicates": self.row.get("rollouts/duplicates"), "refused": refused, "staleness_max": self.lag_max,
            "violations": self.violations, "reward_start": round(first, 4), "reward_end": round(last, 4),
            "memory_mib": [{"process": name, "life_s": round(life), "before": round(before / 1024, 1),
                            "after": round(after / 1024, 1)} for name, life, before, after in memory],
            "failures": self.failures})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between disturbances of workers")
    parser.add_argument("--still", type=float, default=90.0, help="seconds without a step that are a failure")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--json", help="where the result goes")
    options = parser.parse_args()
    print(f"== {options.minutes:g} minutes, {options.workers} workers, --seed {options.seed}", flush=True)
    return Soak(options).status()


if __name__ == "__main__":
    run(main)
