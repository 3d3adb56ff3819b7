"""Doubles for checkpoint engines, whose ranks are all in one process: torch's tensors and store, an origin, daemons."""

import asyncio
import concurrent.futures
import contextlib
import importlib
import sys
import threading
import time
import types
import unittest
from unittest import mock

from fixtures import enter
from weightcast import Code, Error, RawTensor

SHORT_S = 0.05  # for what is to be over
LONG_S = 60.0  # for what is not


def soon(seconds=SHORT_S):
    return time.monotonic() + seconds


class Tensor(RawTensor):
    """One of a float, and what is used of torch's."""

    def __init__(self, data=b"abcd"):
        super().__init__("F32", (len(data) // 4,), data)

    @property
    def nbytes(self):
        return len(self.data)

    def detach(self):
        return self

    torch = detach

    def to(self, device, copy=False):
        return Tensor(bytes(self.data)) if copy else self


class Memory:
    """A Store, and torch's TCPStore: the server is its own client."""

    by_port = {}

    def __init__(self, host="", port=0, is_master=True, **_):
        if is_master:
            self._values, self._changed = {}, threading.Condition()
            self.port = max(self.by_port, default=1) + 1
            self.by_port[self.port] = self
        else:
            self._values, self._changed = self.by_port[port]._values, self.by_port[port]._changed

    def add(self, key, amount=1):
        with self._changed:
            self._values[key] = self._values.get(key, 0) + amount
            return self._values[key]

    def decide(self, key, value):
        with self._changed:
            self._changed.notify_all()
            return self._values.setdefault(key, value)

    def wait(self, key, timeout):
        with self._changed:
            self._changed.wait_for(lambda: key in self._values, timeout)
            return self._values.get(key)

    def compare_set(self, key, expected, value):
        assert expected == ""
        return self.decide(key, value).encode()

    def check(self, keys):
        return all(key in self._values for key in keys)

    def get(self, key):
        return self._values[key].encode()


class Origin:
    """A Publisher, the publication that it has begun, and the daemons of all hosts."""

    def __init__(self):
        self.versions = {}  # tensors by name, by version
        self.next = 1
        self.options, self.filled, self.begun, self.aborted, self.refusal = [], None, False, 0, None

    def begin(self, infos, *, timeout, **options):
        assert not self.begun
        self.options.append(options)
        self.begun, self.infos, self.filled = True, infos, {}
        return self

    def fill(self, name, tensor):
        self.filled[name] = bytes(tensor.data)

    def abort(self):
        self.aborted += self.begun
        self.begun = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.abort()

    def next_version(self, timeout):
        return self.next

    def commit(self, *, version, timeout):
        assert self.begun and version >= self.next
        self.begun = False
        self.number, self.next = version, version + 1
        return version

    def wait(self, version, timeout=LONG_S):
        if self.refusal is not None:
            raise self.refusal
        self.versions.setdefault(version, self.filled)
        return types.SimpleNamespace(payload_bytes=11)


def not_found():
    return Error(Code.NOT_FOUND, "install", "the daemon has not that version")


class Host:
    """A Subscription at a daemon of an Origin's. `script` is what acquire() does first: errors, or digests."""

    def __init__(self, origin, script=()):
        self.origin, self.script, self.pins, self.closed = origin, list(script), [], False

    def acquire(self, version, *, timeout):
        found = self.script.pop(0) if self.script else f"digest of {version}"
        if isinstance(found, Exception):
            raise found
        if version not in self.origin.versions:
            raise not_found()
        pin = Pin(version, found)
        self.pins.append(pin)
        return pin

    def next(self, timeout):
        time.sleep(0 if self.script else min(timeout, 0.001))

    def close(self):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Pin:
    def __init__(self, version, digest):
        self.version, self.digest, self.directory, self.released = version, digest, version, False

    def release(self):
        self.released = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class EngineTest(unittest.TestCase):
    """Two trainer's ranks, two rollouts', one origin, and a daemon for each rollout's rank."""

    MODULE = ""  # the one under test, of weightcast.integrations

    @classmethod
    def others(cls):
        """What it imports of its project: the contents of each module by its name."""
        raise NotImplementedError

    @classmethod
    def setUpClass(cls):
        torch = {"no_grad": contextlib.nullcontext, "Tensor": Tensor, "cuda": types.SimpleNamespace(is_available=lambda: False)}
        modules = {
            "ray": {"util": types.SimpleNamespace(get_node_ip_address=lambda: "[::1]")},
            "torch": torch, "torch.distributed": {"TCPStore": Memory}, **cls.others(),
        }
        made = {}
        for name, contents in modules.items():
            made[name] = types.ModuleType(name)
            vars(made[name]).update(contents)
        made["torch"].distributed = made["torch.distributed"]
        with mock.patch.dict(sys.modules, made):
            cls.module = importlib.import_module(f"weightcast.integrations.{cls.MODULE}")
            cls.shared = sys.modules["weightcast.integrations._checkpoint_engine"]

    def setUp(self):
        self.origin = Origin()
        self.hosts = []
        self.scripts = {}  # of the rollouts' hosts, by their number

        def snapshot(version):
            return {name: Tensor(data) for name, data in self.origin.versions[version].items()}

        for name, stand_in in (("Publisher", lambda _: self.origin), ("Subscription", self.subscribe), ("Snapshot", snapshot)):
            enter(self, mock.patch.object(self.shared, name, stand_in))

    def subscribe(self, state_dir):
        if state_dir == "origin":
            return Host(self.origin)
        self.hosts.append(Host(self.origin, self.scripts.get(len(self.hosts), ())))
        return self.hosts[-1]


def run_all(calls):
    """What each coroutine returns, or the exception that it raises. Ranks are processes, and some wait without giving their
    loop anything else to do."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        results = [pool.submit(asyncio.run, call) for call in calls]
        return [result.exception(LONG_S) or result.result() for result in results]
