"""Before SGLang reads a directory of versions for /pull_weights: puts this host's version there.

SGLang wants source_dir/weight_v000007 for version 7: a whole checkpoint, or a delta, which needs those before it, too. So these
names become links into the version's directory, which stays pinned in this process until its next call. A link appears at once,
with all files behind it. Every rank of a host calls; the links are the same.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from typing import Optional

from .._errors import Code, Error, TimedOut
from .._subscription import Pin, Subscription, pin_when_installed, seconds_left

# SGLang's scheduler waits meanwhile, and generates nothing.
_WAIT_S_MAX = 60.0
_LOOK_S = 0.2  # between attempts, while no daemon answers
# What may pass: the version or the daemon is not there yet, or ended during the call.
_PASSING = (Code.NOT_FOUND, Code.BUSY, Code.TIMED_OUT, Code.CLOSED)
_NAME = re.compile(r"weight_v[0-9]{6,}")
_held: Optional[Subscription] = None  # has the pin of the version that SGLang reads now


def pre_read(source_dir: str, target_version: int) -> None:
    global _held
    subscription, pin = _acquire(target_version, time.monotonic() + _WAIT_S_MAX)
    try:
        os.makedirs(source_dir, exist_ok=True)
        for name, directory in _versions_in(pin.directory, f"weight_v{target_version:06d}"):
            _link(os.path.join(source_dir, name), directory)
    except BaseException:
        subscription.close()
        raise
    before, _held = _held, subscription
    if before is not None:
        before.close()


def _acquire(version: int, deadline: float) -> tuple[Subscription, Pin]:
    """Waits for the version at this host's daemon; the pin lasts as long as the subscription."""
    while True:
        subscription = None
        try:
            subscription = Subscription(timeout=seconds_left(deadline))
            return subscription, pin_when_installed(subscription, version, None, deadline)
        except BaseException as error:
            if subscription is not None:
                subscription.close()
            if not isinstance(error, Error) or error.code not in _PASSING:
                raise
            left = seconds_left(deadline)
            if not left:
                why = f"{error}; wait for the version (Publisher.wait()) before /pull_weights"
                raise TimedOut(Code.TIMED_OUT, error.operation, why) from None
            time.sleep(min(_LOOK_S, left))


def _versions_in(directory: str, name: str) -> Iterator[tuple[str, str]]:
    """A published directory of deltas has SGLang's names itself, any other one is the version. The wanted one comes last."""
    if not os.path.isdir(os.path.join(directory, name)):
        yield name, directory
        return
    for found in sorted(filter(_NAME.fullmatch, os.listdir(directory)), key=lambda each: (each == name, each)):
        yield found, os.path.join(directory, found)


def _link(path: str, directory: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        return  # the trainer's own files, on its host
    making = f"{path}.{os.getpid()}"
    if os.path.lexists(making):
        os.unlink(making)
    os.symlink(directory, making)
    os.replace(making, path)
