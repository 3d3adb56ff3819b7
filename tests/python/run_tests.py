#!/usr/bin/env python3
"""run_tests.py FILE...: runs unittest files, of this folder or by their path, and writes how each test ended for `./run` to
count."""

import importlib
import os
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent


class Results(unittest.TextTestResult):
    """What tests/test_main.cpp writes: "planned N", and for each test "began NAME" and how it ended."""

    out = None

    def write(self, what, test):
        if self.out is not None:
            print(what, test.id() if isinstance(test, unittest.TestCase) else test, file=self.out, flush=True)

    def startTest(self, test):
        self.bad = len(self.failures) + len(self.errors) + len(self.unexpectedSuccesses)
        self.skips = len(self.skipped)
        self.write("began", test)
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        bad = len(self.failures) + len(self.errors) + len(self.unexpectedSuccesses) > self.bad
        self.write("failed" if bad else "skipped" if len(self.skipped) > self.skips else "passed", test)


def main():
    sys.path[:0] = [str(HERE), str(HERE.parent.parent / "python")]
    sys.path[:0] = [str((HERE / name).parent) for name in sys.argv[1:]]
    modules = [importlib.import_module(pathlib.Path(name).stem) for name in sys.argv[1:]]
    loader = unittest.TestLoader()
    suite = unittest.TestSuite(loader.loadTestsFromModule(module) for module in modules)
    path = os.environ.get("WEIGHTCAST_TEST_RESULTS")
    if path:
        Results.out = open(path, "w")
        print("planned", suite.countTestCases(), file=Results.out, flush=True)
    ran = unittest.TextTestRunner(resultclass=Results, verbosity=1).run(suite)
    return 0 if ran.wasSuccessful() and ran.testsRun else 1


if __name__ == "__main__":
    sys.exit(main())
