#!/usr/bin/env python3
"""What a fault costs a training run: table 4 of ECHO-2, with real processes that keep a pace.

Usage: fault_recovery.py PROGRAMS [--runs 5] [--at-once 3] [--step-s 6] [--workers 10] [--json FILE] ...

An origin, a learner whose step takes T, and workers whose daemons have capped links, in one chain. alpha = 1.0: the
workers generate just what the learner trains on, by their rate in a run before all others; alpha = 1.1: one worker in
ten more. In the middle of a broadcast one
of four things happens to the first worker of the chain (the forwarder) or to the last (the rollout worker):

  slows   for two steps it gets an eighth of the processor's time that it would use: the forwarder's daemon; of the
          rollout worker its engine, a half
  drops   daemon and engine are killed, and nobody replaces them

"none" is a run without a fault: what the other figures have of noise. From the moment of the fault:

  drop      by how much the rate of admitted rollouts, over windows of a publication (two steps), is lower at worst than before
  lasting   the same over the last six steps
  recovery  rollouts that were lost beyond the lasting loss, counted at whole publications, as seconds of the rate that
            lasts, and as a share of T
  bubble    share of time in which the learner waits for rollouts, before and after
"""

import argparse
import concurrent.futures
import signal
import statistics
import threading
import time
import urllib.request

from fleet import Failed, Fleet, run, write_json

GROUP = 2
SLOTS = 2  # of a worker; a rollout then takes SLOTS / mu seconds
TOKENS = 8
KAPPA = 2
PAYLOAD_BYTES = 4_141_423  # of the model below, in whole
BROADCAST = 0.5  # of a step, at the links' rate
WARM_UP, BEFORE, SLOW, AFTER, LASTING = 6, 6, 2, 12, 6  # steps
FAULTS = ["none", "forwarder slows", "forwarder drops", "rollout worker slows", "rollout worker drops"]
SLICE_S = 0.1


class SlowDown(threading.Thread):
    """Lets a process run for a share of the time. Ends with it, or by end()."""

    def __init__(self, process, share):
        super().__init__(daemon=True)
        self.process, self.share, self.ended = process, share, threading.Event()
        self.start()

    def run(self):
        while not self.ended.is_set() and self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)
            self.ended.wait(SLICE_S * (1 - self.share))
            self.process.send_signal(signal.SIGCONT)
            self.ended.wait(SLICE_S * self.share)

    def end(self):
        self.ended.set()
        self.join()


class Run:
    """One fleet, one fault."""

    def __init__(self, options, alpha, fault, number, efficiency=1.0):
        """`efficiency`: the rate of a worker over the pace that it is told."""
        self.options, self.fault = options, fault
        self.workers = round(options.workers * alpha)
        self.batch = 6 * options.workers  # R
        mu = self.batch / options.step_s / options.workers / efficiency
        steps = WARM_UP + BEFORE + AFTER + 4
        self.fleet = Fleet(
            options.programs,
            learner=dict(
                init_hidden_size=256, init_intermediate_size=512, init_num_hidden_layers=2, init_num_attention_heads=4,
                init_num_key_value_heads=2, max_new_tokens=TOKENS, group_size=GROUP, rollout_batch_size=self.batch,
                updates_per_step=1, max_staleness=KAPPA + 1, publish_interval=KAPPA, publish_sparse="false",
                total_training_steps=steps, paced_step_s=options.step_s, paced_jitter=options.jitter, seed=number),
            worker=dict(running_max=SLOTS, backend="paced", paced_rollouts_per_s=mu, paced_jitter=options.jitter),
            prefix="weightcast-fault-")
        self.samples = []  # (seconds, rollouts admitted so far)
        self.steps = []    # (seconds, the learner's row)

    def result(self):
        try:
            self.start()
            rows = self.fleet.steps()
            self.watch(rows, lambda: rows.last >= WARM_UP + BEFORE)
            # The next publication is on its way in its first half.
            self.watch(rows, self.is_broadcasting)
            at = time.monotonic()
            end = self.inflict()
            slow_until, until = at + SLOW * self.options.step_s, at + AFTER * self.options.step_s
            self.watch(rows, lambda: time.monotonic() >= slow_until)
            end()
            self.watch(rows, lambda: time.monotonic() >= until)
            return self.figures(at)
        finally:
            self.fleet.remove()

    def start(self):
        rate = f"{8 * PAYLOAD_BYTES / (BROADCAST * self.options.step_s) / 1e6:.3f}mbit"
        self.fleet.start_origin("--topology", "chain", "--uplink", rate, "--no-patches", "--pack", "never")
        self.fleet.start_learner("--http", "127.0.0.1:0")
        self.fleet.start_workers([f"w{i}" for i in range(self.workers)], "--uplink", rate, "--downlink", rate)

    def watch(self, rows, is_over):
        deadline = time.monotonic() + 60 + (WARM_UP + BEFORE + AFTER) * 2 * self.options.step_s
        while not is_over():
            if time.monotonic() > deadline:
                raise Failed(f"the learner has done {rows.last:.0f} steps, which is not enough")
            for name, process in self.fleet.processes.items():
                if process.poll() is not None:
                    raise Failed(f"{name} ended: {self.fleet.last_line(name)}")
            self.steps += [(time.monotonic(), row) for row in rows.read()]
            admitted = self.admitted()
            if admitted is not None:
                self.samples.append((time.monotonic(), admitted))
            time.sleep(0.1)

    def admitted(self):
        path = self.fleet.directory / "run" / "http_address"
        if not path.exists():
            return None
        with urllib.request.urlopen(f"http://{path.read_text().strip()}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        name = "\nweightcast_learner_rollouts_admitted_total "
        return float(text.split(name, 1)[1].split("\n", 1)[0]) if name in text else None

    def is_broadcasting(self):
        """A quarter of a version has come to the first worker of the chain."""
        nodes = self.fleet.nodes()
        self.chain = chain_of(nodes)
        if len(self.chain) != self.workers:
            return False
        first = next(node for node in nodes if node["name"] == self.chain[0])
        return first["receiving_version"] > 0 and first["chunks_verified"] >= first["chunks_total"] / 4 > 0

    def inflict(self):
        """What ends it."""
        name = self.chain[0] if self.fault.startswith("forwarder") else self.chain[-1]
        if self.fault.endswith("drops"):
            for each in (f"{name}-daemon", name):
                self.fleet.kill(each)
        elif self.fault == "forwarder slows":
            return SlowDown(self.fleet.processes[f"{name}-daemon"], 1 / 8).end
        elif self.fault == "rollout worker slows":
            return SlowDown(self.fleet.processes[name], 1 / 2).end
        return lambda: None

    def count_at(self, seconds):
        return next((count for at, count in reversed(self.samples) if at <= seconds), self.samples[0][1])

    def rate(self, begin, end):
        return (self.count_at(end) - self.count_at(begin)) / (end - begin)

    def bubble(self, begin, end):
        rows = [row for at, row in self.steps if begin < at <= end]
        return sum(row["timing_s/collect"] for row in rows) / sum(row["timing_s/step"] for row in rows)

    def figures(self, at):
        step = self.options.step_s
        last = self.samples[-1][0]
        before = self.rate(at - BEFORE * step, at)
        lasting = self.rate(last - LASTING * step, last)
        window = KAPPA * step
        worst = min(self.rate(end - window, end) for end, _ in self.samples if at + window <= end)
        # Within a publication rollouts come in waves.
        lost = max(lasting * k * window - (self.count_at(at + k * window) - self.count_at(at))
                   for k in range(1 + int((last - at) / window)))
        return {"rate": lasting, "drop": 1 - worst / before, "lasting": 1 - lasting / before,
                "recovery_s": lost / lasting, "recovery_steps": lost / lasting / step,
                "bubble_before": self.bubble(at - BEFORE * step, at), "bubble": self.bubble(at, last)}


def chain_of(nodes):
    """Names from the first worker of the chain to the last."""
    children = {node["name"]: node["children"] for node in nodes}
    chain, name = [], "origin"
    while children.get(name) and len(chain) < len(nodes):
        name = children[name][0]
        chain.append(name)
    return chain


def text_of(values, unit, scale=1):
    values = sorted(scale * value for value in values)
    return f"{statistics.median(values):.1f} ({values[0]:.1f} to {values[-1]:.1f}) {unit}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs")
    parser.add_argument("--runs", type=int, default=5, help="of each fault")
    parser.add_argument("--at-once", type=int, default=3, help="fleets that run beside each other")
    parser.add_argument("--step-s", type=float, default=6.0, help="T")
    parser.add_argument("--workers", type=int, default=10, help="with alpha = 1.0")
    parser.add_argument("--alpha", default="1.0,1.1", help="separated by commas")
    parser.add_argument("--faults", default=",".join(FAULTS), help="separated by commas")
    parser.add_argument("--jitter", type=float, default=0.02)
    parser.add_argument("--json", help="where the result goes")
    options = parser.parse_args()
    faults = options.faults.split(",")
    unknown = [fault for fault in faults if fault not in FAULTS]
    if unknown:
        parser.error(f"--faults {unknown[0]}: known are {', '.join(FAULTS)}")
    cases = [{"alpha": float(alpha), "fault": fault, "seed": seed}
             for seed in range(1, options.runs + 1) for alpha in options.alpha.split(",") for fault in faults]
    # A worker that is told a pace waits for leases and versions besides.
    scarce = Run(options, 0.9, "none", 0)
    efficiency = scarce.result()["rate"] * options.step_s / scarce.batch / (scarce.workers / options.workers)
    print(f"a worker reaches {100 * efficiency:.1f} % of the pace that it is told", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        runs = [pool.submit(Run(options, case["alpha"], case["fault"], case["seed"], efficiency).result)
                for case in cases]
        for case, run in zip(cases, runs):
            case.update(run.result())
            print(f"  alpha {case['alpha']}, {case['fault']}, seed {case['seed']}: lasting {100 * case['lasting']:.1f} %",
                  flush=True)
    print(f"T = {options.step_s:g} s, {options.runs} runs: median (least to most)")
    for alpha in options.alpha.split(","):
        for fault in faults:
            rows = [case for case in cases if case["alpha"] == float(alpha) and case["fault"] == fault]
            print(f"alpha {alpha}, {fault}: drop {text_of([row['drop'] for row in rows], '%', 100)}, "
                  f"lasting {text_of([row['lasting'] for row in rows], '%', 100)}, "
                  f"recovery {text_of([row['recovery_s'] for row in rows], 's')}, "
                  f"{text_of([row['recovery_steps'] for row in rows], '% of T', 100)}, "
                  f"bubble {text_of([row['bubble_before'] for row in rows], '%', 100)} before, "
                  f"{text_of([row['bubble'] for row in rows], '%', 100)} after")
    write_json(options.json, {"step_s": options.step_s, "efficiency": efficiency, "cases": cases})
    return 0


if __name__ == "__main__":
    run(main)
