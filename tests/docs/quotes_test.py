#!/usr/bin/env python3
"""bench/paper/EXPERIMENTS.md quotes no figure of a paper that bench/paper/quotes.toml has not, with its place and whether it is printed or derived."""

import pathlib
import re
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?")
# "(P 125 to 37 s)", and the rest of "125 s (P; of all models 130)".
_INSIDE = re.compile(r"\(([PD])(?:;)? ([^()]+)\)")
# "1 (10.22 h, P)".
_LAST = re.compile(r"\(([^()]+), ([PD])\)")
# "125 s (P)": what stands before, back to the cell's border, another parenthesis or the sentence's beginning.
_BEFORE = re.compile(r"((?:[^|().:;]|\.(?=\d))*)\(([PD])[);]")


def quoted(text):
    """(P or D, the figure) of each one that the text marks as a paper's."""
    found = set()
    for kind, inside in _INSIDE.findall(text):
        found |= {(kind, number) for number in _NUMBER.findall(inside)}
    for inside, kind in _LAST.findall(text):
        found |= {(kind, number) for number in _NUMBER.findall(inside)}
    for line in text.split("\n"):
        row = re.match(r"\| [^|]*paper \(([PD])\) \|(.*)", line)  # a row that is the paper's as a whole
        if row:
            found |= {(row[1], number) for number in _NUMBER.findall(row[2])}
        else:
            found |= {(kind, number) for before, kind in _BEFORE.findall(line) for number in _NUMBER.findall(before)}
    return found


class Quotes(unittest.TestCase):
    def setUp(self):
        self.quotes = tomllib.loads((ROOT / "bench" / "paper" / "quotes.toml").read_text())["quote"]
        self.text = (ROOT / "bench" / "paper" / "EXPERIMENTS.md").read_text().split("\n## ", 1)[1]

    def test_are_whole(self):
        papers = {"ECHO-2", "sparse patches", "ECHO", "ROLL Flash"}
        for one in self.quotes:
            self.assertEqual(set(one), {"paper", "place", "kind", "figures"}, one)
            self.assertIn(one["paper"], papers)
            self.assertIn(one["kind"], ("P", "D"))
            self.assertTrue(one["place"] and one["figures"], one)

    def test_are_all_that_the_document_quotes(self):
        known = {(one["kind"], figure) for one in self.quotes for figure in one["figures"]}
        self.assertEqual(sorted(quoted(self.text) - known), [], "quoted in bench/paper/EXPERIMENTS.md, and not in bench/paper/quotes.toml")

    def test_are_quoted(self):
        known = {(one["kind"], figure) for one in self.quotes for figure in one["figures"]}
        self.assertEqual(sorted(known - quoted(self.text)), [], "in bench/paper/quotes.toml, and not quoted in bench/paper/EXPERIMENTS.md")


class Marks(unittest.TestCase):
    def test_are_found(self):
        self.assertEqual(quoted("| 2.13 (P; 2.12 of all) | 1.5 | 36.7 % (D) |"), {("P", "2.13"), ("P", "2.12"), ("D", "36.7")})
        self.assertEqual(quoted("121 to 37 s (P 125 to 36 s), 40"), {("P", "125"), ("P", "36")})
        self.assertEqual(quoted("It says 7. The paper prints 240 to 312 s (P), 0.15 of T (D)."), {("P", "240"), ("P", "312"), ("D", "0.15")})


if __name__ == "__main__":
    unittest.main()
