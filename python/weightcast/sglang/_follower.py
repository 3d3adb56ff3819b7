"""The process beside an SGLang server: hears from the daemon of its host, and has the server take each version."""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

from .._errors import Error
from .._subscription import Event, EventKind, Subscription
from ..engines._installs import Action, Installs, Limits, Step, Version
from ._engine import Engine
from ._server import Refused, Unreachable

_CONNECT_S = 1.0  # between attempts, while no daemon runs
_LOOK_S = 1.0  # between looks at a server: is it the one that took the version?


class Follower:
    """Restarts of the server, of the daemon and of this process may come at any moment: after each, the next install is whole."""

    def __init__(
        self, engine: Engine, limits: Limits, log: Any, subscribe: Callable[[], Subscription] = Subscription,
        clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._engine, self._log = engine, log
        self._installs = Installs(limits=limits)
        self._subscribe, self._clock, self._sleep = subscribe, clock, sleep
        self._subscription: Optional[Subscription] = None
        self._is_met = False
        self._has_lost_pins = False  # a daemon's end takes them
        self._look_at = self._connect_at = 0.0
        self._told_at = 0.0  # when the newest version was heard of
        self._said = ""

    @property
    def served(self) -> Optional[Version]:
        """What the server generates with; None: not by this follower."""
        return self._installs.held if self._installs.is_intact and not self._installs.is_paused else None

    def run(self, is_stopped: Callable[[], bool]) -> None:
        """Returns when it is to stop, which is not while it has the server paused. Errors: Unfit."""
        try:
            while not is_stopped() or (self._is_met and self._installs.is_paused and not self._installs.is_refusing):
                self.step()
            if self._installs.is_refusing:
                self._log.error("weightcast: the server is left paused, without weights of one version; start this again")
        finally:
            self._disconnect()
            self._engine.close()

    def step(self) -> None:
        """One look at the daemon and one action; waits a while where there is none. Errors: Unfit."""
        self._hear(0.0)
        if not self._is_met and not self._meet():
            self._hear(_CONNECT_S)
            return
        action = self._installs.poll_action(self._clock())
        if action is not None:
            self._perform(action)
            return
        if self._clock() >= self._look_at:
            self._look()
        deadline = self._installs.poll_deadline()
        end = self._look_at if deadline is None else min(deadline, self._look_at)
        self._hear(max(0.0, min(end - self._clock(), _LOOK_S)))

    # The daemon.

    def _hear(self, wait_s: float) -> None:
        if self._subscription is None:
            if self._clock() < self._connect_at:
                self._sleep(min(wait_s, self._connect_at - self._clock()))
                return
            try:
                self._subscription = self._subscribe()
            except Error as error:
                self._connect_at = self._clock() + _CONNECT_S
                self._say(f"{error}; what the server has is served, and it is tried again")
                return
        try:
            event = self._subscription.next(wait_s)
            while event is not None:
                self._hear_of(event)
                event = self._subscription.next(0.0)
        except Error as error:
            self._say(str(error))
            self._disconnect()

    def _hear_of(self, event: Event) -> None:
        if event.kind is EventKind.INSTALLED:
            version = Version(event.version, event.digest)
            if version != self._installs.newest:
                self._told_at = self._clock()
            self._installs.handle_installed(self._clock(), version)
            if self._has_lost_pins:
                self._engine.renew()
                self._has_lost_pins = False
        elif event.kind is EventKind.DISCONNECTED:
            self._has_lost_pins = True
            self._say("the daemon ended or closed the connection; what the server has is served until it is back")

    def _disconnect(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()
        self._connect_at = self._clock() + _CONNECT_S

    # The server.

    def _meet(self) -> bool:
        try:
            self._engine.meet()
        except (Unreachable, Refused) as error:
            self._say(str(error))
            return False
        self._say("")
        self._is_met = True
        self._look_at = self._clock() + _LOOK_S
        self._installs.handle_restarted(self._clock())
        return True

    def _lose(self, why: str) -> None:
        self._log.error("weightcast: %s; the newest version is loaded as a whole when the server answers", why)
        self._is_met = False
        self._installs.handle_restarted(self._clock())

    def _look(self) -> None:
        self._look_at = self._clock() + _LOOK_S
        held = self._installs.held
        if held is None:
            return
        try:
            label = self._engine.label()
        except (Unreachable, Refused) as error:
            self._lose(str(error))
            return
        if label != str(held.number):
            why = "it was started again, or somebody else loads versions"
            self._lose(f"the server says version {label!r}, and it was given {held.number}: {why}")

    def _perform(self, action: Action) -> None:
        try:
            results = self._engine.perform(action)
        except Unreachable as error:
            self._lose(str(error))
            return
        except (Error, Refused, ValueError, RuntimeError, OSError) as error:
            self._installs.handle_failed(self._clock(), str(error))
            self._tell_failure(action)
            return
        self._installs.handle_done(self._clock(), results)
        if not all(result["ok"] for result in results):
            self._tell_failure(action)
        elif action.step is Step.RESUME and self._installs.held == action.version:
            self._engine.keep()
            self._tell(action)

    def _tell_failure(self, action: Action) -> None:
        if not self._installs.is_intact and self._installs.is_paused:
            state = "generation stays paused until all weights are of one version"
        else:
            state = "what the server had is served"
        self._log.error(
            "weightcast: %s of version %d failed: %s; %s, and it is tried again",
            action.step.value, action.version.number, self._installs.why, state,
        )  # fmt: skip

    def _tell(self, action: Action) -> None:
        now, written = self._clock(), self._engine.written
        self._said = ""
        self._log.info(
            "weightcast: version %d is in (%s, %d cells): %.1f ms after the daemon's install, of which generation was paused for "
            "%.1f ms, and writing took %.1f ms", action.version.number, written[0]["kind"], sum(one["cells"] for one in written),
            1e3 * (now - self._told_at), 1e3 * (now - self._engine.paused_at), 1e3 * max(one["write_s"] for one in written),
        )  # fmt: skip

    def _say(self, what: str) -> None:
        """Once, while it stays the same."""
        if what and what != self._said:
            self._log.warning("weightcast: %s", what)
        self._said = what
