"""What an SGLang server is asked for each step of an install, in which order, and what its answers mean.

Traps of SGLang 0.5.23 that the order is about: a load that fails leaves its path as the model's, and SGLang's own way back
reads that path again, so the weights may be mixed; a cache is not flushed while requests run; an exception in a custom loader
ends the server.
"""

from __future__ import annotations

import base64
import enum
import json
import os
import pickle
import time
from typing import Any, Callable, NamedTuple, Optional, Union

from .._errors import Error
from .._snapshot import Snapshot
from .._subscription import Pin, Subscription
from ..engines._installs import Action, Step, Version
from ..engines._peft import refuse_adapter
from ..engines._rank import Tensors, check_tensors, tensors_of
from . import EXCHANGE, LOADER
from ._exchange import Exchange
from ._server import Refused, Server, Unreachable

_CONNECT_S_MAX = 5.0
_LOOK_S_MAX = 5.0
_FLUSH_S_MIN, _FLUSH_S_MAX = 0.05, 1.0  # between two requests to flush
_TIED = "lm_head.weight"
# What a custom loader is called with. The weights come from this host's daemon.
_NOTHING = base64.b64encode(pickle.dumps([])).decode()


class Mode(str, enum.Enum):
    DISK = "disk"  # SGLang loads the version's directory
    CHANGES = "changes"  # our loader writes what changed, in the server's processes


class PauseMode(str, enum.Enum):
    """SGLang's names for what becomes of answers under way."""

    ABORT = "abort"  # they end
    RETRACT = "retract"  # they go on under the new version, with new keys and values
    IN_PLACE = "in_place"  # they go on with the keys and values that they have


class Unfit(Exception):
    """The server cannot be followed for as it was started; it says what to do."""


class Pinned:
    """A version of the daemon's, with a connection of its own that holds it."""

    def __init__(self, version: Version, subscribe: Callable[[], Subscription]) -> None:
        """Errors: Error, RuntimeError (the number is of another version there)."""
        self.version = version
        self.label = str(version.number)
        self._subscription = subscribe()
        try:
            self._pin: Pin = self._subscription.acquire(version.number, timeout=_CONNECT_S_MAX)
            if self._pin.digest != version.digest:
                found = f"{self._pin.digest}, not {version.digest}"
                raise RuntimeError(f"the daemon has another version {version.number} now: {found}")
        except BaseException:
            self.close()
            raise
        self.directory = self._pin.directory

    def close(self) -> None:
        self._subscription.close()


class Loaded(NamedTuple):
    """A whole checkpoint that SGLang can load, and the label of its answers."""

    directory: str
    label: str


class Engine:
    """One server. perform() does one step of an install; its results are those that Installs wants."""

    def __init__(
        self, server: Server, mode: Mode, pause: PauseMode, exchange: Optional[Exchange], log: Any,
        subscribe: Callable[[], Subscription] = Subscription, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._server, self._mode, self._pause_mode, self._exchange, self._log = server, mode, pause, exchange, log
        self._subscribe, self._clock, self._sleep = subscribe, clock, sleep
        self._tp_ranks = self._ranks = 1  # processes that get tensors, and all processes
        self._tensors: Optional[Tensors] = None  # of the served model
        self._start: Optional[Loaded] = None  # what the server had when it was met
        self._served: Optional[Pinned] = None
        self._pending: Optional[Pinned] = None
        self._by_disk = False  # a write in memory has failed: SGLang loads the next one
        self._has_paused = False
        #: Of the last write: what each rank says.
        self.written: list[dict[str, Any]] = []
        self.paused_at = 0.0

    def close(self) -> None:
        for pinned in (self._served, self._pending):
            if pinned is not None:
                pinned.close()
        self._served = self._pending = None

    def meet(self) -> None:
        """At the start, and after it was not to be reached: what is it, and what does it have?

        Errors: Unreachable, Refused, Unfit.
        """
        info = self._server.get("/model_info", _LOOK_S_MAX)
        label, path = str(info.get("weight_version")), str(info.get("model_path") or "")
        if self._mode is Mode.CHANGES:
            self._check_changes(self._server.get("/server_info", _LOOK_S_MAX))
        self._has_paused = False
        if self._served is not None and label == self._served.label:
            return  # the same server as before; what was served there can be loaded again
        if self._served is not None:
            self._served.close()
            self._served = None
        # After changes in memory the path is of an older version than the label.
        is_known = path and not (self._mode is Mode.CHANGES and label.isdigit())
        self._start = Loaded(path, label) if is_known else None
        self._tensors = None
        if self._start is not None and os.path.isdir(path):
            try:
                self._tensors = _tensors_of_checkpoint(path)
            except (Error, OSError) as error:
                self._log.warning("weightcast: the served model's tensors are not known: %s", error)

    def _check_changes(self, info: dict[str, Any]) -> None:
        loaders = info.get("custom_weight_loader") or []
        if LOADER not in loaders:  # SGLang would end with an exception when it is called
            raise Unfit(f"start the server with --custom-weight-loader {LOADER} and {EXCHANGE}, or follow by --mode disk")
        if int(info.get("dp_size") or 1) > 1 or int(info.get("nnodes") or 1) > 1:
            raise Unfit("--mode changes is for servers on one host without data parallelism; follow by --mode disk")
        self._tp_ranks = int(info.get("tp_size") or 1)
        self._ranks = self._tp_ranks * int(info.get("pp_size") or 1)

    def label(self) -> str:
        """Errors: Unreachable, Refused."""
        return str(self._server.get("/model_info", _LOOK_S_MAX).get("weight_version"))

    def renew(self) -> None:
        """The daemon's end has taken the pins: what is served is pinned again, where the daemon still has it."""
        if self._served is None:
            return
        try:
            renewed = Pinned(self._served.version, self._subscribe)
        except (Error, RuntimeError) as error:
            self._log.warning("weightcast: the served version %s is not pinned any more: %s", self._served.label, error)
            return
        self._served.close()
        self._served = renewed

    def perform(self, action: Action) -> list[dict[str, Any]]:
        """Errors: Unreachable (start anew with meet()), Refused, Error, ValueError, RuntimeError, OSError."""
        end = self._clock() + action.limit_s
        if action.step is Step.PREPARE:
            self._prepare(action.version)
        elif action.step is Step.DROP:
            self._drop()
        elif action.step is Step.PAUSE:
            self._pause(end)
        elif action.step is Step.WRITE:
            self.written = self._write(end, whole=action.whole)
            return self.written
        elif action.step is Step.LABEL and self._mode is Mode.CHANGES:
            label = {"new_version": str(action.version.number), "abort_all_requests": False}
            self._server.post("/update_weight_version", label, end - self._clock())
        elif action.step is Step.RESUME:
            self._server.post("/continue_generation", {}, end - self._clock())
            self._has_paused = False
        elif action.step is Step.REFUSE and self._has_paused:
            # It stays paused. Answers under way end; new requests wait, in SGLang, until their clients give up.
            self._server.post("/abort_request", {"abort_all": True}, end - self._clock())
        return [{"ok": True}]

    def keep(self) -> None:
        """Generation goes on with what was written: the version before may go."""
        if self._served is not None:
            self._served.close()
        self._served, self._pending = self._pending, None
        if self._tensors is None and self._served is not None:
            self._tensors = tensors_of(Snapshot(self._served.directory))

    def _drop(self) -> None:
        if self._pending is not None:
            self._pending.close()
            self._pending = None

    def _prepare(self, version: Version) -> None:
        self._drop()
        self._pending = Pinned(version, self._subscribe)
        refuse_adapter(self._pending.directory)
        if self._tensors is not None:
            # SGLang loads what is there, and leaves the rest as it was: a mixture, and success.
            check_tensors(self._tensors, Snapshot(self._pending.directory))

    def _pause(self, end: float) -> None:
        self._has_paused = True  # from here on it may be
        self._server.post("/pause_generation", {"mode": self._pause_mode.value}, end - self._clock())
        self.paused_at = self._clock()
        wait_s = _FLUSH_S_MIN
        while True:
            try:
                self._server.post("/flush_cache", {}, end - self._clock())
                return
            except Refused as error:
                if error.status != 400:
                    raise
                if self._pause_mode is PauseMode.IN_PLACE:
                    return  # what runs keeps its keys and values, and does not end while it is paused
                if self._clock() + wait_s >= end:
                    raise RuntimeError(f"requests run on for too long after the pause, try --pause abort; {error}") from None
            self._sleep(wait_s)
            wait_s = min(wait_s * 2, _FLUSH_S_MAX)

    # Writing.

    def _write(self, end: float, whole: bool) -> list[dict[str, Any]]:
        assert self._pending is not None
        if self._mode is Mode.DISK or (whole and self._by_disk):
            return [self._write_by_disk(self._pending, end)]
        try:
            results = self._write_changes(end, whole)
        except Unreachable:
            self._by_disk = True
            raise
        if not all(result["ok"] for result in results):
            self._by_disk = self._by_disk or any(result.get("wrote") for result in results)
        return results

    def _write_by_disk(self, wanted: Pinned, end: float) -> dict[str, Any]:
        begin = self._clock()
        try:
            self._load(wanted, end)
        except Refused as error:
            before = self._served or self._start
            if before is None:
                return {"ok": False, "wrote": True, "error": f"{error}; no version before is known to load again"}
            try:
                self._load(before, end)
            except Refused as second:
                why = f"{error}; and {before.directory}, which was served before, did not load again: {second}"
                return {"ok": False, "wrote": True, "error": why}
            return {"ok": False, "wrote": False, "restored": True, "error": f"{error}; {before.directory} was loaded again"}
        self._by_disk = False
        return {"ok": True, "wrote": True, "kind": "disk", "cells": 0, "why": "", "write_s": self._clock() - begin}

    def _load(self, what: Union[Pinned, Loaded], end: float) -> None:
        body = {
            "model_path": what.directory, "weight_version": what.label, "flush_cache": False, "abort_all_requests": False,
        }  # fmt: skip
        self._server.post("/update_weights_from_disk", body, end - self._clock())

    def _write_changes(self, end: float, whole: bool) -> list[dict[str, Any]]:
        assert self._pending is not None
        version = self._pending.version
        base = None if whole or self._served is None else list(self._served.version)
        arguments = {"version": version.number, "digest": version.digest, "base": base}
        try:
            self._begin(end)
            results = self._order("prepare", {**arguments, "limit_s": max(1.0, end - self._clock())}, end)
            is_prepared = all(result["ok"] for result in results)
            if is_prepared:
                results = self._order("write", {}, end)
            self._end(end)
            if not is_prepared:
                return [{**result, "wrote": False} for result in results]
            if all(result["ok"] for result in results) and any(result["kind"] == "reload" for result in results):
                # Once more, after what SGLang makes of weights when an update ends.
                self._begin(end)
                probed = self._order("probe", {"directory": self._pending.directory}, end)
                self._end(end)
                results = results if all(one["ok"] for one in probed) else probed
        except (Refused, RuntimeError) as error:
            # Also before the write: SGLang unpacks weights when an update begins, and packs them when it ends.
            return [{"ok": False, "wrote": True, "error": str(error)}]
        return results

    def _begin(self, end: float) -> None:
        body = {"selector": "target"}  # a draft model stays as it was loaded
        try:
            self._server.post("/begin_weight_update", body, end - self._clock())
        except Refused as error:
            if error.status != 400:
                raise
            self._end(end)  # of an update that was given up
            self._server.post("/begin_weight_update", body, end - self._clock())

    def _end(self, end: float) -> None:
        self._server.post("/end_weight_update", {}, end - self._clock())

    def _order(self, operation: str, arguments: dict[str, Any], end: float) -> list[dict[str, Any]]:
        """What each rank of the server reports. Errors: RuntimeError (some report nothing), Refused, Unreachable."""
        assert self._exchange is not None
        number = self._exchange.order(operation, arguments)
        try:
            body = {
                "serialized_named_tensors": [_NOTHING] * self._tp_ranks, "load_format": LOADER, "flush_cache": False,
                "selector": "target",
            }  # fmt: skip
            self._server.post("/update_weights_from_tensor", body, end - self._clock())
            reports = self._exchange.reports(number)
        finally:
            self._exchange.withdraw()
        if len(reports) != self._ranks:
            raise RuntimeError(
                f"{len(reports)} of {self._ranks} processes of the server report on {operation!r}: they need {EXCHANGE}="
                f"{self._exchange.directory} and the same user; their log says more"
            )
        return reports


def _tensors_of_checkpoint(path: str) -> Tensors:
    """Of what the server was started with. A tied head may be among them, and need not be published."""
    found = tensors_of(Snapshot(path))
    try:
        with open(os.path.join(path, "config.json")) as file:
            is_tied = bool(json.load(file).get("tie_word_embeddings"))
    except (OSError, ValueError):
        is_tied = True  # the default of many configurations
    return {name: tensor for name, tensor in found.items() if not (is_tied and name == _TIED)}
