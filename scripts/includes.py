#!/usr/bin/env python3
"""includes.py [--files]: which folder includes which, and how many lines each has; with --files, which files nothing includes.

It reads what Git knows of. A folder of two levels (transport/core) counts as one. The second table's rows include its
columns' folders; ARCHITECTURE.md, "Layers", says what they may include.
"""

import collections
import pathlib
import re
import sys

import markdown_links

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
SOURCES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}
SPLIT = {"transport", "worker", "trainer", "client", "tools", "tests"}


def folder_of(path):
    parts = pathlib.PurePath(path).parts[:-1]
    return "/".join(parts[:2] if parts and parts[0] in SPLIT else parts[:1]) or "."


def main():
    paths = [path for path in markdown_links.repository_files(ROOT)
             if (ROOT / path).is_file() and not (ROOT / path).is_symlink()]
    lines, files = collections.Counter(), collections.Counter()
    edges, included = collections.Counter(), set()
    for path in paths:
        suffix = pathlib.PurePath(path).suffix
        if suffix not in SOURCES | {".py", ".sh", ".js"}:
            continue
        text = (ROOT / path).read_text(errors="replace")
        folder = folder_of(path)
        files[folder] += 1
        lines[folder] += text.count("\n")
        for name in INCLUDE.findall(text) if suffix in SOURCES else ():
            beside = str(pathlib.PurePath(path).parent / name)
            target = name if (ROOT / name).is_file() else beside
            if (ROOT / target).is_file():
                included.add(target)
                if folder_of(target) != folder:
                    edges[folder, folder_of(target)] += 1
    if "--files" in sys.argv:
        for path in paths:
            if pathlib.PurePath(path).suffix in {".h", ".hpp", ".cuh"} and path not in included:
                print(path)
        return
    print(f"{'folder':28} {'files':>6} {'lines':>8}")
    for folder in sorted(files):
        print(f"{folder:28} {files[folder]:6} {lines[folder]:8}")
    print(f"{'all':28} {files.total():6} {lines.total():8}\n")
    for folder in sorted(files):
        to = sorted((target, count) for (source, target), count in edges.items() if source == folder)
        if to:
            print(f"{folder:28} includes {', '.join(f'{target} {count}' for target, count in to)}")


if __name__ == "__main__":
    main()
