#!/usr/bin/env python3
"""The whole loop on this host: a learner publishes each step, four workers generate, one of them is killed.

Usage: loop.py PROGRAMS PAGE OUTPUT. PROGRAMS is the directory of the built programs, PAGE the build's page for
operators. OUTPUT gets result.json, report.md, page.html, pictures, and the logs of all processes. Exit status 1 if the
model did not learn.
"""

import json
import pathlib
import resource
import shutil
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "loop"))
from fleet import Failed, Fleet, run  # noqa: E402
from record import Recorder, write_page  # noqa: E402

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


def cpu_seconds():
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def total_of(steps, name):
    return sum(step.get(name, 0.0) for step in steps)


def mean_of(steps, name):
    values = [step[name] for step in steps if name in step]
    return sum(values) / len(values) if values else None


class Demo:
    def __init__(self, programs, page, output):
        self.operators_page = page
        self.output = pathlib.Path(output).resolve()
        shutil.rmtree(self.output, ignore_errors=True)
        self.output.mkdir(parents=True)
        self.fleet = Fleet(
            programs,
            # Steps longer than a version takes to all workers, as equation (1) of ECHO-2 wants them.
            learner=dict(preset="arithmetic", dtype="bfloat16", total_training_steps=200, rollout_batch_size=1536,
                         updates_per_step=6, publish_interval=1, max_staleness=STALENESS_MAX),
            logs=self.output, with_keys=True)
        self.metrics = self.fleet.steps()
        self.steps = []
        self.events = []
        self.restarts = 0
        self.begin = time.monotonic()
        self.feeds = ""

    def say(self, text):
        print(f"== {text}", flush=True)

    def note(self, text):
        self.events.append((time.monotonic() - self.begin, text))
        print(f"   {text}", flush=True)

    def start_worker(self, name):
        self.fleet.start_workers([name], "--uplink", WORKER_RATE, "--downlink", WORKER_RATE)

    def kill_worker(self, name):
        self.fleet.kill(name)
        self.fleet.kill(f"{name}-daemon")
        self.note(f"{name} and its daemon are killed")

    def who_feeds_whom(self):
        edges = [f"{node['parent']}>{node['name']}" for node in self.fleet.nodes()
                 if node.get("parent") and node.get("state") not in ("lost", "awaited")]
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
            self.steps += new
            now = time.monotonic()
            if new and (now - shown > 2 or new[-1]["training/global_step"] == 1):
                self.feeds = self.who_feeds_whom()
                self.show(new[-1])
                shown = now
            if killed_at is None and len(self.steps) >= KILL_AT_STEP:
                self.kill_worker("worker-2")
                killed_at = now
            if killed_at and not self.restarts and now - killed_at > REPLACE_AFTER_S:
                self.start_worker(f"worker-{WORKERS + 1}")
                self.restarts += 1
                self.note(f"worker-{WORKERS + 1} takes its place")
            has_learned = self.reward_of(self.steps[-LAST_STEPS:]) > REWARD_GOAL
            if self.restarts and has_learned and self.is_measured(now):
                return
            if self.fleet.has_ended("learner"):
                self.steps += self.metrics.read()
                return
            if now - self.begin > SECONDS_MAX:
                return
            time.sleep(0.2)

    def is_measured(self, now):
        """Whether the learner knows the workers' rates, which takes it half a minute."""
        return "bubble_predicted" in self.steps[-1] or now - self.begin > MEASURED_S_MAX

    @staticmethod
    def reward_of(steps):
        return sum(step["critic/score/mean"] for step in steps) / len(steps) if steps else 0.0

    def run(self):
        self.say(f"keys; an origin with {ORIGIN_RATE} and {WORKERS} workers with {WORKER_RATE} each; a learner")
        learner = self.fleet.reserve("learner")
        self.fleet.start_origin("--uplink", ORIGIN_RATE, "--topology", "chain", "--http", "127.0.0.1:0",
                                "--learner", learner)
        address = self.fleet.directory / "origin" / "http_address"
        recorder = Recorder(address)
        self.say(f"the page of the fleet and the learner, while they run: http://{address.read_text().strip()}/")
        self.fleet.start_learner()
        for number in range(1, WORKERS + 1):
            self.start_worker(f"worker-{number}")
        self.say("warm-up by right answers, then reinforcement with a publication each step")
        self.train()
        write_page(self.operators_page, recorder.stop(), self.output / "page.html")
        self.fleet.kill("learner", signal.SIGTERM)
        self.fleet.stop()
        return self.report()

    def report(self):
        steps = self.steps
        if not steps:
            raise Failed(f"no training step was made: {self.fleet.last_line('learner')}")
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
        run = self.fleet.directory / "run"
        self.fleet.call("weightcast-train", "plot", run)
        shutil.copytree(run / "plots", self.output, dirs_exist_ok=True)
        (self.output / "report.md").write_text(self.page(result))
        return result

    def page(self, result):
        if result["t_bcast_mean_s"] is None or not result["full_bytes"]:
            raise Failed("no publication reached the workers while the learner looked")
        share = result["bytes_per_publication"] / result["full_bytes"]
        predicted = "too few steps to predict it from measured rates"
        if result["bubble_predicted"] is not None:
            predicted = f"{100 * result['bubble_predicted']:.1f} % by equation (1) of ECHO-2 for the measured rates"
        drawn = sorted(self.output.glob("*.svg"), key=picture_rank)
        pictures = "".join(f"![{path.stem}]({path.name})\n\n" for path in drawn)
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
{pictures}"""


def picture_rank(path):
    """What a reader wants to see first."""
    order = ["reward", "publication", "staleness", "time", "entropy", "divergence"]
    return (order.index(path.stem) if path.stem in order else len(order), path.stem)


def main():
    if len(sys.argv) != 4:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    demo = Demo(*sys.argv[1:])
    try:
        result = demo.run()
        print(f"""
A model learned sums from rewards while its weights travelled: reward {result['reward_start']:.2f} to {result['reward_end']:.2f} in
{result['steps']} steps, {result['seconds']:.0f} s with the warm-up. Rollouts lagged {result['staleness_max']:.0f} steps at most. \
The learner waited for rollouts
{100 * result['bubble_ratio']:.1f} % of its time, and published for {100 * result['publish_share']:.1f} %.
The page of the run: {demo.output}/page.html; the report, the pictures and all logs: {demo.output}""")
        if result["reward_end"] <= REWARD_GOAL:
            raise Failed(f"the reward did not come above {REWARD_GOAL}")
    except Failed as failure:
        raise Failed(f"{failure}; logs lie in {demo.output}") from None
    finally:
        demo.fleet.remove()


if __name__ == "__main__":
    run(main)
