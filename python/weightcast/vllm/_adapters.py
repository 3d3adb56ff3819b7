"""In vLLM's API server: follows a daemon whose versions are adapters."""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import Any, Awaitable, Callable

from .._subscription import Subscription
from ..engines._adapters import Adapters
from ..engines._copies import Copies
from ..engines._installs import Version
from ..engines._peft import check, find
from ._events import DaemonEvents

_CONNECT_S_MAX = 5.0
# From the end of the last request of a version until its files go: what the engine has begun it may still look for.
_FILES_S = 10.0


class AdapterFollower:
    """The versions of one adapter, which clients address by `name`. Its task ends with the engine.

    A new version is loaded beside the one before. Then new requests get it; those under way keep theirs, which is dropped when
    the last of them has ended. `served` is Served of _served.py.
    """

    def __init__(
        self, name: str, served: Any, copies: Copies, rank_max: int, limit_s: float, log: Any,
        subscribe: Callable[[], Subscription],
    ) -> None:  # fmt: skip
        """`rank_max`: of the engine. `limit_s`: after which status() says that an install takes long."""
        self._name, self._served, self._copies, self._rank_max = name, served, copies, rank_max
        self._limit_s, self._log, self._subscribe = limit_s, log, subscribe
        self._adapters = Adapters()
        self._daemon = DaemonEvents(self._adapters, log, subscribe)
        self._unused: list[tuple[str, int]] = []  # label and number of versions that no request has any more
        self._loaded: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._last: dict[str, Any] = {"version": None, "digest": None, "model": None}

    def status(self) -> dict[str, Any]:
        """`version`: of requests that arrive now, whose answers have it in `model`; None: there is no adapter of this name.
        `loaded`: versions in the engine, with those that answers under way have."""
        return {**self._daemon.status(), "loaded": len(self._loaded), **self._last}

    async def run(self) -> None:
        try:
            while not self._served.has_ended:
                await self._daemon.hear()
                await self._drop_unused()
                version = self._adapters.poll(time.monotonic())
                if version is None:
                    await self._daemon.wait()
                else:
                    await self._install(version)
        finally:
            self._daemon.close()

    async def first(self, limit_s: float) -> None:
        if not await self._daemon.first(limit_s):
            self._log.warning("weightcast: the first version of %s is not in after %g s", self._name, limit_s)

    async def _install(self, version: Version) -> None:
        label = f"{self._name}@{version.number}-{version.digest[:12]}"
        told, begin = self._daemon.told, time.monotonic()
        try:
            if label in self._loaded:
                raise RuntimeError("answers under way have the same version from before; it is loaded anew when they have ended")
            path = await self._patiently(version, "copying", asyncio.to_thread(self._copy, version, label))
            copied = time.monotonic()
            try:
                request = await self._patiently(version, "loading", self._served.load(label, path))
            except BaseException:
                self._copies.remove(label)
                raise
        except Exception as error:
            self._handle_failed(version, str(error) or type(error).__name__)
            return
        self._loaded.add(label)
        weakref.finalize(request, self._handle_unused, label, request.lora_int_id).atexit = False
        self._served.show(self._name, request)
        now = time.monotonic()
        self._adapters.handle_loaded(version)
        self._last = {
            "version": version.number, "digest": version.digest, "model": label,
            "copy_s": copied - begin, "load_s": now - copied, "install_s": now - told,
        }  # fmt: skip
        self._log.info(
            "weightcast: %s is in: %.1f ms after the daemon's install, of which loading took %.1f ms", label,
            1e3 * self._last["install_s"], 1e3 * self._last["load_s"],
        )  # fmt: skip

    def _copy(self, version: Version, label: str) -> str:
        """In a thread. Errors: ValueError (not an adapter, or not one for this engine), RuntimeError, Error, OSError."""
        with self._subscribe() as subscription, subscription.acquire(version.number, timeout=_CONNECT_S_MAX) as pin:
            if pin.digest != version.digest:
                raise RuntimeError(f"the daemon has another version {version.number} now: {pin.digest}, not {version.digest}")
            source = find(pin.directory, self._name)
            check(source, self._rank_max, self._served.model_names)
            return self._copies.make(source, label)

    async def _patiently(self, version: Version, what: str, call: Awaitable[Any]) -> Any:
        """Waits for it to the end, because the next one would stand behind it. Meanwhile what was served is served."""
        task = asyncio.ensure_future(call)
        done, _ = await asyncio.wait({task}, timeout=self._limit_s)
        if not done:
            self._handle_failed(version, f"{what} takes longer than {self._limit_s:g} s")
        return await task

    def _handle_failed(self, version: Version, why: str) -> None:
        if self._adapters.handle_failed(time.monotonic(), version, f"version {version.number}: {why}"):
            served = self._last["model"] or "nothing yet"
            self._log.error("weightcast: version %d of %s is not in: %s; %s is served", version.number, self._name, why, served)

    def _handle_unused(self, label: str, number: int) -> None:
        """Of whatever thread had the last reference."""

        def note() -> None:
            self._unused.append((label, number))
            self._daemon.wake()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(note)

    async def _drop_unused(self) -> None:
        """Behind the aborts of requests that ended early, which the engine takes in order."""
        while self._unused:
            label, number = self._unused.pop()
            try:
                await self._served.drop(number)
            except Exception as error:  # its files stay, since it may be there yet
                self._log.error("weightcast: %s was not dropped: %s", label, error)
                continue
            self._loaded.discard(label)
            self._loop.call_later(_FILES_S, self._copies.remove, label)
