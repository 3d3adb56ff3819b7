"""What the bridge of directories and the hooks of slime decide. Daemon, torch and the version's files are stand-ins."""

import contextlib
import io
import json
import os
import pathlib
import sys
import types
import unittest
from unittest import mock

import weightcast
from fixtures import enter, make_directory
from weightcast import Code, Error, TimedOut
from weightcast.integrations import directories
from weightcast.integrations.directories import LAYOUTS, Layout, StepFollower, StepPublisher

CHAIN = LAYOUTS["skyrl"]
PRIME = LAYOUTS["prime-rl"]


def write(directory, **files):
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text)


class Origin:
    """What Publisher says of an origin. `fails`: raised by wait(), one each."""

    def __init__(self):
        self.trees, self.fails, self.last = {}, [], 0

    def __call__(self, *_, **__):
        return contextlib.nullcontext(self)

    def next_version(self):
        return self.last + 1

    def publish_files(self, path, *, version, timeout):
        if version <= self.last:
            raise Error(Code.ALREADY_EXISTS, "publish", "weightcast: greater, please")
        tree = pathlib.Path(path)
        self.trees[version] = sorted(str(file.relative_to(tree)) for file in tree.rglob("*") if file.is_file())
        self.last = version

    def wait(self, version, *, timeout, installed=None):
        if self.fails:
            raise self.fails.pop(0)


class Temporary(unittest.TestCase):
    def setUp(self):
        self.directory = make_directory(self)
        self.log = mock.Mock()

    def logged(self):
        return [call.args[0] % call.args[1:] for call in self.log.method_calls]


class LayoutTest(Temporary):
    def test_names_and_numbers_belong_to_each_other(self):
        self.assertEqual(CHAIN.name(7), "delta-00000007")
        self.assertEqual(CHAIN.number("delta-00000007"), 7)
        for name in ("delta-7", "delta-00000007.tmp", "step_7", "delta-"):
            self.assertIsNone(CHAIN.number(name), name)
        for name in ("step_07", "step_0", f"step_{2**63}"):
            self.assertIsNone(PRIME.number(name), name)

    def test_a_layout_without_step_or_with_a_path_is_refused(self):
        steps = [(step, "M") for step in ("step", "{step}{step}", "a/{step}", "{0}")]
        for step, marker in (*steps, ("s{step}", ""), ("s{step}", "a/M")):
            with self.assertRaises(ValueError, msg=(step, marker)):
                Layout(step, marker)

    def test_a_step_is_complete_with_its_marker_of_some_age(self):
        write(self.directory / "step_10", STABLE="")
        write(self.directory / "step_9", STABLE="")
        write(self.directory / "step_11", weights="")
        (self.directory / "step_12").write_text("a file")
        self.assertEqual(PRIME.complete(self.directory), [9, 10])
        self.assertEqual(PRIME.complete(self.directory / "absent"), [])
        settled = Layout("step_{step}", "STABLE", settle_s=3600.0)
        os.utime(self.directory / "step_9" / "STABLE", (1, 1))
        self.assertEqual(settled.complete(self.directory), [9])


class PublishTest(Temporary):
    def setUp(self):
        super().setUp()
        self.origin = Origin()

    def look(self, end, times=1):
        for _ in range(times):
            end._publish_new(self.origin, lambda: False)

    def publisher(self, layout=PRIME, **arguments):
        return StepPublisher(self.directory, layout, log=self.log, **arguments)

    def test_complete_steps_are_published_once_and_in_order(self):
        for step in (10, 9):
            write(self.directory / f"step_{step}", STABLE="", weights="")
        write(self.directory / "step_11", weights="")
        end = self.publisher()
        self.look(end, 2)
        self.assertEqual(list(self.origin.trees), [9, 10])
        write(self.directory / "step_11", STABLE="")
        self.look(end, 2)
        self.look(self.publisher())  # started again
        self.assertEqual(list(self.origin.trees), [9, 10, 11])
        self.assertFalse(any("above" in line for line in self.logged()))

    def test_a_step_that_is_written_again_is_named_and_not_published(self):
        write(self.directory / "step_5", STABLE="")
        end = self.publisher()
        self.look(end)
        os.rename(self.directory / "step_5", self.directory / "gone")
        self.look(end)
        os.rename(self.directory / "gone", self.directory / "step_5")
        self.look(end, 2)
        self.assertEqual(list(self.origin.trees), [5])
        self.assertEqual(len([line for line in self.logged() if "empty state directory" in line]), 1)

    def test_a_refused_step_is_not_tried_again_and_a_later_one_is_published(self):
        write(self.directory / "step_1", STABLE="")
        self.origin.fails = [Error(Code.INVALID_ARGUMENT, "wait", "weightcast: NaN")]
        end = self.publisher()
        self.look(end, 3)
        write(self.directory / "step_2", STABLE="")
        self.look(end)
        self.assertEqual(list(self.origin.trees), [1, 2])
        self.assertIn("weightcast: step 1 is not published: weightcast: NaN", self.logged())

    def test_a_failure_that_may_pass_is_raised_and_the_step_is_not_done(self):
        write(self.directory / "step_1", STABLE="")
        self.origin.fails = [Error(Code.CLOSED, "wait", "weightcast: ended")]
        end = self.publisher()
        with self.assertRaises(Error):
            self.look(end)
        self.origin.last = 0  # it had not taken it over
        self.look(end)
        self.assertEqual(self.origin.last, 1)

    def test_a_version_of_a_chain_has_all_complete_steps_and_nothing_else(self):
        for step in (1, 2, 3):
            write(self.directory / f"delta-{step:08d}", **{"manifest.json": "{}", "a.safetensors": ""})
        write(self.directory / "delta-00000004", **{"a.safetensors": ""})
        end = self.publisher(CHAIN, steps_max=2)
        self.look(end, 2)
        both = [f"delta-0000000{step}/{name}" for step in (2, 3) for name in ("a.safetensors", "manifest.json")]
        self.assertEqual(self.origin.trees, {3: both})

    def test_one_publisher_for_a_directory(self):
        with self.publisher()._lock(), self.assertRaisesRegex(OSError, "stop that one"):
            self.publisher().run(lambda: False)


class FollowTest(Temporary):
    def setUp(self):
        super().setUp()
        self.target = self.directory / "target"

    def follower(self, layout=PRIME, **arguments):
        end = StepFollower(self.target, layout, log=self.log, **arguments)
        os.makedirs(end._work, exist_ok=True)
        return end

    def version(self, number, text="", digest=None):
        directory = self.directory / f"version{number}{text}"
        write(directory, STABLE="", weights=f"{number}{text}")
        write(directory / "sub", tool="#!")
        (directory / "sub" / "tool").chmod(0o755)
        return types.SimpleNamespace(version=number, directory=str(directory), digest=digest or f"{number}{text}")

    def hold(self, end, pin):
        end._hold(pin, lambda: False)

    def names(self):
        return sorted(name for name in os.listdir(self.target) if not name.startswith("."))

    def test_the_last_steps_stay_and_hold_the_same_tree(self):
        end = self.follower()
        for number in (7, 8, 9):
            self.hold(end, self.version(number))
        self.assertEqual(self.names(), ["step_8", "step_9"])
        self.assertEqual((self.target / "step_9" / "weights").read_text(), "9")
        self.assertTrue(os.access(self.target / "step_9" / "sub" / "tool", os.X_OK))

    def test_a_step_that_is_there_stays_and_one_of_another_run_is_replaced(self):
        end = self.follower()
        self.hold(end, self.version(7))
        before = os.stat(self.target / "step_7").st_ino
        (self.target / "step_7" / "NCCL_READY").touch()
        self.hold(end, self.version(7))
        self.hold(self.follower(), self.version(7))
        self.assertEqual(os.stat(self.target / "step_7").st_ino, before)
        self.hold(end, self.version(7, "other"))
        self.assertEqual((self.target / "step_7" / "weights").read_text(), "7other")

    def test_after_a_start_of_the_host_a_step_is_made_again(self):
        self.hold(self.follower(), self.version(7))
        (self.target / "step_7" / "weights").write_text("")
        end = self.follower()
        end._boot = "another"
        self.hold(end, self.version(7))
        self.assertEqual((self.target / "step_7" / "weights").read_text(), "7")

    def test_the_marker_comes_last_and_with_the_directory(self):
        order = []
        copy = directories._copy

        def watch(source, target, is_stopped):
            order.append(os.path.basename(target))
            self.assertFalse((self.target / "step_7").exists())
            copy(source, target, is_stopped)

        with mock.patch.object(directories, "_copy", watch):
            self.hold(self.follower(), self.version(7))
        self.assertEqual(order[-1], "STABLE")
        self.assertEqual(order.count("STABLE"), 1)

    def test_a_stop_in_the_middle_leaves_nothing_that_looks_complete(self):
        end = self.follower()
        answers = iter([False, False, True, True, True, True])
        with self.assertRaises(directories._Stopped):
            end._hold(self.version(7), lambda: next(answers))
        self.assertEqual(self.names(), [])
        self.hold(end, self.version(7))
        self.assertEqual(self.names(), ["step_7"])

    def test_what_others_made_is_refused_and_kept(self):
        write(self.target / "step_8", weights="the trainer's")
        write(self.target / "step_1", STABLE="")
        end = self.follower(keep=1)
        with self.assertRaisesRegex(FileExistsError, "not made by this bridge"):
            self.hold(end, self.version(8))
        self.hold(end, self.version(9))
        self.assertEqual(self.names(), ["step_1", "step_8", "step_9"])
        self.assertEqual((self.target / "step_8" / "weights").read_text(), "the trainer's")

    def test_a_version_without_the_marker_is_named(self):
        pin = self.version(7)
        os.unlink(os.path.join(pin.directory, "STABLE"))
        self.hold(self.follower(), pin)
        self.assertEqual(self.names(), [])
        self.assertEqual(len(self.logged()), 1)
        self.assertIn("no STABLE", self.logged()[0])

    def test_a_chain_has_the_steps_of_its_version(self):
        end = self.follower(CHAIN)
        directory = self.directory / "chain"
        for step in (1, 2, 3):
            write(directory / f"delta-{step:08d}", **{"manifest.json": str(step), "a": str(step)})
        pin = types.SimpleNamespace(version=3, directory=str(directory), digest="x")
        self.hold(end, pin)
        self.assertEqual(self.names(), [f"delta-0000000{step}" for step in (1, 2, 3)])
        made = os.stat(self.target / "delta-00000002").st_ino
        os.rename(directory / "delta-00000001", directory / "delta-00000004")
        self.hold(end, pin)
        self.assertEqual(self.names(), [f"delta-0000000{step}" for step in (2, 3, 4)])
        self.assertEqual(os.stat(self.target / "delta-00000002").st_ino, made)


class WaitTest(Temporary):
    def test_it_returns_when_the_marker_is_there_and_names_what_is_missing(self):
        with self.assertRaisesRegex(TimedOut, "step_3/STABLE"):
            directories.wait_for_step(self.directory, PRIME, 3, timeout=0.05)
        sleep = mock.Mock(side_effect=lambda _: write(self.directory / "step_3", STABLE=""))
        with mock.patch.object(directories.time, "sleep", sleep):
            directories.wait_for_step(self.directory, PRIME, 3)
        sleep.assert_called_once()


class CommandTest(Temporary):
    def test_a_wrong_layout_ends_it(self):
        with self.assertLogs() as said:
            self.assertEqual(directories.main(["follow", str(self.directory), "--step", "x", "--marker", "M"]), 2)
        self.assertIn("{step}", said.output[-1])
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
            directories.main(["follow", str(self.directory), "--step", "x"])


class SlimeTest(Temporary):
    def setUp(self):
        super().setUp()
        self.rank = 0
        torch = types.ModuleType("torch")
        torch.distributed = types.SimpleNamespace(get_rank=lambda: self.rank)
        with mock.patch.dict(sys.modules, {"torch": torch}):
            sys.modules.pop("weightcast.integrations.slime", None)
            from weightcast.integrations import slime
        self.addCleanup(delattr, weightcast.integrations, "slime")
        self.slime = slime
        self.origin = Origin()
        enter(self, mock.patch.object(slime, "Publisher", self.origin))

    def write(self, number, **metadata):
        directory = self.directory / f"weight_v{number:06d}"
        write(directory, **{"model.safetensors.index.json": json.dumps({"metadata": metadata}), "a.safetensors": ""})
        return str(directory)

    def test_rank_0_publishes_a_whole_version(self):
        path = self.write(7)
        self.rank = 1
        self.slime.post_write(None, path, [])
        self.assertEqual(self.origin.trees, {})
        self.rank = 0
        self.slime.post_write(None, path + "/", [])
        self.assertEqual(self.origin.trees, {7: ["a.safetensors", "model.safetensors.index.json"]})

    def test_a_delta_goes_with_those_before_it(self):
        for number in (1, 2):
            self.slime.post_write(None, self.write(number, delta_encoding="xor"), [])
        self.assertEqual([len(tree) for tree in self.origin.trees.values()], [2, 4])

    def test_the_empty_directory_before_the_first_version_is_not_published(self):
        self.slime.post_write(None, str(self.directory), [])
        self.assertEqual(self.origin.trees, {})

    def test_a_version_that_workers_do_not_get_fails(self):
        self.origin.fails = [TimedOut(Code.TIMED_OUT, "wait", "weightcast: 1 of 2")]
        with self.assertRaises(TimedOut):
            self.slime.post_write(None, self.write(3), [])


if __name__ == "__main__":
    unittest.main()
