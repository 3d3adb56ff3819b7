"""Real daemons on loopback, for tests: an origin and its workers."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import weightcast
from fixtures import enter, make_directory

PROGRAM = os.environ.get("WEIGHTCAST_PROGRAM", "")
PACKAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "python"


def eventually(condition, limit_s=30.0):
    """Waits until condition() is true, and returns what it gave."""
    end = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s} s")
        time.sleep(0.02)


class Daemon:
    def __init__(self, directory, name, *flags, program=None):
        self.program = program or PROGRAM
        self.state = str(pathlib.Path(directory) / name)
        self.name = name
        self._flags = ["--state", self.state, "--name", name, "--insecure", *flags]
        self._log = open(self.state + ".log", "ab")
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [self.program, "daemon", *self._flags], stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL
        )
        eventually(self._is_up)

    def _is_up(self):
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended: {pathlib.Path(self.state + '.log').read_text()}")
        try:
            return bool(weightcast.status(self.state))
        except weightcast.Error:
            return False

    def node(self):
        return next(node for node in weightcast.status(self.state)["nodes"] if node["name"] == self.name)

    def keep_port(self):
        """Lets start() listen where it listens now, where workers look for it."""
        self._flags[self._flags.index("--listen") + 1] = self.node()["address"]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self, limit_s=30.0):
        """As an operator does it, by SIGTERM."""
        self.process.terminate()
        self.process.wait(limit_s)

    def close(self):
        self.kill()
        self._log.close()


class DaemonTest(unittest.TestCase):
    """A test with an origin, and workers as it asks for them."""

    origin_flags = ()
    worker_flags = None  # of `worker`, which each test has then; None: there is none at first
    program = None  # of the daemons that it starts; None: PROGRAM

    def setUp(self):
        self.directory = make_directory(self)
        memory = os.environ.get("WEIGHTCAST_TEST_MEMORY", "/dev/shm")
        self.memory = enter(self, tempfile.TemporaryDirectory(prefix="weightcast-test-", dir=memory))
        self.origin = self.start("origin", "--role", "origin", "--listen", "127.0.0.1:0", *self.origin_flags)
        if self.worker_flags is not None:
            self.worker = self.start_worker("worker", *self.worker_flags)

    @contextlib.contextmanager
    def raises(self, code, words=""):
        """Within it an error comes, with this code and these words."""
        with self.assertRaisesRegex(weightcast.Error, words) as caught:
            yield caught
        self.assertEqual(caught.exception.code, code)

    def start(self, name, *flags):
        daemon = Daemon(self.directory, name, "--memory-dir", self.memory, *flags, program=self.program)
        self.addCleanup(daemon.close)
        return daemon

    def start_worker(self, name="worker", *flags):
        worker = self.start(
            name, "--role", "worker", "--listen", "127.0.0.1:0", "--origin", self.origin.node()["address"], *flags
        )
        eventually(lambda: worker.node()["state"] != "dialling")
        return worker

    def start_python(self, name, *command, **environment):
        """A process of this interpreter with the package, which ends with the test. log_of() says what it prints."""
        log = enter(self, open(self.directory / f"{name}.log", "ab"))
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), **environment}
        process = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log, env=environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def log_of(self, name):
        path = self.directory / f"{name}.log"
        return path.read_text() if path.exists() else ""


class PublisherTest(DaemonTest):
    """A test with a trainer's connection to its origin, too."""

    def setUp(self):
        super().setUp()
        self.publisher = enter(self, weightcast.Publisher(self.origin.state))

    def publish_and_wait(self, tensors, installed=None, **options):
        """Returns the version when the origin has its own copy, or that fraction of the workers has it `installed`."""
        version = self.publisher.publish(tensors, **options)
        self.publisher.wait(version, installed=installed)
        return version
