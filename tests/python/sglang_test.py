"""What weightcast.sglang asks of a server, without a server, a daemon and torch: the order of calls, and each of them failing."""

import itertools
import os
import threading
import types
import unittest
from unittest import mock

from fixtures import enter, make_directory
from json_server import JsonServer
from weightcast import Code, Error, Event, EventKind, RawTensor
from weightcast.engines._installs import Limits
from weightcast.sglang import EXCHANGE, LOADER, _engine, _loader
from weightcast.sglang._engine import Engine, Mode, PauseMode, Unfit
from weightcast.sglang._exchange import Exchange
from weightcast.sglang._follower import Follower
from weightcast.sglang._server import Refused, Server, Unreachable

HALF = "half"
TENSORS = {"a": RawTensor("F32", (2,), bytes(8))}


class FakeServer:
    """The weights of two ranks, by the name of what is in them, and what SGLang 0.5.23 does with a call."""

    def __init__(self, test, exchange):
        self.test, self.exchange = test, exchange
        self.weights, self.label, self.path = ["/start", "/start"], "default", "/start"
        self.is_paused = self.is_session = False
        self.prepared, self.bases = None, []  # of the first process: what its changes are against
        self.faults, self.calls, self.busy = {}, [], 0
        self.info = {"custom_weight_loader": [LOADER], "tp_size": 2}

    def check(self):
        if self.is_paused:
            return
        self.test.assertEqual(len(set(self.weights)), 1, f"a mixture is served after {self.calls[-6:]}")
        wanted = "/start" if self.label == "default" else f"/v{self.label}"
        self.test.assertEqual(self.weights[0], wanted, f"answers have another label after {self.calls[-6:]}")

    def get(self, path, limit_s):
        self.test.assertGreater(limit_s, 0)
        return {"model_path": self.path, "weight_version": self.label, **self.info}

    def post(self, path, body, limit_s):
        self.test.assertLess(limit_s, 1000)
        self.calls.append(path[1:])
        fault = self.faults.get(len(self.calls))
        if fault == "lost":
            raise Unreachable("no answer")
        try:
            self.do(path, body, fault == "fails")
        finally:
            self.check()
        if fault == "late":
            raise Unreachable("no answer")
        return {}

    def do(self, path, body, fails):
        if path == "/pause_generation":
            self.is_paused = self.is_paused or not fails
        elif path == "/continue_generation":
            self.is_paused = self.is_paused and fails
        elif path == "/flush_cache" and self.busy:
            self.busy -= 1
            raise Refused(400, "requests run")
        elif path == "/update_weights_from_disk":
            if fails:
                self.weights[1] = HALF
                raise Refused(400, "a fault")
            self.weights = [body["model_path"]] * 2
            self.path, self.label = body["model_path"], body["weight_version"]
        elif path in ("/begin_weight_update", "/end_weight_update"):
            if self.is_session == (path == "/begin_weight_update"):
                raise Refused(400, "a session is open, or none")
            self.is_session = path == "/begin_weight_update" and not fails
        elif path == "/update_weights_from_tensor":
            if not self.is_session:
                raise Refused(400, "no session")
            self.obey(fails)
            return
        elif path == "/update_weight_version" and not fails:
            self.label = body["new_version"]
        if fails:
            raise Refused(500, "a fault")

    def obey(self, fails):
        order = self.exchange.ordered()
        for rank in range(2):
            result = {"ok": True, "kind": "reload", "cells": 1, "why": "", "write_s": 0.1, "wrote": True}
            is_bad = fails and rank == 1
            if order["operation"] == "prepare" and rank == 0:
                self.prepared = order["arguments"]["version"]
                self.bases.append(order["arguments"]["base"])
            elif order["operation"] == "write":
                self.weights[rank] = HALF if is_bad else f"/v{self.prepared}"
            if is_bad:
                result = {"ok": False, "wrote": order["operation"] == "write", "error": "a fault"}
            self.exchange._write(f"report-{order['id']}-{rank}", result)


class FakeSubscription:
    def __init__(self, daemon):
        self.daemon = daemon
        self.told = None

    def next(self, wait_s):
        self.daemon.now += wait_s
        version = self.daemon.version
        if self.told == version:
            return None
        self.told = version
        return Event(EventKind.INSTALLED, version, f"/v{version}", str(version) * 2)

    def acquire(self, version, timeout):
        if version in self.daemon.withdrawn:
            raise Error(Code.NOT_FOUND, "acquire", f"there is no version {version}")
        self.daemon.pinned.append(version)
        self.pin = version
        return types.SimpleNamespace(digest=str(version) * 2, directory=f"/v{version}")

    def close(self):
        if getattr(self, "pin", None) is not None:
            self.daemon.pinned.remove(self.pin)
            self.pin = None


class EngineTest(unittest.TestCase):
    def setUp(self):
        self.exchange = Exchange(str(make_directory(self)))
        self.tensors = dict(TENSORS)
        enter(self, mock.patch.object(_engine, "Snapshot", lambda directory: self.tensors))

    def follow(self, mode, pause=PauseMode.RETRACT):
        self.now, self.version, self.withdrawn, self.pinned = 0.0, 1, set(), []
        self.server, self.log = FakeServer(self, self.exchange), mock.Mock()
        clock = lambda: self.now  # noqa: E731

        def sleep(seconds):
            self.now += max(seconds, 0.001)

        engine = Engine(self.server, mode, pause, self.exchange, self.log, lambda: FakeSubscription(self), clock, sleep)
        self.follower = Follower(engine, Limits(), self.log, lambda: FakeSubscription(self), clock, sleep)

    def serve(self, mode):
        """Follows, and the first version comes in."""
        self.follow(mode)
        self.until(self.is_served)

    def until(self, condition, steps_max=3000):
        for _ in range(steps_max):
            if condition():
                return
            self.follower.step()
        self.fail(f"not within {steps_max} steps: {self.server.calls[-12:]}, {self.log.error.call_args_list[-3:]}")

    def is_served(self):
        version = self.version
        return self.follower.served == (version, str(version) * 2) and self.server.weights == [f"/v{version}"] * 2

    def test_the_order_of_calls_by_disk(self):
        self.serve(Mode.DISK)
        self.assertEqual(
            self.server.calls, ["pause_generation", "flush_cache", "update_weights_from_disk", "continue_generation"])  # fmt: skip
        self.version = 2
        self.until(self.is_served)
        self.assertEqual((self.server.label, self.pinned), ("2", [2]))

    def test_the_order_of_calls_in_memory(self):
        self.serve(Mode.CHANGES)
        update = ["begin_weight_update", "update_weights_from_tensor", "update_weights_from_tensor", "end_weight_update"]
        probe = ["begin_weight_update", "update_weights_from_tensor", "end_weight_update"]
        self.assertEqual(
            self.server.calls,
            ["pause_generation", "flush_cache", *update, *probe, "update_weight_version", "continue_generation"])  # fmt: skip
        self.assertEqual(os.listdir(self.exchange.directory), [])

    def test_after_a_failed_load_the_version_before_is_loaded_and_generates(self):
        self.serve(Mode.DISK)
        self.version = 2
        begin = len(self.server.calls)
        self.server.faults = {begin + 3: "fails"}
        self.until(lambda: self.server.calls[-1] == "continue_generation" and len(self.server.calls) > begin)
        self.assertEqual(
            self.server.calls[begin + 2:], ["update_weights_from_disk", "update_weights_from_disk", "continue_generation"])  # fmt: skip
        self.assertEqual((self.server.weights, self.server.label, self.server.is_paused), (["/v1"] * 2, "1", False))
        self.until(self.is_served)

    def test_after_a_failed_write_in_memory_sglang_loads_from_disk(self):
        self.serve(Mode.CHANGES)
        self.version = 2
        begin = len(self.server.calls)
        self.server.faults = {begin + 5: "fails"}  # the second of the loader
        self.until(self.is_served)
        self.assertEqual(
            self.server.calls[begin + 5:],
            ["end_weight_update", "update_weights_from_disk", "update_weight_version", "continue_generation"])  # fmt: skip

    def test_changes_are_against_what_is_known_to_be_served(self):
        self.serve(Mode.CHANGES)
        self.version = 2
        self.until(self.is_served)
        self.assertEqual(self.server.bases, [None, [1, "11"]])
        self.server.label = "default"  # it was started again
        self.server.weights, self.server.bases = ["/start"] * 2, []
        self.until(lambda: self.is_served() and self.server.label == "2")
        self.version = 3
        self.server.faults = {len(self.server.calls) + 1: "lost"}
        self.until(self.is_served)
        self.assertEqual(self.server.bases, [None, None])

    def test_whatever_fails_no_mixture_is_served_and_the_version_comes_in(self):
        for mode in Mode:
            for first, second in [(one, one + step) for one in range(1, 20) for step in range(1, 5)]:
                for one, other in itertools.product(("fails", "lost", "late"), repeat=2):
                    with self.subTest(mode=mode.value, first=first, second=second, faults=(one, other)):
                        self.follow(mode)
                        self.server.faults = {first: one, second: other}
                        for self.version in (1, 2, 3):
                            self.until(self.is_served)
                        self.assertFalse(self.server.is_paused)
                        self.assertEqual((self.server.label, self.pinned), ("3", [3]))

    def test_a_server_that_loads_nothing_stays_paused_and_is_told_so(self):
        self.serve(Mode.DISK)
        self.version = 2
        first = len(self.server.calls) + 1
        self.server.faults = dict.fromkeys(range(first, first + 60), None)
        do = self.server.do
        self.server.do = lambda path, body, fails: do(path, body, path == "/update_weights_from_disk")
        self.until(lambda: "abort_request" in self.server.calls)
        self.assertTrue(self.server.is_paused)
        said = str(self.log.error.call_args_list)
        self.assertIn("generation stays paused until all weights are of one version", said)
        self.assertIn("did not load again", str([call.args for call in self.log.error.call_args_list]))
        self.server.do = do
        self.until(self.is_served)
        self.assertFalse(self.server.is_paused)

    def test_the_version_before_stays_pinned_until_the_new_one_is_served(self):
        self.serve(Mode.DISK)
        self.version = 2
        self.until(lambda: self.server.calls[-1] == "update_weights_from_disk" and self.server.label == "2")
        self.assertEqual(sorted(self.pinned), [1, 2])
        self.until(self.is_served)
        self.assertEqual(self.pinned, [2])

    def test_a_flush_is_repeated_while_requests_run_and_not_for_ever(self):
        self.follow(Mode.DISK)
        self.server.busy = 5
        self.until(self.is_served)
        self.assertEqual(self.server.calls.count("flush_cache"), 6)
        self.server.busy, self.version = 10_000, 2
        self.until(lambda: "run on for too long" in str([call.args for call in self.log.error.call_args_list]))
        self.assertLess(self.server.calls.count("flush_cache"), 60)
        self.server.busy = 0
        self.until(self.is_served)

    def test_in_place_leaves_a_cache_that_is_in_use(self):
        self.follow(Mode.DISK, PauseMode.IN_PLACE)
        self.server.busy = 1
        self.until(self.is_served)
        self.assertEqual(self.server.calls.count("flush_cache"), 1)

    def test_a_withdrawn_version_does_not_pause(self):
        self.serve(Mode.DISK)
        count = len(self.server.calls)
        self.version, self.withdrawn = 2, {2}
        self.until(lambda: self.log.error.called)
        self.assertEqual(len(self.server.calls), count)
        self.withdrawn = set()
        self.until(self.is_served)

    def test_a_version_of_another_model_does_not_pause(self):
        self.serve(Mode.DISK)
        count = len(self.server.calls)
        self.tensors = {"b": TENSORS["a"]}
        self.version = 2
        self.until(lambda: "tensor a of the served model is missing" in str(self.log.error.call_args_list))
        self.assertEqual(len(self.server.calls), count)

    def test_a_server_that_was_started_again_is_given_the_version_again(self):
        self.serve(Mode.DISK)
        self.server.weights, self.server.label, self.server.path = ["/start"] * 2, "default", "/start"
        self.until(lambda: self.server.label == "1")
        self.until(self.is_served)

    def test_a_server_without_the_loader_is_refused_before_it_is_called(self):
        self.follow(Mode.CHANGES)
        self.server.info["custom_weight_loader"] = None
        with self.assertRaisesRegex(Unfit, f"--custom-weight-loader {LOADER}"):
            self.follower.step()
        self.server.info = {"custom_weight_loader": [LOADER], "nnodes": 2}
        with self.assertRaisesRegex(Unfit, "one host"):
            self.follower.step()
        self.assertEqual(self.server.calls, [])

    def test_processes_that_report_nothing_are_a_failure(self):
        self.follow(Mode.CHANGES)
        obey, self.server.obey = self.server.obey, lambda fails: None
        self.until(lambda: self.log.error.called)
        self.assertIn("0 of 2 processes of the server report on 'prepare'", str(self.log.error.call_args_list))
        self.server.obey = obey
        self.until(self.is_served)


class LoaderTest(unittest.TestCase):
    """One process of a server."""

    def setUp(self):
        self.exchange = Exchange(str(make_directory(self)))
        enter(self, mock.patch.dict(os.environ, {EXCHANGE: self.exchange.directory}))

    def order(self, model, operation, **arguments):
        number = self.exchange.order(operation, arguments)
        _loader.obey(model)
        return self.exchange.reports(number)

    def test_never_raises_and_reports_each_failure(self):
        class Model:
            def probe(self, snapshot):
                raise RuntimeError("a fault")

        model = Model()
        _loader.loaders[model] = _loader.Loader(model, mock.Mock(side_effect=Error(Code.NOT_FOUND, "connect", "no daemon")))
        arguments = {"version": 1, "digest": "11", "base": None, "limit_s": 5}
        self.assertEqual(self.order(model, "prepare", **arguments), [{"ok": False, "error": "no daemon"}])
        self.assertFalse(self.order(model, "write")[0]["ok"])
        self.assertFalse(self.order(model, "nonsense")[0]["ok"])
        self.assertIn("the probe failed", self.order(model, "probe", directory="/none")[0]["error"])

    def test_a_call_without_an_order_does_nothing(self):
        with self.assertLogs("weightcast.sglang", "WARNING"):
            _loader.obey(object())
        with mock.patch.dict(os.environ, {EXCHANGE: ""}), self.assertLogs("weightcast.sglang", "ERROR"):
            _loader.obey(object())

    def test_changes_are_used_only_against_what_is_served(self):
        loader = _loader.Loader(mock.Mock(), mock.Mock())
        loader._rank = mock.Mock()
        for holds, base, whole in ((True, [1, "11"], False), (False, [1, "11"], True), (True, None, True)):
            loader._rank.holds.return_value = holds
            loader.do("prepare", {"version": 2, "digest": "22", "base": base, "limit_s": 5})
            self.assertEqual(loader._rank.prepare.call_args.args, (2, "22", whole, 5))

    def test_a_directory_that_others_may_write_to_is_refused(self):
        os.chmod(self.exchange.directory, 0o777)
        with self.assertRaises(PermissionError):
            Exchange(self.exchange.directory)


class ServerTest(unittest.TestCase):
    def test_addresses(self):
        for bad in ("127.0.0.1:30000", "ftp://host", "http://", "http://host/v1"):
            with self.assertRaises(ValueError):
                Server(bad)

    def test_no_answer_is_no_refusal(self):
        over = threading.Event()

        def answer(path, _):
            if path == "/model_info":
                over.wait(5)
                return None
            return 400, {"success": False, "message": "no"}

        listening = JsonServer(answer)
        self.addCleanup(listening.stop)
        self.addCleanup(over.set)
        server = Server(listening.url)
        with self.assertRaisesRegex(Unreachable, "is the server up"):
            server.get("/model_info", 0.05)
        with self.assertRaisesRegex(Refused, "status 400; the server says: no"):
            server.post("/end_weight_update", {}, 5)


if __name__ == "__main__":
    unittest.main()
