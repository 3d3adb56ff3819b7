"""What the daemon of this host tells, in an event loop, and how it comes to what a follower decides."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Optional, Union

from .._errors import Code, Error
from .._subscription import Event, EventKind, Subscription, seconds_left
from ..engines._adapters import Adapters
from ..engines._installs import Installs, Version

_CONNECT_S = 1.0  # between attempts, while no daemon runs
# Whatever becomes of the events' descriptor: a look at them costs microseconds.
_EVENTS_S = 1.0


class DaemonEvents:
    """Tells `decisions` of each version that the daemon has in use. It connects again by itself."""

    def __init__(self, decisions: Union[Installs, Adapters], log: Any, subscribe: Callable[[], Subscription]) -> None:
        self._decisions, self._log, self._subscribe = decisions, log, subscribe
        self._subscription: Optional[Subscription] = None
        self._readable, self._idle = asyncio.Event(), asyncio.Event()
        self._why = ""  # why there is no connection; "" where there is one
        #: When the newest version was heard of, by time.monotonic().
        self.told = 0.0

    def status(self) -> dict[str, Any]:
        newest = self._decisions.newest
        return {
            "newest": newest.number if newest else None,
            "follows": self._subscription is not None,
            "why": self._decisions.why or self._why,
        }

    async def hear(self) -> None:
        """Connects, if there is no connection, and hears what the daemon has told since the last call."""
        if self._subscription is None:
            await self._connect()
        self._readable.clear()
        while self._subscription is not None:
            try:
                event = self._subscription.next(0)
            except Error as error:
                self._log.warning("weightcast: %s", error)
                self.close()
                self._why = str(error)
                return
            if event is None:
                return
            if event.kind is EventKind.INSTALLED:
                self._heard(event)

    async def wait(self) -> None:
        """Until something is due, hear() may have something, or wake() is called."""
        deadline = self._decisions.poll_deadline()
        if deadline is None or self._decisions.why:
            self._idle.set()
        limit_s = _EVENTS_S if self._subscription is not None else _CONNECT_S
        if deadline is not None:
            limit_s = min(limit_s, seconds_left(deadline))
        try:
            await asyncio.wait_for(self._readable.wait(), limit_s)
        except asyncio.TimeoutError:
            pass

    async def first(self, limit_s: float) -> bool:
        """Returns when nothing is left to do at once: the version that was there at the start is in, or failed. False if that
        takes longer."""
        try:
            await asyncio.wait_for(self._idle.wait(), limit_s)
        except asyncio.TimeoutError:
            return False
        return True

    def wake(self) -> None:
        """Of the loop's thread."""
        self._readable.set()

    def close(self) -> None:
        if self._subscription is not None:
            asyncio.get_running_loop().remove_reader(self._subscription.fileno())
            self._subscription.close()
            self._subscription = None

    async def _connect(self) -> None:
        try:
            subscription, event = await asyncio.to_thread(self._subscribe_and_ask)
        except Error as error:
            if self._why != str(error):
                self._log.warning("weightcast: %s", error)
            self._why = str(error)
            return
        self._subscription, self._why = subscription, ""
        if event is not None:
            self._heard(event)
        asyncio.get_running_loop().add_reader(subscription.fileno(), self._readable.set)

    def _heard(self, event: Event) -> None:
        version, now = Version(event.version, event.digest), time.monotonic()
        if version != self._decisions.newest:
            self.told = now
        self._decisions.handle_installed(now, version)

    def _subscribe_and_ask(self) -> tuple[Subscription, Optional[Event]]:
        """Its events say the same, but later: a server that starts waits for the version that is there."""
        subscription = self._subscribe()
        try:
            return subscription, subscription.current()
        except Error as error:
            if error.code is Code.NOT_FOUND:
                return subscription, None
            subscription.close()
            raise
