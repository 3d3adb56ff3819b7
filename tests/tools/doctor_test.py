"""Plants faults on this host, one after the other, each by what causes it in the field: limits, mounts, seccomp, a
clock, ports and networks. `weightcast doctor` has to find each of them, and nothing else that it does not find without.

    doctor_test.py WEIGHTCAST CLOCK_SHIM

Namespaces keep all of it from the rest of the host. Status 77 where this user may not make them.
"""

import ctypes
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

LIMIT_S = 120
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SYS_io_uring_setup = 425
EPERM = 1


def forbid_io_uring():
    """As a container's seccomp profile does."""

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    # Load the number of the call; the one that is forbidden fails with EPERM, all others pass.
    code = b"".join(
        struct.pack("HBBI", *one)
        for one in ((0x20, 0, 0, 0), (0x15, 0, 1, SYS_io_uring_setup), (0x06, 0, 0, 0x00050000 | EPERM), (0x06, 0, 0, 0x7FFF0000))
    )  # fmt: skip
    buffer = ctypes.create_string_buffer(code, len(code))
    program = Program(4, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


class Host:
    """A directory, an origin's port that answers, keys: a host on which nothing is wrong but what it has anyhow."""

    def __init__(self, weightcast, directory):
        self.weightcast = weightcast
        self.directory = directory
        self.state = directory / "state"
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.origin = f"127.0.0.1:{self.listener.getsockname()[1]}"
        subprocess.run([weightcast, "keys", "init", "--dir", directory / "keys"], check=True, capture_output=True)
        self.keys = directory / "keys" / "origin.pem"

    def examine(self, within=(), preexec=None, environment=None, **flags):
        """The findings that are not ok: {check: level}."""
        given = {"state": self.state, "origin": self.origin, "listen": "127.0.0.1:0", "keys": self.keys,
                 "snapshot": "64KiB", **flags}  # fmt: skip
        command = [self.weightcast, "doctor", "--json"]
        for name, value in given.items():
            command += [f"--{name}", value]
        ran = subprocess.run(
            [str(one) for one in (*within, *command)], preexec_fn=preexec, env={**os.environ, **(environment or {})},
            capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        try:
            findings = json.loads(ran.stdout)
        except ValueError:
            raise AssertionError(f"{command}: {ran.returncode} {ran.stdout} {ran.stderr}") from None
        for one in findings:
            assert (one["remedy"] != "") == (one["level"] != "ok"), f"a remedy, and only for what is wrong: {one}"
        has_fault = any(one["level"] == "fault" for one in findings)
        assert ran.returncode == (1 if has_fault else 0), f"status {ran.returncode}: {findings}"
        said = re.fullmatch(r"weightcast: [0-9]+ faults?, [0-9]+ warnings?; .*\n", ran.stderr)
        assert said if has_fault else ran.stderr == "", f"on stderr: {ran.stderr}"
        # How fast the disk is while other tests run, and what their nodes leave in memory, nobody plants.
        of_others = (("state-speed", "warning"), ("memory-left", "warning"))
        told = [(one["check"], one["level"]) for one in findings if one["level"] != "ok"]
        return dict(one for one in told if one not in of_others)

    def mounted(self, script, *arguments):
        """A prefix: what follows runs where `script` has mounted something."""
        return ("unshare", "--mount", "sh", "-c", f'set -e; {script}; exec "$@"', "sh", *arguments)


def plants(host, clock_shim):
    """Name, how it is planted, and what has to be found."""
    directory = host.directory
    few = directory / "congestion"
    few.write_text("reno cubic\n")
    readable = directory / "readable.pem"
    shutil.copy(host.keys, readable)
    readable.chmod(0o644)
    clock = directory / "clock"
    clock.write_bytes(struct.pack("q", 10 * 365 * 86400))
    deep = directory / ("d" * 60) / ("e" * 60)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    read_only = directory / "read-only"
    read_only.mkdir()
    tmpfs = directory / "tmpfs"
    tmpfs.mkdir()
    alone = ("unshare", "--net")
    yield "256 descriptors", {"preexec": few_descriptors}, {"descriptors": "fault"}
    yield "io_uring forbidden by seccomp", {"preexec": forbid_io_uring}, {"io_uring": "warning"}
    yield ("a kernel without BBR",
           {"within": host.mounted(f"mount --bind {few} /proc/sys/net/ipv4/tcp_available_congestion_control")},
           {"bbr": "warning"})  # fmt: skip
    yield "keys that others may read", {"keys": readable}, {"keys": "fault"}
    yield ("a clock that is ten years ahead",
           {"environment": {"LD_PRELOAD": clock_shim, "WEIGHTCAST_TEST_CLOCK": str(clock)}}, {"keys": "fault"})  # fmt: skip
    yield ("a state directory on a read-only mount",
           {"within": host.mounted(f"mount --bind {read_only} {read_only}; mount -o remount,bind,ro {read_only}"),
            "state": read_only / "state"}, {"state-directory": "fault"})  # fmt: skip
    yield ("a small, full tmpfs for the state",
           {"within": host.mounted(f"mount -t tmpfs -o size=1m none {tmpfs}; "
                                   f"head -c 1m /dev/zero > {tmpfs}/full || true"), "state": tmpfs},
           {"state-filesystem": "fault", "state-space": "fault"})  # fmt: skip
    yield ("a state directory in memory", {"within": host.mounted(f"mount -t tmpfs -o size=300m none {tmpfs}"), "state": tmpfs},
           {"state-filesystem": "fault"})  # fmt: skip
    yield "versions that do not fit the disk", {"snapshot": "900000GiB"}, {"state-space": "fault", "memory-directory": "warning"}
    yield ("versions in memory that do not fit there", {"versions-in": "memory", "snapshot": "900000GiB"},
           {"state-space": "fault", "memory-directory": "fault"})  # fmt: skip
    small_disk = host.mounted(f"mount -t tmpfs -o size=1m none {tmpfs}; mount -t tmpfs -o size=200m none /dev/shm")
    yield ("a small disk under versions that fit in memory", {"within": small_disk, "state": tmpfs, "keep": 100},
           {"state-filesystem": "fault"})  # fmt: skip
    yield ("a small disk", {"within": small_disk, "state": tmpfs, "keep": 100, "versions-in": "disk"},
           {"state-filesystem": "fault", "state-space": "fault"})  # fmt: skip
    yield ("less memory allowed than versions take", {"memory-max": "128KiB"}, {"memory-directory": "warning"})
    yield "a path that no socket takes", {"state": deep}, {"socket-path": "fault"}
    yield ("a /dev/shm as a container has it", {"within": host.mounted("mount -t tmpfs -o size=128k none /dev/shm")},
           {"memory-directory": "warning"})  # fmt: skip
    yield ("an origin whose name nobody knows", {"origin": "no-such-host.invalid:7400", "listen": "0.0.0.0:0"},
           {"origin-name": "fault"})  # fmt: skip
    yield "an origin's port where nobody listens", {"origin": nobody}, {"origin-port": "fault"}
    yield ("no network", {"within": alone, "origin": "192.0.2.1:7400", "listen": "0.0.0.0:0"}, {"origin-port": "fault"})
    yield ("a worker that listens where nobody reaches it", {"within": alone, "origin": "192.0.2.1:7400", "listen": "127.0.0.1:0"},
           {"origin-port": "fault", "listen-address": "fault"})  # fmt: skip
    yield "a port that is taken", {"listen": host.origin}, {"listen-port": "fault"}
    yield "another host's address to listen on", {"listen": "192.0.2.7:7400"}, {"listen-port": "fault"}
    yield "a peer that does not answer", {"peer": nobody}, {"peer-port": "fault"}


def main(weightcast, clock_shim):
    # A directory in memory would be a fault of its own.
    with tempfile.TemporaryDirectory(prefix="weightcast-doctor-", dir="/var/tmp") as directory:
        host = Host(weightcast, pathlib.Path(directory))
        without = host.examine()
        assert "fault" not in without.values(), f"nothing is planted, and there is a fault: {without}"
        left = sorted(one.name for one in host.state.iterdir())
        assert left == [], f"it has left {left} in the state directory"
        found = 0
        for name, how, expected in plants(host, clock_shim):
            findings = host.examine(**how)
            wanted = {**without, **expected}
            # What this host has anyhow may be hidden by a fault that comes first.
            unexpected = {check: level for check, level in findings.items() if wanted.get(check) != level}
            missing = {check: level for check, level in expected.items() if findings.get(check) != level}
            assert not unexpected and not missing, f"{name}: found {findings}, expected {expected} beside {without}"
            print(f"found: {name}: {', '.join(expected)}")
            found += 1
        assert found >= 12
        print(f"{found} planted, {found} found; this host has by itself: {without}")
        host.listener.close()


if __name__ == "__main__":
    may = subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True)
    if may.returncode != 0:
        print(f"skipped: this user may not make namespaces: {may.stderr.decode().strip()}")
        sys.exit(77)
    try:
        main(pathlib.Path(sys.argv[1]).resolve(), os.path.abspath(sys.argv[2]))
    except AssertionError as failure:
        print(failure, file=sys.stderr)
        sys.exit(1)
