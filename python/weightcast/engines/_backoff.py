"""When what has failed is tried again. Pure: no clock; `now` is an argument, in seconds."""

from __future__ import annotations

_WAIT_S_MIN, _WAIT_S_MAX = 0.5, 30.0


class Backoff:
    """The first attempt is due at once, each later one twice as long after a failure as the one before, up to 30 s."""

    def __init__(self) -> None:
        #: When the next attempt is due.
        self.due = 0.0
        self._wait_s = _WAIT_S_MIN

    def restart(self, now: float) -> None:
        """What is attempted now is new, or nothing is known of what was."""
        self.due, self._wait_s = now, _WAIT_S_MIN

    def handle_failed(self, now: float) -> None:
        self.due = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, _WAIT_S_MAX)
