"""weightcast.parquet_lines on a file that pyarrow has written, with the columns of DAPO-Math and Eurus."""

import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import pyarrow
from pyarrow import parquet

ROOT = pathlib.Path(__file__).resolve().parents[2]


def convert(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), *sys.path])}
    command = [sys.executable, "-m", "weightcast.parquet_lines", *arguments]
    return subprocess.run(command, capture_output=True, env=environment, timeout=300)


class ParquetLinesTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def file(self, name):
        return str(pathlib.Path(self.directory.name, name))

    def test_every_row_in_its_order(self):
        rows = [
            {
                "prompt": [{"content": f"{i}+{i}? \u221a", "role": "user"}],
                "reward_model": {"ground_truth": str(2 * i), "style": "rule"},
                "ability": "math",
                "extra_info": {"index": i, "split": None},
            }
            for i in range(5000)
        ]
        parquet.write_table(pyarrow.Table.from_pylist(rows), self.file("rows.parquet"), row_group_size=700)
        ran = convert(self.file("rows.parquet"))
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        self.assertEqual([json.loads(line) for line in ran.stdout.splitlines()], rows)

    def test_times_become_text(self):
        table = pyarrow.Table.from_pylist([{"at": datetime.datetime(2024, 5, 6, 7, 8, 9)}])
        parquet.write_table(table, self.file("times.parquet"))
        self.assertEqual(json.loads(convert(self.file("times.parquet")).stdout), {"at": "2024-05-06 07:08:09"})

    def test_what_is_no_parquet_is_named(self):
        bad = self.file("bad.parquet")
        pathlib.Path(bad).write_bytes(b"PAR1" + bytes(100))
        for name in (bad, self.file("missing")):
            ran = convert(name)
            self.assertEqual((ran.returncode, ran.stdout), (1, b""))
            self.assertIn(name, ran.stderr.decode())
        self.assertEqual(convert().returncode, 2)


if __name__ == "__main__":
    unittest.main()
