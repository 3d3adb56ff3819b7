"""The package against real daemons on loopback."""

import array
import gc
import multiprocessing
import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref
from unittest import mock

import weightcast
from daemons import DaemonTest, eventually
from fakes import DLPackTensor, FakeTorch, bfloat16
from weightcast import Code, EventKind, RawTensor, Snapshot, TensorInfo
from weightcast._library import interruptible

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples"


def tensors(seed=0):
    """One of each kind that is taken, and the bytes that it is."""
    made = random.Random(seed)
    floats = array.array("f", [made.uniform(-1, 1) for _ in range(1000)])
    halves = bfloat16([made.uniform(-1, 1) for _ in range(300)])
    eights = made.randbytes(64)
    return {
        "buffer": (floats, "F32", (1000,), floats.tobytes()),
        "strided": (memoryview(floats)[::-2], "F32", (500,), array.array("f", floats[::-2]).tobytes()),
        "dlpack": (DLPackTensor(halves, (3, 100), code=4, bits=16), "BF16", (3, 100), halves),
        "raw": (RawTensor("I8", (8, 8), eights), "I8", (8, 8), eights),
        "scalar": (RawTensor("I64", (), bytes(8)), "I64", (), bytes(8)),
        "empty": (array.array("f"), "F32", (0,), b""),
    }


def named(made):
    return {name: tensor for name, (tensor, *_) in made.items()}


def fill_half(path, half):
    """What one process of a sharded trainer does."""
    with weightcast.attach(path) as region:
        view = region.buffer("shared")
        middle = len(view) // 2
        if half == 0:
            view[:middle] = b"\1" * middle
            region.fill("own", array.array("f", [2.5] * 4))
        else:
            view[middle:] = b"\2" * (len(view) - middle)
        del view


def descriptors():
    return len(os.listdir("/proc/self/fd"))


class Publishing(DaemonTest):
    def current(self):
        return Snapshot(pathlib.Path(self.origin.state) / "current")

    def expect(self, made):
        found = self.current()
        self.assertEqual(
            {name: (tensor.dtype, tensor.shape, bytes(tensor.data)) for name, tensor in found.items()},
            {name: (dtype, shape, data) for name, (_, dtype, shape, data) in made.items()},
        )

    def test_every_kind_of_tensor_arrives_byte_for_byte(self):
        with weightcast.Publisher(self.origin.state) as publisher:
            for seed in range(3):
                made = tensors(seed)
                version = publisher.publish(named(made))
                self.assertEqual(version, seed + 1)
                self.assertEqual(publisher.wait(version).version, version)
                eventually(lambda: self.origin.node()["version"] == version)
                self.expect(made)

    def test_tensors_on_a_device_are_copied_once_behind_what_writes_them(self):
        torch = FakeTorch()
        weights = bfloat16([0.5, -1.0, 2.0, 3.0, -4.0, 0.25])
        floats = array.array("f", [1.5, -2.5])
        made = {
            "device": ("BF16", (2, 3), weights),
            "other": ("F32", (2,), floats.tobytes()),
            "host": ("U8", (4,), b"abcd"),
        }
        with mock.patch.dict(sys.modules, torch=torch), weightcast.Publisher(self.origin.state) as publisher:
            publisher.publish(
                {
                    "device": torch.on_device(weights, torch.bfloat16, (2, 3)),
                    "other": torch.on_device(floats.tobytes(), torch.float32, (2,)),
                    "host": b"abcd",
                }
            )
            publisher.wait()
            found = {name: (t.dtype, t.shape, bytes(t.data)) for name, t in self.current().items()}
            self.assertEqual(found, made)
            # On the caller's thread, whose current stream it is.
            self.assertEqual(torch.copies, [(12, threading.get_ident()), (8, threading.get_ident())])

    def test_pairs_versions_and_the_socket_as_address(self):
        with weightcast.Publisher(os.path.join(self.origin.state, "api.sock")) as publisher:
            self.assertEqual(publisher.next_version(), 1)
            pairs = ((name, tensor) for name, tensor in named(tensors()).items())
            self.assertEqual(publisher.publish(pairs, version=70), 70)
            self.assertEqual(publisher.next_version(), 71)
            with self.assertRaises(weightcast.Error) as caught:
                publisher.publish(named(tensors()), version=70)
            self.assertEqual(caught.exception.code, Code.ALREADY_EXISTS)
            self.assertEqual(publisher.publish(named(tensors(1))), 71)
            publisher.wait()
            self.assertEqual([v["version"] for v in weightcast.versions(self.origin.state)["versions"]][-1], 71)

    def test_filling_in_place_in_any_order(self):
        made = tensors()
        infos = [weightcast.describe(name, tensor) for name, tensor in named(made).items()]
        with weightcast.Publisher(self.origin.state) as publisher:
            publisher.reserve(infos, regions=2)
            with publisher.begin(infos) as publication:
                self.assertEqual(publication.infos, tuple(infos))
                for name in reversed(list(made)):
                    if name == "raw":
                        publication.buffer(name)[:] = made[name][3]
                    else:
                        publication.fill(name, made[name][0])
                with self.assertRaisesRegex(ValueError, "'raw' is F32 .*was begun as I8"):
                    publication.fill("raw", made["buffer"][0])
                with self.assertRaises(KeyError):
                    publication.fill("absent", b"")
                view = publication.buffer("raw")
                self.assertEqual(publication.commit(), 1)
                with self.assertRaises(ValueError):
                    view[0] = 1  # it is the origin's now
                with self.assertRaises(weightcast.Error):
                    publication.fill("raw", made["raw"][0])
            publisher.wait()
            self.expect(made)

    def test_changes_of_cells_give_what_publishing_all_gives(self):
        made = tensors()
        with weightcast.Publisher(self.origin.state) as publisher:
            with self.assertRaises(weightcast.Error) as caught:
                publisher.publish_sparse({}, base=1)
            self.assertEqual(caught.exception.code, Code.WRONG_BASE)
            publisher.publish(named(made))
            changes = {
                "buffer": (array.array("I", [3, 999]), array.array("f", [0.5, -2.0])),
                "raw": (array.array("q", [0, 9, 63]), RawTensor("I8", (3,), b"abc")),
                "dlpack": (array.array("Q", [299]), RawTensor("BF16", (1,), bfloat16([0.25]))),
                "strided": (memoryview(array.array("i", [9, 8, 7]))[::-1], memoryview(array.array("f", [3, 2, 1]))[::-1]),
                "empty": (array.array("I"), array.array("f")),
            }
            self.assertEqual(publisher.publish_sparse(changes, base=1), 2)
            publisher.wait()
            for name, (indices, values) in changes.items():
                _, dtype, shape, data = made[name]
                width = weightcast._tensors.DTYPE_BITS[dtype] // 8
                raw = bytes(values.data) if isinstance(values, RawTensor) else memoryview(values).tobytes()
                data = bytearray(data)
                for i, index in enumerate(indices):
                    data[index * width : (index + 1) * width] = raw[i * width : (i + 1) * width]
                made[name] = (None, dtype, shape, bytes(data))
            self.expect(made)
            # A copy of the last one, by pairs, under a number of its own.
            self.assertEqual(publisher.publish_sparse(iter(()), base=2, version=9), 9)
            publisher.wait()
            self.expect(made)

    def test_changes_that_cannot_be_are_refused(self):
        one = array.array("I", [0])
        value = array.array("f", [1.0])
        with weightcast.Publisher(self.origin.state) as publisher:
            publisher.publish({"w": array.array("f", [1.0] * 4)})
            publisher.wait()
            for bad, error in (
                ({"w": (value, value)}, "indices of F32; give int32"),
                ({"w": (one, array.array("f"))}, "two rows of one length"),
                ({"w": (one, object())}, "neither a torch tensor"),
                ({5: (one, value)}, "not a string"),
            ):
                with self.assertRaisesRegex((TypeError, ValueError), error):
                    publisher.publish_sparse(bad, base=1)
            for base in (0, -1, 2**63):
                with self.assertRaisesRegex(ValueError, "base version"):
                    publisher.publish_sparse({}, base=base)
            for bad, error in (
                ({"v": (one, value)}, "no such tensor"),
                ({"w": (one, array.array("d", [1.0]))}, "its values are of dtype 'F64', its elements of F32"),
                ({"w": (array.array("i", [-1]), value)}, "is not one of its 4 elements"),
                ({"w": (array.array("I", [2, 1]), array.array("f", [1.0, 2.0]))}, "sort them"),
                ({"w": (one, array.array("f", [float("nan")]))}, "WC_ALLOW_NONFINITE"),
            ):
                version = publisher.publish_sparse(bad, base=1)
                with self.assertRaisesRegex(weightcast.Error, error) as caught:
                    publisher.wait(version)
                self.assertEqual(caught.exception.code, Code.INVALID_ARGUMENT)
            with self.assertRaisesRegex(weightcast.Error, "the last one is 1") as caught:
                publisher.publish_sparse({"w": (one, value)}, base=2)
            self.assertEqual(caught.exception.code, Code.WRONG_BASE)
            nan = array.array("f", [float("nan")])
            self.assertEqual(publisher.publish_sparse({"w": (one, nan)}, base=1, allow_nonfinite=True), 2)
            publisher.wait()

    def test_what_is_not_committed_is_aborted(self):
        infos = [TensorInfo("w", "U8", (4,))]
        with weightcast.Publisher(self.origin.state) as publisher:
            with self.assertRaisesRegex(RuntimeError, "mine"):
                with publisher.begin(infos):
                    raise RuntimeError("mine")
            with publisher.begin(infos) as publication:
                with self.assertRaises(weightcast.Error) as caught:
                    publisher.begin(infos)
                self.assertEqual(caught.exception.code, Code.BUSY)
                publication.abort()
            self.assertEqual(publisher.next_version(), 1)

    def test_a_tensor_that_is_refused_publishes_nothing(self):
        with weightcast.Publisher(self.origin.state) as publisher:
            with self.assertRaisesRegex(TypeError, "tensor 'bad'"):
                publisher.publish({"good": b"abc", "bad": object()})
            for infos in ([("w", "X8", (1,))], [("w", "F4", (3,))], [("w", "U8", (-1,))]):
                with self.assertRaisesRegex(ValueError, "tensor 'w'"):
                    publisher.begin(infos)
            with self.assertRaises(weightcast.Error) as caught:
                publisher.begin([("w", "U8", (1,)), ("w", "U8", (1,))])
            self.assertEqual(caught.exception.code, Code.INVALID_ARGUMENT)
            self.assertEqual(publisher.publish({"good": b"abc"}), 1)

    def test_nan_needs_to_be_allowed(self):
        bad = {"w": array.array("f", [float("nan")])}
        with weightcast.Publisher(self.origin.state) as publisher:
            with self.assertRaises(weightcast.Error) as caught:
                publisher.publish(bad)
                publisher.wait()
            self.assertEqual(caught.exception.code, Code.INVALID_ARGUMENT)
            publisher.publish(bad, allow_nonfinite=True)
            publisher.wait()

    def test_a_path_is_published(self):
        with weightcast.Publisher(self.origin.state) as publisher:
            publisher.publish(named(tensors(5)))
            publisher.wait()
            source = self.directory / "copy.safetensors"
            source.write_bytes((pathlib.Path(self.origin.state) / "current" / "model.safetensors").read_bytes())
            here = os.getcwd()
            os.chdir(self.directory)
            self.addCleanup(os.chdir, here)
            self.assertEqual(publisher.publish_path("copy.safetensors"), 2)
            publisher.wait()
            self.expect(tensors(5))

    def test_processes_fill_parts_of_one_region_and_one_commits(self):
        spawn = multiprocessing.get_context("spawn")
        with weightcast.Publisher(self.origin.state) as publisher:
            with publisher.begin([("shared", "U8", (1001,)), ("own", "F32", (4,))]) as publication:
                ranks = [spawn.Process(target=fill_half, args=(publication.path, half)) for half in (0, 1)]
                for rank in ranks:
                    rank.start()
                for rank in ranks:
                    rank.join(60)
                    self.assertEqual(rank.exitcode, 0)
                publication.commit()
            publisher.wait()
        self.assertEqual(bytes(self.current()["shared"].data), b"\1" * 500 + b"\2" * 501)
        self.assertEqual(bytes(self.current()["own"].data), array.array("f", [2.5] * 4).tobytes())

    def test_attach_refuses_what_is_no_region(self):
        with self.assertRaises(FileNotFoundError):
            weightcast.attach(self.directory / "absent")
        with self.assertRaises(weightcast.Error) as caught:
            weightcast.attach(self.origin.state + ".log")
        self.assertEqual(caught.exception.code, Code.INVALID_ARGUMENT)

    def test_memory_outlives_its_publisher_while_a_view_does(self):
        publisher = weightcast.Publisher(self.origin.state)
        view = publisher.begin([("w", "U8", (1 << 20,))]).buffer("w")
        publisher.close()
        gc.collect()
        view[:] = b"\7" * len(view)
        self.assertEqual(view[12345], 7)

    def test_nothing_is_left_open(self):
        def cycle():
            with weightcast.Publisher(self.origin.state) as publisher:
                with publisher.begin([("w", "U8", (4,))]) as publication:
                    weightcast.attach(publication.path).close()
                    publication.fill("w", b"abcd")
                    publication.commit()
                publisher.wait()
            with weightcast.Subscription(self.origin.state) as subscription:
                subscription.current()

        cycle()
        before = descriptors()
        for _ in range(20):
            cycle()
        self.assertEqual(descriptors(), before)


class Failing(DaemonTest):
    def test_no_daemon_is_not_found(self):
        for call in (weightcast.Publisher, weightcast.Subscription, weightcast.status, weightcast.versions):
            with self.assertRaisesRegex(weightcast.Error, "no daemon runs there") as caught:
                call(str(self.directory / "nowhere"))
            self.assertEqual(caught.exception.code, Code.NOT_FOUND)

    def test_a_time_out_is_a_timeouterror_with_what_was_reached(self):
        worker = self.start_worker()
        with weightcast.Publisher(self.origin.state) as publisher:
            worker.process.send_signal(signal.SIGSTOP)
            try:
                publisher.publish({"w": b"abcd"})
                began = time.monotonic()
                with self.assertRaises(TimeoutError) as caught:
                    publisher.wait(installed=1.0, timeout=0.3)
                self.assertLess(time.monotonic() - began, 5)
            finally:
                worker.process.send_signal(signal.SIGCONT)
            self.assertEqual(caught.exception.code, Code.TIMED_OUT)
            self.assertEqual((caught.exception.outcome.version, caught.exception.outcome.installed), (1, 0))
            outcome = publisher.wait(installed=1.0)
            self.assertEqual((outcome.installed, outcome.workers), (1, 1))
            self.assertGreater(outcome.t100_s, 0)

    def test_negative_time_outs_and_versions_are_refused(self):
        with weightcast.Publisher(self.origin.state) as publisher:
            with self.assertRaises(ValueError):
                publisher.next_version(timeout=-1)
            for version in (0, -1, 2**63):
                with self.assertRaises(ValueError):
                    publisher.publish({"w": b"a"}, version=version)

    def test_who_serves_is_said_of_workers_that_the_origin_knows(self):
        with weightcast.Publisher(self.origin.state) as publisher:
            publisher.serve(None, False, provisions=True)
            with self.assertRaisesRegex(weightcast.Error, "'nobody' is no worker") as caught:
                publisher.serve("nobody", True)
            self.assertEqual(caught.exception.code, Code.NOT_FOUND)

    def test_a_worker_that_is_lost_can_be_forgotten(self):
        with weightcast.Publisher(self.origin.state) as publisher:
            with self.assertRaisesRegex(weightcast.Error, "'nobody' is no worker") as caught:
                publisher.forget("nobody")
            self.assertEqual(caught.exception.code, Code.NOT_FOUND)

    def test_the_environment_names_the_state_directory_that_is_not_given(self):
        with mock.patch.dict(os.environ, WEIGHTCAST_STATE=str(self.origin.state)):
            weightcast.wait_until_ready()
            with weightcast.Publisher() as publisher, weightcast.Subscription() as subscription:
                version = publisher.publish({"w": b"abcd"})
                publisher.wait(version)
                self.assertEqual(subscription.next(timeout=60).version, version)
            self.assertEqual(weightcast.status()["latest_version"], version)
            self.assertEqual(len(weightcast.versions()["versions"]), 1)

    def test_a_closed_publisher_says_so(self):
        publisher = weightcast.Publisher(self.origin.state)
        publisher.close()
        publisher.close()
        with self.assertRaisesRegex(weightcast.Error, "is closed") as caught:
            publisher.next_version()
        self.assertEqual(caught.exception.code, Code.CLOSED)

    def test_the_daemon_may_be_restarted(self):
        with weightcast.Publisher(self.origin.state) as publisher:
            publisher.publish({"w": b"abcd"})
            publisher.wait()
            self.origin.kill()
            with self.assertRaises(weightcast.Error) as caught:
                publisher.next_version()
            self.assertIn(caught.exception.code, (Code.CLOSED, Code.NOT_FOUND))
            self.origin.start()
            self.assertEqual(publisher.publish({"w": b"efgh"}), 2)


class Subscribing(DaemonTest):
    def test_events_pins_and_the_version_in_use(self):
        worker = self.start_worker()
        publisher = weightcast.Publisher(self.origin.state)
        with publisher, weightcast.Subscription(worker.state) as subscription:
            self.assertIsNone(subscription.next(0))
            with self.assertRaises(weightcast.Error) as caught:
                subscription.current()
            self.assertEqual(caught.exception.code, Code.NOT_FOUND)
            publisher.publish({"w": b"abcd"})
            event = next(iter(subscription))
            self.assertEqual((event.kind, event.version), (EventKind.INSTALLED, 1))
            self.assertEqual(subscription.current(), event)
            with subscription.acquire(1) as pin:
                for version in range(2, 7):
                    publisher.publish({"w": bytes([version] * 4)})
                    publisher.wait(installed=1.0)
                self.assertEqual(bytes(Snapshot(pin.directory)["w"].data), b"abcd")
                pins = [subscription.acquire() for _ in range(3)]
                with self.assertRaises(weightcast.Error) as caught:
                    subscription.acquire()
                self.assertEqual(caught.exception.code, Code.BUSY)
                for other in pins:
                    other.release()
                    other.release()
            eventually(lambda: not os.path.exists(pin.directory))
            self.assertEqual(subscription.current().version, 6)

    def test_ready_says_what_is_missing(self):
        weightcast.wait_until_ready(self.origin.state)
        with self.assertRaisesRegex(weightcast.TimedOut, "no version is in use yet"):
            weightcast.wait_until_ready(self.origin.state, has_version=True, timeout=2)
        with self.assertRaisesRegex(weightcast.TimedOut, "no daemon runs there"):
            weightcast.wait_until_ready("/nowhere", timeout=0.1)
        with weightcast.Publisher(self.origin.state) as publisher:
            publisher.publish({"w": b"abcd"})
        weightcast.wait_until_ready(self.origin.state, has_version=True)
        with self.assertRaises(ValueError):
            weightcast.wait_until_ready(self.origin.state, timeout=-1)

    def test_the_descriptor_becomes_readable(self):
        with weightcast.Subscription(self.origin.state) as subscription:
            while subscription.next(0.2) is not None:
                pass
            with weightcast.Publisher(self.origin.state) as publisher:
                publisher.publish({"w": b"abcd"})
                versions = []
                end = time.monotonic() + 30
                while not versions and time.monotonic() < end:
                    select.select([subscription], [], [], 1)
                    event = subscription.next(0)
                    if event is not None:
                        versions.append(event.version)
                self.assertEqual(versions, [1])

    def test_a_restart_of_the_daemon_is_told(self):
        with weightcast.Publisher(self.origin.state) as publisher:
            publisher.publish({"w": b"abcd"})
            publisher.wait()
        with weightcast.Subscription(self.origin.state) as subscription:
            events = iter(subscription)
            self.assertEqual(next(events).version, 1)
            pin = subscription.acquire()
            self.origin.kill()
            self.assertEqual(next(events).kind, EventKind.DISCONNECTED)
            self.origin.start()
            self.assertEqual(next(events).version, 1)
            pin.release()  # its connection has taken it


class Waiting(DaemonTest):
    def test_another_thread_runs_while_one_waits(self):
        with weightcast.Subscription(self.origin.state) as subscription:
            counted = [0]
            stop = threading.Event()

            def count():
                while not stop.is_set():
                    counted[0] += 1
                    time.sleep(0.001)

            thread = threading.Thread(target=count)
            thread.start()
            try:
                self.assertIsNone(subscription.next(1.0))
                self.assertGreater(counted[0], 5)  # a busy host lets it run less often
            finally:
                stop.set()
                thread.join()

    def start_waiting(self, subscription, caught):
        """A thread in the middle of next(). How that ends comes into `caught`."""

        def wait():
            while not caught:
                try:
                    subscription.next(60)
                except weightcast.Error as error:
                    # is_busy() may be first.
                    if error.code != Code.BUSY:
                        caught.append(error.code)

        def is_busy():
            try:
                subscription.next(0)
            except weightcast.Error as error:
                return error.code == Code.BUSY
            return False

        thread = threading.Thread(target=wait)
        thread.start()
        eventually(is_busy)
        return thread

    def test_cancel_and_close_end_a_call_of_another_thread(self):
        for end in (weightcast.Subscription.cancel, weightcast.Subscription.close):
            subscription = weightcast.Subscription(self.origin.state)
            caught = []
            thread = self.start_waiting(subscription, caught)
            end(subscription)
            thread.join(30)
            self.assertEqual(caught, [Code.CANCELLED])
            subscription.close()

    def test_a_close_just_before_a_call_ends_an_iteration(self):
        subscription = weightcast.Subscription(self.origin.state)
        in_time = weightcast._subscription.milliseconds
        caught = []

        def close_first(timeout):
            subscription.close()
            return in_time(timeout)

        def iterate():
            try:
                next(iter(subscription))
            except weightcast.Error as error:
                caught.append(error.code)

        with mock.patch("weightcast._subscription.milliseconds", close_first):
            thread = threading.Thread(target=iterate, daemon=True)
            thread.start()
            thread.join(60)
        self.assertEqual(caught, [Code.CLOSED])

    def test_a_handle_stays_while_a_call_that_was_left_behind_runs(self):
        class Owner:
            def cancel(self):
                pass  # as in the middle of a copy

        class LeftBehind(BaseException):
            pass

        wait = threading.Event.wait

        def wait_or_leave(event, timeout=None):
            if threading.current_thread() is threading.main_thread():
                raise LeftBehind
            return wait(event, timeout)

        running, over = threading.Lock(), threading.Event()
        owner = Owner()
        gone = weakref.ref(owner)

        def call(_):
            with running:
                over.set()
            return 0

        with running:
            # As after two times Ctrl-C.
            with mock.patch.object(threading.Event, "wait", wait_or_leave), self.assertRaises(LeftBehind):
                interruptible(owner.cancel, call)
            del owner
            gc.collect()
            self.assertIsNotNone(gone())
        self.assertTrue(over.wait(60))
        eventually(lambda: gone() is None)

    def test_a_second_thread_is_told_that_a_handle_is_busy(self):
        with weightcast.Subscription(self.origin.state) as subscription:
            thread = self.start_waiting(subscription, [])
            with self.assertRaises(weightcast.Error) as caught:
                subscription.next(0)
            self.assertEqual(caught.exception.code, Code.BUSY)
            subscription.cancel()
            thread.join()

    def test_ctrl_c_ends_a_call_that_waits(self):
        program = (
            "import sys, weightcast\n"
            "subscription = weightcast.Subscription(sys.argv[1])\n"
            "try:\n"
            "    print('waiting', flush=True)\n"
            "    subscription.next(60)\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted', subscription.next(0))\n"
        )
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        with subprocess.Popen(
            [sys.executable, "-c", program, self.origin.state], stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            try:
                self.assertEqual(process.stdout.readline(), "waiting\n")
                time.sleep(0.2)
                process.send_signal(signal.SIGINT)
                began = time.monotonic()
                # Still usable, so the call has ended.
                self.assertEqual(process.communicate(timeout=30)[0], "interrupted None\n")
                self.assertLess(time.monotonic() - began, 10)
            finally:
                process.kill()


class Examples(DaemonTest):
    def run_example(self, name, *arguments):
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        return subprocess.run(
            [sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, env=environment, timeout=60
        )

    def test_publish_and_subscribe(self):
        ran = self.run_example("publish.py", self.origin.state)
        said = "published version 1\npublished version 2, 0 workers\npublished version 3\n"
        self.assertEqual((ran.stdout, ran.stderr), (said, ""))
        ran = self.run_example("subscribe.py", self.origin.state, "1")
        self.assertEqual((ran.stdout, ran.stderr), ("version 3: 2 tensors, 36864 bytes\n", ""))

    def test_without_a_daemon_they_say_so(self):
        for name in ("publish.py", "subscribe.py"):
            ran = self.run_example(name, str(self.directory / "nowhere"))
            self.assertEqual(ran.returncode, 1)
            self.assertRegex(ran.stderr, r"no daemon runs there.* \(NOT_FOUND\)\n$")


if __name__ == "__main__":
    unittest.main()
