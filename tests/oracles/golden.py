"""What the oracles share. An oracle is a script with a function lines(count): that many lines of JSON, each an input and
what somebody else's code makes of it. They depend on `count` only in how many there are. Its function same(a, b), if it has
one, compares a line made anew with the committed one, where a processor's rounding may differ; otherwise they are equal.

golden.py write SCRIPT FILE COUNT           writes a golden file
golden.py check SCRIPT FILE PROGRAM FILTER  makes the file's lines anew, and then 50 times as many for PROGRAM to replay:
                                            its tests that FILTER names read the file that $WEIGHTCAST_GOLDEN_LINES names
"""

import importlib.util
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

FACTOR = 50


def load(path, name):
    """A module from its file alone: a package's __init__ may want what is not installed."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def installed(package):
    """Where a package lies, without importing it."""
    return pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0])


def oracle(script):
    script = pathlib.Path(script)
    sys.path.insert(0, str(script.parent))
    try:
        return load(script, script.stem)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print(f"skipped: {script.name} takes torch (Debian's python3-torch)")
        sys.exit(77)


def text_of(module, count):
    return "".join(json.dumps(line, ensure_ascii=True) + "\n" for line in itertools.islice(module.lines(count), count))


def near(a, b, tolerance):
    """Whether two values of JSON are equal but for numbers, which may differ by that share of 1 and of themselves."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(near(a[key], b[key], tolerance) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(near(x, y, tolerance) for x, y in zip(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= tolerance * (1 + abs(a))
    return a == b


def check(script, file, program, test_filter):
    module = oracle(script)
    same = getattr(module, "same", lambda a, b: a == b)
    committed = pathlib.Path(file).read_text().splitlines()
    count = len(committed)
    if not all(map(same, map(json.loads, text_of(module, count).splitlines()), map(json.loads, committed))):
        sys.exit(f"{file} is not what {script} makes: write it anew, and look at the difference")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as more:
        more.write(text_of(module, FACTOR * count))
        more.flush()
        environment = dict(os.environ, WEIGHTCAST_GOLDEN_LINES=more.name)
        environment.pop("WEIGHTCAST_TEST_RESULTS", None)
        sys.exit(subprocess.run([program, "--gtest_brief=1", f"--gtest_filter={test_filter}"], env=environment).returncode)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"] and len(sys.argv) == 5:
        pathlib.Path(sys.argv[3]).write_text(text_of(oracle(sys.argv[2]), int(sys.argv[4])))
    elif sys.argv[1:2] == ["check"] and len(sys.argv) == 6:
        check(*sys.argv[2:])
    else:
        sys.exit(__doc__)
