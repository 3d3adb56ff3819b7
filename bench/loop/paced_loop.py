#!/usr/bin/env python3
"""Looks for the least number of workers with which a learner never waits, with real processes that keep a pace.

Usage: paced_loop.py PROGRAMS [--staleness 3,6,11] [--below 2] [--above 1] [--json FILE] ...

For each S it publishes every S - 1 steps, and runs a learner, an origin and fleets of workers around the number that
equation (2) of ECHO-2 gives: mu_min = kappa R / (kappa T - T_bcast). Every worker stands still for T_bcast when a
version comes, as the equation counts it. The learner's metrics say how long it waited. Exit status 1 if the threshold
is not within one worker of the prediction.
"""

import argparse
import math
import sys
import time

from fleet import Failed, Fleet, run, write_json

GROUP = 2
SLOTS = 2  # of a worker; a rollout then takes SLOTS / mu seconds
TOKENS = 8
BUBBLE_MAX = 0.03  # more is a bubble; less is jitter of processes on a busy host


def run_to_the_end(fleet, seconds_max):
    """The metrics of all steps."""
    steps = fleet.steps()
    rows = []
    deadline = time.monotonic() + seconds_max
    while not fleet.has_ended("learner"):
        rows += steps.read()
        if time.monotonic() > deadline:
            raise Failed(f"the learner has done {steps.last:.0f} steps after {seconds_max:.0f} s")
        fleet.check()
        time.sleep(0.2)
    fleet.check()
    return rows + steps.read()


def measure(options, staleness, workers):
    """The bubble of one fleet: the share of time in which its learner waited."""
    kappa = staleness - 1
    warm_up = 2 * kappa
    steps = warm_up + max(2, math.ceil(options.steps / kappa)) * kappa
    fleet = Fleet(
        options.programs,
        learner=dict(
            init_hidden_size=32, init_intermediate_size=64, init_num_hidden_layers=1, init_num_attention_heads=2,
            init_num_key_value_heads=1, max_new_tokens=TOKENS, group_size=GROUP, rollout_batch_size=options.batch,
            updates_per_step=1, max_staleness=staleness, publish_interval=kappa, publish_sparse="false",
            total_training_steps=steps, paced_step_s=options.step_s, paced_jitter=options.jitter),
        worker=dict(running_max=SLOTS, backend="paced", paced_rollouts_per_s=options.mu,
                    paced_pause_s=options.t_bcast_s, paced_jitter=options.jitter))
    try:
        fleet.start_origin()
        fleet.start_learner()
        fleet.start_workers([f"w{i}" for i in range(workers)])
        rows = run_to_the_end(fleet, 60 + 4 * steps * options.step_s)[warm_up:]
    finally:
        fleet.remove()
    waited = sum(row["timing_s/collect"] for row in rows)
    total = sum(row["timing_s/step"] for row in rows)
    return {"S": staleness, "kappa": kappa, "workers": workers, "steps": len(rows), "bubble_ratio": waited / total,
            "step_s": (total - waited) / len(rows), "staleness_max": max(row["off_policy/max"] for row in rows),
            "mu_eff": rows[-1].get("mu_eff"), "t_bcast": rows[-1].get("t_bcast")}


def predicted(options, staleness, mu, step_s):
    kappa = staleness - 1
    left = max(0.0, options.t_bcast_s + kappa * options.batch / mu - kappa * step_s)
    return left / (kappa * step_s + left)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs")
    parser.add_argument("--staleness", default="3,6,11", help="S of each fleet, separated by commas")
    parser.add_argument("--step-s", type=float, default=3.0, help="T")
    parser.add_argument("--batch", type=int, default=48, help="R")
    parser.add_argument("--mu", type=float, default=2.0, help="rollouts per second of a worker")
    parser.add_argument("--t-bcast-s", type=float, default=0.9)
    parser.add_argument("--jitter", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=30, help="measured steps of a fleet, at least")
    parser.add_argument("--below", type=int, default=2, help="fleets below the predicted number of workers")
    parser.add_argument("--above", type=int, default=1, help="fleets above it")
    parser.add_argument("--json", help="where the result goes")
    options = parser.parse_args()
    cases, failures = [], []
    for staleness in map(int, options.staleness.split(",")):
        kappa = staleness - 1
        mu_min = kappa * options.batch / (kappa * options.step_s - options.t_bcast_s)
        wanted = math.ceil(mu_min / options.mu - 1e-9)
        print(f"S = {staleness}: mu_min {mu_min:.2f} rollouts/s, {mu_min / options.mu:.2f} workers", flush=True)
        threshold = None
        for workers in range(max(1, wanted - options.below), wanted + options.above + 1):
            case = measure(options, staleness, workers)
            case["predicted_bubble"] = predicted(options, staleness, workers * options.mu, case["step_s"])
            cases.append(case)
            print(f"  {workers} workers: bubble {100 * case['bubble_ratio']:.1f} %, predicted "
                  f"{100 * case['predicted_bubble']:.1f} %, lag at most {case['staleness_max']:.0f}", flush=True)
            if threshold is None and case["bubble_ratio"] <= BUBBLE_MAX:
                threshold = workers
        if threshold is None or abs(threshold - mu_min / options.mu) > 1.0 + 1e-9 and abs(threshold - wanted) > 1:
            failures.append(f"S = {staleness}: the threshold is {threshold}, and {wanted} are predicted")
    write_json(options.json, {"cases": cases})
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    run(main)
