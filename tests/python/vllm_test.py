"""What weightcast.vllm decides and follows without torch and vLLM: places, installs, one rank."""

import asyncio
import itertools
import os
import threading
import time
import types
import unittest
from concurrent.futures import Future
from unittest import mock

from fixtures import enter
from weightcast import Change, Code, Error, Event, EventKind, RawTensor
from weightcast.engines._installs import InFlight, Installs, Limits, Step, Version
from weightcast.engines._listener import Listener
from weightcast.vllm._core import prepare
from weightcast.vllm._follower import Follower
from weightcast.vllm._plugin import Refusal, settings

try:
    import numpy
    from weightcast.engines._places import Box, Place, Record
except ImportError:
    numpy = None

needs_numpy = unittest.skipIf(numpy is None, "python3-numpy is not installed")


def boxes_of(array, base):
    """The box of a view in the memory of `base`."""
    offset = (array.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // base.itemsize
    return Box(offset, array.shape, tuple(step // base.itemsize for step in array.strides))


@needs_numpy
class PlacesTest(unittest.TestCase):
    def setUp(self):
        self.record = Record()
        self.memories = {}

    def load(self, name, tensor, view, memory, target):
        """A loader's copy, noted and made. `view` and `target` are slices of `tensor` and of the memory."""
        self.record.give(name)
        self.record.copy(name, boxes_of(view, tensor), memory, boxes_of(target, self.memories[memory]))
        target[...] = view

    def expect_followed(self, tensors):
        """Any changes written at the recorded places give what loading anew would give."""
        places = self.record.places()
        source = numpy.random.default_rng(3)
        for name, tensor in tensors.items():
            for count in (1, 7, tensor.size):
                chosen = numpy.sort(source.choice(tensor.size, min(count, tensor.size), replace=False))
                for dtype in ("uint32", "uint64"):
                    indices = chosen.astype(dtype)
                    values = source.integers(1, 1 << 30, len(indices))
                    wanted = {key: memory.copy() for key, memory in self.memories.items()}
                    changed = tensor.copy()
                    changed.reshape(-1)[chosen] = values
                    for memory, place in places.at(name):
                        given = numpy.lib.stride_tricks.as_strided(
                            changed.reshape(-1)[place.source.offset:], place.source.shape,
                            [step * 8 for step in place.source.strides])
                        target = numpy.lib.stride_tricks.as_strided(
                            wanted[memory].reshape(-1)[place.target.offset:], place.target.shape,
                            [step * 8 for step in place.target.strides])
                        target[...] = given
                    for memory, found, part, cells in places.targets({name: indices}):
                        self.assertEqual(found, name)
                        self.memories[memory].reshape(-1)[cells] = values[part]
                    for key, memory in self.memories.items():
                        numpy.testing.assert_array_equal(memory, wanted[key])
                    tensor[...] = changed

    def test_fused_projections(self):
        self.memories["qkv"] = numpy.zeros((16, 6), "int64")
        tensors = {"q": numpy.arange(48).reshape(8, 6), "k": numpy.arange(24).reshape(4, 6), "v": numpy.arange(24).reshape(4, 6)}
        rows = 0
        for name, tensor in tensors.items():
            self.load(name, tensor, tensor, "qkv", self.memories["qkv"][rows:rows + len(tensor)])
            rows += len(tensor)
        self.expect_followed(tensors)

    def test_slices_of_a_rank_and_experts(self):
        self.memories = {"down": numpy.zeros((5, 3), "int64"), "experts": numpy.zeros((2, 4, 6), "int64"),
                         "turned": numpy.zeros((3, 4, 2), "int64")}
        down = numpy.arange(45).reshape(5, 9)
        self.load("down", down, down[:, 3:6], "down", self.memories["down"])
        tensors = {"down": down}
        for expert, (part, name) in itertools.product(range(2), enumerate(("gate", "up"))):
            tensor = tensors[f"{expert}.{name}"] = numpy.arange(24).reshape(4, 6)
            self.load(f"{expert}.{name}", tensor, tensor[2:], "experts", self.memories["experts"][expert, 2 * part:2 * part + 2])
        turned = tensors["turned"] = numpy.arange(24).reshape(2, 3, 4)
        self.load("turned", turned, turned.transpose(1, 2, 0), "turned", self.memories["turned"])
        self.expect_followed(tensors)
        self.assertEqual(self.record.places().reasons, {})

    def test_every_other_row(self):
        self.memories["half"] = numpy.zeros((4, 3), "int64")
        tensor = numpy.arange(24).reshape(8, 3)
        self.load("whole", tensor, tensor[1::2], "half", self.memories["half"])
        self.expect_followed({"whole": tensor})

    def test_a_scalar_and_the_last_element(self):
        self.memories["one"] = numpy.zeros((1, 4), "int64")
        tensor = numpy.arange(4)
        self.load("one", tensor, tensor[3:], "one", self.memories["one"][0, :1])
        self.expect_followed({"one": tensor})

    def test_a_tensor_that_the_loader_leaves_out_has_no_place(self):
        self.record.give("lm_head")
        found = self.record.places()
        self.assertEqual((found.at("lm_head"), found.reasons), ([], {}))

    def test_what_was_computed_takes_a_reload(self):
        self.record.give("a")
        self.record.compute("a", "exp")
        self.assertEqual(self.record.places().reasons, {"a": "exp"})

    def test_zeros_beneath_a_copy_do_no_harm_and_above_one_they_do(self):
        cells = Box(0, (8,), (1,))
        self.record.constant("m", cells)
        self.record.copy("a", cells, "m", cells)
        self.assertEqual(self.record.places().reasons, {})
        self.record.constant("m", Box(4, (2,), (1,)))
        self.assertIn("constant", self.record.places().reasons["a"])

    def test_what_changes_a_copy_afterwards_takes_a_reload(self):
        cells = Box(0, (8,), (1,))
        self.record.copy("a", cells, "m", cells)
        self.record.copy("b", cells, "n", cells)
        self.record.other("m", cells, "neg_")
        self.assertEqual(self.record.places().reasons, {"a": "neg_"})

    def test_two_tensors_in_the_same_cells_take_a_reload(self):
        cells = Box(0, (8,), (1,))
        self.record.copy("a", cells, "m", cells)
        self.record.copy("a", cells, "m", cells)  # again, which is no other
        self.assertEqual(self.record.places().reasons, {})
        self.record.copy("b", cells, "m", Box(7, (8,), (1,)))
        self.assertEqual(set(self.record.places().reasons), {"a", "b"})

    def test_boxes_side_by_side_in_a_row_do_not_overlap(self):
        self.memories["wide"] = numpy.zeros((4, 6), "int64")
        left, right = numpy.arange(12).reshape(4, 3), numpy.arange(12).reshape(4, 3) + 50
        self.load("left", left, left, "wide", self.memories["wide"][:, :3])
        self.load("right", right, right, "wide", self.memories["wide"][:, 3:])
        self.assertEqual(self.record.places().reasons, {})
        self.expect_followed({"left": left, "right": right})

    def test_one_element_in_several_cells_takes_a_reload(self):
        self.record.copy("scale", Box(0, (4,), (0,)), "m", Box(0, (4,), (1,)))
        self.assertIn("several", self.record.places().reasons["scale"])
        with self.assertRaises(ValueError):
            Place(Box(0, (3, 3), (2, 1)), Box(0, (3, 3), (3, 1)))


OK, TWO = {"ok": True, "kind": "cells"}, Version(2, "22")


class Engine:
    """Ranks that hold a version, or a mixture, and a scheduler. Its invariant is what the tests are about."""

    def __init__(self, test, fail_at=(), **settings):
        self.test, self.installs, self.fail_at = test, Installs(**settings), set(fail_at)
        self.weights, self.prepared = [None] * 2, [None] * 2
        self.label, self.is_paused, self.now, self.calls, self.steps = None, False, 0.0, 0, []
        self.failing_rank, self.is_whole = 0, False

    def check(self):
        if not self.is_paused and not self.installs.is_refusing:
            self.test.assertEqual(len(set(self.weights)), 1, "a mixture is served")
            self.test.assertEqual(self.label, self.weights[0], "answers have another label")

    def perform(self, action):
        """What the engine does, and what the ranks say."""
        self.calls += 1
        self.steps.append(action.step)
        fails = self.calls in self.fail_at
        step, version = action.step, action.version
        if step is Step.WRITE:
            results = []
            for rank in range(len(self.weights)):
                if fails and rank == self.failing_rank:
                    self.weights[rank], self.prepared[rank] = "half", None
                    results.append({"ok": False, "wrote": True, "error": "a fault"})
                else:
                    if self.weights[rank] != "half" or self.is_whole:  # changes mend nothing
                        self.weights[rank] = self.prepared[rank]
                    results.append(dict(OK, wrote=True))
            return results
        if fails:
            self.is_paused = self.is_paused or action.pauses
            raise RuntimeError("a fault")
        if step is Step.PREPARE:
            self.prepared, self.is_whole = [version] * len(self.weights), action.whole
            self.is_paused = self.is_paused or action.pauses
        elif step is Step.PAUSE:
            self.is_paused = True
        elif step is Step.LABEL:
            self.label = version
        elif step is Step.RESUME:
            self.is_paused = False
        return [OK] * len(self.weights) if step in (Step.PREPARE, Step.DROP) else []

    def install(self, version, limit_s):
        """What comes of it, so long after the daemon has it in use."""
        self.installs.handle_installed(self.now, version)
        self.run(self.now + limit_s)

    def run(self, until, steps_max=200):
        for _ in range(steps_max):
            if self.now > until:
                return
            action = self.installs.poll_action(self.now)
            if action is None:
                due = self.installs.poll_deadline()
                if due is None or due > until:
                    return
                self.now = due
                continue
            try:
                results = self.perform(action)
            except RuntimeError as error:
                self.installs.handle_failed(self.now, str(error))
            else:
                self.installs.handle_done(self.now, results)
            self.check()
        raise AssertionError(f"no end: {self.steps[-10:]}")


class InstallsTest(unittest.TestCase):
    def test_the_order_of_an_install(self):
        engine = Engine(self)
        engine.run(10)
        self.assertEqual(engine.steps, [])
        engine.install(TWO, 10)
        self.assertEqual([step.value for step in engine.steps], ["prepare", "pause", "write", "label", "resume"])
        self.assertEqual((engine.installs.held, engine.label, engine.weights), (TWO, TWO, [TWO, TWO]))
        engine.install(TWO, 30)
        self.assertEqual(len(engine.steps), 5)

    def test_an_engine_that_pauses_when_it_has_prepared(self):
        engine = Engine(self, prepares_and_pauses=True)
        engine.install(TWO, 10)
        self.assertEqual([step.value for step in engine.steps], ["prepare", "write", "label", "resume"])
        self.assertEqual((engine.installs.held, engine.label, engine.weights), (TWO, TWO, [TWO, TWO]))

    def test_a_drain_has_its_own_bound_and_so_its_own_call(self):
        engine = Engine(self, in_flight=InFlight.DRAIN, prepares_and_pauses=True)
        engine.install(TWO, 10)
        self.assertEqual([step.value for step in engine.steps], ["prepare", "pause", "write", "label", "resume"])

    def test_whatever_fails_no_mixture_is_served_and_the_version_comes_in(self):
        whole = 40
        for first, second in itertools.combinations(range(1, whole), 2):
            for rank, at_once in itertools.product((0, 1), (False, True)):
                with self.subTest(first=first, second=second, rank=rank, at_once=at_once):
                    engine = Engine(self, prepares_and_pauses=at_once, fail_at=(first, second))
                    engine.failing_rank = rank
                    for number in (1, 2, 3):
                        engine.install(Version(number, str(number)), 100)
                    self.assertEqual(engine.weights, [Version(3, "3")] * 2)
                    self.assertEqual((engine.installs.is_refusing, engine.is_paused, engine.installs.why), (False, False, ""))

    def test_ranks_that_never_write_are_refused_and_never_resumed(self):
        engine = Engine(self, fail_at=range(3, 10_000))
        engine.install(TWO, 200)
        self.assertTrue(engine.installs.is_refusing)
        self.assertTrue(engine.is_paused)
        self.assertIn(Step.REFUSE, engine.steps)
        self.assertEqual(engine.installs.why, "a fault")
        engine.fail_at = set()
        engine.install(Version(3, "33"), 1)
        self.assertEqual((engine.installs.is_refusing, engine.is_paused, engine.label), (False, False, Version(3, "33")))

    def test_a_rank_that_cannot_prepare_leaves_generation_alone(self):
        installs = Installs()
        installs.handle_installed(0, TWO)
        self.assertIs(installs.poll_action(0).step, Step.PREPARE)
        installs.handle_done(1, [OK, {"ok": True, "pending": True}])
        self.assertIsNone(installs.poll_action(1))
        self.assertIs(installs.poll_action(2).step, Step.PREPARE)
        installs.handle_done(2, [OK, {"ok": False, "error": "no such version"}])
        self.assertIs(installs.poll_action(2).step, Step.DROP)
        installs.handle_done(2, [OK, OK])
        self.assertEqual(installs.why, "1 of 2 ranks: no such version")
        self.assertIsNone(installs.poll_action(2.1))
        self.assertIs(installs.poll_action(2.6).step, Step.PREPARE)

    def test_what_was_not_paused_is_not_resumed(self):
        """Somebody else may have paused it."""
        for result, steps in (({"ok": False, "error": "paused"}, [Step.DROP]), ({"ok": True, "pending": True}, [Step.PREPARE])):
            installs = Installs(prepares_and_pauses=True)
            installs.handle_installed(0, TWO)
            self.assertTrue(installs.poll_action(0).pauses)
            installs.handle_done(0, [OK, result])
            self.assertFalse(installs.is_paused)
            self.assertEqual([installs.poll_action(0.1).step], steps)

    def test_a_call_that_may_have_paused_is_followed_by_a_resumption(self):
        for is_overdue in (False, True):
            installs = Installs(prepares_and_pauses=True)
            installs.handle_installed(0, TWO)
            action = installs.poll_action(0)
            if is_overdue:
                self.assertTrue(installs.handle_overdue(action.limit_s))
            else:
                installs.handle_failed(0, "a fault")
            self.assertIs(installs.poll_action(action.limit_s).step, Step.RESUME)

    def test_a_newer_version_is_tried_at_once(self):
        engine = Engine(self, fail_at=range(1, 20))
        engine.install(TWO, 60)
        engine.fail_at = set()
        engine.install(Version(3, "33"), 0.1)
        self.assertEqual(engine.label, Version(3, "33"))

    def test_a_version_that_no_rank_takes_is_not_written(self):
        engine = Engine(self)
        engine.install(TWO, 1)
        engine.installs.handle_installed(1, Version(3, "33"))
        perform = engine.perform

        def refuse(action):
            if action.step is Step.WRITE:
                engine.steps.append(action.step)
                return [{"ok": False, "wrote": False, "error": "another model"}] * 2
            return perform(action)

        engine.perform = refuse
        engine.run(1.3)
        self.assertEqual(engine.steps[-3:], [Step.WRITE, Step.RESUME, Step.DROP])
        self.assertEqual((engine.label, engine.is_paused, engine.installs.is_refusing), (TWO, False, False))

    def test_a_drain_that_takes_too_long_becomes_a_recomputation(self):
        engine = Engine(self, in_flight=InFlight.DRAIN, limits=Limits(drain_s=5))
        engine.installs.handle_installed(0, TWO)
        action = engine.installs.poll_action(0)
        self.assertIs(action.step, Step.PREPARE)
        engine.installs.handle_done(1, engine.perform(action))
        action = engine.installs.poll_action(1)
        self.assertEqual((action.step, action.in_flight, action.limit_s), (Step.PAUSE, InFlight.DRAIN, 5))
        self.assertTrue(engine.installs.handle_overdue(6))
        action = engine.installs.poll_action(6)
        self.assertEqual((action.step, action.in_flight), (Step.PAUSE, InFlight.RECOMPUTE))
        engine.installs.handle_done(6, engine.perform(action))
        engine.run(7)
        self.assertEqual(engine.label, TWO)

    def test_a_write_without_end_is_refused_and_waited_for(self):
        engine = Engine(self, limits=Limits(write_s=3))
        engine.installs.handle_installed(0, TWO)
        for now in (0, 1):
            engine.installs.handle_done(now, engine.perform(engine.installs.poll_action(now)))
        action = engine.installs.poll_action(1)
        self.assertIs(action.step, Step.WRITE)
        self.assertEqual(action.limit_s, 3)
        self.assertFalse(engine.installs.handle_overdue(4))
        self.assertTrue(engine.installs.is_refusing)
        self.assertIsNone(engine.installs.poll_action(5))
        engine.installs.handle_done(60, engine.perform(action))
        engine.run(61)
        self.assertEqual((engine.installs.is_refusing, engine.label), (False, TWO))


class Subscription:
    def __init__(self, found):
        self.found, self.is_closed, self.is_cancelled = found, False, False

    def acquire(self, version, timeout):
        if version not in self.found.versions:
            raise Error(Code.NOT_FOUND, "acquire", f"there is no version {version}")
        return types.SimpleNamespace(version=version, digest=str(version) * 2, directory=f"/v{version}")

    def changes(self, base, pin, timeout):
        self.found.asked.append((base.version, pin.version))
        if self.found.errors:
            raise self.found.errors.pop()
        return {"a": Change(RawTensor("U32", (1,), bytes(4)), RawTensor("F32", (1,), bytes(4)))}

    def cancel(self):
        self.is_cancelled = True

    def close(self):
        self.is_closed = True


@needs_numpy
class RankTest(unittest.TestCase):
    """One worker process, with a model and a daemon that are made up."""

    def setUp(self):
        from weightcast.engines import _rank

        self.module = _rank
        self.versions, self.asked, self.errors, self.subscriptions = {1, 2, 3}, [], [], []
        self.snapshots, self.written, self.write_fails, self.refusal = [], [], None, None
        enter(self, mock.patch.object(_rank, "Snapshot", lambda directory: directory))
        self.rank = _rank.Rank(self, self.subscribe)
        self.addCleanup(self.rank.call, "drop")

    def subscribe(self):
        self.subscriptions.append(Subscription(self))
        return self.subscriptions[-1]

    # What a model does.

    def check(self, snapshot):
        if self.refusal:
            raise ValueError(self.refusal)

    def stage_cells(self, changes):
        return self.module.Staged("cells", lambda: self.write("cells"), len(changes), "")

    def stage_whole(self, snapshot, why):
        return self.module.Staged("copies", lambda: self.write(snapshot), 9, why)

    def write(self, what):
        if self.write_fails:
            raise self.write_fails
        self.written.append(what)

    def settle(self):
        pass

    # What the follower calls.

    def prepare(self, version, whole=False, digest=None):
        return self.rank.prepare(version, digest or str(version) * 2, whole, limit_s=5)

    def install(self, version):
        self.prepare(version)
        self.rank.call("write")

    def test_the_first_version_whole_and_the_next_by_its_changes(self):
        self.assertEqual(self.prepare(1)["kind"], "copies")
        self.assertTrue(self.rank.call("write")["ok"])
        self.assertEqual(self.prepare(3)["kind"], "cells")
        answer = self.rank.call("write")
        self.assertEqual((answer["kind"], self.written, self.asked), ("cells", ["/v1", "cells"], [(1, 3)]))
        self.rank._pool.submit(lambda: None).result()
        self.assertTrue(all(one.is_closed for one in self.subscriptions))

    def test_the_version_that_it_has_needs_no_list(self):
        self.install(1)
        self.assertEqual(self.prepare(1)["cells"], 0)
        self.assertTrue(self.rank.call("write")["ok"])
        self.assertEqual((self.written, self.asked), (["/v1"], []))

    def test_what_cannot_be_prepared_is_an_answer(self):
        self.assertEqual(self.prepare(7), {"ok": False, "error": "there is no version 7"})
        answer = self.rank.call("write")
        self.assertEqual((answer["ok"], answer["wrote"]), (False, False))
        self.assertIn("another version 1", self.prepare(1, digest="other")["error"])
        self.refusal = "tensor x is missing"
        self.assertEqual(self.prepare(1)["error"], "tensor x is missing")
        self.assertFalse(self.rank.call("nonsense")["ok"])

    def test_too_far_means_whole_and_busy_means_again(self):
        self.install(1)
        self.errors = [Error(Code.TOO_FAR, "changes", "half of it changed"), Error(Code.BUSY, "changes", "another list")]
        answer = self.prepare(2)
        self.assertEqual((answer["kind"], answer["why"], len(self.asked)), ("copies", "half of it changed", 2))

    def test_a_list_that_fails_is_no_reason_to_write(self):
        self.install(1)
        self.errors = [Error(Code.CLOSED, "changes", "the daemon ended")]
        self.assertEqual(self.prepare(2)["error"], "the daemon ended")
        self.assertEqual(self.prepare(2)["kind"], "cells")

    def test_after_a_write_that_failed_all_is_written(self):
        self.install(1)
        self.prepare(2)
        self.write_fails = RuntimeError("a fault")
        answer = self.rank.call("write")
        self.assertEqual((answer["ok"], answer["wrote"], answer["error"]), (False, True, "a fault"))
        self.write_fails = None
        self.assertEqual(self.prepare(2)["kind"], "copies")

    def test_a_version_that_the_model_refuses_leaves_what_was_there(self):
        self.install(1)
        self.prepare(2)
        self.write_fails = self.module.Refused("another model")
        answer = self.rank.call("write")
        self.assertEqual((answer["ok"], answer["wrote"]), (False, False))
        self.write_fails = None
        self.assertEqual(self.prepare(3)["kind"], "cells")

    def test_dropping_cancels_what_runs(self):
        entered, going = threading.Event(), threading.Event()

        def check(snapshot):
            entered.set()
            going.wait(5)

        self.check = check
        order = {"version": 1, "digest": "11", "whole": False, "limit_s": 5}
        self.rank.call("prepare", **order)
        self.assertTrue(entered.wait(5))
        self.assertTrue(self.rank.call("prepare", **order)["pending"])
        self.assertTrue(self.rank.call("drop")["ok"])
        going.set()
        self.rank._pool.submit(lambda: None).result()
        self.assertTrue(self.subscriptions[0].is_cancelled and self.subscriptions[0].is_closed)
        self.assertFalse(self.rank.call("write")["ok"])

    def test_what_the_daemon_has_told_of_is_prepared_when_the_order_comes(self):
        self.rank.expect(1, "11")
        self.assertEqual(self.subscriptions, [])  # the first one is the engine's
        self.install(1)
        self.rank.expect(2, "22")
        self.settle_pool()
        self.assertEqual((self.asked, self.written), ([(1, 2)], ["/v1"]))
        self.assertEqual(self.rank.call("prepare", version=2, digest="22", whole=False, limit_s=5)["kind"], "cells")
        self.assertEqual(len(self.subscriptions), 2)
        # What is ordered does not make way; what comes meanwhile is prepared after it.
        self.rank.expect(3, "33")
        self.assertTrue(self.rank.call("write")["ok"])
        self.settle_pool()
        self.assertEqual(self.asked, [(1, 2), (2, 3)])
        self.assertEqual(self.rank.call("prepare", version=3, digest="33", whole=False, limit_s=5)["kind"], "cells")

    def test_an_order_for_another_version_or_for_all_of_it_is_prepared_anew(self):
        self.install(1)
        self.rank.expect(2, "22")
        self.assertEqual(self.prepare(3)["kind"], "cells")
        self.assertEqual(self.asked[-1], (1, 3))
        self.rank.call("drop")
        self.rank.expect(2, "22")
        self.assertEqual(self.prepare(2, whole=True)["kind"], "copies")
        self.settle_pool()
        self.assertEqual([one.is_closed for one in self.subscriptions], [True] * (len(self.subscriptions) - 1) + [False])

    def test_what_the_daemon_had_told_of_before_a_newer_order_is_let_go(self):
        self.install(1)
        self.rank.expect(2, "22")
        self.install(3)
        self.rank.expect(3, "33")
        self.settle_pool()
        self.assertTrue(all(one.is_closed for one in self.subscriptions))

    def test_what_failed_before_the_order_is_tried_again_by_it(self):
        self.install(1)
        self.errors = [Error(Code.CLOSED, "changes", "the daemon ended")]
        self.rank.expect(2, "22")
        self.settle_pool()
        self.assertEqual(self.prepare(2)["kind"], "cells")

    def test_what_gives_way_at_the_daemon_is_not_held(self):
        self.install(1)
        self.rank.expect(2, "22")
        self.rank.forget()
        self.settle_pool()
        self.assertTrue(all(one.is_closed for one in self.subscriptions))
        self.prepare(3)
        self.rank.forget()
        self.settle_pool()
        self.assertFalse(self.subscriptions[-1].is_closed)  # it was ordered

    def settle_pool(self):
        for _ in range(2):  # what it did may have put more there
            self.rank._pool.submit(lambda: None).result(5)


class ListenerTest(unittest.TestCase):
    def test_it_tells_of_versions_and_connects_again(self):
        heard, left = [], [
            Error(Code.NOT_FOUND, "connect", "no daemon runs there"),
            Events(installed(4), Event(EventKind.PREPARING, 5, "", ""), Error(Code.CORRUPT, "receive", "of another release")),
            Events(installed(6)),
        ]
        rank = mock.Mock(expect=lambda *version: heard.append(version), forget=lambda: heard.append("forget"))
        with mock.patch("weightcast.engines._listener._CONNECT_S", 0.01):
            listener = Listener(rank, subscribing(left))
            listener.start()
            listener.start()
            end = time.monotonic() + 5
            while len(heard) < 3 and time.monotonic() < end:
                time.sleep(0.005)
            listener.close()
        self.assertEqual(heard, [(4, "44"), "forget", (6, "66")])
        self.assertEqual(left, [])
        self.assertFalse(any(thread.name == "weightcast listener" for thread in threading.enumerate()))


class CoreTest(unittest.TestCase):
    """vLLM's engine core, as far as a question to it goes."""

    def ask(self, results, pause="keep", is_paused=False, pausing=None):
        self.pauses = []
        core = mock.Mock()
        core.is_scheduler_paused.return_value = is_paused
        core.model_executor.collective_rpc.return_value = results
        core.pause_scheduler = lambda *arguments: self.pauses.append(arguments) or pausing
        return prepare(core, {"version": 4}, pause, True)

    def test_it_pauses_where_all_ranks_have_prepared(self):
        pending = [OK, {"ok": True, "pending": True}]
        failed = [OK, {"ok": False, "error": "no such version"}]
        for results in (pending, failed):
            self.assertEqual((self.ask(results), self.pauses), (results, []))
        self.assertEqual((self.ask([OK, OK], pause=None), self.pauses), ([OK, OK], []))
        self.assertEqual((self.ask([OK, OK]), self.pauses), ([OK, OK], [("keep", True)]))

    def test_it_leaves_an_engine_alone_that_others_have_paused(self):
        self.assertIn("somebody else", self.ask([OK], is_paused=True)[0]["error"])
        self.assertEqual(self.pauses, [])

    def test_a_pause_that_takes_its_time_or_fails(self):
        for error in (None, RuntimeError("a fault")):
            pausing = Future()
            told = self.ask([OK], pausing=pausing)
            self.assertFalse(told.done())
            if error is None:
                pausing.set_result(None)
                self.assertEqual(told.result(0), [OK])
            else:
                pausing.set_exception(error)
                self.assertIs(told.exception(0), error)


def subscribing(left):
    """Connects to the first of `left`, which is gone then, or raises it; in the end to a daemon that tells nothing."""

    def subscribe():
        one = left.pop(0) if left else Events()
        if isinstance(one, Exception):
            raise one
        return one

    return subscribe


class Events:
    """A daemon's events, as a subscription gives them."""

    def __init__(self, *events):
        self.events, self.is_closed = list(events), False
        self._pipe = os.pipe()

    def fileno(self):
        return self._pipe[0]

    def current(self):
        if self.events and not isinstance(self.events[0], Exception):
            return self.events[0]
        raise Error(Code.NOT_FOUND, "acquire", "no version is there yet")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def next(self, timeout):
        found = self.events.pop(0) if self.events else None
        if isinstance(found, Exception):
            raise found
        return found

    def close(self):
        self.is_closed = True
        for fd in self._pipe:
            os.close(fd)


class Client:
    """vLLM's EngineClient, as far as the follower uses it."""

    def __init__(self):
        self.errored, self.calls, self.hangs, self.is_mine, self.pending = False, [], {}, False, 0
        self.engine_core = self.renderer = self
        self.write = {"ok": True, "kind": "cells", "cells": 3, "why": "", "write_s": 0.1}

    async def collective_rpc(self, method, args):
        operation, arguments = args
        self.calls.append(operation)
        if operation in self.hangs:
            await self.hangs.pop(operation).wait()
        if operation == "write":
            return [self.write]
        return [{"ok": True, "kind": "cells", "prepare_s": 0.2}]

    async def call_utility_async(self, method, order, pause, clear_cache):
        if self.is_mine:
            return [{"ok": False, "error": "somebody else has paused the engine"}]
        results = await self.collective_rpc(method, ("prepare", order))
        if self.pending:
            self.pending -= 1
            return [{"ok": True, "pending": True}]
        if pause is not None:
            await self.pause_scheduler_async(pause, clear_cache)
        return results

    async def clear_mm_cache_async(self):
        pass

    async def pause_scheduler_async(self, mode, clear_cache):
        self.calls.append((mode, clear_cache))
        if mode in self.hangs:
            await self.hangs.pop(mode).wait()

    async def update_weight_version(self, version):
        self.calls.append(version)

    async def reset_prefix_cache(self, reset_running_requests):
        self.calls.append("reset")

    async def resume_generation(self):
        self.calls.append("resume")


def installed(version):
    return Event(EventKind.INSTALLED, version, f"/v{version}", str(version) * 2)


class Following(unittest.IsolatedAsyncioTestCase):
    """With a follower that runs."""

    def start_follower(self, follower):
        self.follower, task = follower, asyncio.create_task(follower.run())
        self.addCleanup(task.cancel)
        return task

    async def until(self, condition):
        for _ in range(1000):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"not within 5 s: {self.follower.status()}, {self.log.mock_calls}")


class FollowerTest(Following):
    def follow(self, *subscriptions, in_flight=InFlight.RECOMPUTE, **limits):
        self.client = Client()
        found = Limits(**limits)
        self.log = mock.Mock()
        installs = Installs(in_flight, found, prepares_and_pauses=True)
        self.task = self.start_follower(Follower(self.client, installs, found, self.log, subscribing(list(subscriptions))))

    async def test_an_install_is_timed_and_told(self):
        self.follow(Events(installed(4)))
        await self.follower.first(5)
        self.assertEqual(self.follower.status()["version"], 4)
        self.assertEqual(self.client.calls, ["prepare", ("keep", True), "write", "4", "resume"])
        told = self.follower.status()
        self.assertEqual((told["kind"], told["cells"], told["refuses"], told["follows"]), ("cells", 3, False, True))
        self.assertGreaterEqual(told["install_s"], told["paused_s"])

    async def test_it_asks_until_all_have_prepared(self):
        self.follow()
        self.client.pending = 3
        self.follower._installs.handle_installed(0, Version(4, "44"))
        await self.until(lambda: self.follower.status()["version"] == 4)
        self.assertEqual(self.client.calls, ["prepare"] * 4 + [("keep", True), "write", "4", "resume"])

    async def test_keep_leaves_keys_and_values_of_answers_under_way(self):
        self.follow(Events(installed(4)), in_flight=InFlight.KEEP)
        await self.until(lambda: "resume" in self.client.calls)
        self.assertEqual(self.client.calls[1:], [("keep", False), "write", "4", "reset", "resume"])

    async def test_a_drain_without_end_is_cut_short(self):
        self.follow(in_flight=InFlight.DRAIN, drain_s=0.05)
        self.client.hangs["wait"] = asyncio.Event()
        self.follower._installs.handle_installed(0, Version(4, "44"))
        await self.until(lambda: self.follower.status()["version"] == 4)
        self.assertEqual(self.client.calls[1:3], [("wait", True), ("keep", True)])

    async def test_while_the_engine_is_paused_by_others_nothing_is_written(self):
        self.follow(Events(installed(4)))
        self.client.is_mine = True
        await self.until(lambda: "somebody else" in self.follower.status()["why"])
        self.assertNotIn("write", self.client.calls)
        self.client.is_mine = False
        await self.until(lambda: self.follower.status()["version"] == 4)

    async def test_a_daemon_that_is_not_there_yet_and_one_that_speaks_nonsense(self):
        missing = Error(Code.NOT_FOUND, "connect", "no daemon runs there")
        self.follow(missing, Events(Error(Code.CORRUPT, "receive", "of another release")), Events(installed(4)))
        with mock.patch("weightcast.vllm._events._CONNECT_S", 0.01):
            await self.until(lambda: self.follower.status()["version"] == 4)
        self.assertEqual(self.follower.status()["why"], "")

    async def test_requests_are_turned_away_while_a_write_hangs_and_not_after_it(self):
        self.follow(Events(installed(4)), write_s=1.0)
        over = self.client.hangs["write"] = asyncio.Event()
        answers = []

        async def app(scope, receive, send):
            answers.append("app")

        async def send(message):
            answers.append(message.get("status") or message.get("code"))

        refusal = Refusal(app, lambda: self.follower)

        async def ask(**scope):
            answers.clear()
            await refusal({"type": "http", "method": "POST", "path": "/v1/completions", **scope}, None, send)
            return answers[0]

        self.assertEqual(await ask(), "app")
        await self.until(lambda: self.follower.is_refusing)
        self.assertEqual(await ask(), 503)
        self.assertEqual(await ask(method="GET", path="/health"), 503)
        self.assertEqual(await ask(method="GET", path="/weightcast/status"), "app")
        self.assertEqual(await ask(type="websocket"), 1013)
        self.assertEqual(await ask(type="lifespan"), "app")
        self.assertNotIn("resume", self.client.calls)
        over.set()
        await self.until(lambda: not self.follower.is_refusing)
        self.assertEqual(await ask(), "app")

    async def test_a_follower_that_breaks_in_the_middle_refuses(self):
        self.follow(Events(installed(4)))
        self.client.write = {"ok": True}  # of which it can tell nothing
        with self.assertRaises(KeyError):
            await asyncio.wait_for(self.task, 5)
        self.assertFalse(self.follower.is_refusing)  # the version was in
        self.follower._installs.is_intact = False
        self.assertTrue(self.follower.is_refusing)

    async def test_it_ends_with_the_engine(self):
        events = Events()
        self.follow(events)
        await self.until(lambda: self.follower.status()["follows"])
        self.client.errored = True
        await asyncio.wait_for(self.task, 5)
        self.assertTrue(events.is_closed)


class SettingsTest(unittest.TestCase):
    def test_what_the_environment_says(self):
        self.assertEqual(settings({}), (InFlight.RECOMPUTE, Limits()))
        found = settings({"WEIGHTCAST_VLLM_IN_FLIGHT": "drain", "WEIGHTCAST_VLLM_DRAIN_S_MAX": "5", "WEIGHTCAST_VLLM_INSTALL_S_MAX": "9"})
        self.assertEqual(found, (InFlight.DRAIN, Limits(prepare_s=9, write_s=9, drain_s=5)))
        for name, text in (("IN_FLIGHT", "abort"), ("DRAIN_S_MAX", "0"), ("INSTALL_S_MAX", "soon")):
            with self.assertRaisesRegex(ValueError, f"WEIGHTCAST_VLLM_{name}.*{text}"):
                settings({f"WEIGHTCAST_VLLM_{name}": text})


if __name__ == "__main__":
    unittest.main()
