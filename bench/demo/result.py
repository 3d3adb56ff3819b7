#!/usr/bin/env python3
"""Joins what the parts of the demo measured. Usage: result.py FOLDER BYTES MEGABITS WORKERS.

FOLDER/broadcast.table has a line per case: name, T_bcast(0.5), (0.9), (1.0). FOLDER/loop/result.json is loop.py's.
Leaves out a part without figures. Writes FOLDER/result.json.
"""

import json
import pathlib
import sys


def broadcast_cases(table, size, megabits, workers):
    line_s = size * 8 / (megabits * 1e6)
    cases = []
    for row in table.read_text().splitlines():
        name, *times = row.split()
        t50, t90, t100 = map(float, times)
        cases.append({"case": name, "workers": workers, "payload_bytes": size, "t50_s": t50, "t90_s": t90,
                      "t100_s": t100, "line_s": line_s, "ratio": t100 / line_s})
    return cases


def main():
    folder = pathlib.Path(sys.argv[1])
    size, megabits, workers = map(int, sys.argv[2:])
    result = {}
    if (folder / "broadcast.table").exists():
        result["broadcast"] = broadcast_cases(folder / "broadcast.table", size, megabits, workers)
    if (folder / "loop" / "result.json").exists():
        result["loop"] = json.loads((folder / "loop" / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
