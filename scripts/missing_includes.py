#!/usr/bin/env python3
"""missing_includes.py [ROOT]: names of our headers that a file uses and does not include, not even through others.

Batches (WEIGHTCAST_UNITY) hide these: a file compiles because another one of its batch has the include. To compile each
file apart takes half an hour of a processor, this takes five seconds. It reads text, not C++. So it looks only at functions
that are called, and types, whose name some header declares at namespace scope, and no included header has as any word.
Its exit status is 1 where it finds one.
"""

import collections
import functools
import pathlib
import re
import subprocess
import sys

INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)
# Comments, literals and directives. Raw strings first, because they may hold anything.
NOISE = re.compile(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^\s*#(?:[^\n]*\\\n)*[^\n]*',
                   re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")
TOKEN = re.compile(r"[A-Za-z_]\w*|::|->|[^\s\w]")
ATTRIBUTES = re.compile(r"\[\[.*?\]\]|alignas\(.*?\)|requires\s*\(.*?\)|decltype\(.*?\)", re.DOTALL)
NAMESPACE = re.compile(r'\bnamespace\b[\w\s:]*$|\bextern\s*""\s*$')
TYPE = re.compile(r"(?:template\s*<.*?>\s*)?(?:class|struct|union|enum(?:\s+class)?)\s+(\w+)\s*(?:final\s*)?(?::[^:].*)?$", re.DOTALL)
NO_FUNCTION = re.compile(r"(?:class|struct|enum|union|using|typedef|friend|static_assert)\b")
FUNCTION = re.compile(r"(\w+)\s*\(")
# Before a name these make it no declaration.
NO_TYPE = {"return", "co_return", "case", "throw", "else", "new", "not", "and", "or", "const", "constexpr", "static", "inline", "delete"}
TEST_MACROS = {"TEST", "TEST_F", "TEST_P", "INSTANTIATE_TEST_SUITE_P"}
# words_of() is found by the enum that a template is given.
NO_NAMES = {"void", "bool", "int", "operator", "words_of"}


def namespace_scope(text):
    """The functions and types that `text` declares outside of any class or function."""
    functions, types, braces, statement, start = set(), set(), [], "", 0
    for mark in re.finditer(r"[{};]", text):
        inside = "other" in braces
        if not inside:
            statement += text[start:mark.start()]
        start = mark.end()
        head = ATTRIBUTES.sub("", statement).strip()
        if mark.group() == "{":
            braces.append("namespace" if not inside and NAMESPACE.search(head) else "other")
            if not inside and braces[-1] == "other":
                declare(head, functions, types)
        elif mark.group() == "}" and braces:
            braces.pop()
        elif not inside and head.startswith("using ") and "=" in head:
            types.add(head.split()[1])
        elif not inside and not NO_FUNCTION.match(head):
            declare(head, functions, set())
        if "other" not in braces:
            statement = ""
    return functions, types


def declare(head, functions, types):
    kind, call = TYPE.match(head), FUNCTION.search(head)
    if kind:
        types.add(kind.group(1))
    elif call and "=" not in head[:call.start()] and call.group(1) not in NO_NAMES:
        functions.add(call.group(1))


class Tree:
    def __init__(self, root):
        paths = subprocess.run(["git", "ls-files", "*.h", "*.hpp", "*.cpp"], cwd=root, check=True, capture_output=True, text=True)
        self.raw = {path: (root / path).read_text(errors="replace") for path in paths.stdout.split() if (root / path).is_file()}
        self.text = {path: NOISE.sub(" ", text) for path, text in self.raw.items()}
        self.words = {path: set(WORD.findall(text)) for path, text in self.text.items()}
        self.functions, self.types = collections.defaultdict(set), collections.defaultdict(set)
        for path in self.raw:
            if not path.endswith(".cpp"):
                functions, types = namespace_scope(self.text[path])
                for name in functions:
                    self.functions[name].add(path)
                for name in types:
                    self.types[name].add(path)

    def resolve(self, path, name):
        beside = str(pathlib.PurePath(path).parent / name)
        return next((found for found in (name, beside, f"client/include/{name}") if found in self.raw), None)

    @functools.cache
    def included(self, path):
        found, todo = set(), [path]
        while todo:
            at = todo.pop()
            new = {self.resolve(at, name) for name in INCLUDE.findall(self.raw[at])} - found - {None}
            found |= new
            todo += new
        return found

    def missing(self, path):
        """Each name that `path` lacks, and a header that has it."""
        tokens = ["", "", "", "", *TOKEN.findall(self.text[path]), ""]
        known = declared_here(tokens).union(*(self.words[header] for header in self.included(path)))
        found = {}
        for at in range(4, len(tokens) - 1):
            name, before, after = tokens[at], tokens[at - 1], tokens[at + 1]
            if name in known or before in {".", "->"} or TEST_MACROS & {tokens[at - 2], tokens[at - 4]}:
                continue
            if before == "::" and tokens[at - 2] != "weightcast" and WORD.match(tokens[at - 2]):
                continue
            headers = self.functions.get(name) if after == "(" else self.types.get(name) if name[0].isupper() else None
            if headers and path not in headers:
                found[name] = min(headers)
        return sorted(found.items())


def declared_here(tokens):
    """The names that stand where a declaration has its name: behind a type, a reference or template arguments."""
    names = set()
    for at in range(2, len(tokens) - 1):
        before, after = tokens[at - 1], tokens[at + 1]
        behind_word = WORD.match(before) and before not in NO_TYPE
        behind_mark = before in {"&", "*", ">"} and after in {"=", "(", "{", ";", ",", ")", ":"}
        operator = after == "(" and tokens[at - 2] in {"&", "(", ",", "=", "return"}
        captured = before in {"[", ","} and after == "="
        if behind_word or captured or (behind_mark and not operator):
            names.add(tokens[at])
    return names


def main():
    tree = Tree(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve())
    count = 0
    for path in sorted(tree.raw):
        for name, header in tree.missing(path):
            print(f"{path}: uses {name} and does not include {header}")
            count += 1
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
