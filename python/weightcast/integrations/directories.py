"""Trainers that hand weights over as directories on a shared disk: the same directories without that disk.

    python -m weightcast.integrations.directories publish OUTPUT --like prime-rl     # on the trainer's host
    python -m weightcast.integrations.directories follow OUTPUT --like prime-rl      # on each engine's host

The first publishes each step that the trainer has completed, through the origin of its host. The second makes the same path
hold the same files on a host whose worker takes --files. Either may be killed and started again at any moment.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Optional

from .. import _program
from .._errors import Code, Error, TimedOut
from .._library import PathLike
from .._publisher import Publisher
from .._subscription import EventKind, Pin, Subscription

_LOOK_S = 0.2  # between looks at the trainer's directory, and the longest that SIGTERM waits for a daemon's answer
_MARKER_LOOK_S = 0.02  # a look costs microseconds
_RETRY_S = 1.0  # after an error that may pass, doubled up to the next one
_RETRY_S_MAX = 30.0
_COPY_BYTES = 64 << 20  # between two looks at SIGTERM
_WORK = ".weightcast"  # of each end, in the directory: its lock, and what is being made
_RECORD = ".weightcast"  # in each step that follow has made: of what, and since which start of the host

Stopped = Callable[[], bool]


@dataclass(frozen=True)
class Layout:
    """How a project names its steps, and how it marks a complete one."""

    step: str  # the directory's name, with "{step}" or "{step:08d}"
    marker: str  # the file in it that the trainer writes last
    settle_s: float = 0.0  # how old the marker has to be, where others are written beside or after it
    is_chain: bool = False  # a step is a change to the one before, so a version holds all of them

    def __post_init__(self) -> None:
        if not self.marker or os.path.basename(self.marker) != self.marker or self._pattern() is None:
            why = "give the name of a directory with {step} or {step:08d}, and the name of a file in it"
            raise ValueError(f"weightcast: step {self.step!r}, marker {self.marker!r}: {why}")

    def _pattern(self) -> Optional[re.Match[str]]:
        return re.fullmatch(r"([^{}/]*)\{step(?::0[0-9]+d)?\}([^{}/]*)", self.step)

    def name(self, step: int) -> str:
        return self.step.format(step=step)

    def number(self, name: str) -> Optional[int]:
        """Which step a directory's name stands for; None: none that a version can have as its number, which begins with 1."""
        before, after = self._pattern().groups()
        found = re.fullmatch(f"{re.escape(before)}([0-9]+){re.escape(after)}", name)
        step = int(found[1]) if found else 0
        return step if 0 < step < 2**63 and self.name(step) == name else None

    def complete(self, directory: str) -> list[int]:
        """The steps below `directory` that are complete, ascending."""
        steps = []
        for name in os.listdir(directory) if os.path.isdir(directory) else ():
            step = self.number(name)
            if step is None:
                continue
            try:
                age_s = time.time() - os.stat(os.path.join(directory, name, self.marker)).st_mtime
            except (FileNotFoundError, NotADirectoryError):
                continue
            if age_s >= self.settle_s:
                steps.append(step)
        return sorted(steps)


#: By project: prime-rl at commit 559b447, AReaL at 4aef98d, SkyRL at a956457 were read.
LAYOUTS = {
    "prime-rl": Layout("step_{step}", "STABLE"),
    "areal": Layout("weight_update_v{step}", "tokenizer.json", settle_s=1.0),
    "skyrl": Layout("delta-{step:08d}", "manifest.json", is_chain=True),
}


def wait_for_step(directory: PathLike, layout: Layout, step: int, *, timeout: float = 600.0) -> None:
    """Returns when `directory` holds the step: for an engine that is told of steps before its host has them.

    Errors: TimedOut.
    """
    deadline = time.monotonic() + timeout
    marker = os.path.join(os.fspath(directory), layout.name(step), layout.marker)
    while not os.path.exists(marker):
        if time.monotonic() >= deadline:
            why = f"weightcast: {marker} is not there after {timeout:g} s; look at the logs of publish and follow"
            raise TimedOut(Code.TIMED_OUT, "wait", why)
        time.sleep(_MARKER_LOOK_S)


class _End:
    """One of the two ends: one of each kind per directory, whose files in work are its own."""

    def __init__(self, directory: PathLike, layout: Layout, kind: str, log: Any) -> None:
        self._directory, self._layout, self._log = os.path.abspath(os.fspath(directory)), layout, log
        self._work = os.path.join(self._directory, _WORK, kind)
        self._said = ""

    def _path(self, step: int) -> str:
        return os.path.join(self._directory, self._layout.name(step))

    def _lock(self) -> Any:
        """Errors: OSError (another process has it)."""
        os.makedirs(self._work, exist_ok=True)
        lock = open(f"{self._work}.lock", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise OSError(f"weightcast: {self._directory} has a process of this kind already: stop that one first") from None
        return lock

    def _repeat(self, follow: Callable[[Callable[[], None]], None], is_stopped: Stopped) -> None:
        """Calls follow() until is_stopped(), ever more rarely while it fails. It calls what it is given when it has come further."""
        retry_s = _RETRY_S

        def got_further() -> None:
            nonlocal retry_s
            retry_s = _RETRY_S

        while not is_stopped():
            try:
                follow(got_further)
            except (Error, OSError) as error:
                self._say(f"{error}; it is tried again")
                _sleep(retry_s, is_stopped)
                retry_s = min(2 * retry_s, _RETRY_S_MAX)

    def _say(self, what: str) -> None:
        """Once, while it stays the same."""
        if what and what != self._said:
            self._log.warning("weightcast: %s", what)
        self._said = what


class StepPublisher(_End):
    """Follows the trainer's output and publishes each complete step once, under its own number.

    What counts as published is what the origin says: each number up to its last version's, over restarts of both.
    """

    def __init__(
        self, directory: PathLike, layout: Layout, state_dir: Optional[PathLike] = None, *, steps_max: int = 64,
        timeout: float = 600.0, log: Any = logging.getLogger("weightcast.directories"),
    ) -> None:  # fmt: skip
        """`directory`: where the steps come to lie; it need not exist yet. `state_dir`: the origin's. `steps_max`: how many
        steps of a chain a version holds, the newest ones. `timeout`: seconds until the origin has its own copy of a step.

        Errors: ValueError.
        """
        super().__init__(directory, layout, "publish", log)
        if steps_max < 1 or not timeout > 0:
            raise ValueError(f"weightcast: steps_max={steps_max}, timeout={timeout}: give at least one step, and seconds")
        self._state_dir, self._steps_max, self._timeout = state_dir, steps_max, timeout
        self._done: set[int] = set()  # steps that lie there and are published, or refused
        self._is_first_look = True  # since the origin was connected

    def run(self, is_stopped: Stopped) -> None:
        """Returns soon after is_stopped(), which is asked a few times a second. Errors: OSError."""
        while not os.path.isdir(self._directory):  # a trainer may refuse to begin in one that is there
            if is_stopped():
                return
            time.sleep(_LOOK_S)

        def follow(got_further: Callable[[], None]) -> None:
            self._is_first_look = True  # what the origin has by now, it may have from here
            with Publisher(self._state_dir) as publisher:
                while not is_stopped():
                    self._publish_new(publisher, is_stopped)
                    got_further()
                    time.sleep(_LOOK_S)

        with self._lock():
            self._repeat(follow, is_stopped)

    def _publish_new(self, publisher: Publisher, is_stopped: Stopped) -> None:
        steps = self._layout.complete(self._directory)
        self._done &= set(steps)  # the trainer may write a deleted one anew
        new = [step for step in steps if step not in self._done]
        if not new:
            return
        last = publisher.next_version() - 1
        old = [step for step in new if step <= last]
        if old and not self._is_first_look:
            self._log.warning(
                "weightcast: steps %s are not above the origin's last version %d, so they count as published. A run that begins "
                "again needs an origin with an empty state directory", old, last,
            )  # fmt: skip
        self._done.update(old)
        self._is_first_look = False
        new = new[len(old) :]
        for step in new[-1:] if self._layout.is_chain else new:
            if is_stopped():
                return
            self._publish(publisher, step, steps, is_stopped)
        self._done.update(new)

    def _publish(self, publisher: Publisher, step: int, steps: list[int], is_stopped: Stopped) -> None:
        began = time.monotonic()
        path = self._chain(steps) if self._layout.is_chain else self._path(step)
        try:
            publisher.publish_files(path, version=step, timeout=self._timeout)
            self._wait(publisher, step, is_stopped)
        except Error as error:
            if step not in self._layout.complete(self._directory):
                self._log.warning("weightcast: step %d was deleted before the origin had its copy", step)
                return
            if error.code not in (Code.CORRUPT, Code.INVALID_ARGUMENT, Code.TOO_LARGE, Code.UNSUPPORTED):
                raise
            self._log.error("weightcast: step %d is not published: %s", step, error)
            return
        if not is_stopped():
            self._say("")
            self._log.info("weightcast: step %d is published, %.2f s after it was found", step, time.monotonic() - began)

    def _wait(self, publisher: Publisher, step: int, is_stopped: Stopped) -> None:
        """Until the origin has its own copy: then the trainer may delete the step."""
        deadline = time.monotonic() + self._timeout
        while not is_stopped():
            try:
                publisher.wait(step, timeout=_LOOK_S)
                return
            except TimedOut:
                if time.monotonic() >= deadline:
                    raise

    def _chain(self, steps: list[int]) -> str:
        """A directory with the newest complete steps alone: of the one that the trainer is writing nothing is in it."""
        shutil.rmtree(self._work, ignore_errors=True)
        for step in steps[-self._steps_max :]:
            for source, target in _files(self._path(step), os.path.join(self._work, self._layout.name(step))):
                try:
                    os.link(source, target)
                except OSError:  # a file system without hard links
                    shutil.copy2(source, target)
        return self._work


class StepFollower(_End):
    """Makes the directory hold the steps that this host's daemon has installed, each one complete at once.

    A step is copied to another name, its marker last, and renamed. It touches no directory that it has not made.
    """

    def __init__(
        self, directory: PathLike, layout: Layout, state_dir: Optional[PathLike] = None, *, keep: int = 2,
        log: Any = logging.getLogger("weightcast.directories"),
    ) -> None:  # fmt: skip
        """`directory`: where engines look for the steps. `state_dir`: the daemon's of this host. `keep`: how many steps
        stay, the newest ones; of a chain all that the version holds. Errors: ValueError."""
        super().__init__(directory, layout, "follow", log)
        if keep < 1:
            raise ValueError(f"weightcast: keep={keep}: give at least one step")
        self._state_dir, self._keep = state_dir, keep
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot_id:
            # After a crash of the host a file may lack what was written last, so what was made before is made again.
            self._boot = boot_id.read().strip()

    def run(self, is_stopped: Stopped) -> None:
        """Returns soon after is_stopped(), which is asked a few times a second. Errors: OSError (see the text)."""

        def follow(got_further: Callable[[], None]) -> None:
            # Anew also where a version gave way to a newer one: a new subscription tells which one is in use.
            with Subscription(self._state_dir) as subscription:
                while not is_stopped():
                    event = subscription.next(_LOOK_S)
                    if event is not None and event.kind is EventKind.INSTALLED:
                        with subscription.acquire() as pin:
                            self._hold(pin, is_stopped)
                        got_further()

        with self._lock():
            try:
                self._repeat(follow, is_stopped)
            except _Stopped:
                pass
            shutil.rmtree(self._work, ignore_errors=True)

    def _hold(self, pin: Pin, is_stopped: Stopped) -> None:
        shutil.rmtree(self._work, ignore_errors=True)  # what an end in the middle has left
        if self._layout.is_chain:
            steps = {step: os.path.join(pin.directory, self._layout.name(step)) for step in replace(
                self._layout, settle_s=0.0).complete(pin.directory)}  # fmt: skip
        elif os.path.isfile(os.path.join(pin.directory, self._layout.marker)):
            steps = {pin.version: pin.directory}
        else:
            steps = {}
        if not steps:
            self._say(f"version {pin.version} has no {self._layout.marker}: publish by the same layout as is followed")
            return
        for step, source in sorted(steps.items()):
            identity = self._identity(pin, source)
            if self._record(step) == identity:
                continue
            began = time.monotonic()
            self._make(step, source, identity, is_stopped)
            self._say("")
            self._log.info("weightcast: step %d is there, %.2f s after its install", step, time.monotonic() - began)
        self._prune(set(steps))

    def _identity(self, pin: Pin, source: str) -> str:
        """Of a step's content: versions of another run may have the same numbers."""
        if not self._layout.is_chain:
            return f"{pin.digest} {self._boot}\n"
        with open(os.path.join(source, self._layout.marker), "rb") as marker:
            return f"{hashlib.sha256(marker.read()).hexdigest()} {self._boot}\n"

    def _record(self, step: int) -> str:
        """What follow has made here, "" if nothing is here. Errors: FileExistsError (somebody else has made it)."""
        path = self._path(step)
        try:
            with open(os.path.join(path, _RECORD), encoding="ascii") as record:
                return record.read()
        except FileNotFoundError:
            if os.path.lexists(path):
                why = "was not made by this bridge: move it away, or follow into another directory"
                raise FileExistsError(f"weightcast: {path} {why}") from None
            return ""

    def _make(self, step: int, source: str, identity: str, is_stopped: Stopped) -> None:
        making = os.path.join(self._work, "making")
        marker = os.path.join(source, self._layout.marker)
        for file, target in _files(source, making):
            if file != marker:
                _copy(file, target, is_stopped)
        with open(os.path.join(making, _RECORD), "w", encoding="ascii") as record:
            record.write(identity)
        _copy(marker, os.path.join(making, self._layout.marker), is_stopped)
        if os.path.lexists(self._path(step)):
            self._delete(step)
        os.rename(making, self._path(step))

    def _delete(self, step: int) -> None:
        """Nobody sees a part of it."""
        deleted = os.path.join(self._work, "deleted")
        os.makedirs(self._work, exist_ok=True)
        os.rename(self._path(step), deleted)
        shutil.rmtree(deleted, ignore_errors=True)

    def _prune(self, current: set[int]) -> None:
        """Deletes what it has made before the last `keep` steps. What counts is when: another run may begin with step 1."""
        made = []
        for name in os.listdir(self._directory):
            step = self._layout.number(name)
            if step is None or step in current:
                continue
            try:
                made.append((os.stat(os.path.join(self._path(step), _RECORD)).st_mtime_ns, step))
            except (FileNotFoundError, NotADirectoryError):
                continue
        made.sort()
        stay = 0 if self._layout.is_chain else self._keep - 1
        for _, step in made[: len(made) - stay]:
            self._delete(step)


class _Stopped(Exception):
    """SIGTERM, in the middle of a copy."""


def _sleep(seconds: float, is_stopped: Stopped) -> None:
    end = time.monotonic() + seconds
    while not is_stopped() and time.monotonic() < end:
        time.sleep(_LOOK_S)


def _files(source: str, target: str) -> Iterator[tuple[str, str]]:
    """Each file below `source` and its place below `target`, whose directories are made."""
    for directory, _, names in os.walk(source):
        place = os.path.normpath(os.path.join(target, os.path.relpath(directory, source)))
        os.makedirs(place, exist_ok=True)
        for name in names:
            yield os.path.join(directory, name), os.path.join(place, name)


def _copy(source: str, target: str, is_stopped: Stopped) -> None:
    """A copy, because a daemon writes new versions over the files of old ones. Some file systems share its blocks."""
    with open(source, "rb") as reader, open(target, "wb") as writer:
        while True:
            if is_stopped():
                raise _Stopped
            try:
                if not os.copy_file_range(reader.fileno(), writer.fileno(), _COPY_BYTES):
                    break
            except OSError:  # not between these file systems, or the disk is full, which copyfileobj() says then
                reader.seek(os.lseek(reader.fileno(), 0, os.SEEK_CUR))
                while chunk := reader.read(_COPY_BYTES):
                    if is_stopped():
                        raise _Stopped from None
                    writer.write(chunk)
                break
    shutil.copymode(source, target)


def main(arguments: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser("weightcast-directories", description=__doc__.partition("\n")[0])
    parser.add_argument("end", choices=["publish", "follow"], help="publish: on the trainer's host; follow: on an engine's")
    parser.add_argument("directory", help="where the trainer writes its steps, or where engines look for them")
    parser.add_argument("--like", choices=LAYOUTS, help="a project's names for what follows")
    parser.add_argument("--step", help="name of a step's directory, such as 'step_{step}' or 'delta-{step:08d}'")
    parser.add_argument("--marker", help="the file in it that is written last")
    parser.add_argument("--settle-s", type=float, metavar="SECONDS", help="how old the marker has to be (publish)")
    parser.add_argument("--chain", action="store_true", default=None, help="each step is a change to the one before")
    parser.add_argument("--state", default=None, help="the daemon's state directory; default: $WEIGHTCAST_STATE")
    parser.add_argument("--steps-max", type=int, default=64, help="steps of a chain in a version (publish, default: %(default)s)")
    parser.add_argument("--keep", type=int, default=2, help="steps that stay, without --chain (follow, default: %(default)s)")
    found = parser.parse_args(arguments)
    given = {"step": found.step, "marker": found.marker, "settle_s": found.settle_s, "is_chain": found.chain}
    given = {name: value for name, value in given.items() if value is not None}
    if found.like is None and not {"step", "marker"} <= set(given):
        parser.error("give --like, or --step and --marker")
    is_stopped = _program.start()
    try:
        layout = replace(LAYOUTS[found.like], **given) if found.like else Layout(**given)
        if found.end == "publish":
            end: Any = StepPublisher(found.directory, layout, found.state, steps_max=found.steps_max)
        else:
            end = StepFollower(found.directory, layout, found.state, keep=found.keep)
        logging.info("weightcast: %s %s, steps %s with %s", found.end, found.directory, layout.step, layout.marker)
        end.run(is_stopped)
    except (ValueError, OSError) as error:
        logging.error("weightcast-directories: %s", error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
