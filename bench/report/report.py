#!/usr/bin/env python3
"""report.py PROGRAMS [NAME...] [--quick] [--runs N] [--out DIR]: measures the rows of rows.py and writes docs/PERFORMANCE.md.

PROGRAMS is the folder of weightcast-bench. With names only these rows are measured, and those of the report before stay. --quick
runs each once and prints the page without writing it. It measures on a quiet host alone: before each run it waits for one, a
minute at most, and then says who it is that keeps it busy, with nothing written. Its exit status is 0 if all was measured.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile

import page
import quiet
from rows import ROWS

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN_LIMIT_S = 900


class NotMeasured(Exception):
    pass


def machine():
    cpu = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    memory = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) / 2**20
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {"processor": f"{cpu}, {os.cpu_count()} cores", "memory": f"{memory:.0f} GiB", "kernel": platform.release(),
            "date": datetime.date.today().isoformat(), "commit": commit or "not known"}


def run_once(bench, row):
    """The command's JSON. Raises NotMeasured with its last words."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [str(bench), *shlex.split(row.command), "--json", out.name]
        try:
            run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"more than {RUN_LIMIT_S} s") from None
        if run.returncode != 0:
            raise NotMeasured((run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1])
        return json.loads(pathlib.Path(out.name).read_text())


def measured(row, results):
    """What the page has of it. Raises NotMeasured if a result has not what a figure takes."""
    found = {"name": row.name, "section": row.section, "command": row.command, "measures": []}
    for measure in row.measures:
        try:
            values = [measure.value(result) for result in results]
            beside = [measure.beside_value(result) for result in results] if measure.beside_value else []
        except (LookupError, StopIteration, TypeError, ZeroDivisionError) as error:
            raise NotMeasured(f"'{measure.claim}': the result has no such figure ({error!r})") from error
        found["measures"].append({
            "claim": measure.claim, "unit": measure.unit, "goal": measure.goal, "more_is_better": measure.more_is_better,
            "values": values, "beside": measure.beside, "beside_values": beside,
            "misses": measure.misses(statistics.median(values))})
    return found


def measure_row(bench, row, runs, is_quiet=quiet.why_loaded):
    if row.needs_root and os.geteuid() != 0:
        raise NotMeasured("network namespaces need root")
    results = []
    while len(results) < runs:
        why = is_quiet()
        if why:
            raise SystemExit(f"report: {row.name}: {why}; end it and run the report again. Nothing was written")
        results += row.repetitions(run_once(bench, row))
    return measured(row, results)


def merged(before, rows, not_measured):
    """The rows in their order, those that were not asked for from the report before."""
    old = {row["name"]: row for row in (before or {}).get("rows", [])}
    new = {row["name"]: row for row in rows}
    old_gaps = (before or {}).get("not_measured", {})
    found, gaps = [], {}
    for row in ROWS:
        if row.name in new or (row.name in old and row.name not in not_measured):
            found.append(new.get(row.name) or old[row.name])
        else:
            gaps[row.name] = not_measured.get(row.name) or old_gaps.get(row.name) or "not asked for yet"
    return found, gaps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(row.name for row in ROWS))
    parser.add_argument("--quick", action="store_true", help="each once, and print the page alone")
    parser.add_argument("--runs", type=int, default=5, help="of each row, at least")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs", help="where PERFORMANCE.md and performance.json go")
    arguments = parser.parse_args()
    known = {row.name for row in ROWS}
    for name in arguments.names:
        if name not in known:
            parser.error(f"'{name}' is no row; there are {', '.join(row.name for row in ROWS)}")
    bench = arguments.programs / "weightcast-bench"
    if not bench.is_file():
        parser.error(f"{bench} is not there; './run build' makes it")

    rows, not_measured = [], {}
    for row in ROWS:
        if arguments.names and row.name not in arguments.names:
            continue
        print(f"report: {row.name}: {row.command}", file=sys.stderr, flush=True)
        try:
            rows.append(measure_row(bench, row, 1 if arguments.quick else arguments.runs))
        except NotMeasured as error:
            not_measured[row.name] = str(error)
            print(f"report: {row.name} was not measured: {error}", file=sys.stderr, flush=True)

    kept = arguments.out / "performance.json"
    before = json.loads(kept.read_text()) if arguments.names and not arguments.quick and kept.is_file() else None
    found, gaps = merged(before, rows, not_measured)
    report = {"machine": machine(), "rows": found, "not_measured": gaps}
    if arguments.quick:
        print(page.render({**report, "not_measured": not_measured}), end="")
    else:
        kept.write_text(json.dumps(report, indent=1) + "\n")
        (arguments.out / "PERFORMANCE.md").write_text(page.render(report))
        print(f"report: wrote {arguments.out / 'PERFORMANCE.md'} and {kept}", file=sys.stderr)
    return 1 if not_measured else 0


if __name__ == "__main__":
    sys.exit(main())
