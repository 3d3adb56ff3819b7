#!/usr/bin/env python3
"""What the examples say to somebody who starts them without arguments, before they import what may be missing."""

import os
import pathlib
import pty
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python")}


class Examples(unittest.TestCase):
    def test_say_their_usage(self):
        commands = [[sys.executable, path] for path in EXAMPLES.glob("*.py") if path.name != "task_letters.py"]
        commands += [["sh", path] for path in EXAMPLES.glob("*.sh")]
        commands.append(["bash", ROOT / "deploy" / "slurm" / "weightcast.sbatch"])
        self.assertGreaterEqual(len(commands), 7)
        for command in commands:
            with self.subTest(example=command[1].name):
                ended = subprocess.run(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
                self.assertNotEqual(ended.returncode, 0)
                self.assertRegex(ended.stderr, rf"^usage: .*\b{re.escape(command[1].name)} [A-Z_]+")
                self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)

    def test_a_task_on_a_terminal_says_who_starts_it(self):
        ours, terminal = pty.openpty()
        try:
            ended = subprocess.run([sys.executable, EXAMPLES / "task_letters.py"], env=ENVIRONMENT, stdin=terminal, capture_output=True, text=True,
                                   timeout=60, check=False)
        finally:
            os.close(ours)
            os.close(terminal)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("task letters: a learner or an engine starts this program", ended.stderr)


if __name__ == "__main__":
    unittest.main()
