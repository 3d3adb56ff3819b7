"""What the oracles share. An oracle is a script with a function lines(count): that many lines of JSON, each an input and
what somebody else's code makes of it. They depend on `count` only in how many there are.

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


def text_of(script, count):
    script = pathlib.Path(script)
    sys.path.insert(0, str(script.parent))
    lines = load(script, script.stem).lines(count)
    return "".join(json.dumps(line, ensure_ascii=True) + "\n" for line in itertools.islice(lines, count))


def check(script, file, program, test_filter):
    committed = pathlib.Path(file).read_text()
    count = committed.count("\n")
    if text_of(script, count) != committed:
        sys.exit(f"{file} is not what {script} makes: write it anew, and look at the difference")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as more:
        more.write(text_of(script, FACTOR * count))
        more.flush()
        environment = dict(os.environ, WEIGHTCAST_GOLDEN_LINES=more.name)
        environment.pop("WEIGHTCAST_TEST_RESULTS", None)
        sys.exit(subprocess.run([program, "--gtest_brief=1", f"--gtest_filter={test_filter}"], env=environment).returncode)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"] and len(sys.argv) == 5:
        pathlib.Path(sys.argv[3]).write_text(text_of(sys.argv[2], int(sys.argv[4])))
    elif sys.argv[1:2] == ["check"] and len(sys.argv) == 6:
        check(*sys.argv[2:])
    else:
        sys.exit(__doc__)
