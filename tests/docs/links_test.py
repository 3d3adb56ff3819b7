#!/usr/bin/env python3
"""Checks every relative link and anchor in the repository's Markdown, and that documents which sources name exist."""

import os
import re
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import markdown_links


class Repository(unittest.TestCase):
    def test_has_no_broken_link(self):
        files = [name for name in markdown_links.repository_files(ROOT) if name.endswith(".md")]
        self.assertGreater(len(files), 50, "the repository's Markdown was not found")
        self.assertIn("README.md", files)
        broken = markdown_links.broken_links(ROOT, files)
        self.assertEqual(broken, [], "broken links:\n" + "\n".join(broken))

    def test_has_the_documents_that_sources_name(self):
        mention = re.compile(rb"\bdocs/(?:decisions/)?(?:[A-Z][A-Z_]+|[0-9]{4}-[a-z-]+)\.md\b")
        missing = []
        for name in markdown_links.repository_files(ROOT):
            if name.startswith("tests/docs/"):
                continue
            with open(os.path.join(ROOT, name), "rb") as file:
                text = file.read(4 << 20)
            if b"\0" in text[:8192]:
                continue
            for found in set(mention.findall(text)):
                if not os.path.exists(os.path.join(ROOT, found.decode())):
                    missing.append(f"{name} names {found.decode()}")
        self.assertEqual(missing, [], "\n".join(missing))


class Checker(unittest.TestCase):
    """The checker itself, on a tree with one link of each kind."""

    def broken(self, **files):
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = os.path.join(root, *name.split("__")) + ".md"
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            return markdown_links.broken_links(root, [name.replace("__", "/") + ".md" for name in files])

    def assert_broken(self, why, **files):
        found = self.broken(**files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(why, found[0])

    def test_finds_a_missing_file(self):
        self.assert_broken("a.md:3: b.md: there is no such file", a="x\n\nsee [b](b.md)")

    def test_finds_a_missing_picture(self):
        self.assert_broken("p.svg: there is no such file", a="![a picture](p.svg)")
        self.assert_broken("p.svg: there is no such file", a="[![a picture](p.svg)](a.md)")

    def test_finds_a_missing_anchor(self):
        self.assert_broken("has no heading of that name", a="[b](b.md#two)", b="# One")
        self.assert_broken("has no heading of that name", a="[b](#two)\n# One")

    def test_finds_html_and_definitions(self):
        self.assert_broken("there is no such file", a='<img src="p.svg">')
        self.assert_broken("there is no such file", a="[b]: b.md")

    def test_finds_what_leads_out(self):
        self.assert_broken("leads out of the repository", a="[b](../b.md)")
        self.assert_broken("is not relative to its file", a="[b](/b.md)")

    def test_finds_a_directory_without_a_page(self):
        self.assert_broken("no README.md", a="[b](b)", b__c="# One")
        self.assertEqual(self.broken(a="[b](b) [b](b/) [b](b#one)", b__README="# One"), [])

    def test_knows_githubs_anchors(self):
        text = "# Why was it slow?\n## `keys init`, and *more*\n## A / b\n# Twice\n# Twice\n<a id=\"mine\"></a>\n## [Link](a.md) here\n"
        self.assertEqual(markdown_links.anchors(text),
                         {"why-was-it-slow", "keys-init-and-more", "a--b", "twice", "twice-1", "mine", "link-here"})

    def test_leaves_code_and_other_schemes_alone(self):
        text = "`[a](none.md)`\n```\n[a](none.md)\n# Not a heading\n```\n[a](https://example.net/x) [b](mailto:a@example.net)\n"
        self.assertEqual(self.broken(a=text), [])
        self.assertEqual(markdown_links.anchors(text), set())

    def test_takes_good_links(self):
        self.assertEqual(self.broken(a="[b](b/c.md#one) [self](#here)\n# Here", b__c="# One\n[a](../a.md)"), [])


if __name__ == "__main__":
    unittest.main()
