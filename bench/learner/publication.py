#!/usr/bin/env python3
"""How long a learner's step stands still to publish, what the daemon takes beside it, and how long a resume takes.

Usage: publication.py PROGRAMS [--steps 4] [--bytes 256MiB] [--parts full,sparse,resume] [--json FILE]

`full`: FP32 weights, of which a step changes all: filled in place. `sparse`: BF16 weights at a learning rate of 1e-6: the
changed cells alone. Both publish at each step to an origin without workers. Where there are two processors, learner and
daemon each have one. `resume`: a run of 10 million parameters with a checkpoint at each step is killed by SIGKILL and
started again. Python's standard library alone.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "loop"))
from fleet import Failed, Fleet, run, write_json  # noqa: E402

INTERVAL_S = 0.02  # a resume is timed
GOING_ON = "going on from the checkpoint of step "
COMMON = {"threads": 1, "rollout_batch_size": 4, "group_size": 2, "updates_per_step": 1, "max_new_tokens": 4,
          "generator_batch_size": 4, "entropy_coeff": 0.01, "learning_rate": 1e-6}
# Layers of 512 with 2048 in the feed-forward blocks have 4.2 million parameters.
LAYER = 3 * 512 * 2048 + 2 * 512 * 512 + 2 * 512 * 256


def start(programs, settings, with_origin=True):
    """An origin and a learner, each with a processor of its own."""
    fleet = Fleet(programs, COMMON | settings, prefix="weightcast-publication-", processors={"learner": 0, "origin": 1})
    try:
        if with_origin:
            fleet.start_origin()
        fleet.start_lone_learner()
    except BaseException:
        fleet.stop()
        raise
    return fleet


def wait_for_rows(fleet, steps, count, limit):
    """The rows of the next `count` steps or more."""
    rows = []

    def found():
        rows.extend(steps.read())
        return len(rows) >= count

    fleet.wait(f"step {steps.last + count:.0f}", found, limit, INTERVAL_S)
    return rows


def publications(programs, arguments, dtype):
    cell = 4 if dtype == "float32" else 2
    layers = max(1, round(arguments.bytes / cell / LAYER))
    fleet = start(programs, {"dtype": dtype, "init_hidden_size": 512, "init_intermediate_size": 2048,
                             "init_num_hidden_layers": layers, "total_training_steps": arguments.steps,
                             "publish_sparse": str(dtype == "bfloat16").lower(),
                             "publish_interval": 1, "max_new_tokens": arguments.tokens,
                             "rollout_batch_size": arguments.rollouts})
    try:
        steps = fleet.steps()
        first = wait_for_rows(fleet, steps, 1, arguments.limit)
        began, cpu = time.monotonic(), fleet.cpu_s("origin")
        rows = wait_for_rows(fleet, steps, arguments.steps - 1 - len(first), arguments.limit)
        seconds, daemon = time.monotonic() - began, fleet.cpu_s("origin") - cpu
        if dtype == "bfloat16":
            rows = [row for row in rows if row["publish/changed_share"] < 0.25]
        if not rows:
            raise Failed("no publication of that kind; give more --steps")
        step = [row["timing_s/step"] for row in rows]
        publish = [row["timing_s/publish"] for row in rows]
        fleet.remove()
        return {"dtype": dtype, "weights_bytes": layers * LAYER * cell, "steps": len(rows),
                "step_s": statistics.median(step), "publish_s": statistics.median(publish),
                "publish_share": statistics.median(p / s for p, s in zip(publish, step)),
                "changed_share": statistics.median(row["publish/changed_share"] for row in rows),
                "daemon_processor_share": daemon / seconds}
    finally:
        fleet.stop()


def resume(programs, arguments):
    fleet = start(programs, {"init_hidden_size": 256, "init_intermediate_size": 1024, "init_num_hidden_layers": 10,
                             "total_training_steps": 1000, "checkpoint_interval": 1}, with_origin=False)
    try:
        steps = fleet.steps()
        wait_for_rows(fleet, steps, 3, arguments.limit)
        fleet.kill("learner")
        steps.read()
        before = steps.last
        began = time.monotonic()
        fleet.start_lone_learner()
        fleet.wait("the resume", lambda: GOING_ON in fleet.log("learner"), arguments.limit, INTERVAL_S)
        ready, ready_cpu = time.monotonic() - began, fleet.cpu_s("learner")
        # What the killed run wrote beyond its checkpoint is gone.
        steps.begin_again()
        step = int(fleet.log("learner").rsplit(GOING_ON, 1)[1].split()[0])
        row = wait_for_rows(fleet, steps, 1, arguments.limit)[-1]
        seconds, cpu = time.monotonic() - began, fleet.cpu_s("learner")
        fleet.remove()
        return {"killed_after_step": before, "resumed_from_step": step, "ready_s": ready, "ready_cpu_s": ready_cpu,
                "next_step_s": seconds, "next_step_cpu_s": cpu,
                "of_which_step_s": row["timing_s/step"]}
    finally:
        fleet.stop()


def size(text):
    number = text.removesuffix("MiB")
    return int(number) << 20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--bytes", type=size, default=size("256MiB"))
    parser.add_argument("--rollouts", type=int, default=32, help="of a step")
    parser.add_argument("--tokens", type=int, default=32, help="of a response")
    parser.add_argument("--parts", default="full,sparse,resume")
    parser.add_argument("--limit", type=float, default=600, help="seconds that anything may take")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    parts = {"full": lambda: publications(arguments.programs, arguments, "float32"),
             "sparse": lambda: publications(arguments.programs, arguments, "bfloat16"),
             "resume": lambda: resume(arguments.programs, arguments)}
    result = {name: parts[name]() for name in arguments.parts.split(",")}
    result["load"] = os.getloadavg()
    print(json.dumps(result, indent=2))
    write_json(arguments.json, result)


if __name__ == "__main__":
    run(main)
