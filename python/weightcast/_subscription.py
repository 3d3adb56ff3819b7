"""Subscriptions: what an inference engine is to use."""

from __future__ import annotations

import ctypes
import enum
import functools
import os
import time
import warnings
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, Union

from ._errors import Code, Error, TimedOut
from ._library import Closable, EventStruct, Handle, PathLike, check, in_a_thread, library, milliseconds, state_directory
from ._snapshot import Snapshot
from ._tensors import RawTensor, pinned, tensor_bytes

# How long one call of an iterator waits before it goes on waiting. A close() that comes just before such a call has
# nothing to end, and is noticed after it.
_ITERATION_S = 1.0
# A release is sent, and not answered.
_RELEASE_S = 0.1
# How long pin_when_installed() waits for an event before it looks at other things.
_LOOK_S = 1.0
# What a host's daemon says of a version that is still to come, or while it is started again.
_NOT_YET = (Code.NOT_FOUND, Code.BUSY, Code.CLOSED)
# How often tensors() asks for a version that is not there yet.
_FIRST_VERSION_S = 0.05
# WC_OLD_VALUES
_OLD_VALUES = 1


class EventKind(enum.IntEnum):
    """What an Event tells."""

    #: `version` is in use now; its files lie in `directory`.
    INSTALLED = 1
    #: From a worker with --single-copy: the files in use are about to become those of `version`. Drop every view of
    #: them; what was copied elsewhere may be used on. INSTALLED follows, of the old version if nothing came of it.
    PREPARING = 2
    #: The daemon ended, or the connection did. The subscription connects again and then tells the version in use.
    DISCONNECTED = 3


@dataclass(frozen=True)
class Event:
    kind: EventKind
    version: int
    directory: str
    digest: str  # of the snapshot, in hexadecimal
    #: Counts the trainer's runs that this daemon has followed. Of two events the one with the greater (run, version) is
    #: newer: a new run may begin with a smaller number.
    run: int = 1


def _event_of(found: EventStruct) -> Event:
    try:
        kind = EventKind(found.kind)
    except ValueError:
        why = f"weightcast: event {found.kind} is unknown; daemon and package are of different releases"
        raise Error(Code.UNSUPPORTED, "receive", why) from None
    return Event(kind, found.version, os.fsdecode(found.directory), found.digest.decode(), found.run)


class Subscription(Closable):
    """Tells which version a daemon has in use, and of each newer one. It connects again by itself.

    Iterating yields an Event for each change, and never ends by itself. One call at a time: a second thread gets Error
    with BUSY. Close it, or use it as a context manager.
    """

    def __init__(self, state_dir: Optional[PathLike] = None, *, timeout: float = 5.0) -> None:
        """Subscribes at the daemon with this state directory, a worker or an origin.

        Errors: Error with NOT_FOUND (no daemon runs there), NOT_ALLOWED (another user's), TIMED_OUT, IO.
        """
        pointer = c_void_p()
        check(library().wc_subscribe, state_directory(state_dir), milliseconds(timeout), byref(pointer))
        self._handle = Handle(pointer, "wc_subscription_close", "wc_subscription_cancel")
        self._dropped: deque[int] = deque()  # versions whose pins are gone, and not released yet

    def fileno(self) -> int:
        """A descriptor for select(), poll(), epoll or asyncio's add_reader: readable when next(0) has something to do.

        Then call next(0) until it returns None, which may be at once. Do not read from it.
        """
        return library().wc_subscription_fd(self._open_handle().pointer)

    def next(self, timeout: float) -> Optional[Event]:
        """The next event; None if none came in `timeout` seconds. Versions in between may be skipped.

        Errors: Error with CANCELLED, UNSUPPORTED and CORRUPT (the daemon is of another release), NOT_ALLOWED.
        """
        handle = self._open_handle()
        self._release_dropped()
        event = EventStruct()
        call = handle.call if timeout > 0 else handle.call_at_once
        try:
            call(library().wc_next, milliseconds(timeout), byref(event))
        except TimedOut:
            return None
        return _event_of(event)

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self.next(_ITERATION_S)
            if event is not None:
                yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The same for asyncio: `async for event in subscription`. Where the task is cancelled the subscription is good
        for the next call, and no event is lost but the one that comes at that moment."""
        while True:
            event = await in_a_thread(self.cancel, self.next, _ITERATION_S)
            if event is not None:
                yield event

    def acquire(self, version: int = 0, *, timeout: float = 5.0) -> Pin:
        """Pins a version, 0 being the one in use: its directory stays, complete and unchanged, until Pin.release().

        `with subscription.acquire() as pin:` releases it at the end. A subscription holds at most 4 pins. After
        DISCONNECTED all are gone. Where the connection has ended, this connects again first, and next() then tells
        DISCONNECTED. A worker with --single-copy cannot take a new version while the old one is pinned.
        Errors: Error with NOT_FOUND (the daemon has not that version, or none yet), BUSY (too many pins; the version
        gives way to another), TIMED_OUT, CANCELLED, CLOSED.
        """
        return Pin(self, self._acquire(version, timeout))

    def _acquire(self, version: int, timeout: float) -> Event:
        handle = self._open_handle()
        self._release_dropped()
        event = EventStruct()
        handle.call(library().wc_acquire, version, milliseconds(timeout), byref(event))
        return _event_of(event)

    def _release_dropped(self) -> None:
        """Releases what was pinned by pins that nobody has any more. Where another call runs, the next one does it."""
        while self._dropped and self._handle is not None:
            version = self._dropped.popleft()
            try:
                self._handle.call_at_once(library().wc_release, version, milliseconds(_RELEASE_S))
            except Error as error:
                if error.code in (Code.BUSY, Code.TIMED_OUT, Code.CANCELLED):
                    self._dropped.append(version)
                    return

    def current(self, *, timeout: float = 5.0) -> Event:
        """The version in use, asked of the daemon. Events are not consumed. Errors: those of acquire()."""
        with self.acquire(timeout=timeout) as pin:
            return Event(EventKind.INSTALLED, pin.version, pin.directory, pin.digest, pin.run)

    def changes(
        self, base: Union[Event, Pin], pin: Pin, *, old_values: bool = False, timeout: float = 60.0
    ) -> dict[str, Change]:
        """The changes from the version `base` to the pinned one, by the names of the tensors that have any.

        An engine that has `base` in its own memory writes them over it:

            for name, change in subscription.changes(base, pin).items():
                indices, values = change.torch()
                weights[name].view(-1)[indices] = values

        `base` is the event or the pin that the engine had that version from. The daemon need not have it any more where
        it knows the changes, as a worker does of its last versions since its start; else it compares the files of both.
        It may be the newer one of the two. Exact: with these values at these indices each tensor has the bytes that the
        pinned version has. With `old_values` each Change has what the elements were, from the base's files.
        The arrays live on their own, and outlive pin, subscription and daemon. The memory goes with the last of them.
        Errors: Error with TOO_FAR (the message says why: load pin.directory), BUSY (the daemon makes another list),
        NOT_FOUND (the pin was released, or the version withdrawn), TIMED_OUT, CANCELLED, CLOSED, NO_SPACE.
        """
        handle = self._open_handle()
        self._release_dropped()
        pointer = c_void_p()
        handle.call(
            library().wc_changes, base.version, base.digest.encode(), pin.version, _OLD_VALUES if old_values else 0,
            milliseconds(timeout), byref(pointer),
        )
        memory = _ListMemory(pointer)
        found = {}
        for index in range(library().wc_change_list_count(pointer)):
            change = library().wc_change_list_at(pointer, index).contents
            width = "U32" if change.index_bytes == 4 else "U64"
            dtype = change.dtype.decode()
            indices = memory.array(width, change.count, change.indices)
            values = memory.array(dtype, change.count, change.values)
            old = memory.array(dtype, change.count, change.old_values) if old_values else None
            found[change.name.decode()] = Change(indices, values, old)
        return found

    def tensors(self, version: int = 0, *, timeout: float = 5.0) -> Iterator[tuple[str, RawTensor]]:
        """Each tensor of a version with its name, 0 being the one in use: for an engine that fills its own memory.

            for name, tensor in subscription.tensors(timeout=600):
                weights[name].copy_(tensor.pinned(), non_blocking=True)

        Waits up to `timeout` for a version to be there. The version is pinned until the iterator ends or is dropped;
        tensors are views of its mapped files, and stay longer. Errors: those of acquire() and Snapshot.
        """
        end = time.monotonic() + timeout
        missing: Optional[Error] = None
        while True:
            try:
                pin = self.acquire(version, timeout=max(0.0, end - time.monotonic()))
                break
            except TimedOut as error:
                # That a version is missing says more than that there was no time for another answer.
                raise missing or error from None
            except Error as error:
                if error.code is not Code.NOT_FOUND or time.monotonic() >= end:
                    raise
                missing = error
            time.sleep(_FIRST_VERSION_S)
        with pin:
            yield from Snapshot(pin.directory).items()

    def cancel(self) -> None:
        """Ends the call that another thread has begun: it raises Error with CANCELLED. Without one it has no effect."""
        self._open_handle().cancel()


class Change(NamedTuple):
    """The elements of one tensor that have new values, as arrays over memory that the daemon has filled: no copies."""

    indices: RawTensor  # "U32" or "U64", [n]: row-major, ascending, each once
    values: RawTensor  # the tensor's dtype, [n]
    old_values: Optional[RawTensor] = None  # likewise, where they were asked for

    def torch(self) -> TorchChange:
        """The same as torch tensors on the CPU, `indices` as int32 or int64.

        Where CUDA is available they are copies in pinned memory, which `.to("cuda", non_blocking=True)` takes at the
        bus's rate. Else they are over the same memory, without a copy; but indices of 32 bits are copied for a torch
        that takes int64 alone, and for tensors of 2**31 elements and more. Errors: ImportError (no torch).
        """
        import torch

        count = self.indices.shape[0]
        if not count:
            indices = torch.empty(0, dtype=torch.int64)
        elif self.indices.dtype == "U64":
            indices = torch.frombuffer(self.indices.data, dtype=torch.int64)
        else:
            indices = torch.frombuffer(self.indices.data, dtype=torch.int32)
            if int(indices[-1]) < 0 or not _takes_int32_indices():  # they ascend
                indices = indices.long() & 0xFFFFFFFF
        old = None if self.old_values is None else self.old_values.pinned()
        return TorchChange(pinned(indices), self.values.pinned(), old)


class TorchChange:
    """What Change.torch() gives. It unpacks as `indices, values`."""

    def __init__(self, indices: Any, values: Any, old_values: Any) -> None:
        self.indices = indices
        self.values = values
        self.old_values = old_values  # None where they were not asked for

    def __iter__(self) -> Iterator[Any]:
        return iter((self.indices, self.values))


@functools.lru_cache(maxsize=None)
def _takes_int32_indices() -> bool:
    """Whether this torch writes to elements that an int32 tensor names; older ones take int64 alone."""
    import torch

    try:
        torch.zeros(2)[torch.zeros(1, dtype=torch.int32)] = torch.ones(1)
    except (IndexError, RuntimeError):
        return False
    return True


class _ListMemory:
    """A list of the library's, which lives as long as any array over it."""

    def __init__(self, pointer: c_void_p) -> None:
        self._pointer = pointer

    def array(self, dtype: str, count: int, address: Optional[int]) -> RawTensor:
        size = tensor_bytes(dtype, (count,))
        if not size:
            return RawTensor(dtype, (count,), b"")
        data = (ctypes.c_char * size).from_address(address)
        data._list = self  # the memoryview below keeps `data`, and that the list
        return RawTensor(dtype, (count,), memoryview(data))

    def __del__(self) -> None:
        library().wc_change_list_close(self._pointer)


class Pin:
    """A pinned version. As a context manager it is released at the end. One that is dropped is released with a
    ResourceWarning, now or in the subscription's next call."""

    def __init__(self, subscription: Subscription, found: Event) -> None:
        self._subscription: Optional[Subscription] = subscription
        self.version = found.version
        self.directory = found.directory
        self.digest = found.digest
        self.run = found.run

    def release(self, *, timeout: float = 5.0) -> None:
        """Lets the version go. Repeating it is harmless, and so is a pin that the connection's end has taken.

        Errors: Error with TIMED_OUT and CANCELLED (the daemon does not read; it is still pinned).
        """
        subscription, self._subscription = self._subscription, None
        if subscription is None or subscription._handle is None:
            return
        try:
            subscription._handle.call(library().wc_release, self.version, milliseconds(timeout))
        except Error as error:
            if error.code in (Code.NOT_FOUND, Code.CLOSED):
                return
            self._subscription = subscription
            raise

    def __del__(self) -> None:
        subscription = getattr(self, "_subscription", None)
        if subscription is None or subscription._handle is None:
            return
        warnings.warn(
            f"weightcast: the pin of version {self.version} was dropped; use it by 'with', or release() it",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        subscription._dropped.append(self.version)
        subscription._release_dropped()

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def pin_when_installed(
    subscription: Subscription, version: int, digest: Optional[str], end: float, check: Callable[[], None] = lambda: None
) -> Pin:
    """Pins `version`, of that digest, as soon as the daemon has it; the daemon may be started again meanwhile.

    An earlier run of the trainer's may have a version of the same number: its digest is another one. `check` raises what
    ends the wait. Errors: TimedOut (it says what the daemon said last), those of Subscription.acquire() and next().
    """
    while True:
        check()
        why = f"its version {version} is of another run"
        try:
            pin = subscription.acquire(version, timeout=seconds_left(end))
            if digest is None or pin.digest == digest:
                return pin
            pin.release()
        except Error as error:
            if error.code not in _NOT_YET:
                raise
            why = str(error)
        if not seconds_left(end):
            raise TimedOut(
                Code.TIMED_OUT, "install",
                f"weightcast: version {version} is not on this host in time: {why}; see 'weightcast status' at the origin",
            )
        subscription.next(min(seconds_left(end), _LOOK_S))


def seconds_left(end: float) -> float:
    """Until time.monotonic() is `end`; 0 from then on."""
    return max(0.0, end - time.monotonic())
