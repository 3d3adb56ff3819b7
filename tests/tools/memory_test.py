"""What nodes leave in memory and on the disk of their host, and who may look into it: real daemons, and what users and
attackers do beside them."""

import array
import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import weightcast  # noqa: E402
from daemons import PROGRAM, DaemonTest, eventually  # noqa: E402

LIMIT_S = 60
CLONE_NEWNS = 0x20000


def run(*command, **options):
    return subprocess.run([PROGRAM, *map(str, command)], capture_output=True, text=True, timeout=LIMIT_S, **options)


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


class Memory(DaemonTest):
    origin_flags = ("--versions-in", "memory")

    def publish(self, version=None, state=None):
        with weightcast.Publisher(state or self.origin.state) as publisher:
            return publisher.publish({"weight": array.array("f", range(1 << 16))}, **({"version": version} if version else {}))

    def directories(self):
        return sorted(pathlib.Path(self.memory).glob("weightcast-*"))

    def durable(self, daemon, version=1):
        def is_durable():
            told = json.loads(run("versions", "--state", daemon.state, "--json").stdout or "{}")
            return any(one["version"] == version and one["durable"] for one in told.get("versions", told))

        eventually(is_durable)

    def test_what_a_deleted_node_left_goes_with_the_next_start(self):
        self.publish()
        self.origin.kill()
        shutil.rmtree(self.origin.state)
        self.assertEqual(len(self.directories()), 1)
        self.start("other", "--role", "origin", "--listen", "127.0.0.1:0", "--versions-in", "disk")
        self.assertEqual(self.directories(), [])

    def test_what_a_running_node_has_stays(self):
        self.publish()
        self.durable(self.origin)

        def is_gone():
            shutil.rmtree(self.origin.state, ignore_errors=True)
            return not os.path.exists(self.origin.state)

        eventually(is_gone)
        self.start("other", "--role", "origin", "--listen", "127.0.0.1:0", "--versions-in", "disk")
        self.assertEqual(len(self.directories()), 1)
        found = run("doctor", "--memory-dir", self.memory, "--mend", "--json")
        self.assertEqual(len(self.directories()), 1, found.stdout)

    def test_the_doctor_finds_and_mends_it(self):
        self.publish()
        self.origin.kill()
        shutil.rmtree(self.origin.state)

        def finding(*flags):
            told = json.loads(run("doctor", "--memory-dir", self.memory, "--json", *flags).stdout)
            return next(one for one in told if one["check"] == "memory-left")

        found = finding()
        self.assertEqual(found["level"], "warning", found)
        self.assertIn(self.origin.state, found["what"])
        self.assertIn("doctor --mend", found["remedy"])
        self.assertEqual(len(self.directories()), 1)
        self.assertEqual(finding("--mend")["level"], "ok")
        self.assertEqual(self.directories(), [])

    def test_remove_ends_a_node_and_leaves_nothing(self):
        self.publish()
        told = run("remove", "--state", self.origin.state)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(self.origin.process.wait(LIMIT_S), 0)
        self.assertFalse(os.path.exists(self.origin.state))
        self.assertEqual(self.directories(), [])
        again = run("remove", "--state", self.origin.state)
        self.assertEqual(again.returncode, 1)
        self.assertIn("no such directory", again.stderr)

    def test_remove_finds_the_memory_of_a_directory_that_is_gone(self):
        self.publish()
        self.origin.kill()
        shutil.rmtree(self.origin.state)
        told = run("remove", "--state", self.origin.state, "--memory-dir", self.memory)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(self.directories(), [])

    def test_remove_takes_nothing_that_is_not_a_nodes(self):
        papers = self.directory / "papers"
        papers.mkdir()
        (papers / "versions").mkdir()
        (papers / "thesis").write_text("x")
        told = run("remove", "--state", papers)
        self.assertEqual(told.returncode, 1)
        self.assertIn("nothing was removed", told.stderr)
        notes = pathlib.Path(self.origin.state) / "notes"
        notes.write_text("x")
        told = run("remove", "--state", self.origin.state)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn(f"{notes} stays", told.stdout)
        self.assertEqual(os.listdir(self.origin.state), ["notes"])

    def test_a_state_directory_that_was_moved_takes_its_versions_along(self):
        self.publish()
        self.durable(self.origin)
        before = self.directories()
        self.origin.stop()
        os.rename(self.origin.state, self.directory / "moved")
        moved = self.start("moved", "--role", "origin", "--listen", "127.0.0.1:0", *self.origin_flags)
        self.assertEqual(len(self.directories()), 1)
        self.assertNotEqual(self.directories(), before)
        self.assertEqual(moved.node()["version"], 1)

    def test_two_roles_in_one_directory_are_refused(self):
        self.origin.stop()
        told = run("daemon", "--role", "worker", "--state", self.origin.state, "--listen", "127.0.0.1:0", "--origin", "127.0.0.1:1",
                   "--insecure")  # fmt: skip
        self.assertEqual(told.returncode, 2, told.stderr)
        self.assertIn("it is the directory of an origin", told.stderr)

    def test_a_second_daemon_changes_nothing_of_the_first(self):
        self.publish()
        for place in ("disk", "memory", "auto"):
            told = run("daemon", "--role", "origin", "--state", self.origin.state, "--listen", "127.0.0.1:0", "--insecure",
                       "--memory-dir", self.memory, "--versions-in", place)  # fmt: skip
            self.assertEqual(told.returncode, 1, told.stderr)
            self.assertIn(f"in use by process {self.origin.process.pid}", told.stderr)
            self.assertTrue(os.path.exists(f"{self.origin.state}/memory/versions"))

    def test_planted_files_harm_neither_daemon_nor_doctor(self):
        for index, plant in enumerate((
            lambda path: (path / "claim").write_text("1" * 30),
            lambda path: os.mkfifo(path / "claim"),
            lambda path: (path / "claim").symlink_to("/dev/zero"),
            lambda path: (path / "claim").mkdir(),
        )):  # fmt: skip
            for user in (os.geteuid(), os.geteuid() + 1):
                for name in (f"weightcast-{user}-{index:016x}", f"weightcast-{index}-{user}"):
                    path = pathlib.Path(self.memory) / name
                    path.mkdir()
                    plant(path)
        worker = self.start_worker("worker", "--versions-in", "auto")
        version = self.publish()
        eventually(lambda: worker.node()["version"] == version)
        found = run("doctor", "--state", self.directory / "new", "--memory-dir", self.memory, "--json")
        self.assertIn("memory-directory", found.stdout)

    def test_others_cannot_look_into_a_node(self):
        self.publish()
        self.assertEqual(mode(self.origin.state), 0o700)
        self.assertEqual(mode(self.directories()[0]), 0o700)
        for root in (self.origin.state, self.directories()[0]):
            for directory, names, files in os.walk(root):
                for name in names + files:
                    path = os.path.join(directory, name)
                    if not os.path.islink(path):
                        self.assertEqual(mode(path) & 0o077, 0, path)

    def test_a_directory_that_was_open_is_closed(self):
        self.origin.stop()
        os.chmod(self.origin.state, 0o755)
        self.origin.start()
        self.assertEqual(mode(self.origin.state), 0o700)

    def test_versions_in_memory_that_somebody_deletes_come_back(self):
        worker = self.start_worker("worker", "--versions-in", "memory", "--http", "127.0.0.1:0")
        version = self.publish()
        eventually(lambda: worker.node()["version"] == version)
        self.durable(self.origin)
        for path in self.directories():
            shutil.rmtree(path)
        for daemon in (self.origin, worker):
            current = pathlib.Path(daemon.state) / "current"
            eventually(lambda current=current: (current / "model.safetensors").exists())
            eventually(lambda daemon=daemon: run("ready", "--state", daemon.state, "--timeout", "5").returncode == 0)
            self.assertIn("somebody had deleted", daemon.node()["versions_in_why"])
        newer = self.publish()
        self.assertEqual(newer, version + 1)
        eventually(lambda: worker.node()["version"] == newer)
        for daemon in (self.origin, worker):
            self.assertIsNone(daemon.process.poll())

    def test_status_tells_at_once_that_versions_are_gone(self):
        self.publish()
        self.durable(self.origin)
        for path in self.directories():
            shutil.rmtree(path)
        try:
            why = self.origin.node()["versions_in_why"]
        except weightcast.Error:
            return  # it makes them anew at this moment
        self.assertIn("deleted", why)


class OnDisk(DaemonTest):
    origin_flags = ("--versions-in", "disk")
    worker_flags = ("--versions-in", "disk")

    def publish(self, **options):
        with weightcast.Publisher(self.origin.state) as publisher:
            version = publisher.publish({"weight": array.array("f", range(1 << 16))}, **options)
        eventually(lambda: self.worker.node()["version"] == version)
        return version

    def delete(self, daemon, folder):
        shutil.rmtree(pathlib.Path(daemon.state) / folder)
        eventually(lambda: (pathlib.Path(daemon.state) / folder).is_dir())
        eventually(lambda: run("ready", "--state", daemon.state, "--timeout", "5").returncode == 0)
        self.assertIn("somebody had deleted", daemon.node()["versions_in_why"])

    def test_folders_that_somebody_deletes_come_back(self):
        version = self.publish()
        for folder in ("versions", "records", "incoming"):
            self.delete(self.worker, folder)
            eventually(lambda: self.worker.node()["version"] == version)
            self.assertTrue((pathlib.Path(self.worker.state) / "current" / "model.safetensors").exists())
        # The origin has none of which its worker's is one: the worker gets the next that is greater.
        self.delete(self.origin, "versions")
        self.publish(version=version + 1)
        for daemon in (self.origin, self.worker):
            self.assertIsNone(daemon.process.poll())

    def test_a_state_directory_that_is_deleted_as_a_whole_stays_so(self):
        self.publish()
        shutil.rmtree(self.worker.state)
        time.sleep(2.5)
        self.assertFalse(pathlib.Path(self.worker.state).exists())


class FullDisk(DaemonTest):
    """An origin with versions in memory, whose state lies on a small file system: a mount in a namespace of its own."""

    SCRIPT = """set -e
cd "$1"
mkdir small && mount -t tmpfs -o size=2m none small
start() {
  "$0" daemon --role origin --state small/origin --listen 127.0.0.1:0 --insecure --http 127.0.0.1:0 --versions-in memory --memory-dir "$2" 2>>full.log &
  pid=$!
  "$0" ready --state small/origin --timeout 30
}
start "$@"
mkdir tree && head -c 300000 /dev/urandom >tree/weights.bin
"$0" publish tree --files --version 1 --state small/origin
for i in $(seq 100); do "$0" versions --state small/origin --json | grep -q '"durable": *true' && break; sleep 0.1; done
kill -$3 $pid
wait $pid || true
cat /dev/zero >small/full || true
start "$@"
"$0" versions --state small/origin --json
kill $pid
wait $pid
"""

    def test_an_origin_with_versions_in_memory_starts(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
            self.skipTest("this user may not mount")
        for signal in ("TERM", "KILL"):
            directory = self.directory / signal
            directory.mkdir()
            command = ["unshare", "--mount", "bash", "-c", self.SCRIPT, PROGRAM, directory, self.memory, signal]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_S)
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr + (directory / "full.log").read_text())
            self.assertRegex(ran.stdout, '"version": *1')


class SmallDisk(DaemonTest):
    """Programs that write to a small file system: a mount in a namespace of this process's own."""

    def small(self, name, size="2m"):
        """The directory of that name, with a file system of that size."""
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
            self.skipTest("only root may mount")
        if subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True).returncode != 0:
            self.skipTest("this user may not mount")
        path = self.directory / name
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", path], check=True)
        return path

    def publish(self, version, size, *flags):
        path = self.directory / f"files-{version}"
        path.mkdir()
        (path / "weights.bin").write_bytes(os.urandom(size))
        return run("publish", path, "--files", "--version", version, "--state", self.origin.state, *flags)

    def test_a_wait_ends_early_for_a_worker_whose_disk_is_full_and_names_the_reason(self):
        self.small("full")
        worker = self.start_worker("full", "--versions-in", "disk", "--files")
        began = time.monotonic()
        told = self.publish(1, 8 << 20, "--wait", 1, "--timeout", 50)
        self.assertEqual(told.returncode, 1, told.stdout)
        self.assertLess(time.monotonic() - began, 40, told.stderr)
        self.assertRegex(told.stderr, r"0 of 1 workers installed it within [0-9.]+ s, 100 % were to; missing: full \(.*(space|free)")
        self.assertIn(worker.node()["last_error"].split(": ", 2)[2], told.stderr)
        with weightcast.Publisher(self.origin.state) as publisher, self.raises(weightcast.Code.TIMED_OUT, "the others cannot: full: .*(space|free)"):
            publisher.wait(1, installed=1.0, timeout=50)

    def test_a_wait_goes_on_for_whom_it_does_not_need(self):
        self.small("full")
        self.start_worker("full", "--versions-in", "disk", "--files")
        self.start_worker("roomy", "--versions-in", "disk", "--files")
        told = self.publish(1, 8 << 20, "--wait", 0.5, "--timeout", 50)
        self.assertEqual(told.returncode, 0, told.stderr)

    def test_an_archive_that_follows_goes_on_when_its_disk_has_space_again(self):
        place = self.small("archive")
        log = open(self.directory / "archive.log", "ab")
        self.addCleanup(log.close)
        self.publish(1, 300_000)
        command = [PROGRAM, "archive", "--state", self.origin.state, "--to", place, "--follow"]
        archive = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.addCleanup(archive.wait)
        self.addCleanup(archive.kill)

        def said():
            return (self.directory / "archive.log").read_text()

        eventually(lambda: "trying again" in said() or "of which" in said())
        filler = place / "filler"
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        before = said().count("of which")
        self.publish(2, 400_000)
        eventually(lambda: "space" in said().lower() and "trying again" in said())
        self.assertIsNone(archive.poll(), said())
        filler.unlink()
        eventually(lambda: said().count("of which") > before, LIMIT_S)


if __name__ == "__main__":
    unittest.main()
