"""What a test sets up, and what ends with it."""

import os
import pathlib
import tempfile


def enter(test, context):
    """Enters `context` until the end of the test; what `with` would give. unittest has it from Python 3.11 on."""
    entered = context.__enter__()
    test.addCleanup(context.__exit__, None, None, None)
    return entered


def make_directory(test):
    made = tempfile.TemporaryDirectory(prefix="weightcast-python-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    return pathlib.Path(enter(test, made))
