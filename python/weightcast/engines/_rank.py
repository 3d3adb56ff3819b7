"""What one worker process of an engine does with its daemon's versions: it prepares one beside generation, and writes it
when generation is paused. It needs neither torch nor an engine: the model is an argument."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, NamedTuple, Optional, Protocol

from .._errors import Code, Error
from .._snapshot import Snapshot
from .._subscription import Change, Subscription
from .._tensors import RawTensor
from ._peft import refuse_adapter

_CONNECT_S_MAX = 5.0
_BUSY_S = 0.01  # between two questions for a list, which the daemon makes one by one
_EXPECTED_S_MAX = 600.0  # for the list of a version that nobody has ordered yet
_ASK_S = 0.002  # between two calls to prepare


class Staged(NamedTuple):
    """What is to be written, in the model's own terms."""

    kind: str  # "cells": those that changed; "copies": all, in place; "reload": all, by the engine
    write: Callable[[], None]
    cells: int
    why: str  # of "copies" and "reload": why it is not less


class Model(Protocol):
    def check(self, snapshot: Snapshot) -> None:
        """Errors: ValueError (it is not of this model: what is missing or different)."""

    def stage_cells(self, changes: dict[str, Change]) -> Staged: ...

    def stage_whole(self, snapshot: Snapshot, why: str) -> Staged: ...

    def settle(self) -> None:
        """Returns when what was written is in the model."""


Tensors = dict[str, tuple[str, tuple[int, ...]]]  # of a model: by name, dtype and shape


def tensors_of(snapshot: Mapping[str, RawTensor]) -> Tensors:
    return {name: (tensor.dtype, tensor.shape) for name, tensor in snapshot.items()}


def check_tensors(known: Tensors, snapshot: Mapping[str, RawTensor]) -> None:
    """Errors: ValueError, where `snapshot` is not of the model whose tensors are `known`: what is missing or different."""
    for name, expected in known.items():
        tensor = snapshot.get(name)
        if tensor is None:
            raise ValueError(f"tensor {name} of the served model is missing in it")
        if (tensor.dtype, tensor.shape) != expected:
            raise ValueError(
                f"tensor {name} is {tensor.dtype} {tensor.shape} in it, and {expected[0]} {expected[1]} in the served model; "
                "start the server anew for another model"
            )
    extra = next((name for name in snapshot if name not in known), None)
    if extra is not None:
        raise ValueError(f"the served model has no tensor {extra}; start the server anew for another model")


class _Held(NamedTuple):
    version: int
    digest: str


class _Job:
    """A version that is being prepared, or has been. Its subscription pins it until close()."""

    def __init__(self, version: _Held, base: Optional[_Held], is_ordered: bool) -> None:
        self.version, self.base = version, base
        self.is_ordered = is_ordered  # else it was begun by expect(), and makes way for any other
        self.is_dropped = False
        self.subscription: Optional[Subscription] = None
        self.staged: Optional[Staged] = None
        self.future: Future[dict[str, Any]]

    def close(self) -> None:
        self.staged = None
        if self.subscription is not None:
            self.subscription.close()
            self.subscription = None


class Rank:
    def __init__(self, model: Model, subscribe: Callable[[], Subscription]) -> None:
        """`subscribe` connects to this host's daemon; for each version anew, so that no connection can be out of date."""
        self._model, self._subscribe = model, subscribe
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="weightcast")
        self._job: Optional[_Job] = None
        self._held: Optional[_Held] = None
        self._expected: Optional[_Held] = None
        self._lock = threading.Lock()  # the engine's thread and an HTTP route's may both call

    def holds(self, version: int, digest: str) -> bool:
        """It was written here last, as a whole."""
        return self._held == (version, digest)

    def expect(self, version: int, digest: str) -> None:
        """This host's daemon has installed it: it is prepared from now on, so that the order finds it done. Of any thread.

        Not the first one, which the engine loads itself, nor while another one is ordered: that is to be written first."""
        with self._lock:
            self._expected = _Held(version, digest)
            self._begin_expected()

    def forget(self) -> None:
        """The daemon is about to take back the files of what expect() was told; what was ordered stays. Of any thread."""
        with self._lock:
            self._expected = None
            if self._job is not None and not self._job.is_ordered:
                self._drop()

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """One of prepare, write, drop. Never raises: where one of several ranks raises, vLLM mixes up the answers of the
        others with those to the next call, and SGLang's server ends."""
        try:
            with self._lock:
                return {"ok": True, **getattr(self, "_" + operation)(**arguments)}
        except Exception as error:
            return _failed(error)

    def prepare(self, version: int, digest: str, whole: bool, limit_s: float) -> dict[str, Any]:
        """call() to prepare, again until that is done. After `limit_s` it drops what is prepared, and its answer is not "ok"."""
        end = time.monotonic() + limit_s
        while True:
            result = self.call("prepare", version=version, digest=digest, whole=whole, limit_s=limit_s)
            if not result.get("pending"):
                return result
            if time.monotonic() > end:
                self.call("drop")
                return {"ok": False, "error": f"preparing takes longer than {limit_s:.0f} s"}
            time.sleep(_ASK_S)

    def _prepare(self, version: int, digest: str, whole: bool, limit_s: float) -> dict[str, Any]:
        """To be called again while the answer is "pending"."""
        wanted, base = _Held(version, digest), None if whole else self._held
        job = self._job
        if job is not None and not job.is_ordered and job.future.done() and not job.future.result()["ok"]:
            job = None  # whatever it failed for, it has not been told
        if job is None or (job.version, job.base) != (wanted, base):
            job = self._begin(wanted, base, limit_s, is_ordered=True)
        job.is_ordered = True
        if not job.future.done():
            return {"pending": True}
        result = job.future.result()
        if not result["ok"]:
            self._drop()
        return result

    def _begin(self, version: _Held, base: Optional[_Held], limit_s: float, is_ordered: bool) -> _Job:
        self._drop()
        job = self._job = _Job(version, base, is_ordered)
        job.future = self._pool.submit(self._run, job, time.monotonic() + limit_s)
        return job

    def _begin_expected(self) -> None:
        wanted, job = self._expected, self._job
        if wanted is None or self._held is None or (job is not None and job.is_ordered):
            return
        if wanted == self._held:
            self._drop()
        elif job is None or job.version != wanted:
            self._begin(wanted, self._held, _EXPECTED_S_MAX, is_ordered=False)

    def _drop(self) -> dict[str, Any]:
        job, self._job = self._job, None
        if job is not None:
            job.is_dropped = True
            subscription = job.subscription
            if subscription is not None and not job.future.done():
                subscription.cancel()
            self._pool.submit(job.close)  # behind the job itself
        return {}

    def _write(self) -> dict[str, Any]:
        job = self._job
        staged = job.staged if job is not None and job.future.done() else None
        if job is None or staged is None:
            return {"ok": False, "wrote": False, "error": "nothing was prepared"}
        begin = time.perf_counter()
        self._held = None
        try:
            staged.write()
            self._model.settle()
        except Refused as error:
            self._held = job.base
            self._drop()
            return {**_failed(error), "wrote": False}
        except Exception as error:
            self._drop()
            return {**_failed(error), "wrote": True}
        write_s = time.perf_counter() - begin
        self._held = job.version
        self._drop()
        self._begin_expected()
        return {"wrote": True, "kind": staged.kind, "cells": staged.cells, "why": staged.why, "write_s": write_s}

    def _run(self, job: _Job, end: float) -> dict[str, Any]:
        """In the pool's thread: the answer to prepare()."""
        try:
            begin = time.perf_counter()
            job.subscription = self._subscribe()
            found = self._stage(job, end)
            if job.is_dropped:
                raise RuntimeError("it was dropped")
            job.staged = found
            prepare_s = time.perf_counter() - begin
            return {"ok": True, "kind": found.kind, "cells": found.cells, "why": found.why, "prepare_s": prepare_s}
        except Exception as error:
            return _failed(error)

    def _stage(self, job: _Job, end: float) -> Staged:
        subscription = job.subscription
        assert subscription is not None
        number, digest = job.version
        pin = subscription.acquire(number, timeout=_CONNECT_S_MAX)
        if pin.digest != digest:
            raise RuntimeError(f"this host's daemon has another version {number}: {pin.digest}, not {digest}")
        refuse_adapter(pin.directory)
        snapshot = Snapshot(pin.directory)
        self._model.check(snapshot)
        if job.base == job.version:
            return Staged("cells", _nothing, 0, "")
        if job.base is None:
            return self._model.stage_whole(snapshot, "it is the first one here")
        while True:
            try:
                changes = subscription.changes(job.base, pin, timeout=max(0.0, end - time.monotonic()))
                return self._model.stage_cells(changes) if changes else Staged("cells", _nothing, 0, "")
            except NotInPlace as error:
                return self._model.stage_whole(snapshot, str(error))
            except Error as error:
                if error.code is Code.TOO_FAR:
                    return self._model.stage_whole(snapshot, str(error))
                if error.code is not Code.BUSY or job.is_dropped or time.monotonic() >= end:
                    raise
            time.sleep(_BUSY_S)


class NotInPlace(Exception):
    """These changes take a reload; it says why."""


class Refused(Exception):
    """The version is not for this model. Nothing was written."""


def _nothing() -> None:
    pass


def _failed(error: Exception) -> dict[str, Any]:
    return {"ok": False, "error": str(error) or type(error).__name__}
