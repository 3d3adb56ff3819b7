"""What a daemon knows."""

from __future__ import annotations

import ctypes
import json
import time
from typing import Any, Optional

from ._errors import TimedOut
from ._library import PathLike, check, library, milliseconds, open_client, state_directory

_WITH_VERSION = 1  # WC_READY_VERSION
# How long an interrupt may have to wait.
_SLICE_S = 0.2


def _ask(question: str, state_dir: Optional[PathLike], timeout: float, *what: int) -> Any:
    lib = library()
    client = open_client(state_dir, timeout)
    text = ctypes.c_void_p()
    client.call(getattr(lib, question), *what, milliseconds(timeout), ctypes.byref(text))
    try:
        return json.loads(ctypes.string_at(text.value).decode())
    finally:
        lib.wc_free(text)


def status(state_dir: Optional[PathLike] = None, *, timeout: float = 5.0) -> Any:
    """All nodes that the daemon of `state_dir` knows: what `weightcast status --json` prints, parsed.

    Errors: Error with NOT_FOUND (no daemon runs there), NOT_ALLOWED (another user's), TIMED_OUT, CLOSED, IO.
    """
    return _ask("wc_status", state_dir, timeout)


def versions(state_dir: Optional[PathLike] = None, *, timeout: float = 5.0) -> Any:
    """The versions on this host: what `weightcast versions --json` prints, parsed. Errors: as status()."""
    return _ask("wc_versions", state_dir, timeout)


def history(state_dir: Optional[PathLike] = None, *, version: int = 0, timeout: float = 5.0) -> Any:
    """The origin's last publications, or `version` alone with each worker's phases.

    What `weightcast history --json` and `weightcast status --version N --json` print, parsed. Errors: as status(), and
    Error with NOT_FOUND (the origin does not remember that version) and NOT_ALLOWED (the daemon is a worker).
    """
    return _ask("wc_history", state_dir, timeout, version)


def wait_until_ready(state_dir: Optional[PathLike] = None, *, has_version: bool = False, timeout: float = 60.0) -> None:
    """Waits until the daemon of `state_dir` runs and does what it is there for.

    An origin takes publications; a worker is joined to its origin, and has a version in use if `has_version`.
    Errors: TimedOut (it says what was missing), Error with NOT_ALLOWED (another user's), UNSUPPORTED, IO.
    """
    milliseconds(timeout)  # refuses what is no time-out
    deadline = time.monotonic() + timeout
    while True:
        left = max(0.0, deadline - time.monotonic())
        flags = _WITH_VERSION if has_version else 0
        try:
            return check(library().wc_ready, state_directory(state_dir), flags, milliseconds(min(left, _SLICE_S)))
        except TimedOut:
            if left <= _SLICE_S:
                raise
