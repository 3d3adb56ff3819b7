"""Adapters that an engine may read again at any time, in files of its own process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from typing import Optional

from ._peft import CONFIG, WEIGHTS

_PREFIX = "weightcast-adapters-"


class Copies:
    """Adapters in a directory of this process, for an engine that may read them again at any time: the daemon may delete
    a version, or change its files, when no connection pins it any more. Not for threads."""

    def __init__(self, parent: Optional[str] = None) -> None:
        """`parent`: where; None: the directory for temporary files. Errors: OSError."""
        parent = parent or tempfile.gettempdir()
        _remove_dead(parent)
        while True:
            self._directory = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent)
            # Held for as long as this process lives: it keeps others from removing it, systemd-tmpfiles among them.
            self._lock = os.open(self._directory.name, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.path.isdir(self._directory.name):
                return
            os.close(self._lock)  # another process has removed it before it was locked

    def path(self, label: str) -> str:
        return os.path.join(self._directory.name, label)

    def make(self, source: str, label: str) -> str:
        """Copies what an engine reads of the adapter at `source`. Errors: OSError; nothing is left then."""
        target = self.path(label)
        os.mkdir(target)
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
        os.close(self._lock)


def _remove_dead(parent: str) -> None:
    """Those of processes that were killed."""
    for entry in os.scandir(parent):
        if not entry.name.startswith(_PREFIX) or not entry.is_dir(follow_symlinks=False):
            continue
        if entry.stat(follow_symlinks=False).st_uid != os.getuid():
            continue
        try:
            lock = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry.path, ignore_errors=True)
        except OSError:
            pass  # its process lives
        finally:
            os.close(lock)
