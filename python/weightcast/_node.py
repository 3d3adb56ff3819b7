"""What a daemon knows."""

from __future__ import annotations

import ctypes
import json
from typing import Any

from ._library import PathLike, library, milliseconds, open_client


def _ask(question: str, state_dir: PathLike, timeout: float) -> Any:
    lib = library()
    client = open_client(state_dir, timeout)
    text = ctypes.c_void_p()
    client.call(getattr(lib, question), milliseconds(timeout), ctypes.byref(text))
    try:
        return json.loads(ctypes.string_at(text.value).decode())
    finally:
        lib.wc_free(text)


def status(state_dir: PathLike, *, timeout: float = 5.0) -> Any:
    """All nodes that the daemon of `state_dir` knows: what `weightcast status --json` prints, parsed.

    Errors: Error with NOT_FOUND (no daemon runs there), NOT_ALLOWED (another user's), TIMED_OUT, CLOSED, IO.
    """
    return _ask("wc_status", state_dir, timeout)


def versions(state_dir: PathLike, *, timeout: float = 5.0) -> Any:
    """The versions on this host: what `weightcast versions --json` prints, parsed. Errors: as status()."""
    return _ask("wc_versions", state_dir, timeout)
