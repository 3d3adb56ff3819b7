"""Tells a rank of its daemon's versions before the order comes that brings them into the engine."""

from __future__ import annotations

import threading
from typing import Callable, Optional

from .._errors import Error
from .._subscription import EventKind, Subscription
from ._rank import Rank

_CONNECT_S = 1.0  # between attempts, while no daemon runs
_LOOK_S = 1.0  # how long one look for an event waits, and so how long close() may take


class Listener:
    """A thread with a subscription of its own. An order waits for the engine's running step; what the daemon tells does not, and
    most of a version is prepared by then. Why there is no daemon the follower says."""

    def __init__(self, rank: Rank, subscribe: Callable[[], Subscription]) -> None:
        self._rank, self._subscribe = rank, subscribe
        self._end = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Where it has begun, nothing."""
        if self._thread is None:
            self._end.clear()
            self._thread = threading.Thread(target=self._run, name="weightcast listener", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """It may be started again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._end.set()
            thread.join()

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                with self._subscribe() as subscription:
                    self._listen(subscription)
            except Error:
                self._end.wait(_CONNECT_S)

    def _listen(self, subscription: Subscription) -> None:
        while not self._end.is_set():
            event = subscription.next(_LOOK_S)
            if event is None:
                continue
            if event.kind is EventKind.INSTALLED:
                self._rank.expect(event.version, event.digest)
            elif event.kind is EventKind.PREPARING:
                self._rank.forget()
