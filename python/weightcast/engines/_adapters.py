"""What a server does next about the versions of one adapter. Pure: no I/O and no clock."""

from __future__ import annotations

from typing import Optional

from ._installs import RETRY_S_MAX, RETRY_S_MIN, Version


class Adapters:
    """Which version of one adapter is to be loaded next. Pure: `now` is an argument, in seconds. One attempt at a time."""

    def __init__(self) -> None:
        self.newest: Optional[Version] = None
        self.served: Optional[Version] = None
        #: Why the last attempt failed; "" after a success.
        self.why = ""
        self._retry_at, self._retry_s = 0.0, RETRY_S_MIN

    def handle_installed(self, now: float, version: Version) -> None:
        """The daemon has it in use."""
        if version != self.newest:
            self.newest, self._retry_at, self._retry_s = version, now, RETRY_S_MIN

    def handle_loaded(self, version: Version) -> None:
        self.served, self.why = version, ""

    def handle_failed(self, now: float, version: Version, why: str) -> bool:
        """What was served is served on. Whether that is news."""
        is_news, self.why = why != self.why, why
        if version == self.newest:  # else a newer one has come meanwhile, to be tried at once
            self._retry_at = now + self._retry_s
            self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)
        return is_news

    def poll(self, now: float) -> Optional[Version]:
        """What is to be loaded now."""
        deadline = self.poll_deadline()
        return self.newest if deadline is not None and now >= deadline else None

    def poll_deadline(self) -> Optional[float]:
        """When poll() has something; None: after an input."""
        return None if self.newest == self.served else self._retry_at
