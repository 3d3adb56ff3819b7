#!/usr/bin/env python3
"""docs/PROMISES.md names no test that is not there."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Promises(unittest.TestCase):
    def test_name_tests_that_are_there(self):
        table = (ROOT / "docs" / "PROMISES.md").read_text().split("| not promised any more |")[0]
        rows = [line for line in table.split("\n") if line.startswith("| ")][1:]
        self.assertGreater(len(rows), 5)
        for row in rows:
            file = None
            for name in re.findall(r"`([^`]+)`", row.split(" | ")[-1]):
                if name.startswith("tests/"):
                    file = ROOT / name
                    self.assertTrue(file.is_file(), name)
                elif file is not None and re.fullmatch(r"\w+\.\w+|test_\w+", name):
                    suite, _, case = name.rpartition(".")
                    here = rf"TEST\w*\({suite}, {case}\)" if suite else rf"def {name}\("
                    self.assertRegex(file.read_text(), here, f"{name} is not in {file}")
            self.assertIsNotNone(file, f"no test is named: {row}")


if __name__ == "__main__":
    unittest.main()
