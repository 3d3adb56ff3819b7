"""Directories of tests, below the one that `./run test` clears away."""

import os
import pathlib
import tempfile
import unittest


def scratch_directory(name):
    return tempfile.TemporaryDirectory(prefix=f"weightcast-{name}-", dir=os.environ.get("TMPDIR", "/var/tmp"))


class ScratchTest(unittest.TestCase):
    """All tests of a class share `directory`, which ends after them."""

    @classmethod
    def setUpClass(cls):
        directory = scratch_directory(cls.__name__.lower())
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name)
