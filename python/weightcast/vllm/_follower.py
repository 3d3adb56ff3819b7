"""In vLLM's API server: follows the daemon of its host, and drives the engine by what Installs decides."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Optional

from .._subscription import Subscription
from ..engines._installs import Action, InFlight, Installs, Limits, Step, Version
from ._core import UTILITY
from ._events import DaemonEvents


class Follower:
    """Its task ends when the engine dies or stop() is called. `engine` is vLLM's EngineClient."""

    def __init__(
        self, engine: Any, installs: Installs, limits: Limits, log: Any, subscribe: Callable[[], Subscription] = Subscription
    ) -> None:
        self._engine, self._installs, self._limits, self._log = engine, installs, limits, log
        self._daemon = DaemonEvents(installs, log, subscribe)
        self._paused_at = self._pausing_s = 0.0
        self._has_ended = False
        self.last: dict[str, Any] = {"version": None, "digest": None}

    @property
    def is_refusing(self) -> bool:
        return self._installs.is_refusing or (self._has_ended and not self._installs.is_intact)

    def status(self) -> dict[str, Any]:
        """`version`: what answers are computed with, since it was resumed with; None: what the server was started with."""
        return {**self._daemon.status(), "refuses": self.is_refusing, **self.last}

    async def run(self) -> None:
        try:
            while not self._engine.errored:
                await self._daemon.hear()
                action = self._installs.poll_action(time.monotonic())
                if action is None:
                    await self._daemon.wait()
                else:
                    await self._perform(action)
        finally:
            self._has_ended = True
            self._daemon.close()

    async def first(self, limit_s: float) -> None:
        if not await self._daemon.first(limit_s):
            served = "what the server was started with is served"
            self._log.warning("weightcast: the first version is not in after %g s; %s", limit_s, served)

    # The engine.

    async def _perform(self, action: Action) -> None:
        call = asyncio.ensure_future(self._call(action))
        limit_s: Optional[float] = action.limit_s
        while True:
            done, _ = await asyncio.wait({call}, timeout=limit_s)
            if done:
                break
            if self._installs.handle_overdue(time.monotonic()):
                call.add_done_callback(lambda late: late.cancelled() or late.exception())
                return
            self._log.error("weightcast: %s", self._installs.why or f"{action.step.value} takes long")
            limit_s = None if self.is_refusing else action.limit_s
        now = time.monotonic()
        try:
            results = call.result()
        except Exception as error:
            results = [{"ok": False}]
            self._installs.handle_failed(now, str(error) or type(error).__name__)
        else:
            self._installs.handle_done(now, results)
        if not all(result["ok"] for result in results):
            step, version, why = action.step.value, action.version.number, self._installs.why
            self._log.error("weightcast: %s of version %d failed: %s; %s", step, version, why, self._state())
        elif action.step is Step.RESUME and self._installs.held == action.version and not self._installs.why:
            self._tell(action.version, now)

    def _state(self) -> str:
        if self.is_refusing:
            return "requests are refused"
        return "generation is paused" if self._installs.is_paused else "the version before is served"

    async def _call(self, action: Action) -> list[dict[str, Any]]:
        engine, version = self._engine, action.version
        if action.step is Step.PREPARE:
            return await self._prepare(action)
        if action.step in (Step.WRITE, Step.DROP):
            return await self._ranks(action.step.value)
        if action.step is Step.PAUSE:
            begin = time.monotonic()
            mode, clear_cache = _pause_of(action)
            if clear_cache:
                await engine.renderer.clear_mm_cache_async()
            # pause_generation() sleeps 20 ms more, so that last outputs are out before it returns.
            await engine.engine_core.pause_scheduler_async(mode=mode, clear_cache=clear_cache)
            self._note_paused(begin)
        elif action.step is Step.LABEL:
            await engine.update_weight_version(str(version.number))
            if action.in_flight is InFlight.KEEP:
                # Where answers are under way, their blocks and those that they share stay.
                await engine.reset_prefix_cache(reset_running_requests=False)
        elif action.step is Step.RESUME:
            await engine.resume_generation()
        elif action.step is Step.REFUSE:
            await engine.pause_generation(mode="abort", clear_cache=False)
        return []

    async def _ranks(self, operation: str, **arguments: Any) -> list[dict[str, Any]]:
        return await self._engine.collective_rpc("weightcast", args=(operation, arguments))

    async def _prepare(self, action: Action) -> list[dict[str, Any]]:
        number, digest = action.version
        order = {"version": number, "digest": digest, "whole": action.whole, "limit_s": self._limits.prepare_s}
        if self._installs.is_paused:
            return await self._ranks("prepare", **order)
        begin = time.monotonic()
        mode, clear_cache = _pause_of(action) if action.pauses else (None, False)
        if clear_cache:
            await self._engine.renderer.clear_mm_cache_async()
        results = await self._engine.engine_core.call_utility_async(UTILITY, order, mode, clear_cache)
        self._note_paused(begin)
        return results

    def _note_paused(self, begin: float) -> None:
        """`begin`: of the call that may have paused generation; the last one did."""
        self._paused_at = time.monotonic()
        self._pausing_s = self._paused_at - begin

    def _tell(self, version: Version, now: float) -> None:
        prepared, written = self._installs.prepared, self._installs.written
        most = max(written, key=lambda rank: ("cells", "copies", "reload").index(rank["kind"]))
        self.last = {
            "version": version.number,
            "digest": version.digest,
            "kind": most["kind"],
            "kind_because": most["why"],
            "cells": sum(rank["cells"] for rank in written),
            "prepare_s": max(rank["prepare_s"] for rank in prepared),
            "write_s": max(rank["write_s"] for rank in written),
            "pausing_s": self._pausing_s,
            "paused_s": now - self._paused_at,
            "install_s": now - self._daemon.told,
        }
        self._log.info(
            "weightcast: version %d is in (%s, %d cells): %.1f ms after the daemon's install, of which generation was "
            "paused for %.1f ms, and writing took %.1f ms", version.number, self.last["kind"], self.last["cells"],
            1e3 * self.last["install_s"], 1e3 * self.last["paused_s"], 1e3 * self.last["write_s"],
        )  # fmt: skip


def _pause_of(action: Action) -> tuple[str, bool]:
    """vLLM's mode, and whether it clears its caches."""
    return "wait" if action.in_flight is InFlight.DRAIN else "keep", action.in_flight is not InFlight.KEEP
