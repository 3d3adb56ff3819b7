#!/usr/bin/env python3
"""unreached.py BUILD_DIR: the functions of this project that nothing in the programs, or in the client library, can call.

It reads the object files of a whole build (x86-64, position-independent): each relocation is a reference of the function or
the table that it lies in. For each function that is not reached from a program's main or from the client library's interface
it says who does reach it: the benches and simulations, tests alone, or nobody. Files' own functions (`static`, anonymous
namespaces) count as reached, since the assembler leaves no trace of calls to them; so does what an inline function would call.
"""

import collections
import pathlib
import struct
import subprocess
import sys

SYMTAB, RELA, ALLOCATED = 2, 4, 2
LOCAL, WEAK, OBJECT, FUNCTION, SECTION = 0, 2, 1, 2, 3


class ObjectFile:
    """Definitions and references of one ELF file. A node is a global symbol's name, or a (file, name) of its own."""

    def __init__(self, path):
        self.path, data = path, path.read_bytes()
        offset, = struct.unpack_from("<Q", data, 40)
        size, count, names_at = struct.unpack_from("<HHH", data, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]

        def text(table, at):
            begin = sections[table][4] + at
            return data[begin:data.index(0, begin)].decode()

        self.functions, self.roots, self.edges = set(), set(), collections.defaultdict(set)
        table = next(i for i, section in enumerate(sections) if section[1] == SYMTAB)
        symbols, inside = [], collections.defaultdict(list)
        for name, info, _, section, value, length in struct.iter_unpack("<IBBHQQ", self.bytes_of(data, sections[table])):
            name, kind, binding = text(sections[table][6], name), info & 15, info >> 4
            if kind == SECTION:
                node = ("section", section)
            else:
                node = (str(path), name) if binding == LOCAL or name == "main" else name
                if 0 < section < 0xff00 and kind in (FUNCTION, OBJECT):
                    inside[section].append((value, value + max(length, 1), node))
                    if kind == FUNCTION and binding == LOCAL:
                        self.roots.add(node)
                    elif kind == FUNCTION and binding != WEAK:
                        self.functions.add(node)
            symbols.append(node)
        for places in inside.values():  # two names of one function, as constructors have, are reached together
            places.sort(key=lambda place: place[:2])
            for before, after in zip(places, places[1:]):
                if before[0] == after[0]:
                    self.edges[before[2]].add(after[2])
                    self.edges[after[2]].add(before[2])

        def at(section, where):
            for begin, end, node in inside[section]:
                if begin <= where < end:
                    return node
            return (str(path), f"section {section}")

        for section in sections:
            target = sections[section[7]] if section[1] == RELA else None
            if target is None or not target[2] & ALLOCATED or text(names_at, target[0]).startswith((".eh_frame", ".gcc_except")):
                continue
            starts = text(names_at, target[0]).startswith((".init_array", ".ctors"))
            for where, info, addend in struct.iter_unpack("<QQq", self.bytes_of(data, section)):
                to = symbols[info >> 32]
                if isinstance(to, tuple) and to[0] == "section":
                    to = at(to[1], addend + (4 if info & 0xffffffff in (2, 4) else 0))  # relative to the next instruction
                source = at(section[7], where)
                self.edges[source].add(to)
                if starts or (isinstance(source, tuple) and source[1].startswith("section ")):
                    self.roots.add(to)

    @staticmethod
    def bytes_of(data, section):
        return data[section[4]:section[4] + section[5]]


def reached(objects, roots):
    edges = collections.defaultdict(set)
    for one in objects:
        for source, targets in one.edges.items():
            edges[source] |= targets
    seen, waiting = set(roots), list(roots)
    while waiting:
        for target in edges[waiting.pop()] - seen:
            seen.add(target)
            waiting.append(target)
    return seen


def main():
    build = pathlib.Path(sys.argv[1])
    # Below previous_release the release before has a build of its own.
    objects = [ObjectFile(path) for path in sorted(build.rglob("*.o")) if "previous_release" not in path.parts]

    def below(*folders):
        return [one for one in objects if one.path.relative_to(build).parts[0] in folders]

    def by(objects_of_it, mains):
        roots = {node for one in objects_of_it for node in one.roots}
        roots |= {node for one in objects_of_it for node in one.functions if isinstance(node, str) and node.startswith("wc_")}
        roots |= {node for one in mains for node in one.functions if isinstance(node, tuple)}
        return reached(objects_of_it, roots)

    measuring, testing = below("bench", "sim"), below("tests")
    product = [one for one in objects if one not in measuring and one not in testing]
    called, measured = by(product, product), by(product + measuring, product + measuring)
    tested = by(objects, objects)
    found = collections.defaultdict(list)
    for one in product:
        if one.path.name.endswith(".pb.cc.o"):
            continue
        for node in one.functions:
            if isinstance(node, str) and "weightcast" in node and node not in called:
                found[node].append(str(one.path.relative_to(build).parent).split("/CMakeFiles")[0])
    names = sorted(found)
    shown = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    for name, text in sorted(zip(names, shown), key=lambda pair: (found[pair[0]], pair[1])):
        who = "benches or simulations" if name in measured else "tests alone" if name in tested else "nobody"
        print(f"{found[name][0]:24} {who:24} {text}")


if __name__ == "__main__":
    main()
