"""What an origin says of the slowest worker of a publication, with real daemons that are slow for a known reason. Transfer
outlasts each fault: what is longest is not what is wrong."""

import array
import ctypes
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import weightcast  # noqa: E402
from daemons import PROGRAM, DaemonTest, eventually  # noqa: E402

CLONE_NEWNET = 0x40000000


def numbers(seed, changed, mib):
    """Random bits, of which one number of `changed` is of this seed alone."""
    block = array.array("I", random.Random(0).randbytes(1 << 20))
    own = array.array("I", random.Random(seed).randbytes(1 << 20))
    block[::changed] = own[::changed]
    return {"weights": block * mib}


class Slow(DaemonTest):
    def setUp(self):
        super().setUp()
        self.publisher = weightcast.Publisher(self.origin.state)
        self.addCleanup(self.publisher.close)

    def told(self, version):
        """What the history has of a publication that all have, and `status` says the same."""
        self.publisher.wait(version, installed=1.0, timeout=60)

        def entry():
            found = weightcast.history(self.origin.state)["publications"]
            return next((one for one in found if one["version"] == version and one["slowest"]), None)

        entry = eventually(entry)
        command = [PROGRAM, "status", "--state", self.origin.state, "--version", str(version)]
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        self.assertIn(f"slowest: {entry['slowest']}: {entry['why']}", said)
        return entry


class SlowLinks(Slow):
    """Links of 10 MB a second; the version takes two to three seconds on each."""

    origin_flags = ("--topology", "chain", "--uplink", "80mbit", "--pack", "never")

    def setUp(self):
        super().setUp()
        # All links are equal, so a is the first of one chain: it has joined first.
        link = ("--uplink", "80mbit", "--downlink", "80mbit")
        self.workers = {name: self.start_worker(name, *link) for name in "abcd"}

    def test_a_relay_that_stands_still(self):
        version = self.publisher.publish(numbers(1, 1, 24))
        relay = self.workers["a"]
        eventually(lambda: relay.node()["chunks_verified"] > 0)
        relay.process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        relay.process.send_signal(signal.SIGCONT)
        entry = self.told(version)
        self.assertEqual((entry["slowest"], entry["cause"]), ("a", "stalled"), entry)
        self.assertRegex(entry["why"], "^it stood still: [1-3] workers? left it as silent$")


class BlockedPort(SlowLinks):
    """In a network of this process's own."""

    def setUp(self):
        if not shutil.which("iptables") or not shutil.which("ip"):
            self.skipTest("iptables or ip is not installed")
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
            self.skipTest("only root may make network namespaces")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        super().setUp()

    test_a_relay_that_stands_still = None

    def test_is_named_by_who_could_not_dial_it(self):
        address = self.workers["a"].node()["address"]
        rule = f"iptables -A INPUT -p tcp --dport {address.rsplit(':', 1)[1]} -j DROP"
        subprocess.run(rule.split(), check=True)
        entry = self.told(self.publisher.publish(numbers(1, 1, 24)))
        # The slowest is who could not, or one that waited behind it; either way it is said of whom it is.
        self.assertIn(entry["cause"], ("unreachable", "parent"), entry)
        self.assertIn(f"it could not reach a at {address} (timed out); ", entry["why"])
        # It is known to the worker itself.
        eventually(lambda: f"cannot dial it at {address}: timed out" in self.workers["a"].node()["last_error"])


class SlowEncoder(Slow):
    """An origin that gets a tenth of a processor, as by a quota, while it encodes."""

    def test_is_the_cause(self):
        for name in "ab":
            self.start_worker(name)
        self.told(self.publisher.publish(numbers(1, 1, 128)))
        ended = threading.Event()

        def hold_back():
            while not ended.is_set():
                self.origin.process.send_signal(signal.SIGSTOP)
                time.sleep(0.09)
                self.origin.process.send_signal(signal.SIGCONT)
                time.sleep(0.01)

        holder = threading.Thread(target=hold_back)
        self.addCleanup(holder.join)
        self.addCleanup(ended.set)
        data = numbers(2, 4, 128)
        holder.start()
        version = self.publisher.publish(data, timeout=60)
        time.sleep(3)
        ended.set()
        entry = self.told(version)
        self.assertEqual(entry["cause"], "origin", entry)
        self.assertRegex(entry["why"], "the origin took [0-9.]+ s to (encode its patch|take it over)")


if __name__ == "__main__":
    unittest.main()
