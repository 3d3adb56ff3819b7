"""Programs of the package that run for long: nobody reads what they say, descriptors are closed, signals come."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from daemons import PACKAGE, eventually

LIMIT_S = 60
F_SETPIPE_SZ = 1031
PROGRAM = """
import logging, sys, time
from weightcast import _program
is_stopped = _program.start()
lines = int(sys.argv[1])
for number in range(lines):
    logging.info("line %d", number)
opened = open(sys.argv[2], "w")
opened.write(str(opened.fileno()))
opened.flush()
while not is_stopped():
    time.sleep(0.02)
logging.info("stopped")
"""


class ProgramTest(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.file = os.path.join(place.name, "opened")

    def start(self, lines, *words, **how):
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        process = subprocess.Popen([*words, sys.executable, "-c", PROGRAM, str(lines), self.file], env=environment, **how)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        eventually(lambda: os.path.exists(self.file) and os.path.getsize(self.file) > 0)
        return process

    def pipe(self):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        return reader, writer

    def test_goes_on_and_ends_without_a_reader(self):
        _, writer = self.pipe()
        process = self.start(1000, stderr=writer)
        process.terminate()
        self.assertEqual(process.wait(LIMIT_S), 0)

    def test_says_what_it_dropped(self):
        reader, writer = self.pipe()
        process = self.start(20_000, stderr=writer)
        os.set_blocking(reader, False)
        text = b""

        def says():
            nonlocal text
            try:
                while more := os.read(reader, 65536):
                    text += more
            except BlockingIOError:
                time.sleep(0.01)
            return b" lines of this log are missing here: nobody read it\n" in text

        eventually(says)
        process.terminate()
        self.assertEqual(process.wait(LIMIT_S), 0)

    def test_no_line_lands_in_a_file(self):
        process = self.start(3, "sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
        process.terminate()
        self.assertEqual(process.wait(LIMIT_S), 0)
        with open(self.file) as opened:
            self.assertRegex(opened.read(), r"^[3-9]$|^[1-9]\d+$")

    def test_signals(self):
        process = self.start(0, stderr=subprocess.PIPE)
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
        process.send_signal(signal.SIGHUP)
        _, said = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0)
        self.assertIn(b"signal 10 means nothing to this program, which goes on", said)
        self.assertIn(b"stopped", said)


if __name__ == "__main__":
    unittest.main()
