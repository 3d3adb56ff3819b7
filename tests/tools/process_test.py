"""What happens to programs from outside: nobody reads what they say, descriptors 0 to 2 are closed, a file may not grow,
signals that nobody sends on purpose.

    process_test.py WEIGHTCAST WEIGHTCAST_ENGINE WEIGHTCAST_TRAIN
"""

import fcntl
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

WEIGHTCAST, ENGINE, TRAIN = sys.argv[1:4]
LIMIT_S = 60
F_SETPIPE_SZ = 1031
NOT_LOGGED = b"x" * 100  # what fills a pipe


def eventually(condition, what="it", limit_s=LIMIT_S):
    end = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {limit_s} s")
        time.sleep(0.05)


def write_snapshot(path, value, cells=1000):
    """A directory with one tensor."""
    path.mkdir()
    body = struct.pack("<f", value) * cells
    head = json.dumps({"w": {"dtype": "F32", "shape": [cells], "data_offsets": [0, len(body)]}}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + body)
    return path


class FullPipe:
    """A pipe of one page that nobody reads."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, F_SETPIPE_SZ, 4096)
        os.set_blocking(self.writer, False)
        try:
            while os.write(self.writer, NOT_LOGGED):
                pass
        except BlockingIOError:
            pass
        os.set_blocking(self.writer, True)

    def close(self):
        os.close(self.reader)
        os.close(self.writer)


class ProcessTest(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.directory = pathlib.Path(place.name)
        self.state = self.directory / "origin"

    def start(self, *command, **how):
        process = subprocess.Popen([str(one) for one in command], stdin=subprocess.DEVNULL, **how)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_tool(self, *command, status=0, **how):
        ran = subprocess.run([WEIGHTCAST, *map(str, command)], capture_output=True, text=True, timeout=LIMIT_S, **how)
        self.assertEqual(ran.returncode, status, f"{command}: {ran.stderr}")
        return ran.stdout

    def start_origin(self, *flags, **how):
        origin = self.start(WEIGHTCAST, "daemon", "--role", "origin", "--state", self.state, "--listen", "127.0.0.1:0",
                            "--disk", "threads", *flags, **how)  # fmt: skip
        self.run_tool("ready", "--state", self.state)
        return origin

    def publish(self, number):
        snapshot = write_snapshot(self.directory / f"snapshot-{number}", number)
        self.run_tool("publish", "--state", self.state, "--version", number + 1, snapshot)

    def assert_ends(self, process, status=0):
        self.assertEqual(process.wait(LIMIT_S), status)


class UnreadTest(ProcessTest):
    """Nobody reads what a program says."""

    def setUp(self):
        super().setUp()
        self.pipe = FullPipe()
        self.addCleanup(self.pipe.close)

    def test_an_origin_goes_on_and_ends(self):
        origin = self.start_origin(stderr=self.pipe.writer, stdout=self.pipe.writer)
        for number in range(3):
            self.publish(number)
        self.run_tool("status", "--state", self.state)
        origin.terminate()
        self.assert_ends(origin)

    def test_a_learner_ends(self):
        learner = self.start(TRAIN, "run", "--output-dir", self.directory / "run", "--total-training-steps", 2,
                             stdout=self.pipe.writer, stderr=self.pipe.writer)  # fmt: skip
        self.assert_ends(learner)

    def test_a_worker_ends(self):
        worker = self.start(ENGINE, "run", "--state-dir", self.state, stderr=self.pipe.writer)
        self.assert_ends(worker, 2)

    def test_an_archive_follows_on(self):
        self.start_origin(stderr=subprocess.DEVNULL)
        self.publish(1)
        archive = self.directory / "archive"
        archive.mkdir()
        follower = self.start(WEIGHTCAST, "archive", "--state", self.state, "--to", archive, "--follow",
                              stdout=self.pipe.writer, stderr=self.pipe.writer)  # fmt: skip
        eventually(lambda: any(archive.rglob("*")), "the archive")
        follower.terminate()
        self.assert_ends(follower, -signal.SIGTERM)


class ClosedDescriptorsTest(ProcessTest):
    """A shell's >&- 2>&- <&-."""

    def closed(self, *command):
        return ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *map(str, command)]

    def test_no_line_lands_in_a_file(self):
        origin = self.start(*self.closed(WEIGHTCAST, "daemon", "--role", "origin", "--state", self.state,
                                         "--listen", "127.0.0.1:0"))  # fmt: skip
        self.run_tool("ready", "--state", self.state)
        for number in (0, 1, 2):
            self.assertEqual(os.readlink(f"/proc/{origin.pid}/fd/{number}"), "/dev/null")
        origin.terminate()
        self.assert_ends(origin)

    def test_of_commands_that_write_files(self):
        base, result = (write_snapshot(self.directory / name, value) for name, value in (("a", 1), ("b", 2)))
        patch = self.directory / "patch"
        for program, *command in (
            (WEIGHTCAST, "patch", "make", base, result, "--output", patch),
            (WEIGHTCAST, "status", "--state", self.state),
            (ENGINE, "run"),
            (TRAIN, "run", "--output-dir", self.directory / "run", "--total-training-steps", 1),
        ):
            subprocess.run(self.closed(program, *command), timeout=LIMIT_S)
        self.run_tool("patch", "inspect", patch)


class FileSizeLimitTest(ProcessTest):
    """ulimit -f, LimitFSIZE=."""

    def test_a_worker_says_it_and_goes_on(self):
        self.start_origin(stderr=subprocess.DEVNULL)
        address = json.loads(self.run_tool("status", "--json", "--state", self.state))["nodes"][0]["address"]
        log = self.directory / "worker.log"

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

        with open(log, "wb") as to:
            worker = self.start(WEIGHTCAST, "daemon", "--role", "worker", "--state", self.directory / "w", "--origin",
                                address, "--listen", "127.0.0.1:0", "--versions-in", "disk",
                                stderr=to, preexec_fn=limit)  # fmt: skip
        self.run_tool("ready", "--state", self.directory / "w")
        snapshot = write_snapshot(self.directory / "large", 1, 100_000)
        self.run_tool("publish", "--state", self.state, "--version", 1, snapshot)
        eventually(lambda: "a limit of the size of files" in log.read_text(), "the log")
        self.assertIsNone(worker.poll())
        worker.terminate()
        self.assert_ends(worker)


class SignalsTest(ProcessTest):
    def test_a_daemon_says_what_means_nothing_to_it(self):
        log = self.directory / "log"
        with open(log, "wb") as to:
            origin = self.start_origin(stderr=to)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR,
                       signal.SIGRTMIN, signal.SIGRTMAX):  # fmt: skip
            origin.send_signal(number)
            said = f"signal {int(number)} ("
            eventually(lambda said=said: said in log.read_text(), said)
        origin.send_signal(signal.SIGALRM)
        origin.send_signal(signal.SIGPIPE)
        self.publish(1)
        origin.send_signal(signal.SIGXCPU)
        self.assert_ends(origin)
        self.assertIn("the limit of processor time (ulimit -t, LimitCPU) is reached: stopping", log.read_text())

    def test_a_program_that_takes_the_place_has_the_defaults(self):
        self.start_origin(stderr=subprocess.DEVNULL)
        self.publish(1)
        for pin in ((), ("--pin",)):
            told = self.run_tool("exec", "--state", self.state, *pin, "--", "cat", "/proc/self/status",
                                 restore_signals=True)  # fmt: skip
            ignored = int(next(line for line in told.splitlines() if line.startswith("SigIgn:")).split()[1], 16)
            self.assertEqual(ignored & (1 << (signal.SIGXFSZ - 1)), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
