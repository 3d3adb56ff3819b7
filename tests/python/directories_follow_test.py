"""Both ends of the bridge of directories, and slime's hooks, as processes with real daemons."""

import functools
import hashlib
import json
import os
import pathlib
import signal
import threading

import weightcast
from daemons import DaemonTest
from daemons import eventually as eventually_within

eventually = functools.partial(eventually_within, limit_s=60.0)
# What slime imports, for hooks in processes of their own.
TORCH = "import sys, types; sys.modules['torch'] = types.SimpleNamespace(distributed=types.SimpleNamespace(get_rank=lambda: 0));"


def digest(step):
    """Of everything in a step but what the bridge adds."""
    found = hashlib.sha256()
    for path in sorted(step.rglob("*")):
        if path.is_file() and path.name != ".weightcast":
            found.update(f"{path.relative_to(step)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


class BridgeTest(DaemonTest):
    layout = "prime-rl"
    worker_flags = ("--files",)

    def setUp(self):
        super().setUp()
        self.output, self.copies = self.directory / "output", self.directory / "copies"
        self.output.mkdir()
        self.digests = {}

    def bridge(self, end, directory, state, *flags):
        command = ("-m", "weightcast.integrations.directories", end, str(directory), "--like", self.layout, "--state", state)
        started = self.log_of(end).count(f"weightcast: {end} {directory}")
        process = self.start_python(end, *command, *flags)
        eventually(lambda: self.log_of(end).count(f"weightcast: {end} {directory}") > started)
        return process

    def publish(self):
        self.publishing = self.bridge("publish", self.output, self.origin.state)

    def follow(self, *flags):
        self.following = self.bridge("follow", self.copies, self.worker.state, *flags)

    def write(self, step, size=200_000):
        """A step without its marker."""
        path = self.output / f"step_{step}"
        path.mkdir()
        data = bytearray(hashlib.sha256(b"base").digest() * (size // 32))
        data[step * 64 : step * 64 + 8] = step.to_bytes(8, "little")
        (path / "model.bin").write_bytes(data)
        (path / "config.json").write_text(json.dumps({"step": step}))
        return path

    def complete(self, step, **arguments):
        path = self.output / f"step_{step}"
        if not path.exists():
            self.write(step, **arguments)
        (path / "STABLE").touch()
        self.digests[step] = digest(path)

    def expect(self, step):
        copy = self.copies / f"step_{step}"
        eventually((copy / "STABLE").exists)
        self.assertEqual(digest(copy), self.digests[step])

    def last(self):
        return max((one["version"] for one in weightcast.versions(self.origin.state)["versions"]), default=0)

    def terminate(self, process):
        process.terminate()
        self.assertEqual(process.wait(20), 0)


class DirectoryTest(BridgeTest):
    def test_steps_come_while_engines_look_for_them_and_each_is_whole(self):
        torn, stop = [], threading.Event()

        def look():
            while not stop.wait(0.001):
                for copy in self.copies.glob("step_*"):
                    step = int(copy.name.partition("_")[2])
                    # What a directory of that name holds at any time: what is published, the marker included.
                    if not (copy / "STABLE").exists() and copy.exists():
                        torn.append(step)

        engine = threading.Thread(target=look, daemon=True)
        engine.start()
        self.publish()
        self.follow()
        for step in range(1, 9):
            self.complete(step)
            self.expect(step)
        stop.set()
        engine.join()
        self.assertEqual(torn, [])
        # What is older goes once the newest is there.
        eventually(lambda: sorted(path.name for path in self.copies.glob("step_*")) == ["step_7", "step_8"])
        outcomes = {one["version"]: one for one in weightcast.history(self.origin.state)["publications"]}
        self.assertEqual(sorted(outcomes), list(range(1, 9)))
        self.terminate(self.publishing)
        self.terminate(self.following)

    def test_a_publisher_that_is_killed_publishes_no_step_twice(self):
        self.complete(1)
        self.publish()
        eventually(lambda: self.last() == 1)
        self.publishing.kill()
        self.publishing.wait()
        self.complete(2)
        self.publish()
        self.follow()
        self.expect(2)
        eventually(lambda: "step 2 is published" in self.log_of("publish"))
        self.assertNotIn("above", self.log_of("publish"))
        self.assertEqual([one["version"] for one in weightcast.history(self.origin.state)["publications"]], [1, 2])

    def test_a_follower_that_is_killed_in_the_middle_of_a_copy_makes_it_whole(self):
        self.publish()
        self.follow()
        self.complete(1)
        self.expect(1)
        for step in range(2, 8):
            self.complete(step, size=8_000_000)
            making = self.copies / ".weightcast" / "follow" / "making"
            eventually(lambda: making.exists() or (self.copies / f"step_{step}").exists())
            self.following.kill()
            self.following.wait()
            for copy in self.copies.glob("step_*"):
                self.assertEqual(digest(copy), self.digests[int(copy.name.partition("_")[2])])
            self.follow()
            self.expect(step)
        self.terminate(self.following)
        self.assertFalse(making.exists())

    def test_daemons_restart_and_it_goes_on(self):
        self.origin.keep_port()
        self.publish()
        self.follow()
        self.complete(1)
        self.expect(1)
        self.worker.kill()
        self.complete(2)
        eventually(lambda: self.last() == 2)
        self.worker.start()
        self.expect(2)
        self.origin.kill()
        self.complete(3)
        eventually(lambda: "it is tried again" in self.log_of("publish"))
        self.origin.start()
        self.expect(3)

    def test_a_version_that_was_superseded_before_the_follower_saw_it_is_left_out(self):
        self.publish()
        self.follow()
        self.complete(1)
        self.expect(1)
        self.following.send_signal(signal.SIGSTOP)
        for step in range(2, 8):
            self.complete(step)
            current = pathlib.Path(self.worker.state) / "current" / "config.json"
            eventually(lambda: json.loads(current.read_text())["step"] == step)
        self.following.send_signal(signal.SIGCONT)
        self.expect(7)
        self.assertIsNone(self.following.poll())

    def test_a_step_that_the_origin_refuses_does_not_hold_up_the_next_one(self):
        self.publish()
        self.follow()
        path = self.write(1)
        (path / "link").symlink_to("/etc/hostname")
        (path / "STABLE").touch()
        eventually(lambda: "step 1 is not published" in self.log_of("publish"))
        self.complete(2)
        self.expect(2)

    def test_sigterm_ends_both_where_there_is_no_daemon(self):
        self.origin.kill()
        self.worker.kill()
        self.complete(1)
        self.publish()
        self.follow()
        for end in ("publish", "follow"):
            eventually(lambda: "it is tried again" in self.log_of(end))
        self.terminate(self.publishing)
        self.terminate(self.following)


class ChainTest(BridgeTest):
    layout = "skyrl"

    def test_a_worker_that_joins_late_gets_every_step(self):
        self.publish()
        for step in (1, 2, 3):
            path = self.output / f"delta-{step:08d}"
            path.mkdir()
            (path / "a.safetensors").write_bytes(os.urandom(1000))
            (path / "manifest.json").write_text(json.dumps({"version": step}))
            self.digests[step] = digest(path)
            eventually(lambda: f"step {step} is published" in self.log_of("publish"))
        (self.output / "delta-00000004").mkdir()
        self.follow()
        for step in (1, 2, 3):
            copy = self.copies / f"delta-{step:08d}"
            eventually((copy / "manifest.json").exists)
            self.assertEqual(digest(copy), self.digests[step])
        self.assertFalse((self.copies / "delta-00000004").exists())


class SlimeTest(BridgeTest):
    def version(self, number, **metadata):
        path = self.output / f"weight_v{number:06d}"
        path.mkdir()
        (path / "a.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
        (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"version": number, **metadata}}))
        return path

    def hook(self, name, code, *arguments, state):
        return self.start_python(name, "-c", TORCH + "from weightcast.integrations import slime;" + code, *map(str, arguments),
                                 WEIGHTCAST_STATE=state)  # fmt: skip

    def post_write(self, path):
        return self.hook("post_write", "slime.post_write(None, sys.argv[1], [])", path, state=self.origin.state)

    def pre_read(self, number, read):
        """`read`: what SGLang does with source_dir then, in the process that has the version pinned."""
        code = f"slime.pre_read(sys.argv[1], {number}); import os, pathlib; source = pathlib.Path(sys.argv[1]);{read}"
        return self.hook("pre_read", code, self.copies, state=self.worker.state)

    def end(self, process, name):
        self.assertEqual(process.wait(60), 0, self.log_of(name))

    def test_a_whole_version_is_where_pull_weights_reads_it(self):
        path = self.version(1)
        self.end(self.post_write(path), "post_write")
        # Installed by then: nothing is waited for.
        self.assertEqual(json.loads((pathlib.Path(self.worker.state) / "current" / path.joinpath(
            "model.safetensors.index.json").name).read_text())["metadata"]["version"], 1)  # fmt: skip
        read = "import shutil; shutil.copytree(source / 'weight_v000001', sys.argv[1] + '.local')"
        self.end(self.pre_read(1, read), "pre_read")
        self.assertEqual(digest(self.directory / "copies.local"), digest(path))

    def test_deltas_come_with_those_before_and_a_pull_waits_for_its_version(self):
        for number in (1, 2):
            self.end(self.post_write(self.version(number, delta_encoding="xor")), "post_write")
        read = "print('read', *sorted(os.listdir(source)), *(p.name for p in (source / 'weight_v000002').iterdir()), flush=True)"
        self.end(self.pre_read(2, read), "pre_read")
        self.assertIn("read weight_v000001 weight_v000002 ", self.log_of("pre_read"))
        waiting = self.pre_read(3, "print('third', flush=True)")
        path = self.version(3, delta_encoding="xor")
        self.assertIsNone(waiting.poll())
        self.end(self.post_write(path), "post_write")
        self.end(waiting, "pre_read")
        self.assertIn("third", self.log_of("pre_read"))

    def test_a_number_that_the_origin_has_had_ends_the_hook(self):
        path = self.version(1)
        self.end(self.post_write(path), "post_write")
        self.assertNotEqual(self.post_write(path).wait(60), 0)
        self.assertIn("empty state directory", self.log_of("post_write"))


if __name__ == "__main__":
    import unittest

    unittest.main()
