"""Adapters that an engine may read again at any time, in files of its own process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from typing import Optional

from ._peft import CONFIG, WEIGHTS

_PREFIX = "weightcast-adapters-"
_ATTEMPTS = 5


class Copies:
    """Adapters in a directory of this process, for an engine that may read them again at any time: the daemon may delete
    a version, or change its files, when no connection pins it any more."""

    def __init__(self, parent: Optional[str] = None) -> None:
        """`parent`: where; None: the directory for temporary files. Errors: OSError."""
        parent = parent or tempfile.gettempdir()
        _remove_dead(parent)
        for _ in range(_ATTEMPTS):  # in the moment before it is locked another process may remove it
            self._directory = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent)
            lock = _lock(self._directory.name, fcntl.LOCK_EX)
            if lock is not None:
                # Held for as long as this process lives: it keeps others from removing it, systemd-tmpfiles among them.
                self._locked = lock
                return
        raise OSError(f"weightcast: a directory in {parent} cannot be locked; set TMPDIR to one on a local disk")

    def path(self, label: str) -> str:
        return os.path.join(self._directory.name, label)

    def make(self, source: str, label: str) -> str:
        """Copies what an engine reads of the adapter at `source`. In any thread. Errors: OSError; nothing of it is left then."""
        target = self.path(label)
        os.mkdir(target)  # refused where it is there already
        try:
            for name in (CONFIG, WEIGHTS):
                shutil.copyfile(os.path.join(source, name), os.path.join(target, name))
        except BaseException:
            self.remove(label)
            raise
        return target

    def remove(self, label: str) -> None:
        shutil.rmtree(self.path(label), ignore_errors=True)

    def close(self) -> None:
        self._directory.cleanup()
        os.close(self._locked)


def _remove_dead(parent: str) -> None:
    """Those of processes that were killed."""
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        lock = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB) if name.startswith(_PREFIX) else None
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _lock(path: str, how: int) -> Optional[int]:
    """A descriptor of a directory of this user's, which holds its lock; None where it is none, is gone, or is another's."""
    try:
        found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(found).st_uid == os.getuid():
            fcntl.flock(found, how)
            if os.path.isdir(path):
                return found
    except OSError:
        pass  # its process lives
    os.close(found)
    return None
