#!/usr/bin/env python3
"""The whole loop on this host: a learner publishes each step, four workers generate, one of them is killed.

Usage: loop.py PROGRAMS OUTPUT. PROGRAMS is the directory of the built programs. OUTPUT gets result.json, report.md,
pictures, and the logs of all processes. Exit status 1 if the model did not learn.
"""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

WORKERS = 4
ORIGIN_RATE = "40mbit"
WORKER_RATE = "20mbit"
REWARD_GOAL = 0.8
SECONDS_MAX = 300
MEASURED_S_MAX = 90  # for a learner that has learned, but not measured all
STALENESS_MAX = 4
KILL_AT_STEP = 15
REPLACE_AFTER_S = 3.0
LAST_STEPS = 5  # whose mean reward counts


class Failed(Exception):
    pass


class Processes:
    """What was started, so that it ends with the demo."""

    def __init__(self, logs):
        self.logs = logs
        self.running = {}

    def start(self, name, arguments):
        with open(self.logs / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen([str(a) for a in arguments], stdout=log, stderr=log,
                                                  stdin=subprocess.DEVNULL, start_new_session=True)

    def kill(self, name, how=signal.SIGKILL):
        process = self.running.pop(name)
        process.send_signal(how)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def check(self, name):
        status = self.running[name].poll()
        if status is not None:
            raise Failed(f"{name} ended with status {status}: {last_line(self.logs / f'{name}.log')}")

    def has_ended(self, name):
        return self.running[name].poll() is not None

    def stop_all(self):
        for process in self.running.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 10
        for process in self.running.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running = {}


def last_line(path):
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "its log is empty"


def wait_for(what, seconds, found):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.1)
    raise Failed(f"{what}: not there after {seconds} s")


def cpu_seconds():
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def total_of(steps, name):
    return sum(step.get(name, 0.0) for step in steps)


def mean_of(steps, name):
    values = [step[name] for step in steps if name in step]
    return sum(values) / len(values) if values else None


class Metrics:
    """The training steps of a metrics.jsonl that grows."""

    def __init__(self, path):
        self.path = path
        self.position = 0
        self.steps = []
        self.warm_up = []

    def read(self):
        """Returns the steps that are new."""
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self.position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.position += len(whole)
        rows = [json.loads(line) for line in whole.splitlines()]
        new = [row for row in rows if "training/global_step" in row]
        self.steps += new
        self.warm_up += [row for row in rows if "sft/step" in row]
        return new


class Demo:
    def __init__(self, programs, output):
        self.programs = pathlib.Path(programs).resolve()
        self.output = pathlib.Path(output).resolve()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="weightcast-loop-"))
        shutil.rmtree(self.output, ignore_errors=True)
        self.output.mkdir(parents=True)
        self.processes = Processes(self.output)
        self.metrics = Metrics(self.dir / "run" / "metrics.jsonl")
        self.steps = None  # those that count: up to the goal
        self.events = []
        self.restarts = 0
        self.begin = time.monotonic()
        self.origin_address = self.learner_address = None
        self.feeds = ""

    def say(self, text):
        print(f"== {text}", flush=True)

    def note(self, text):
        self.events.append((time.monotonic() - self.begin, text))
        print(f"   {text}", flush=True)

    def weightcast(self, *arguments):
        made = subprocess.run([str(self.programs / "weightcast"), *map(str, arguments)], capture_output=True, text=True)
        if made.returncode != 0:
            raise Failed(f"weightcast {arguments[0]}: {made.stderr.strip()}")
        return made.stdout

    def nodes(self):
        """The nodes that the origin knows; none while it does not answer."""
        try:
            status = json.loads(self.weightcast("status", "--state", self.dir / "origin", "--json"))
        except (Failed, ValueError):
            return []
        return status["nodes"] if isinstance(status, dict) else status

    def start_origin(self):
        self.processes.start("origin", [
            self.programs / "weightcast", "daemon", "--role", "origin", "--state", self.dir / "origin",
            "--listen", "127.0.0.1:0", "--uplink", ORIGIN_RATE, "--topology", "chain",
            "--keys", self.dir / "keys" / "origin.pem"])

        def address():
            self.processes.check("origin")
            found = [node.get("address") for node in self.nodes() if node.get("role") == "origin"]
            return found[0] if found else None

        self.origin_address = wait_for("the origin", 20, address)

    def start_learner(self):
        self.processes.start("learner", [
            self.programs / "weightcast-train", "run", "--set", "preset=arithmetic",
            "--set", "dtype=bfloat16", "--set", "total_training_steps=200",
            # Steps longer than a version takes to all workers, as equation (1) of ECHO-2 wants them.
            "--set", "rollout_batch_size=1536", "--set", "updates_per_step=6",
            "--set", f"output_dir={self.dir / 'run'}", "--set", f"publish_state={self.dir / 'origin'}",
            "--set", "publish_interval=1", "--set", f"max_staleness={STALENESS_MAX}", "--set", "async_generation_ratio=2",
            "--set", "rollout_source=http",
            "--set", "rollout_listen=127.0.0.1:0", "--set", f"rollout_keys={self.dir / 'keys' / 'origin.pem'}"])

        def address():
            self.processes.check("learner")
            path = self.dir / "run" / "rollout_address"
            return path.read_text().strip() if path.exists() else None

        self.learner_address = wait_for("the learner's port", 60, address)

    def start_worker(self, name):
        keys = self.dir / "keys" / "workers" / f"{name}.pem"
        if not keys.exists():
            self.weightcast("keys", "issue", name, "--dir", self.dir / "keys")
        self.processes.start(f"{name}-daemon", [
            self.programs / "weightcast", "daemon", "--role", "worker", "--name", name, "--state", self.dir / name,
            "--origin", self.origin_address, "--uplink", WORKER_RATE, "--downlink", WORKER_RATE, "--keys", keys])
        self.processes.start(name, [
            self.programs / "weightcast-worker", "run", "--set", f"state_dir={self.dir / name}",
            "--set", f"learner={self.learner_address}", "--set", f"keys={keys}",
            "--set", f"spool_dir={self.dir / (name + '-spool')}"])

    def kill_worker(self, name):
        self.processes.kill(name)
        self.processes.kill(f"{name}-daemon")
        self.note(f"{name} and its daemon are killed")

    def who_feeds_whom(self):
        edges = [f"{node['parent']}>{node['name']}" for node in self.nodes()
                 if node.get("parent") and node.get("state") != "lost"]
        return " ".join(edge.replace("worker-", "w") for edge in sorted(edges))

    def show(self, step):
        wait = step.get("timing_s/collect", 0.0)
        total = step.get("timing_s/step", 0.0)
        size = step.get("publish/bytes", 0.0)
        print(f"   {step['training/global_step']:4.0f}  {step['critic/score/mean']:6.3f}  "
              f"{step.get('off_policy/mean', 0):4.1f} {step.get('off_policy/max', 0):3.0f}  "
              f"{step.get('t_bcast', float('nan')):6.2f} s  {size / 1024:7.0f} KiB  "
              f"{100 * wait / total if total else 0:5.0f} %  {self.feeds}", flush=True)

    def train(self):
        """Until the goal is reached, or the time is over."""
        killed_at = None
        shown = 0.0
        print("   step  reward  lag max   T_bcast   published  bubble  who feeds whom", flush=True)
        while True:
            new = self.metrics.read()
            now = time.monotonic()
            if new and (now - shown > 2 or new[-1]["training/global_step"] == 1):
                self.feeds = self.who_feeds_whom()
                self.show(new[-1])
                shown = now
            steps = len(self.metrics.steps)
            if killed_at is None and steps >= KILL_AT_STEP:
                self.kill_worker("worker-2")
                killed_at = now
            if killed_at and not self.restarts and now - killed_at > REPLACE_AFTER_S:
                self.start_worker(f"worker-{WORKERS + 1}")
                self.restarts += 1
                self.note(f"worker-{WORKERS + 1} takes its place")
            has_learned = self.reward_of(self.metrics.steps[-LAST_STEPS:]) > REWARD_GOAL
            if self.restarts and has_learned and self.is_measured(now):
                self.steps = steps
                return
            if self.processes.has_ended("learner"):
                return
            if now - self.begin > SECONDS_MAX:
                return
            time.sleep(0.2)

    def is_measured(self, now):
        """Whether the learner knows the workers' rates, which takes it half a minute."""
        return "bubble_predicted" in self.metrics.steps[-1] or now - self.begin > MEASURED_S_MAX

    @staticmethod
    def reward_of(steps):
        return sum(step["critic/score/mean"] for step in steps) / len(steps) if steps else 0.0

    def run(self):
        self.say(f"keys; an origin with {ORIGIN_RATE} and {WORKERS} workers with {WORKER_RATE} each; a learner")
        self.weightcast("keys", "init", "--dir", self.dir / "keys")
        self.start_origin()
        self.start_learner()
        for number in range(1, WORKERS + 1):
            self.start_worker(f"worker-{number}")
        self.say("warm-up by right answers, then reinforcement with a publication each step")
        self.train()
        self.processes.kill("learner", signal.SIGTERM)
        self.metrics.read()
        self.processes.stop_all()
        return self.report()

    def report(self):
        # Without those that the learner made while it was told to end.
        steps = self.metrics.steps[: self.steps]
        if not steps:
            raise Failed(f"no training step was made: {last_line(self.output / 'learner.log')}")
        total = total_of(steps, "timing_s/step")
        wait = total_of(steps, "timing_s/collect")
        full = [step["publish/bytes"] / step["publish/ratio"] for step in steps if step.get("publish/ratio")]
        result = {
            "steps": len(steps),
            "seconds": round(time.monotonic() - self.begin, 1),
            "cpu_seconds": round(cpu_seconds(), 1),
            "reward_start": self.reward_of(steps[:1]),
            "reward_end": self.reward_of(steps[-LAST_STEPS:]),
            "bubble_ratio": wait / total,
            # By (1) of ECHO-2 for what the learner has measured at each step: T, T_bcast, rollouts/s of the workers.
            "bubble_predicted": mean_of(steps, "bubble_predicted"),
            "publish_share": total_of(steps, "timing_s/publish") / total,
            "staleness_max": max(step["off_policy/max"] for step in steps),
            "admission_violations": sum(step["off_policy/max"] > STALENESS_MAX for step in steps),
            "t_bcast_mean_s": mean_of(steps, "t_bcast"),
            "bytes_per_publication": mean_of(steps, "publish/bytes"),
            "full_bytes": full[-1] if full else None,
            "restarts": self.restarts,
        }
        (self.output / "result.json").write_text(json.dumps(result, indent=1) + "\n")
        made = subprocess.run([str(self.programs / "weightcast-train"), "plot", str(self.dir / "run")],
                              capture_output=True, text=True)
        if made.returncode != 0:
            raise Failed(f"the pictures: {made.stderr.strip()}")
        shutil.copytree(self.dir / "run" / "plots", self.output, dirs_exist_ok=True)
        (self.output / "report.md").write_text(self.page(result))
        return result

    def page(self, result):
        if result["t_bcast_mean_s"] is None or not result["full_bytes"]:
            raise Failed("no publication reached the workers while the learner looked")
        share = result["bytes_per_publication"] / result["full_bytes"]
        predicted = "too few steps to predict it from measured rates"
        if result["bubble_predicted"] is not None:
            predicted = f"{100 * result['bubble_predicted']:.1f} % by equation (1) of ECHO-2 for the measured rates"
        events = "".join(f"| {seconds:.0f} s | {text} |\n" for seconds, text in self.events)
        return f"""# What happened

A learner trained a model on sums of one digit. {WORKERS} workers, behind links of {WORKER_RATE}, generated the answers under weights
that the learner published after each step, along chains of workers.

| | |
|---|---|
| training steps | {result['steps']} in {result['seconds']:.0f} s, with the warm-up; {result['cpu_seconds']:.0f} s of processor time of all processes |
| reward | {result['reward_start']:.3f} at first, {result['reward_end']:.3f} over the last {LAST_STEPS} steps |
| steps by which rollouts lagged | {result['staleness_max']:.0f} at most; {STALENESS_MAX} were allowed |
| from a publication until all workers had it | {result['t_bcast_mean_s']:.2f} s on average |
| bytes per publication | {result['bytes_per_publication']:.0f}, {100 * share:.0f} % of the weights |
| the learner's time that publishing took | {100 * result['publish_share']:.2f} % |
| the learner's time without rollouts | {100 * result['bubble_ratio']:.1f} %; {predicted} |

| after | event |
|---|---|
{events}
![reward](reward.svg)
"""

    def clean_up(self):
        self.processes.stop_all()
        shutil.rmtree(self.dir, ignore_errors=True)


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(130))
    demo = Demo(sys.argv[1], sys.argv[2])
    try:
        result = demo.run()
        print(f"""
A model learned sums from rewards while its weights travelled: reward {result['reward_start']:.2f} to {result['reward_end']:.2f} in
{result['steps']} steps, {result['seconds']:.0f} s with the warm-up. Rollouts lagged {result['staleness_max']:.0f} steps at most. \
The learner waited for rollouts
{100 * result['bubble_ratio']:.1f} % of its time, and published for {100 * result['publish_share']:.1f} %.
The page, the pictures and all logs: {demo.output}""")
        if result["reward_end"] <= REWARD_GOAL:
            raise Failed(f"the reward did not come above {REWARD_GOAL}")
        return 0
    except Failed as failure:
        print(f"loop: {failure}; logs lie in {demo.output}", file=sys.stderr)
        return 1
    finally:
        demo.clean_up()


if __name__ == "__main__":
    sys.exit(main())
