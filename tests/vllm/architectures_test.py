"""Each row of the table of architectures in docs/VLLM.md, by the real vLLM. Run by the Python that vLLM has.

$WEIGHTCAST_ARCHITECTURES, names after commas, has it try those alone."""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from architectures import ARCHITECTURES, QUANTISED
from fixtures import make_directory
from follow_test import write_site

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs" / "VLLM.md"
TOLERANCE = 1e-4
LIMIT_S = 900


def rows():
    """Of the document's table: what each architecture's changes take, and whether answers are those of transformers."""
    row = r"^\| `([a-z0-9-]+)` \| (cells|copies|reload|refused) \| (exact|as at the start|layer [^|]*) \|$"
    found = re.findall(row, DOCUMENT.read_text(), re.M)
    return {name: (path, exact) for name, path, exact in found}


class ArchitecturesTest(unittest.TestCase):
    maxDiff = None

    def test_the_table_is_what_vllm_does(self):
        chosen = list(filter(None, os.environ.get("WEIGHTCAST_ARCHITECTURES", "").split(",")))
        documented = rows()
        self.assertEqual(set(documented), {*ARCHITECTURES, *QUANTISED})
        for name in chosen or documented:
            with self.subTest(name):
                self.assertEqual(self.run_one(name), documented[name])

    def run_one(self, name):
        directory = make_directory(self)
        environment = {**os.environ, "WEIGHTCAST_VLLM_UNPACKED": "1", "PYTHONPATH": write_site(directory / "site")}
        command = [sys.executable, str(HERE / "architectures.py"), name, str(directory / "models")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        self.assertTrue(lines, f"{name}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        told = json.loads(lines[-1])
        if "refused" in told:
            return "refused", re.search(r"layer [^:]*", told["refused"]).group().partition(" computes")[0]
        self.assertEqual(told["whole"]["kind"], "reload", told)
        distances = [told[step]["distance"] for step in ("whole", "changed")]
        self.assertLess(max(distances), max(TOLERANCE, 2 * told["start"]), told)
        return told["changed"]["kind"], "exact" if max(distances) < TOLERANCE else "as at the start"


if __name__ == "__main__":
    unittest.main()
