"""Tasks of others: Gymnasium's FrozenLake step by step, and math_verify's judgement as a reward. Each by itself, over the
protocol, and in a run of weightcast-train."""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

import gymnasium
from tasks_test import Program

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACTIONS = {"left": 0, "down": 1, "right": 2, "up": 3}

LAKE = f"""
from weightcast.integrations.gymnasium import GymnasiumTask
from weightcast.tasks import serve
serve(GymnasiumTask("FrozenLake-v1", {ACTIONS!r}, rules="Go from S to G.", is_slippery=True))
"""

MATHS = r"""
from math_verify import parse, verify
from weightcast.tasks import Task, serve

PROBLEMS = [("Simplify 2/4.", r"\frac{1}{2}"), ("Solve x^2=4.", r"\{-2, 2\}"), ("Expand (x+1)^2.", "x^2+2x+1")]

class Maths(Task):
    name = "maths"
    prompt_count = len(PROBLEMS)
    metadata = ["answer"]
    def prompt(self, index):
        question, answer = PROBLEMS[index % len(PROBLEMS)]
        return question, {"answer": answer}
    def score(self, metadata, response):
        return verify(parse(f"${metadata['answer']}$"), parse(response))

serve(Maths())
"""


class TasksOracleTest(unittest.TestCase):
    def start(self, code):
        program = Program(code)
        self.addCleanup(program.end)
        program.hello = program.ask("hello", protocol=1, options={})
        return program

    def train(self, code, *settings):
        """A short run with that task: its metrics of training steps."""
        program = os.environ["WEIGHTCAST_TRAIN"]
        with tempfile.TemporaryDirectory() as directory:
            script = pathlib.Path(directory, "task.py")
            script.write_text(code)
            flags = [
                "--task=program", f"--task-program-command={sys.executable}", f"--task-program-arguments={script}",
                f"--task-program-environment=PYTHONPATH={ROOT / 'python'}", "--task-program-call-time-max=100",
                "--reward-time-max=250", "--init-hidden-size=32", "--init-intermediate-size=64",
                "--init-num-hidden-layers=1", "--init-num-attention-heads=2", "--init-num-key-value-heads=1",
                "--rollout-batch-size=8", "--group-size=4", "--total-training-steps=3", "--max-new-tokens=4",
                f"--output-dir={directory}/run", *settings,
            ]  # fmt: skip
            ran = subprocess.run([program, "run", *flags], capture_output=True, text=True, timeout=500)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            lines = [json.loads(line) for line in pathlib.Path(directory, "run/metrics.jsonl").read_text().splitlines()]
            return [line for line in lines if "critic/score/mean" in line]

    def test_frozen_lake_is_gymnasiums_step_by_step(self):
        program = self.start(LAKE)
        self.assertEqual(program.hello["offers"], "episodes")
        self.assertEqual(program.hello["name"], "FrozenLake-v1")
        source = random.Random(5)
        ends = {True: 0, False: 0}
        for episode in range(300):
            seed = source.getrandbits(64)
            environment = gymnasium.make("FrozenLake-v1", render_mode="ansi", is_slippery=True)
            environment.reset(seed=seed % 2**32)
            prompt = program.ask("reset", episode=episode, seed=seed, closed=[episode - 1])
            text = prompt["messages"][0]["content"]
            self.assertTrue(text.startswith("Go from S to G.\n[S]FFF\nFHFH\n"), text)
            for _ in range(100):
                word = source.choice(list(ACTIONS))
                said = f"I was going up, and now <answer>{word.upper()}</answer>"
                step = program.ask("step", episode=episode, action=said)
                state, reward, terminated, truncated, _ = environment.step(ACTIONS[word])
                self.assertEqual(step["reward"], reward)
                self.assertEqual(step["done"], terminated or truncated)
                rows = [line for line in step["observation"].splitlines() if re.fullmatch(r"[SFHG\[\]]+", line)]
                row, column = divmod(int(state), 4)
                self.assertEqual(rows[row][column : column + 3], "[" + "SFFFFHFHFFFHHFFG"[int(state)] + "]", step)
                if step["done"]:
                    ends[step["success"]] += 1
                    self.assertEqual(step["success"], reward == 1)
                    break
        self.assertGreater(ends[True], 0)
        self.assertGreater(ends[False], ends[True])

    def test_an_answer_without_an_action_changes_nothing(self):
        program = self.start(LAKE)
        program.ask("reset", episode=1, seed=1, closed=[])
        step = program.ask("step", episode=1, action="leftover")
        self.assertEqual(step, {"observation": "Answer with one of: left, down, right, up", "reward": -0.1, "done": False,
                                "success": False})  # fmt: skip

    def test_math_verify_judges(self):
        program = self.start(MATHS)
        for index, response, right in (
            (0, "So it is $0.5$.", True),
            (0, r"So it is \boxed{\frac{2}{4}}.", True),
            (0, r"\boxed{0.6}", False),
            (0, "I do not know.", False),
            (1, r"$x \in \{2, -2\}$", True),
            (1, "$2$", False),
            (2, "$(x+1)^2$", True),
            (2, r"\boxed{1 + x^2 + 2x}", True),
            (2, "$x^2+1$", False),
        ):
            prompt = program.ask("prompt", index=index)
            score = program.ask("score", metadata=prompt["metadata"], response=response)
            self.assertEqual(score, {"reward": float(right), "success": right}, response)

    def test_a_learner_plays_frozen_lake(self):
        lines = self.train(LAKE, "--turns-max=3", "--max-prompt-length=128")
        self.assertEqual(len(lines), 3)
        # A model that knows nothing names no action: each of three turns costs a tenth, but for lucky ones.
        self.assertLess(lines[-1]["critic/score/mean"], 0)
        self.assertEqual(lines[-1]["rollouts/malformed"], 0)

    def test_a_learner_is_rewarded_by_math_verify(self):
        lines = self.train(MATHS)
        self.assertEqual(len(lines), 3)
        self.assertEqual(lines[-1]["rollouts/malformed"], 0)


if __name__ == "__main__":
    unittest.main()
