#!/usr/bin/env python3
"""Types what docs/START.md says, block after block in one shell, against the programs that were built.

A fenced block below `<!-- run -->` is typed. One below `<!-- prints -->` shows lines that the block before it prints: each has to be there,
with any numbers in place of its own, and blanks and the order of lines apart. WEIGHTCAST_PROGRAM is the program, WEIGHTCAST_LIBRARY the client library."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_BLOCK = re.compile(r"^<!-- (run|prints) -->\n```[a-z]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A time limit for the page as a whole: loaded machines take some twenty times the five seconds of an idle one.
TYPED_S_MAX = 300


def blocks(text):
    """(what is typed, the lines that it prints) of each block that is run."""
    result = []
    for kind, block in _BLOCK.findall(text):
        if kind == "run":
            result.append((block, []))
        elif not result or result[-1][1]:
            raise ValueError("a block below <!-- prints --> without one below <!-- run --> before it")
        else:
            result[-1] = (result[-1][0], [line for line in block.split("\n") if line.strip()])
    if len(result) != len(re.findall(r"<!-- run -->", text)) or sum(1 for _, lines in result if lines) != len(re.findall(r"<!-- prints -->", text)):
        raise ValueError("a mark that no fenced block follows")
    return result


def is_printed(line, said):
    """Whether `said` has a line like this one, but for numbers (hexadecimal ones, too) and blanks."""

    def shape(text):
        words = [re.sub(r"[0-9]+(\.[0-9]+)?", "0", "0" if re.fullmatch(r"[0-9a-f]{16}", word.strip(",:")) else word) for word in text.split()]
        return " ".join(words)

    return shape(line) in {shape(one) for one in said.split("\n")}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Start(unittest.TestCase):
    def test_does_what_it_says(self):
        typed = blocks((ROOT / "docs" / "START.md").read_text())
        self.assertGreaterEqual(len(typed), 6)
        directory = pathlib.Path(tempfile.mkdtemp(prefix="start-"))
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        # Every daemon's versions may lie in memory; what a failed run leaves there goes, too.
        self.addCleanup(self.remove_memory, directory)
        port = free_port()
        script = "set -euo pipefail\n"
        for number, (block, _) in enumerate(typed):
            script += f"exec > {number}.out\n" + block.replace(":7400", f":{port}") + "\n"
        program = pathlib.Path(os.environ["WEIGHTCAST_PROGRAM"])
        environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        shell = subprocess.Popen(["/bin/bash", "-c", script], cwd=directory, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                 text=True, start_new_session=True)
        try:
            errors = shell.communicate(timeout=TYPED_S_MAX)[1]
        finally:
            try:
                os.killpg(shell.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            shell.wait()
        logs = "".join(f"{log.name}: {log.read_text()}" for log in sorted(directory.glob("*.log")))
        self.assertEqual(shell.returncode, 0, f"{errors}\n{logs}")
        for number, (block, lines) in enumerate(typed):
            said = (directory / f"{number}.out").read_text()
            for line in lines:
                self.assertTrue(is_printed(line, said), f"docs/START.md says that this block prints {line!r}:\n{block}\nIt printed:\n{said}\n{logs}")

    def remove_memory(self, directory):
        for link in directory.glob("*/memory"):
            if link.is_symlink():
                shutil.rmtree(os.readlink(link), ignore_errors=True)


class Blocks(unittest.TestCase):
    def test_takes_what_is_marked(self):
        text = "<!-- run -->\n```\na\n```\n\n```\nnot this\n```\n<!-- prints -->\n```\nb\n\nc\n```\n<!-- run -->\n```\nd\n```\n"
        self.assertEqual(blocks(text), [("a\n", ["b", "c"]), ("d\n", [])])

    def test_refuses_marks_without_a_block(self):
        for text in ("<!-- run -->\n\ntext\n", "<!-- prints -->\n```\na\n```\n", "<!-- run -->\n```\na\n```\n<!-- prints -->\ntext\n"):
            with self.assertRaises(ValueError):
                blocks(text)

    def test_compares_all_but_numbers_and_blanks(self):
        self.assertTrue(is_printed("worker-1  127.0.0.1:7400  658.6 KiB", "x\nworker-2 127.0.0.1:43045    1.25 KiB\n"))
        self.assertTrue(is_printed("of run 205af13b72847705, as", "of run abcdefabcdefabcd, as"))
        self.assertFalse(is_printed("worker-1  idle", "worker-1  stale"))
        self.assertFalse(is_printed("idle", "worker-1  idle"))


if __name__ == "__main__":
    unittest.main()
