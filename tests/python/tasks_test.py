"""weightcast.tasks: a task's process, as the engine talks to it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PYTHON = pathlib.Path(__file__).resolve().parents[2] / "python"

TASK = """
import time
from weightcast.tasks import EpisodeTask, Task, serve

print("at the start")

class Episode:
    def reset(self, seed):
        return [{"role": "system", "content": "s"}, {"role": "user", "content": str(seed)}]
    def step(self, action):
        if action == "raise": raise ValueError("no such move")
        return "again", 1, action == "end", False

class One(EpisodeTask):
    name = "one"
    def episode(self): return Episode()

class Other(Task):
    name = "other"
    version = "2"
    prompt_count = 3
    metadata = ["answer"]
    def configure(self, options): self.options = options
    def prompt(self, index): return f"{index}?", {"answer": self.options["answer"]}
    def score(self, metadata, response):
        print("a library may print")
        if response == "hang": time.sleep(1000)
        if response == "slow": time.sleep(0.1)
        if response == "nan": return float("nan"), False
        return response == metadata["answer"] if response != "half" else 0.5

serve(CLASS())
"""


class Program:
    """A task's process, as the engine starts it and talks to it."""

    def __init__(self, code):
        self.stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PYTHON)},
        )  # fmt: skip
        self.calls = 0

    def send(self, call, **members):
        self.calls += 1
        self.process.stdin.write(json.dumps({"id": self.calls, "call": call, **members}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, call, **members):
        self.send(call, **members)
        answer = json.loads(self.process.stdout.readline())
        assert answer.pop("id") == self.calls
        return answer

    def end(self):
        """What it has written to stderr, once it has ended."""
        self.process.stdin.close()
        status = self.process.wait(timeout=120)
        with self.process.stdout, self.stderr:
            self.stderr.seek(0)
            said = self.stderr.read().decode()
            assert (status, self.process.stdout.read()) == (0, b""), said
            return said


def start(name):
    """The task of that class in TASK."""
    return Program(TASK.replace("CLASS", name))


class TasksTest(unittest.TestCase):
    def test_prompts_and_scores(self):
        program = start("Other")
        self.assertEqual(
            program.ask("hello", protocol=1, options={"answer": "4"}),
            {"protocol": 1, "name": "other", "version": "2", "metadata": ["answer"], "offers": "prompts",
             "prompt_count": 3},
        )  # fmt: skip
        prompt = {"messages": [{"role": "user", "content": "5?"}], "metadata": {"answer": "4"}}
        self.assertEqual(program.ask("prompt", index=5), prompt)
        metadata = {"answer": "4"}
        self.assertEqual(program.ask("score", metadata=metadata, response="4"), {"reward": 1.0, "success": True})
        self.assertEqual(program.ask("score", metadata=metadata, response="5"), {"reward": 0.0, "success": False})
        self.assertEqual(program.ask("score", metadata=metadata, response="half"), {"reward": 0.5, "success": False})
        self.assertIn("no JSON", program.ask("score", metadata=metadata, response="nan")["error"])
        self.assertEqual(program.ask("nonsense"), {"error": "ValueError: no call 'nonsense'"})
        said = program.end()
        self.assertIn("at the start", said)
        self.assertIn("a library may print", said)

    def test_episodes_side_by_side(self):
        program = start("One")
        self.assertEqual(program.ask("hello", protocol=1, options={})["offers"], "episodes")
        prompt = program.ask("reset", episode=7, seed=1, closed=[])
        self.assertEqual(prompt["messages"][1], {"role": "user", "content": "1"})
        program.ask("reset", episode=8, seed=2, closed=[])
        step = {"observation": "again", "reward": 1.0, "done": False, "success": False}
        self.assertEqual(program.ask("step", episode=7, action="on"), step)
        self.assertEqual(program.ask("step", episode=8, action="end"), {**step, "done": True})
        self.assertEqual(program.ask("step", episode=7, action="raise"), {"error": "ValueError: no such move"})
        program.ask("reset", episode=9, seed=3, closed=[7, 8])
        self.assertIn("error", program.ask("step", episode=7, action="on"))
        self.assertEqual(program.ask("step", episode=9, action="on"), step)
        self.assertIn("no such move", program.end())

    def test_options_that_it_does_not_have(self):
        program = start("One")
        self.assertIn("it was given x", program.ask("hello", protocol=1, options={"x": "1"})["error"])
        # A caller of another version gets the version, to refuse.
        self.assertEqual(program.ask("hello", protocol=2, options={"x": "1"})["protocol"], 1)
        program.end()

    def test_answers_what_was_asked_before_stdin_ended(self):
        calls = [{"id": 1, "call": "hello", "protocol": 1, "options": {"answer": "4"}}, {"id": 2, "call": "score", "metadata": {}, "response": "slow"}]
        ended = subprocess.run(
            [sys.executable, "-c", TASK.replace("CLASS", "Other")], input="".join(json.dumps(call) + "\n" for call in calls),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PYTHON)},
            universal_newlines=True, timeout=120,
        )  # fmt: skip
        self.assertEqual(ended.returncode, 0)
        self.assertEqual([json.loads(line)["id"] for line in ended.stdout.splitlines()], [1, 2])

    def test_ends_in_silence_where_nobody_reads_its_answer(self):
        program = start("Other")
        program.ask("hello", protocol=1, options={"answer": "4"})
        program.process.stdout.close()
        program.send("prompt", index=5)
        self.assertEqual(program.process.wait(timeout=120), 0)
        program.process.stdin.close()
        with program.stderr:
            program.stderr.seek(0)
            self.assertNotIn(b"Traceback", program.stderr.read())

    def test_ends_with_its_parent_even_if_the_task_hangs(self):
        program = start("Other")
        program.ask("hello", protocol=1, options={"answer": "4"})
        program.send("score", metadata={"answer": "4"}, response="hang")
        program.end()


if __name__ == "__main__":
    unittest.main()
