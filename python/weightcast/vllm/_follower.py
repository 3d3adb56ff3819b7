"""In vLLM's API server: follows the daemon of its host, and drives the engine by what Installs decides."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any, Callable, Optional

from .._errors import Code, Error
from .._subscription import Event, EventKind, Subscription
from ..engines._installs import Action, InFlight, Installs, Limits, Step, Version

IN_FLIGHT = "WEIGHTCAST_VLLM_IN_FLIGHT"
DRAIN_S_MAX = "WEIGHTCAST_VLLM_DRAIN_S_MAX"
INSTALL_S_MAX = "WEIGHTCAST_VLLM_INSTALL_S_MAX"
_CONNECT_S = 1.0  # between attempts, while no daemon runs
# Whatever becomes of the events' descriptor: a look at them costs microseconds.
_EVENTS_S = 1.0


def settings(environment: Any = os.environ) -> tuple[InFlight, Limits]:
    """What the environment says. Errors: ValueError, with what to set."""
    in_flight = environment.get(IN_FLIGHT, InFlight.RECOMPUTE.value)
    if in_flight not in [one.value for one in InFlight]:
        known = ", ".join(one.value for one in InFlight)
        raise ValueError(f"weightcast: {IN_FLIGHT} is {in_flight!r}; set it to one of {known}")
    limits = Limits()
    for name, fields in ((DRAIN_S_MAX, ("drain_s",)), (INSTALL_S_MAX, ("prepare_s", "write_s"))):
        text = environment.get(name)
        if text is None:
            continue
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < 1e6:
            raise ValueError(f"weightcast: {name} is {text!r}; set it to seconds above 0")
        limits = limits._replace(**dict.fromkeys(fields, seconds))
    return InFlight(in_flight), limits


class Follower:
    """Its task ends when the engine dies or stop() is called. `engine` is vLLM's EngineClient."""

    def __init__(
        self, engine: Any, installs: Installs, limits: Limits, log: Any,
        subscribe: Callable[[], Subscription] = Subscription, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._engine, self._installs, self._limits, self._log = engine, installs, limits, log
        self._subscribe, self._clock = subscribe, clock
        self._subscription: Optional[Subscription] = None
        self._readable = asyncio.Event()
        self._told = 0.0  # when the newest version was heard of
        self._paused_at = self._pausing_s = 0.0
        self._why = ""
        self._idle = asyncio.Event()
        self._has_ended = False
        self.last: dict[str, Any] = {"version": None, "digest": None}

    @property
    def is_refusing(self) -> bool:
        return self._installs.is_refusing or (self._has_ended and not self._installs.is_intact)

    def status(self) -> dict[str, Any]:
        """`version`: what answers are computed with, since it was resumed with; None: what the server was started with."""
        newest = self._installs.newest
        return {
            "newest": newest.number if newest else None,
            "follows": self._subscription is not None,
            "refuses": self.is_refusing,
            "why": self._installs.why or self._why,
            **self.last,
        }

    async def run(self) -> None:
        try:
            while not self._engine.errored:
                if self._subscription is None:
                    await self._connect()
                self._hear()
                action = self._installs.poll_action(self._clock())
                if action is None:
                    await self._wait()
                else:
                    await self._perform(action)
        finally:
            self._has_ended = True
            if self._subscription is not None:
                asyncio.get_running_loop().remove_reader(self._subscription.fileno())
                self._subscription.close()
                self._subscription = None

    async def first(self, limit_s: float) -> None:
        """Returns when nothing is left to do at once: the version that was there at the start is in, or failed."""
        try:
            await asyncio.wait_for(self._idle.wait(), limit_s)
        except asyncio.TimeoutError:
            served = "what the server was started with is served"
            self._log.warning("weightcast: the first version is not in after %g s; %s", limit_s, served)

    # The daemon.

    async def _connect(self) -> None:
        try:
            self._subscription, event = await asyncio.to_thread(self._subscribe_and_ask)
        except Error as error:
            if self._why != str(error):
                self._log.warning("weightcast: %s", error)
            self._why = str(error)
            return
        self._why = ""
        if event is not None:
            self._hear_of(event)
        asyncio.get_running_loop().add_reader(self._subscription.fileno(), self._readable.set)

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

    def _hear(self) -> None:
        self._readable.clear()
        while self._subscription is not None:
            try:
                event = self._subscription.next(0)
            except Error as error:
                self._log.warning("weightcast: %s", error)
                asyncio.get_running_loop().remove_reader(self._subscription.fileno())
                self._subscription.close()
                self._subscription, self._why = None, str(error)
                return
            if event is None:
                return
            if event.kind is EventKind.INSTALLED:
                self._hear_of(event)

    def _hear_of(self, event: Event) -> None:
        version = Version(event.version, event.digest)
        if version != self._installs.newest:
            self._told = self._clock()
        self._installs.handle_installed(self._clock(), version)

    async def _wait(self) -> None:
        deadline = self._installs.poll_deadline()
        wait_s = _EVENTS_S if self._subscription is not None else _CONNECT_S
        if deadline is None or self._installs.why:
            self._idle.set()
        if deadline is not None:
            wait_s = min(wait_s, max(0.0, deadline - self._clock()))
        try:
            await asyncio.wait_for(self._readable.wait(), wait_s)
        except asyncio.TimeoutError:
            pass

    # The engine.

    async def _perform(self, action: Action) -> None:
        call = asyncio.ensure_future(self._call(action))
        limit_s: Optional[float] = action.limit_s
        while True:
            done, _ = await asyncio.wait({call}, timeout=limit_s)
            if done:
                break
            if self._installs.handle_overdue(self._clock()):
                call.add_done_callback(lambda late: late.cancelled() or late.exception())
                return
            self._log.error("weightcast: %s", self._installs.why or f"{action.step.value} takes long")
            limit_s = None if self.is_refusing else action.limit_s
        now = self._clock()
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
            prepare = self._ranks("prepare", version=version.number, digest=version.digest, whole=action.whole,
                                  limit_s=self._limits.prepare_s)
            # Together, because the engine answers between two of its steps.
            results, is_paused = await asyncio.gather(prepare, engine.is_paused())
            if is_paused and not self._installs.is_paused:
                raise RuntimeError("somebody else has paused the engine; resume it")
            return results
        if action.step in (Step.ASK, Step.WRITE, Step.DROP):
            return await self._ranks(action.step.value)
        if action.step is Step.PAUSE:
            begin = self._clock()
            drains, keeps = action.in_flight is InFlight.DRAIN, action.in_flight is InFlight.KEEP
            await self._pause("wait" if drains else "keep", clear_cache=not keeps)
            self._paused_at = self._clock()
            self._pausing_s = self._paused_at - begin
        elif action.step is Step.LABEL:
            await engine.update_weight_version(str(version.number))
            if action.in_flight is InFlight.KEEP:
                # Where answers are under way, their blocks and those that they share stay.
                await engine.reset_prefix_cache(reset_running_requests=False)
        elif action.step is Step.RESUME:
            await engine.resume_generation()
        elif action.step is Step.REFUSE:
            await self._pause("abort", clear_cache=False)
        return []

    async def _ranks(self, operation: str, **arguments: Any) -> list[dict[str, Any]]:
        return await self._engine.collective_rpc("weightcast", args=(operation, arguments))

    async def _pause(self, mode: str, clear_cache: bool) -> None:
        """As pause_generation(), which sleeps 20 ms more, so that last outputs are out before it returns."""
        core = getattr(self._engine, "engine_core", None)
        if core is None:
            await self._engine.pause_generation(mode=mode, clear_cache=clear_cache)
            return
        if clear_cache:
            await self._engine.renderer.clear_mm_cache_async()
        await core.pause_scheduler_async(mode=mode, clear_cache=clear_cache)

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
            "install_s": now - self._told,
        }
        self._log.info(
            "weightcast: version %d is in (%s, %d cells): %.1f ms after the daemon's install, of which generation was "
            "paused for %.1f ms, and writing took %.1f ms", version.number, self.last["kind"], self.last["cells"],
            1e3 * self.last["install_s"], 1e3 * self.last["paused_s"], 1e3 * self.last["write_s"],
        )  # fmt: skip


class Refusal:
    """ASGI: turns requests away while the engine's weights are not of one version. What only looks is let through."""

    def __init__(self, app: Any, follower: Callable[[], Optional[Follower]]) -> None:
        self._app, self._follower = app, follower

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        follower = self._follower()
        is_request = scope["type"] == "http" and (scope["method"] not in ("GET", "HEAD") or scope["path"] == "/health")
        if follower is None or not follower.is_refusing or not (is_request or scope["type"] == "websocket"):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1013, "reason": "weights are not of one version"})
            return
        message = f"weightcast: no answer is given while the weights are not of one version: {follower.status()['why']}"
        body = json.dumps({"error": {"message": message, "type": "ServiceUnavailable", "code": 503}}).encode()
        headers = [(b"content-type", b"application/json"), (b"retry-after", b"1")]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class EndpointPlugin:
    """Of vllm.endpoint_plugins: vLLM loads it where VLLM_PLUGINS names it."""

    name = "weightcast"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self._follower: Optional[Follower] = None
        self._task: Optional[asyncio.Task[None]] = None

    def attach_router(self, app: Any) -> None:
        from fastapi import APIRouter

        router = APIRouter()

        @router.get("/weightcast/status")
        async def status() -> dict[str, Any]:
            return self._follower.status() if self._follower is not None else {}

        app.include_router(router)
        app.add_middleware(Refusal, follower=lambda: self._follower)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Errors: ValueError (a server that cannot follow), with what to do."""
        from vllm.logger import init_logger

        from . import BACKEND

        config = engine_client.vllm_config
        transfer = config.weight_transfer_config
        if transfer is None or transfer.backend != BACKEND:
            flag = json.dumps({"backend": BACKEND})
            raise ValueError(f"weightcast: start the server with --weight-transfer-config '{flag}'")
        if config.parallel_config.data_parallel_size > 1 or (getattr(args, "api_server_count", None) or 1) > 1:
            raise ValueError(
                "weightcast: one API server follows for one engine; start a server for each data-parallel replica, "
                "without --data-parallel-size and --api-server-count"
            )
        in_flight, limits = settings()
        log = init_logger("vllm.weightcast")
        self._follower = Follower(engine_client, Installs(in_flight, limits), limits, log)
        self._task = asyncio.create_task(self._follower.run())
        self._task.add_done_callback(lambda task: _report(task, log))
        await self._follower.first(limits.write_s)


def _report(task: asyncio.Task[None], log: Any) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("weightcast: the follower ended", exc_info=task.exception())
