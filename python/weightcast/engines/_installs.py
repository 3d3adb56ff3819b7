"""What a server does next about its daemon's versions. Pure: no I/O and no clock; `now` is an argument, in seconds.

One action at a time: poll_action() gives it, handle_done() or handle_failed() tells how it ended, handle_overdue() that its
time is over. Invariant: generation goes on only while all ranks have all weights of one version.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, Optional

from ._backoff import Backoff

_AGAIN_S_MIN, _AGAIN_S_MAX = 0.002, 0.05  # between two calls to prepare, while ranks do
# One call to the engine, which answers between two of its steps.
_CALL_S_MAX = 30.0


class InFlight(str, enum.Enum):
    """What becomes of answers under way when a version comes."""

    RECOMPUTE = "recompute"  # they go on under the new version, with new keys and values
    KEEP = "keep"  # they go on with the keys and values that they have
    DRAIN = "drain"  # they end first, under the old version


class Version(NamedTuple):
    number: int
    digest: str  # another run of the trainer may give the number again


class Step(enum.Enum):
    PREPARE = "prepare"  # on every rank, beside generation; again until none is at it any more
    DROP = "drop"  # what was prepared
    PAUSE = "pause"
    WRITE = "write"  # the weights, on every rank
    LABEL = "label"  # answers with the version
    RESUME = "resume"
    REFUSE = "refuse"  # requests: those under way end, new ones are turned away


class Action(NamedTuple):
    step: Step
    version: Optional[Version] = None
    whole: bool = False  # PREPARE: nothing that a rank has is to be relied upon
    pauses: bool = False  # PREPARE: and pause generation in the same call, if all ranks have prepared
    in_flight: Optional[InFlight] = None  # PAUSE, and PREPARE that pauses
    limit_s: float = _CALL_S_MAX


class Limits(NamedTuple):
    prepare_s: float = 600.0
    write_s: float = 300.0
    drain_s: float = 30.0


class Installs:
    def __init__(
        self, in_flight: InFlight = InFlight.RECOMPUTE, limits: Limits = Limits(), prepares_and_pauses: bool = False
    ) -> None:
        """`prepares_and_pauses`: the engine can do both in one call. A drain is a call of its own, which has its own bound."""
        self._in_flight, self._limits = in_flight, limits
        self._prepares_and_pauses = prepares_and_pauses and in_flight is not InFlight.DRAIN
        self.newest: Optional[Version] = None
        #: What the ranks have; None: what the server was started with.
        self.held: Optional[Version] = None
        self.is_refusing = False
        #: Why the last attempt failed; "" after a success.
        self.why = ""
        #: What the ranks said when they had prepared and when they had written.
        self.prepared: list[dict[str, Any]] = []
        self.written: list[dict[str, Any]] = []
        #: All ranks have the same weights, whole.
        self.is_intact = True
        #: By these decisions; not whether somebody else has paused it.
        self.is_paused = False
        self._running: Optional[Action] = None
        self._next: Optional[Step] = None  # None: PREPARE, where a version is to be had
        self._at = 0.0  # when `_next` is due
        self._retry = Backoff()  # of the next PREPARE
        self._target: Optional[Version] = None
        self._whole = False
        self._pause_as = in_flight
        self._prepare_end = self._pause_end = 0.0
        self._again_s = _AGAIN_S_MIN

    # What happened.

    def handle_installed(self, now: float, version: Version) -> None:
        """The daemon has it in use."""
        if version != self.newest:
            self.newest = version
            self._retry.restart(now)

    def handle_done(self, now: float, results: list[dict[str, Any]]) -> None:
        """The action is done. `results`: of PREPARE and WRITE what each rank says: "ok", and "error" where that is false; of
        PREPARE "pending"; of WRITE "wrote", whether it had begun, and "restored", if what was there before has been loaded
        again as a whole. Of PREPARE that pauses they say whether it did: if all are "ok" and none is "pending"."""
        action = self._end()
        failed = [result for result in results if not result.get("ok")]
        if action.step is Step.WRITE:
            self._handle_written(now, results, failed)
        elif failed:
            self._fail(now, action._replace(pauses=False), _reason(results, failed))
        elif action.step is Step.PREPARE:
            self._handle_prepared(now, action._replace(pauses=False), results, action.pauses)
        elif action.step is Step.PAUSE:
            self._handle_paused(now)
        elif action.step is Step.LABEL:
            self._do(Step.RESUME, now)
        elif action.step is Step.RESUME:
            self.is_paused = self.is_refusing = False
            if self.held == self._target:
                self.why = ""
            else:
                self._do(Step.DROP, now)

    def handle_failed(self, now: float, why: str) -> None:
        """The action failed; what it came to on the ranks is not known."""
        action = self._end()
        if action.step is Step.WRITE:
            self._handle_written(now, [], [{"error": why, "wrote": True}])
        else:
            self._fail(now, action, why)

    def handle_overdue(self, now: float) -> bool:
        """The action's time is over. True: give it up; what comes next has been decided. False: wait on, because nothing
        else can be asked of the engine meanwhile; requests are refused where its weights may be mixed."""
        action = self._running
        assert action is not None
        if action.step is Step.PAUSE and action.in_flight is InFlight.DRAIN:
            self._end()
            self._pause_as = InFlight.RECOMPUTE
            self._do(Step.PAUSE, now)
            return True
        if action.step is Step.PAUSE or action.pauses:
            self.handle_failed(now, f"the engine did not pause within {action.limit_s:g} s")
            return True
        if self.is_paused:
            self.is_refusing = True
            self.why = f"{action.step.value} takes longer than {action.limit_s:.0f} s"
        return False

    def handle_restarted(self, now: float) -> None:
        """It is not known any more what the engine has, nor whether it is paused: the next install writes everything."""
        self._running = self._next = self.held = None
        self.is_intact = self.is_paused = self.is_refusing = False
        self._retry.restart(now)

    # What to do.

    def poll_action(self, now: float) -> Optional[Action]:
        """The next action, if it is time for one and none runs."""
        due = self.poll_deadline()
        if due is None or now < due:
            return None
        if self._next is None:
            self._target, self._whole, self._pause_as = self.newest, not self.is_intact, self._in_flight
            self._again_s, self._prepare_end = _AGAIN_S_MIN, now + self._limits.prepare_s
        step, self._next = self._next or Step.PREPARE, None
        limit_s = _CALL_S_MAX
        if step is Step.WRITE:
            self.is_intact = False
            limit_s = self._limits.write_s if self.is_refusing else max(1.0, self._pause_end - now)
        elif step is Step.PAUSE and self._pause_as is InFlight.DRAIN:
            limit_s = self._limits.drain_s
        pauses = step is Step.PREPARE and self._prepares_and_pauses and not self.is_paused
        self._running = Action(step, self._target, self._whole, pauses, self._pause_as, limit_s)
        return self._running

    def poll_deadline(self) -> Optional[float]:
        """When poll_action() has the next one; None: after an input."""
        if self._running is not None:
            return None
        if self._next is not None:
            return self._at
        wants_install = self.newest is not None and (self.newest != self.held or not self.is_intact)
        return self._retry.due if wants_install else None

    def _do(self, step: Step, at: float) -> None:
        self._next, self._at = step, at

    def _end(self) -> Action:
        action, self._running = self._running, None
        assert action is not None
        return action

    def _handle_prepared(self, now: float, action: Action, results: list[dict[str, Any]], has_paused: bool) -> None:
        if any(result.get("pending") for result in results):
            end = self._prepare_end
            if self.is_paused and not self.is_refusing:
                end = min(end, self._pause_end)
            if now >= end:
                self._fail(now, action, "preparing takes too long")
                return
            self._do(Step.PREPARE, now + self._again_s)
            self._again_s = min(self._again_s * 1.5, _AGAIN_S_MAX)
            return
        self.prepared = results
        if has_paused:
            self._handle_paused(now)
        else:
            self._do(Step.WRITE if self.is_paused else Step.PAUSE, now)

    def _handle_paused(self, now: float) -> None:
        self.is_paused, self._pause_end = True, now + self._limits.write_s
        self._do(Step.WRITE, now)

    def _handle_written(self, now: float, results: list[dict[str, Any]], failed: list[dict[str, Any]]) -> None:
        if not failed:
            self.is_intact, self.held, self.written = True, self._target, results
            self._do(Step.LABEL, now)
            return
        # Where no rank had begun, and none has to be repaired, all have what they had.
        began = not results or any(result.get("wrote") for result in results)
        restored = bool(results) and all(result.get("restored") for result in results)
        self.is_intact = restored or (not began and not self._whole)
        if began and not self._whole:
            self.why = _reason(results, failed)
            self._retry.due = now  # to be reloaded whole, at once
        else:
            self._fail(now, Action(Step.WRITE), _reason(results, failed))

    def _fail(self, now: float, action: Action, why: str) -> None:
        self.why = why
        self._retry.handle_failed(now)
        if action.step in (Step.LABEL, Step.RESUME):
            # Answers with the label of other weights would be wrong, so it is tried until it succeeds.
            self.is_refusing = True
            self._do(action.step, self._retry.due)
        elif not self.is_intact:
            if not self.is_refusing:
                self.is_refusing = True
                self._do(Step.REFUSE, now)
        elif self.is_paused or action.step is Step.PAUSE or action.pauses:
            self._do(Step.RESUME, now)
        elif action.step is not Step.DROP:
            self._do(Step.DROP, now)


def _reason(results: list[dict[str, Any]], failed: list[dict[str, Any]]) -> str:
    text = str(failed[0].get("error", "no reason was given"))
    return text if len(results) <= 1 else f"{len(failed)} of {len(results)} ranks: {text}"
