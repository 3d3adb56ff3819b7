"""What `./run report` makes of a bench's results, when it refuses, and what it keeps of the report before."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench" / "report"))
import page  # noqa: E402
import quiet  # noqa: E402
import report  # noqa: E402
from rows import ROWS, Measure, Row  # noqa: E402

ROW = Row("copy", "Section", "copy --size 1", [
    Measure("a copy over another", "", lambda result: result["ratio"], 1.5),
    Measure("its rate", "GB/s", lambda result: result["rate"], 2, more_is_better=True, beside="the floor",
            beside_value=lambda result: result["floor"])])


def report_of(*results):
    return {"machine": {"processor": "one"}, "rows": [report.measured(ROW, list(results))], "not_measured": {}}


class Page(unittest.TestCase):
    def test_has_the_median_the_spread_and_what_stands_beside(self):
        text = page.render(report_of(*({"ratio": ratio, "rate": 3, "floor": 4} for ratio in (1.25, 1.0, 9.0))))
        self.assertIn("| a copy over another | 1.50 | 1.25 (1.00 to 9.00; 3) | - | `copy` |", text)
        self.assertIn("| its rate | at least 2.00 GB/s | 3.00 GB/s (3.00 to 3.00; 3) | the floor: 4.00 | `copy` |", text)
        self.assertIn("Nothing.", text)

    def test_names_what_misses_its_goal_in_either_direction(self):
        text = page.render(report_of({"ratio": 1.6, "rate": 1.9, "floor": 4}))
        self.assertIn("| **1.60** |", text)
        self.assertIn("- a copy over another (`copy`): 1.60, goal 1.50.", text)
        self.assertIn("- its rate (`copy`): 1.90 GB/s, goal at least 2.00 GB/s.", text)

    def test_says_what_was_not_measured_and_why(self):
        text = page.render({**report_of({"ratio": 1, "rate": 3, "floor": 4}), "not_measured": {"chain": "needs root"}})
        self.assertIn("Not measured: `chain` (needs root).", text)

    def test_a_result_without_the_figure_is_not_measured(self):
        with self.assertRaisesRegex(report.NotMeasured, "'its rate': the result has no such figure"):
            report.measured(ROW, [{"ratio": 1}])


class Rows(unittest.TestCase):
    def test_have_names_of_their_own(self):
        self.assertEqual(len({row.name for row in ROWS}), len(ROWS))

    def test_those_not_asked_for_stay_as_they_were(self):
        first, second = ROWS[0].name, ROWS[1].name
        before = {"rows": [{"name": first, "is": "old"}, {"name": second, "is": "old"}], "not_measured": {}}
        found, gaps = report.merged(before, [{"name": second, "is": "new"}], {first: "it failed"})
        self.assertEqual(found, [{"name": second, "is": "new"}])
        self.assertEqual(gaps[first], "it failed")
        found, gaps = report.merged(before, [{"name": second, "is": "new"}], {})
        self.assertEqual([row["is"] for row in found], ["old", "new"])
        self.assertNotIn(first, gaps)


class Quiet(unittest.TestCase):
    def test_reads_what_the_kernel_writes(self):
        busy, total = quiet.parse_stat("cpu  10 1 9 70 10 0 0 5 0 0\ncpu0 1 2 3\n")
        self.assertEqual((busy, total), (25, 105))
        self.assertEqual(quiet.parse_process("7 (a) b (c)) S 1 7 7 0 -1 4 0 0 0 0 30 12 0 0 20 0"), ("a) b (c)", 42))

    def test_a_loaded_host_is_waited_for_and_then_named(self):
        ticks = [quiet.Ticks(100 * i, 200 * i, {9: ("compiler", 90 * i)}) for i in range(9)]
        slept = []
        why = quiet.why_loaded(2, 6, iter(ticks).__next__, slept.append)
        self.assertIn("50 % of this host's processors are busy: compiler (9)", why)
        self.assertEqual(slept, [2, 2, 2])
        ticks = [quiet.Ticks(0, 0, {}), quiet.Ticks(90, 100, {}), quiet.Ticks(91, 200, {})]
        self.assertEqual(quiet.why_loaded(2, 60, iter(ticks).__next__, slept.append), "")

    def test_nothing_is_written_on_a_loaded_host(self):
        with self.assertRaisesRegex(SystemExit, "copy: a compiler; .*Nothing was written"):
            report.measure_row(pathlib.Path("bench"), ROW, 1, lambda: "a compiler")


class Program(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.bench = self.directory / "weightcast-bench"

    def program(self, text):
        self.bench.write_text(f"#!{sys.executable}\nimport json, sys\n{text}\n")
        self.bench.chmod(0o755)

    def test_takes_each_run_from_the_bench(self):
        self.program("json.dump({'ratio': 1, 'rate': 3, 'floor': len(sys.argv)}, open(sys.argv[sys.argv.index('--json') + 1], 'w'))")
        found = report.measure_row(self.bench, ROW, 2, lambda: "")
        self.assertEqual(found["measures"][1]["values"], [3, 3])
        self.assertEqual(found["measures"][1]["beside_values"], [6, 6])

    def test_says_why_a_bench_failed(self):
        self.program("sys.exit('no room')")
        with self.assertRaisesRegex(report.NotMeasured, "no room"):
            report.measure_row(self.bench, ROW, 1, lambda: "")

    def test_refuses_a_row_that_there_is_not(self):
        self.program("")
        run = subprocess.run([sys.executable, str(ROOT / "bench" / "report" / "report.py"), str(self.directory), "nothing"],
                             capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("'nothing' is no row; there are chain", run.stderr)


class Kept(unittest.TestCase):
    def test_the_page_is_what_its_figures_say(self):
        kept = ROOT / "docs" / "performance.json"
        if not kept.is_file():
            self.skipTest("no report was kept")
        self.assertEqual((ROOT / "docs" / "PERFORMANCE.md").read_text(), page.render(json.loads(kept.read_text())))


if __name__ == "__main__":
    unittest.main()
