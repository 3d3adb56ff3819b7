"""What the daemon of this host tells, in an event loop."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Optional

from .._errors import Code, Error
from .._subscription import Event, EventKind, Subscription

_CONNECT_S = 1.0  # between attempts, while no daemon runs
# Whatever becomes of the events' descriptor: a look at them costs microseconds.
_EVENTS_S = 1.0


class DaemonEvents:
    """Calls `heard` with each version that the daemon has in use. It connects again by itself."""

    def __init__(self, heard: Callable[[Event], None], log: Any, subscribe: Callable[[], Subscription]) -> None:
        self._heard, self._log, self._subscribe = heard, log, subscribe
        self._subscription: Optional[Subscription] = None
        self._readable = asyncio.Event()
        #: Why there is no connection; "" where there is one.
        self.why = ""

    @property
    def is_connected(self) -> bool:
        return self._subscription is not None

    async def hear(self) -> None:
        """Connects, if there is no connection, and calls `heard` with what the daemon has told since the last call."""
        if self._subscription is None:
            await self._connect()
        self._readable.clear()
        while self._subscription is not None:
            try:
                event = self._subscription.next(0)
            except Error as error:
                self._log.warning("weightcast: %s", error)
                self.close()
                self.why = str(error)
                return
            if event is None:
                return
            if event.kind is EventKind.INSTALLED:
                self._heard(event)

    async def wait(self, limit_s: Optional[float]) -> None:
        """Until hear() may have something, wake() is called, or `limit_s` is over."""
        most = _EVENTS_S if self._subscription is not None else _CONNECT_S
        try:
            await asyncio.wait_for(self._readable.wait(), most if limit_s is None else min(limit_s, most))
        except asyncio.TimeoutError:
            pass

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
            if self.why != str(error):
                self._log.warning("weightcast: %s", error)
            self.why = str(error)
            return
        self._subscription, self.why = subscription, ""
        if event is not None:
            self._heard(event)
        asyncio.get_running_loop().add_reader(subscription.fileno(), self._readable.set)

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
