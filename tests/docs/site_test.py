#!/usr/bin/env python3
"""What `./run site` makes of pages, programs and code, and what its checks find; and the whole site, where Debian's mkdocs is installed."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))


def load_site():
    """scripts/site.py, under a name that is not the interpreter's own `site`."""
    spec = importlib.util.spec_from_file_location("weightcast_site", ROOT / "scripts" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


site = load_site()


class Here(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory(prefix="site-")
        self.addCleanup(kept.cleanup)
        self.here = pathlib.Path(kept.name)


class Pages(Here):
    def test_have_githubs_anchors_and_lead_to_readmes(self):
        text, files = site.page_text("README.md")
        self.assertIn("## Install {#install}", text)
        self.assertIn("(examples/README.md)", text)
        self.assertIn("docs/figures/loop.svg", files)
        text, files = site.page_text("docs/decisions/0002-chains.md")
        self.assertIn("transport/core/plan/plan.h", files)

    def test_of_programs_have_every_flag(self):
        program = self.here / "program"
        program.write_text("#!/bin/sh\ncat <<'ROFF'\n.TH PROGRAM 1\n.SH NAME\nprogram \\- it\n.SH COMMANDS\n.SS \\fBprogram run\\fR [\\fIOPTIONS\\fR]\n"
                           "Runs it.\n.TP\n\\fB\\-\\-a_b\\fR \\fITEXT\\fR\n\\&.5 <or> more.\n.TP\n\\fB\\-c\\fR\nMore.\nROFF\n")
        program.chmod(0o700)
        self.assertEqual(site.manual(program), "# program(1)\n\n\n## Name\n\nprogram - it\n\n## Commands\n\n\n### program run [OPTIONS]\n\nRuns it.\n\n"
                                               "- **--a\\_b** *TEXT*\n  .5 &lt;or&gt; more.\n- **-c**\n  More.\n")

    def test_of_programs_refuse_what_they_do_not_know(self):
        program = self.here / "program"
        program.write_text("#!/bin/sh\nprintf '.TH A 1\\n.RS 4\\n'\n")
        program.chmod(0o700)
        with self.assertRaisesRegex(ValueError, r"\.RS 4"):
            site.manual(program)

    def test_of_c_have_every_exported_function(self):
        page = site.c_reference()
        named = set(re.findall(r"wc_\w+", " ".join(re.findall(r"^### (.*)$", page, re.MULTILINE))))
        exported = set(re.findall(r"\bwc_\w+", (ROOT / "tests" / "client" / "exported_symbols.txt").read_text()))
        self.assertGreater(len(exported), 30)
        self.assertEqual(exported - named, set())

    def test_of_python_have_every_exported_name(self):
        page = site.python_reference()
        for name in ("Publisher", "Subscription", "load", "Snapshot", "wait_until_ready"):
            self.assertIn(f"### {name}\n", page)
        self.assertIn("## weightcast.integrations.fsdp\n\n", page)
        self.assertNotIn("### _", page)


class Check(Here):
    def wrong(self, **pages):
        (self.here / "index.html").write_text("<h1 id='top'>")
        for name, text in pages.items():
            (self.here / f"{name}.html").write_text(text)
        return site.check_site(self.here)

    def test_finds_what_leads_nowhere(self):
        self.assertEqual(self.wrong(a="<a href='index.html#top'>x</a><a href='https://example.net'>y</a>"), [])
        self.assertIn("no such anchor", self.wrong(a="<a href='index.html#none'>")[0])
        self.assertIn("no such page or file", self.wrong(a="<a href='none.html'>")[0])
        self.assertIn("no such page or file", self.wrong(a="<img src='none.svg'>")[0])

    def test_finds_what_comes_from_elsewhere(self):
        for text in ("<script src='https://example.net/a.js'></script>", "<link rel='stylesheet' href='//example.net/a.css'>"):
            self.assertIn("is elsewhere", self.wrong(a=text)[0])


class Whole(Here):
    def test_is_made_strictly_and_leads_nowhere_wrong(self):
        programs = pathlib.Path(os.environ["WEIGHTCAST_PROGRAM"]).parent if "WEIGHTCAST_PROGRAM" in os.environ else None
        if programs is None or not all((programs / name).exists() for name in ("weightcast-train", "weightcast-engine")):
            self.skipTest("not all three programs are built")
        if subprocess.run(["/usr/bin/python3", "-c", "import mkdocs, material"], capture_output=True, check=False).returncode != 0:
            self.skipTest("mkdocs or its theme is not installed: ./run site does that")
        site.make_pages(programs, self.here / "pages")
        config = (ROOT / "docs" / "mkdocs.yml").read_text().replace("../build/site-pages", "pages").replace("../build/site", "site")
        (self.here / "mkdocs.yml").write_text(config)
        made = subprocess.run(["/usr/bin/python3", "-B", "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(self.here / "mkdocs.yml")],
                              capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        self.assertEqual(site.check_site(self.here / "site"), [])
        self.assertGreater(len(list((self.here / "site").rglob("*.html"))), 60)


if __name__ == "__main__":
    unittest.main()
