"""weightcast.integrations.verl, and what its ranks agree on, without verl, Ray and torch: all ranks in one process."""

import asyncio
import threading
import types
import unittest
from unittest import mock

from engine_doubles import LONG_S, SHORT_S, EngineTest, Host, Memory, Origin, Tensor, not_found, run_all, soon
from weightcast import Code, Error, TimedOut
from weightcast._subscription import pin_when_installed
from weightcast.integrations._updates import Gate, Update, UpdateError, WeightsPublisher


class GateTest(unittest.TestCase):
    def setUp(self):
        self.store = Memory()

    def gate(self, parties=2):
        return Gate(self.store, "done", parties, "somebody is late")

    def test_opens_when_all_have_passed(self):
        self.gate().passed()
        self.gate().check()
        self.gate().passed({"version": 3})
        self.assertEqual(self.gate().wait(soon()), {"version": 3})

    def test_the_first_failure_is_everybodys(self):
        self.gate().passed()
        self.gate().failed("disk full")
        self.gate().failed("later")
        self.gate().passed()
        for look in (self.gate().check, lambda: self.gate().wait(soon())):
            with self.assertRaisesRegex(UpdateError, "disk full"):
                look()

    def test_a_failure_after_the_outcome_changes_nothing(self):
        self.gate(1).passed(7)
        self.gate(1).failed("too late")
        self.assertEqual(self.gate(1).wait(soon()), 7)

    def test_who_gives_up_decides_for_all(self):
        self.gate().passed()
        with self.assertRaisesRegex(UpdateError, "somebody is late after 0 s"):
            self.gate().wait(soon())
        self.gate().passed()
        with self.assertRaisesRegex(UpdateError, "somebody is late"):
            self.gate().wait(soon(LONG_S))

    def test_waits_for_what_comes_later(self):
        thread = threading.Timer(SHORT_S, self.gate(1).passed, ["value"])
        thread.start()
        self.assertEqual(self.gate(1).wait(soon(LONG_S)), "value")
        thread.join()

    def test_an_error_that_is_known_is_passed_on_as_it_is(self):
        update = Update(self.store, 2, 2, "rank 0")
        with self.assertRaises(UpdateError), update.failing_for_all():
            raise UpdateError("why")
        with self.assertRaises(UpdateError) as caught:
            update.installed.wait(soon())
        self.assertEqual(caught.exception.why, "why")


class PinTest(unittest.TestCase):
    def setUp(self):
        self.origin = Origin()
        self.origin.versions = {5: {}}

    def pin(self, *script, digest="digest of 5", end_s=LONG_S, **options):
        self.host = Host(self.origin, script)
        return pin_when_installed(self.host, 5, digest, soon(end_s), **options)

    def test_takes_what_is_there(self):
        self.assertEqual(self.pin().version, 5)
        self.assertEqual(self.pin(digest=None).version, 5)

    def test_waits_while_the_daemon_has_it_not_or_is_started_again(self):
        closed, busy = (Error(code, "install", "") for code in (Code.CLOSED, Code.BUSY))
        self.assertEqual(self.pin(not_found(), closed, not_found(), busy).version, 5)
        self.assertEqual(self.host.script, [])

    def test_waits_for_the_version_of_this_run(self):
        self.assertEqual(self.pin("an earlier run's").digest, "digest of 5")
        self.assertEqual([pin.released for pin in self.host.pins], [True, False])

    def test_says_what_was_there_when_the_time_is_over(self):
        for script, why in (([not_found()] * 3, "has not that version"), ([], "its version 5 is of another run")):
            with self.assertRaisesRegex(TimedOut, f"version 5 is not on this host in time: .*{why}"):
                self.pin(*script, digest="another", end_s=0)

    def test_other_errors_end_it(self):
        with self.assertRaises(Error) as caught:
            self.pin(Error(Code.NOT_ALLOWED, "connect", ""))
        self.assertEqual(caught.exception.code, Code.NOT_ALLOWED)

    def test_the_failure_of_another_rank_ends_it(self):
        with self.assertRaises(UpdateError):
            self.pin(not_found(), check=mock.Mock(side_effect=[None, UpdateError("another's")]))


class WeightsPublisherTest(unittest.TestCase):
    def setUp(self):
        self.origin = Origin()
        self.copies = 0
        self.publisher = WeightsPublisher(self.origin, self.copied, new_model=True)

    def copied(self, tensor):
        self.copies += 1
        return tensor

    def publish(self, weights, global_steps=None):
        with self.publisher.fill(weights, soon(LONG_S)) as publication:
            return self.publisher.commit(publication, global_steps, soon(LONG_S))

    def test_the_first_walk_keeps_copies_and_later_ones_fill_in_place(self):
        self.publish([("a", Tensor()), ("b", Tensor(b"12345678"))])
        self.assertEqual(self.copies, 2)
        self.assertEqual([(info.name, info.shape) for info in self.origin.infos], [("a", (1,)), ("b", (2,))])
        self.publish([("b", Tensor(b"87654321")), ("a", Tensor())])
        self.assertEqual(self.copies, 2)
        self.assertEqual(self.origin.versions[2], {"a": b"abcd", "b": b"87654321"})
        self.assertEqual([options["new_model"] for options in self.origin.options], [True, False])

    def test_a_version_has_the_number_of_its_step_where_that_grows(self):
        steps = [None, 0, 7, 7, 3, 20]
        self.assertEqual([self.publish([("a", Tensor())], step) for step in steps], [1, 2, 7, 8, 9, 20])

    def test_tensors_that_are_missing_new_or_twice_publish_nothing(self):
        first = [("a", Tensor()), ("b", Tensor())]
        for given, why in ((first[:1], "1 of the last version's 2 tensors are missing, such as b"),
                           ([*first, ("c", Tensor())], "'c' came twice, or was not"),
                           ([*first, first[0]], "'a' came twice, or was not")):
            self.publish(first)
            count, aborted = len(self.origin.versions), self.origin.aborted
            with self.assertRaisesRegex(ValueError, why):
                self.publish(given)
            self.assertEqual((len(self.origin.versions), self.origin.aborted), (count, aborted + 1))
        with self.assertRaisesRegex(ValueError, "'a' came twice"):
            self.publish([first[0], first[0]])
        self.publish(first[:1])  # the origin says whether other tensors may come

    def test_walks_on_after_an_error_of_its_own(self):
        walked = []

        def weights(names):
            for name in names:
                walked.append(name)
                yield name, Tensor()

        self.publish(weights("ab"))
        for failing in ("begin", "fill"):
            walked.clear()
            with mock.patch.object(self.origin, failing, side_effect=OSError), self.assertRaises(OSError):
                self.publish(weights("abc"))
            self.assertEqual("".join(walked), "abc")
            self.publish(weights("ab"))

    def test_a_generator_that_fails_publishes_nothing(self):
        def weights():
            yield "a", Tensor()
            raise MemoryError

        for _ in range(2):
            with self.assertRaises(MemoryError):
                self.publish(weights())
            self.assertFalse(self.origin.versions.keys() - {1})
            self.assertFalse(self.origin.begun)
            self.origin.next = 1
            self.origin.versions.clear()
            self.publish([("a", Tensor()), ("b", Tensor())])

    def test_after_a_refusal_it_learns_the_tensors_again(self):
        self.publish([("a", Tensor())])
        self.origin.refusal = Error(Code.INVALID_ARGUMENT, "publish", "NaN")
        with self.assertRaises(Error):
            self.publish([("a", Tensor())])
        self.origin.refusal = None
        self.publish([("a", Tensor())])
        self.assertEqual(self.copies, 2)


class Registry:
    classes = {}

    @classmethod
    def register(cls, name):
        return lambda engine: cls.classes.setdefault(name, engine)


class VerlTest(EngineTest):
    MODULE = "verl"

    @classmethod
    def others(cls):
        device = {"get_device_name": lambda: "cpu",
                  "get_torch_device": lambda: types.SimpleNamespace(is_available=lambda: False)}
        return {
            "verl": {}, "verl.checkpoint_engine": {}, "verl.utils": {}, "verl.utils.device": device,
            "verl.checkpoint_engine.base": {"CheckpointEngine": object, "CheckpointEngineRegistry": Registry},
        }

    def setUp(self):
        super().setUp()
        self.make(LONG_S)

    def make(self, timeout):
        engine = Registry.classes["weightcast"]
        self.trainers = [engine(bucket_size=1, is_master=rank == 0, state_dir="origin", timeout=timeout) for rank in range(2)]
        self.rollouts = [engine(bucket_size=1, state_dir="worker", timeout=timeout) for _ in range(2)]

    def join(self):
        self.hosts.clear()
        engines = self.trainers + self.rollouts
        metadata = [engine.prepare() for engine in engines]
        kinds = self.trainers[0].build_topology(len(self.trainers), len(self.rollouts), metadata)
        for group, arguments in zip((self.trainers, self.rollouts), kinds):
            for i, engine in enumerate(group):
                engine.init_process_group(**{name: values[i] for name, values in arguments.items()})

    def update(self, *weights, steps=(1, 1, 1, 1), read=None):
        """What each rank has in the end: metrics, tensors, or an exception. `weights` are each trainer's."""

        async def read_all(given):
            return {name: bytes(tensor.data) async for name, tensor in given}

        async def receive(engine, step):
            return await (read or read_all)(engine.receive_weights(global_steps=step))

        calls = [engine.send_weights(given, global_steps=step)
                 for engine, given, step in zip(self.trainers, weights, steps)]
        calls += [receive(engine, step) for engine, step in zip(self.rollouts, steps[2:])]
        return run_all(calls)

    def expect_all_failed(self, results, why):
        for result in results:
            self.assertIsInstance(result, Exception)
        others = [result for result in results if isinstance(result, UpdateError)]
        self.assertGreaterEqual(len(others), 3)
        for error in others:
            self.assertRegex(str(error), "no rank has new weights: .*" + why)
        self.expect_the_next_one_works()

    def expect_the_next_one_works(self):
        self.scripts.clear()
        self.join()
        given = {"a": b"next"}
        results = self.update([("a", Tensor(b"next"))], iter([("a", Tensor())]))
        self.assertEqual(results[2:], [given, given])
        for engine in self.trainers + self.rollouts:
            engine.finalize()
            engine.finalize()
        self.assertTrue(all(host.closed for host in self.hosts))

    def test_is_registered_by_its_name(self):
        self.assertIs(Registry.classes["weightcast"], self.module.WeightcastCheckpointEngine)
        self.assertEqual(Registry.classes["weightcast"].wire_format, "named_tensors")

    def test_all_rollouts_get_what_rank_0_sends(self):
        for step, data in ((3, b"abcd"), (4, b"dcba")):
            self.join()
            walked = iter([("a", Tensor())])
            results = self.update([("a", Tensor(data))], walked, steps=[step] * 4)
            self.assertEqual(results[0]["weightcast/version"], step)
            self.assertEqual(results[0]["weightcast/payload_bytes"], 11)
            self.assertEqual(results[1:], [{}, {"a": data}, {"a": data}])
            self.assertIsNone(next(walked, None), "other ranks make their weights, too")
            self.assertTrue(all(host.closed for host in self.hosts), "nothing stays pinned")

    def test_a_version_is_let_go_by_who_does_not_read_all_of_it(self):
        async def read_one(given):
            name, _ = await given.__anext__()
            await given.aclose()
            return name

        async def read_none(given):
            return given

        self.join()
        self.assertEqual(self.update([("a", Tensor()), ("b", Tensor())], [], read=read_one)[2:], ["a", "a"])
        self.assertEqual([host.closed for host in self.hosts], [True, True])
        self.join()
        kept = self.update([("a", Tensor()), ("b", Tensor())], [], read=read_none)[2:]
        self.assertEqual([host.closed for host in self.hosts], [False, False], "they may still be read")
        for engine in self.rollouts:
            engine.finalize()
        self.assertEqual([host.closed for host in self.hosts], [True, True])
        self.assertEqual(len(kept), 2)

    def test_a_generator_that_fails_on_any_rank_fails_all(self):
        def broken():
            yield "a", Tensor()
            raise MemoryError("device full")

        for weights in ((broken(), [("a", Tensor())]), ([("a", Tensor())], broken())):
            self.join()
            results = self.update(*weights)
            self.expect_all_failed(results, "trainer rank [01] on .*: MemoryError: device full")
            self.assertEqual(sum(isinstance(result, MemoryError) for result in results), 1)

    def test_what_the_origin_refuses_fails_all(self):
        self.join()
        self.origin.refusal = Error(Code.INVALID_ARGUMENT, "publish", "weightcast: NaN")
        results = self.update([("a", Tensor())], [])
        self.origin.refusal = None
        self.expect_all_failed(results, "trainer rank 0 on .*: Error: weightcast: NaN")

    def test_one_host_that_cannot_have_it_fails_all(self):
        self.scripts[1] = [Error(Code.NOT_ALLOWED, "install", "another user's")]
        self.join()
        self.expect_all_failed(self.update([("a", Tensor())], []), "rollout rank 1 on .*another user's")

    def test_a_host_that_has_it_too_late_fails_all(self):
        self.make(timeout=2)  # in which a busy host has to publish, too
        self.scripts[0] = [not_found()] * 1_000_000
        self.join()
        self.expect_all_failed(self.update([("a", Tensor())], []), "rollout rank 0 on .*not on this host in time")

    def test_a_trainer_that_hangs_fails_all_and_publishes_nothing(self):
        self.make(timeout=0.2)
        self.join()
        stop = threading.Event()

        def hanging():
            yield "a", Tensor()
            stop.wait(0.5)  # longer than anybody waits for it

        results = self.update(hanging(), [])
        self.expect_all_failed(results, "trainer rank 0 on .*: .*making the weights took longer than the time-out")
        self.assertEqual(len(self.origin.versions), 1, "only the next one's")

    def test_ranks_that_mean_different_steps_fail(self):
        for steps, why in (((1, 2, 1, 1), "step 2 .* sends step 1"), ((1, 1, 1, 2), "step 2 .* sends step 1"),
                           ((None, 1, 1, 1), "step 1 .* sends step None"), ((1, 1, 1, None), "step None .* sends step 1")):
            self.join()
            for result in self.update([("a", Tensor())], [], steps=steps):
                self.assertIsInstance(result, Exception)
                self.assertRegex(str(result), why)
            self.expect_the_next_one_works()

    def test_calls_out_of_order_are_refused(self):
        engine = self.rollouts[0]
        arguments = {"rank": 0, "trainers": 2, "rollouts": 2, "is_rollout": True, "meeting": {"host": "", "port": 2}}
        with self.assertRaisesRegex(RuntimeError, "joined after prepare"):
            engine.init_process_group(**arguments)
        self.join()
        with self.assertRaisesRegex(RuntimeError, "once for each update"):
            engine.init_process_group(**arguments)
        with self.assertRaisesRegex(RuntimeError, "no rank of the rollouts sends weights"):
            asyncio.run(engine.send_weights([]))
        with self.assertRaisesRegex(RuntimeError, "no rank of the trainer receives weights"):
            self.trainers[1].receive_weights()
        self.join()
        self.update([("a", Tensor())], [])
        with self.assertRaisesRegex(RuntimeError, "sends weights after it has joined"):
            asyncio.run(self.trainers[0].send_weights([]))
        with self.assertRaisesRegex(RuntimeError, "receives weights after it has joined"):
            engine.receive_weights()
        self.expect_the_next_one_works()

    def test_a_second_prepare_begins_anew(self):
        self.join()
        self.join()
        self.expect_the_next_one_works()

    def test_just_one_rank_of_the_trainer_is_the_master(self):
        for metadata in ([{}, {}, {}], [{"host": "a"}, {"host": "b"}, {}]):
            with self.assertRaisesRegex(ValueError, "of the trainer's 2 ranks are masters; 1 has to be"):
                self.trainers[0].build_topology(2, 1, metadata)

    def test_a_time_out_is_above_0(self):
        with self.assertRaises(ValueError):
            Registry.classes["weightcast"](bucket_size=1, timeout=0)


if __name__ == "__main__":
    unittest.main()
