"""python3 -m weightcast.parquet_lines IN.parquet > OUT.jsonl: rows of a Parquet file as JSON lines, for task_data.

It takes pyarrow, which no release of Debian so far packages. docs/TASKS.md names the columns of some data sets.
"""

import json
import sys
from typing import Any, BinaryIO, List


def convert(path: str, out: BinaryIO) -> int:
    """Writes each row as an object on a line, in the file's order, and returns how many there were. What JSON has no form
    for, such as a time, is written as text."""
    from pyarrow import parquet

    rows = 0
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                out.write(json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n")
                rows += 1
    return rows


def main(arguments: List[str]) -> Any:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        convert(arguments[0], sys.stdout.buffer)
    except ImportError as error:
        return f"weightcast.parquet_lines: {error}; pip install pyarrow"
    except (OSError, ValueError) as error:
        return f"weightcast.parquet_lines: {arguments[0]}: {error}"
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
