"""tools/web/model.js by itself: in Node.js, or else in Chromium."""

import json
import pathlib
import shutil
import subprocess
import unittest

import browser

HERE = pathlib.Path(__file__).resolve().parent
MODEL = (HERE.parents[2] / "tools" / "web" / "model.js").read_text()
TESTS = (HERE / "model_test.js").read_text()

RUN = """(() => modelTests(Model).map(([name, test]) => {
  try { test(); return [name, '']; } catch (error) { return [name, String(error.stack || error)]; }
}))()"""


def outcomes():
    """[[name, what failed]] of all tests."""
    source = f"{MODEL}\n{TESTS}\n"
    node = shutil.which("node") or shutil.which("nodejs")
    if node:
        ran = subprocess.run(
            [node, "-"],
            input=f"{source}\nconsole.log(JSON.stringify({RUN}));",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if ran.returncode != 0:
            raise AssertionError(ran.stderr)
        return json.loads(ran.stdout)
    if not browser.chromium():
        raise unittest.SkipTest("neither node nor chromium is installed")
    with browser.Browser() as page:
        return page.run(f"(() => {{ {source} return {RUN}; }})()")


class ModelTest(unittest.TestCase):
    def test_model(self):
        ran = outcomes()
        self.assertGreater(len(ran), 15)
        for name, failed in ran:
            with self.subTest(name):
                self.assertEqual(failed, "")
