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
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PREFIX = "weightcast-publication-"
COMMON = {"threads": 1, "rollout_batch_size": 4, "group_size": 2, "updates_per_step": 1, "max_new_tokens": 4,
          "generator_batch_size": 4, "entropy_coeff": 0.01, "learning_rate": 1e-6}
# Layers of 512 with 2048 in the feed-forward blocks have 4.2 million parameters.
LAYER = 3 * 512 * 2048 + 2 * 512 * 512 + 2 * 512 * 256


class Failed(Exception):
    pass


class Run:
    """An origin and a learner in a directory of their own."""

    def __init__(self, programs, settings, with_origin=True):
        self.programs = programs
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir=os.environ.get("TMPDIR", "/var/tmp")))
        self.settings = COMMON | settings | {"output_dir": self.directory / "run"}
        self.processes = {}
        try:
            if with_origin:
                state = self.directory / "origin"
                self.start("origin", 1, "weightcast", "daemon", "--role", "origin", "--name", "origin", "--state", state,
                           "--listen", "127.0.0.1:0", "--insecure")
                self.wait("the origin", lambda: (state / "api.sock").exists(), 60)
                self.settings["publish_state"] = state
            self.start_learner()
        except BaseException:
            self.stop()
            raise

    def start(self, name, processor, program, *arguments):
        def pin():
            if (os.cpu_count() or 1) > 1:
                os.sched_setaffinity(0, {processor})
        with open(self.directory / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen([str(self.programs / program), *map(str, arguments)], stdout=log,
                                                    stderr=log, stdin=subprocess.DEVNULL, preexec_fn=pin)

    def start_learner(self):
        sets = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
        self.start("learner", 0, "weightcast-train", "run", *sets)

    def wait(self, what, found, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = found()
            if value:
                return value
            for name, process in self.processes.items():
                if process.poll() not in (None, 0):
                    raise Failed(f"{name} ended with status {process.returncode}; see {self.directory}/{name}.log")
            time.sleep(0.02)
        raise Failed(f"{what} is not there after {seconds} s; see {self.directory}")

    def steps(self):
        path = self.directory / "run" / "metrics.jsonl"
        if not path.exists():
            return []
        rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        return [row for row in rows if "training/global_step" in row]

    def cpu_s(self, name):
        fields = pathlib.Path(f"/proc/{self.processes[name].pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def remove(self):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def publications(programs, arguments, dtype):
    cell = 4 if dtype == "float32" else 2
    layers = max(1, round(arguments.bytes / cell / LAYER))
    run = Run(programs, {"dtype": dtype, "init_hidden_size": 512, "init_intermediate_size": 2048,
                         "init_num_hidden_layers": layers, "total_training_steps": arguments.steps,
                         "publish_sparse": str(dtype == "bfloat16").lower(),
                         "publish_interval": 1, "max_new_tokens": arguments.tokens,
                         "rollout_batch_size": arguments.rollouts})
    try:
        first = run.wait("the first step", run.steps, arguments.limit)
        began, cpu = time.monotonic(), run.cpu_s("origin")
        run.wait("the last step", lambda: len(run.steps()) >= arguments.steps - 1, arguments.limit)
        seconds, daemon = time.monotonic() - began, run.cpu_s("origin") - cpu
        rows = run.steps()[len(first):]
        if dtype == "bfloat16":
            rows = [row for row in rows if row["publish/changed_share"] < 0.25]
        if not rows:
            raise Failed("no publication of that kind; give more --steps")
        step = [row["timing_s/step"] for row in rows]
        publish = [row["timing_s/publish"] for row in rows]
        run.remove()
        return {"dtype": dtype, "weights_bytes": layers * LAYER * cell, "steps": len(rows),
                "step_s": statistics.median(step), "publish_s": statistics.median(publish),
                "publish_share": statistics.median(p / s for p, s in zip(publish, step)),
                "changed_share": statistics.median(row["publish/changed_share"] for row in rows),
                "daemon_processor_share": daemon / seconds}
    finally:
        run.stop()


def resume(programs, arguments):
    run = Run(programs, {"init_hidden_size": 256, "init_intermediate_size": 1024, "init_num_hidden_layers": 10,
                         "total_training_steps": 1000, "checkpoint_interval": 1}, with_origin=False)
    try:
        run.wait("the third step", lambda: len(run.steps()) >= 3, arguments.limit)
        learner = run.processes["learner"]
        learner.send_signal(signal.SIGKILL)
        learner.wait()
        before = len(run.steps())
        began = time.monotonic()
        run.start_learner()
        log = run.directory / "learner.log"
        run.wait("the resume", lambda: "going on from the checkpoint" in log.read_text(), arguments.limit)
        ready, ready_cpu = time.monotonic() - began, run.cpu_s("learner")
        # What the killed run wrote beyond its checkpoint goes first.
        step = int(log.read_text().rsplit("going on from the checkpoint of step ", 1)[1].split()[0])
        run.wait("the next step", lambda: len(run.steps()) > step, arguments.limit)
        seconds, cpu = time.monotonic() - began, run.cpu_s("learner")
        row = run.steps()[-1]
        run.remove()
        return {"killed_after_step": before, "resumed_from_step": step, "ready_s": ready, "ready_cpu_s": ready_cpu,
                "next_step_s": seconds, "next_step_cpu_s": cpu,
                "of_which_step_s": row["timing_s/step"]}
    finally:
        run.stop()


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
    try:
        result = {name: parts[name]() for name in arguments.parts.split(",")}
    except Failed as failure:
        sys.exit(f"publication.py: {failure}")
    result["load"] = os.getloadavg()
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
