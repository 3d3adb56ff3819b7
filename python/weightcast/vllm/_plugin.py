"""Of vllm.endpoint_plugins: what vLLM's API server has of ours."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
from typing import Any, Callable, Optional, Union

from .._subscription import Subscription
from ..engines._copies import Copies
from ..engines._installs import InFlight, Installs, Limits
from ._adapters import AdapterFollower
from ._follower import Follower

IN_FLIGHT = "WEIGHTCAST_VLLM_IN_FLIGHT"
DRAIN_S_MAX = "WEIGHTCAST_VLLM_DRAIN_S_MAX"
INSTALL_S_MAX = "WEIGHTCAST_VLLM_INSTALL_S_MAX"
#: Adapters to follow: NAME=STATE_DIR, separated by commas.
LORA = "WEIGHTCAST_LORA"


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


def adapters(environment: Any = os.environ) -> dict[str, str]:
    """The state directory of the daemon of each adapter, by the name that clients address. Errors: ValueError."""
    found: dict[str, str] = {}
    for entry in filter(None, environment.get(LORA, "").split(",")):
        name, _, state_dir = entry.strip().partition("=")
        # It names a directory, too.
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name) or not state_dir or name in found:
            raise ValueError(
                f"weightcast: {LORA} has {entry!r}; set it to NAME=STATE_DIR, more of them after commas, each name once and of "
                "letters, digits, '.', '_' and '-'"
            )
        found[name] = state_dir
    return found


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
    """vLLM loads it where VLLM_PLUGINS names it."""

    name = "weightcast"
    # Of any: vLLM leaves a plugin whose tasks the server does not have out, and nobody would follow.
    required_tasks = None

    def __init__(self) -> None:
        self._follower: Optional[Follower] = None
        self._adapters: dict[str, AdapterFollower] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def attach_router(self, app: Any) -> None:
        from fastapi import APIRouter

        router = APIRouter()

        @router.get("/weightcast/status")
        async def status() -> dict[str, Any]:
            found = self._follower.status() if self._follower is not None else {}
            return {**found, "adapters": {name: one.status() for name, one in self._adapters.items()}}

        app.include_router(router)
        app.add_middleware(Refusal, follower=lambda: self._follower)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Errors: ValueError (a server that cannot follow), with what to do."""
        if engine_client is None:
            return  # vLLM's render server, which has no model
        from vllm.logger import init_logger

        from . import BACKEND

        config = engine_client.vllm_config
        transfer = config.weight_transfer_config
        followed = adapters()
        if not followed and (transfer is None or transfer.backend != BACKEND):
            flag = json.dumps({"backend": BACKEND})
            raise ValueError(f"weightcast: start the server with --weight-transfer-config '{flag}', or set {LORA} for adapters")
        if config.parallel_config.data_parallel_size > 1 or (getattr(args, "api_server_count", None) or 1) > 1:
            raise ValueError(
                "weightcast: one API server follows for one engine; start a server for each data-parallel replica, "
                "without --data-parallel-size and --api-server-count"
            )
        in_flight, limits = settings()
        log = init_logger("vllm.weightcast")
        followers: list[Union[Follower, AdapterFollower]] = []
        if transfer is not None and transfer.backend == BACKEND:
            self._follower = Follower(engine_client, Installs(in_flight, limits, prepares_and_pauses=True), limits, log)
            followers.append(self._follower)
        if followed:
            self._adapters = _follow_adapters(followed, engine_client, state.openai_serving_models, limits, log)
            followers.extend(self._adapters.values())
        for follower in followers:
            task = asyncio.create_task(follower.run())
            task.add_done_callback(lambda ended: _report(ended, log))
            self._tasks.append(task)
        await asyncio.gather(*(follower.first(limits.write_s) for follower in followers))


def _follow_adapters(followed: dict[str, str], engine: Any, models: Any, limits: Limits, log: Any) -> dict[str, AdapterFollower]:
    """Errors: ValueError (a server that cannot), OSError (there is no place for copies)."""
    config = engine.vllm_config
    if config.lora_config is None:
        raise ValueError(f"weightcast: {LORA} is set; start the server with --enable-lora, --max-lora-rank and --max-loras")
    if getattr(config.parallel_config, "nnodes", 1) > 1:
        raise ValueError(f"weightcast: {LORA} is for engines on one host, whose processes read the same files")
    for name in followed:
        if models.is_base_model(name):
            raise ValueError(f"weightcast: {LORA} has the name {name}, which is the served model's; choose another")
    if config.lora_config.max_loras < 2:
        log.warning("weightcast: --max-loras is 1, so requests of a new version wait until those of the one before have ended")
    from ._served import Served

    served, copies = Served(engine, models), Copies()
    return {
        name: AdapterFollower(
            name, served, copies, config.lora_config.max_lora_rank, limits.prepare_s, log,
            functools.partial(Subscription, state_dir),
        )  # fmt: skip
        for name, state_dir in followed.items()
    }


def _report(task: asyncio.Task[None], log: Any) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("weightcast: the follower ended", exc_info=task.exception())
