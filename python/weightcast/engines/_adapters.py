"""What a server does next about the versions of one adapter. Pure: no I/O and no clock."""

from __future__ import annotations

from typing import Optional

from ._backoff import Backoff
from ._installs import Version


class Adapters:
    """Which version of one adapter is to be loaded next. Pure: `now` is an argument, in seconds. One attempt at a time."""

    def __init__(self) -> None:
        self.newest: Optional[Version] = None
        self.served: Optional[Version] = None
        #: Why the last attempt failed; "" after a success.
        self.why = ""
        self._retry = Backoff()

    def handle_installed(self, now: float, version: Version) -> None:
        """The daemon has it in use."""
        if version != self.newest:
            self.newest = version
            self._retry.restart(now)

    def handle_loaded(self, version: Version) -> None:
        self.served, self.why = version, ""

    def handle_failed(self, now: float, version: Version, why: str) -> bool:
        """What was served is served on. Whether that is news."""
        is_news, self.why = why != self.why, why
        if version == self.newest:  # else a newer one has come meanwhile, to be tried at once
            self._retry.handle_failed(now)
        return is_news

    def poll(self, now: float) -> Optional[Version]:
        """What is to be loaded now."""
        deadline = self.poll_deadline()
        return self.newest if deadline is not None and now >= deadline else None

    def poll_deadline(self) -> Optional[float]:
        """When poll() has something; None: after an input."""
        return None if self.newest == self.served else self._retry.due
