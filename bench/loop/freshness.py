#!/usr/bin/env python3
"""Compares how stale rollouts are, and what is learned, under different bounds: with real processes that learn sums.

Usage: freshness.py PROGRAMS [--bounds S=11,ratio=1] [--steps 60] [--workers 2] [--json FILE]

Each bound is a run of its own on this host: an origin, a learner that publishes after each step, and workers. Prints
for each the mean lag, the share of time in which the learner waited, the share of rollouts that were dropped, and the
mean reward of the second half of the steps.
"""

import argparse

from fleet import Failed, Fleet, run, write_json
from paced_loop import run_to_the_end


def settings_of(bound):
    name, _, value = bound.partition("=")
    if name == "S":
        return {"max_staleness": value}
    if name == "ratio":
        return {"async_generation_ratio": value}
    raise Failed(f"'{bound}' is no bound: S=NUMBER or ratio=NUMBER")


def measure(options, bound):
    fleet = Fleet(options.programs,
                  learner=dict(preset="arithmetic", total_training_steps=options.steps, seed=options.seed,
                               **settings_of(bound)),
                  worker=dict(running_max=64))
    try:
        fleet.start_origin()
        fleet.start_learner()
        fleet.start_workers([f"w{i}" for i in range(options.workers)])
        rows = run_to_the_end(fleet, options.seconds_max)
    finally:
        fleet.remove()
    late = rows[len(rows) // 2:]
    mean = lambda name: sum(row[name] for row in late) / len(late)
    waited, took = sum(row["timing_s/collect"] for row in late), sum(row["timing_s/step"] for row in late)
    return {"bound": bound, "steps": len(rows), "lag": mean("off_policy/mean"),
            "lag_max": max(row["off_policy/max"] for row in late), "bubble": waited / took,
            "admissible_share": rows[-1]["off_policy/admissible_share"], "reward": mean("critic/score/mean"),
            "step_s": took / len(late), "t_bcast_s": rows[-1].get("t_bcast", 0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", help="directory of the programs")
    parser.add_argument("--bounds", default="S=11,ratio=1", help="separated by commas")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds-max", type=float, default=900, help="of one run")
    parser.add_argument("--json", help="where the results go, too")
    options = parser.parse_args()
    results = []
    for bound in options.bounds.split(","):
        result = measure(options, bound)
        results.append(result)
        print("{bound:>9}: lag {lag:.2f} (at most {lag_max:.0f}), bubble {bubble:.1%}, admissible {admissible_share:.1%}, "
              "reward {reward:.3f}, a step {step_s:.2f} s".format(**result), flush=True)
    write_json(options.json, {"runs": results})
    return 0


if __name__ == "__main__":
    run(main)
