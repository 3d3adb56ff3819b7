"""A publication that has begun: its memory, which one process fills or several."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterable, Sequence
from ctypes import byref, c_char, c_int, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, Optional, Union

from ._arguments import unwrapped, version_number
from ._errors import Code, Error
from ._library import Closable, Handle, PathLike, PublishOptions, SlotStruct, check, library, milliseconds
from ._tensors import DTYPE_BITS, Box, RawTensor, Source, TensorInfo, source_of, tensor_bytes

# How long a call that was cancelled may take to return: ten times what the library promises.
_CANCELLED_S = 1.0


@dataclass
class _Slot:
    info: TensorInfo
    address: int
    size_bytes: int


def _slot_of(slot: SlotStruct) -> _Slot:
    shape = tuple(slot.shape[: slot.rank]) if slot.rank else ()
    return _Slot(TensorInfo(slot.name.decode(), slot.dtype.decode(), shape), slot.address, slot.size_bytes)


class _Slots:
    """Tensors in writable memory, by name. The memory belongs to `region`, to which each view refers."""

    def __init__(self, slots: dict[str, _Slot], region: Handle, filled_for: int) -> None:
        self._slots = slots
        self._region = region
        self._filled_for = filled_for
        self._views: dict[int, weakref.ref[memoryview]] = {}  # those that somebody still has

    def fill(self, name: str, tensor: Any, *, offset: Optional[Sequence[int]] = None) -> None:
        """Copies `tensor` into its place, once: from a CPU or a CUDA device, and from any strides.

        With `offset` it is a part of that place, such as one process's shard: it begins at that element, one number for
        each dimension.

        A tensor on a device is copied on this thread's current stream, after what was queued there before. The copy is
        over on return. Whoever writes the tensor on another stream lets this one wait for that first.
        Errors: KeyError (no such tensor), ValueError (another dtype or shape than was begun, or not within it),
        TypeError (nothing that can be taken), Error with INVALID_ARGUMENT (it was committed or aborted), and what torch
        raises.
        """
        slot, source = self._slot(name), source_of(name, tensor)
        if offset is None:
            self._write(slot, source)
            return
        dtype, whole = slot.info.dtype, slot.info.shape
        if source.dtype != dtype or DTYPE_BITS[dtype] % 8:
            raise ValueError(
                f"weightcast: tensor {name!r} was begun as {dtype}; a part of {source.dtype} cannot be filled into it"
            )
        try:
            Box(tuple(offset), source.shape).check(whole)
        except ValueError as error:
            raise ValueError(f"weightcast: tensor {name!r}: {error}") from None
        source.copy_into(slot.address, whole, tuple(offset))

    def done(self, part: int) -> None:
        """Says that part `part` of the publication, from 0 up to begin()'s `parts`, is filled. Repeating it is harmless.

        Errors: Error with INVALID_ARGUMENT (no such part; it was committed or aborted).
        """
        check(library().wc_region_done, self._region.pointer, self._filled_for, part)

    @property
    def id(self) -> int:
        """The number of the publication, whatever process begins it: for attach() and Region.renew() elsewhere."""
        return self._filled_for

    @property
    def memory(self) -> int:
        """Which memory it is: the same number in all processes that have it, another one for other memory."""
        return library().wc_region_memory(self._region.pointer)

    def buffer(self, name: str) -> memoryview:
        """The tensor's bytes, writable, of format "B", row-major and little-endian. For torch and NumPy see raw().

        Write to it only until the publication is committed: a copy with non_blocking=True has to be waited for before
        that. A view that is kept longer is no error as long as nobody writes to it; its memory stays.
        Errors: KeyError (no such tensor), Error with INVALID_ARGUMENT (it was committed or aborted).
        """
        slot = self._slot(name)
        memory = (c_char * slot.size_bytes).from_address(slot.address)
        memory.owner = self._region
        view = memoryview(memory).cast("B")
        key = id(view)
        self._views[key] = weakref.ref(view, lambda _, views=self._views: views.pop(key, None))
        return view

    def raw(self, name: str) -> RawTensor:
        """The same with its dtype and shape: `raw(n).torch()` is a tensor over the memory, an empty one too.

        Errors: those of buffer().
        """
        info = self._slot(name).info
        return RawTensor(info.dtype, info.shape, self.buffer(name))

    @property
    def infos(self) -> tuple[TensorInfo, ...]:
        return tuple(slot.info for slot in self._slots.values())

    def _slot(self, name: str) -> _Slot:
        try:
            slot = self._look_up(unwrapped(name))
        except KeyError:
            raise KeyError(f"weightcast: tensor {name!r} was not begun") from None
        if library().wc_region_filled_for(self._region.pointer) != self._filled_for:
            raise Error(
                Code.INVALID_ARGUMENT,
                "publish",
                f"weightcast: tensor {name!r}: its publication was committed or aborted, and the memory may be another "
                "one's now; take the path of the one that is begun",
            )
        return slot

    def _look_up(self, name: str) -> _Slot:
        return self._slots[name]

    def _write(self, slot: _Slot, source: Source) -> None:
        if (source.dtype, source.shape) != (slot.info.dtype, slot.info.shape):
            raise ValueError(
                f"weightcast: tensor {slot.info.name!r} is {source.dtype} {source.shape}, but was begun as "
                f"{slot.info.dtype} {slot.info.shape}"
            )
        if slot.size_bytes:
            source.copy_to(slot.address, slot.size_bytes)

    def _revoke(self) -> None:
        """Makes the views unusable, as far as nothing else was made from them."""
        for reference in list(self._views.values()):
            view = reference()
            if view is None:
                continue
            try:
                view.release()
            except BufferError:  # a tensor over it is still alive
                pass
        self._views.clear()


class Leftover:
    """Whether a publisher's client may have something begun that nobody can commit or abort."""

    is_begun = False


class Publication(_Slots):
    """A publication that has begun: memory to fill, in any order and from any threads. Publisher.begin() makes it.

    As a context manager it aborts at the end what was not committed. So does the publisher's next one, where this is
    dropped.
    """

    _open = False

    def __init__(
        self, handle: Handle, infos: list[TensorInfo], addresses: Any, options: PublishOptions, leftover: Leftover
    ) -> None:
        self._leftover = leftover
        lib = library()
        pointer, filled_for = c_void_p(), c_uint64()
        handle.call_at_once(lib.wc_region_id, byref(filled_for))
        handle.call_at_once(lib.wc_region_hold, byref(pointer))
        slots = {
            info.name: _Slot(info, address, tensor_bytes(info.dtype, info.shape))
            for info, address in zip(infos, addresses)
        }
        super().__init__(slots, Handle(pointer, "wc_region_close"), filled_for.value)
        self._handle = handle
        self._options = options
        self._open = True
        self._left_behind = False  # a second Ctrl-C may leave a commit that runs

    @property
    def path(self) -> str:
        """Where other processes of this user find the memory, for attach(), until commit() or abort()."""
        return f"/proc/{os.getpid()}/fd/{self.fileno()}#{self._filled_for:x}"

    def fileno(self) -> int:
        """The memory's descriptor, until commit() or abort(): for processes that cannot open `path`, because they have
        another user or see other processes. Send it by socket.send_fds(), with `id`, and give both to attach()."""
        fd = c_int(-1)
        self._check_open()
        self._handle.call_at_once(library().wc_region_fd, byref(fd))
        return fd.value

    def commit(self, *, version: Optional[int] = None, timeout: float = 60.0) -> int:
        """Publishes what was filled; returns the version's number when the origin has accepted it.

        The origin then reads the memory by itself: nobody may write to it any more. `version` replaces that of begin().
        After TIMED_OUT, CANCELLED, CLOSED or KeyboardInterrupt the origin may have it or not; Publisher.wait() tells.
        Where it has not left, and after any other error, it may be committed again, or aborted.
        Errors: Error with ALREADY_EXISTS (the version is not greater than the last), NOT_ALLOWED (the daemon is a
        worker), BUSY (parts are not done; too many publications wait at the origin), WRONG_BASE (of changes), TIMED_OUT,
        CANCELLED, CLOSED, INVALID_ARGUMENT.
        """
        self._check_open()
        replaced = None  # begin() has given the options
        if version is not None:
            self._options.version = version_number(version)
            replaced = byref(self._options)
        try:
            given = self._handle.call_for_number(library().wc_commit, replaced, milliseconds(timeout))
        except BaseException as error:
            self._left_behind = not isinstance(error, Error)
            if not self._is_begun():
                self._end()
            raise
        self._end()
        return given

    def abort(self) -> None:
        """Forgets it. Harmless after commit()."""
        if not self._open:
            return
        until = time.monotonic() + _CANCELLED_S
        while True:
            try:
                self._handle.call_at_once(library().wc_abort)
                break
            except Error as error:
                if error.code != Code.BUSY or not self._left_behind or time.monotonic() > until:
                    raise
            self._handle.cancel()
            time.sleep(0.01)
        self._end()

    def __del__(self) -> None:
        if self._open:
            self._leftover.is_begun = True

    def _is_begun(self) -> bool:
        """Whether the client still has it: it did not leave, or was refused."""
        try:
            self._handle.call_at_once(library().wc_region_fd, byref(c_int()))
        except Error as error:
            return error.code != Code.INVALID_ARGUMENT
        return True

    def _check_open(self) -> None:
        if not self._open:
            raise Error(Code.INVALID_ARGUMENT, "publish", "weightcast: this publication was committed or aborted")

    def _slot(self, name: str) -> _Slot:
        self._check_open()
        return super()._slot(name)

    def _end(self) -> None:
        self._open = False
        self._revoke()

    def __enter__(self) -> Publication:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


class Region(_Slots, Closable):
    """The memory of a publication that another process has begun; attach() makes it. Closing it publishes nothing.

    It is of that publication alone: after the commit fill() and buffer() are refused, also where the memory is used
    again for the next one. renew() is for that.
    """

    def __init__(self, fd: int, filled_for: Optional[int] = None) -> None:
        lib = library()
        pointer = c_void_p()
        check(lib.wc_region_attach, fd, byref(pointer))
        self._handle = Handle(pointer, "wc_region_close")
        super().__init__({}, self._handle, 0)
        self._read(filled_for)

    def renew(self, id: int) -> None:
        """Goes over to publication `id`, which was begun in the same `memory` since: no mapping and no page faults.

        Errors: Error with INVALID_ARGUMENT (it was committed or aborted, or is in other memory: attach() then), CORRUPT.
        """
        self._revoke()
        check(library().wc_region_renew, self._open_handle().pointer)
        self._read(id)

    def _read(self, filled_for: Optional[int]) -> None:
        """Goes over to the publication `filled_for`, or whichever it is."""
        now = library().wc_region_filled_for(self._region.pointer)
        if not now or now != (filled_for or now):
            raise Error(
                Code.INVALID_ARGUMENT,
                "open",
                "weightcast: the memory is not that of a publication which is begun, or of another one by now; take the "
                "path of the one that is begun",
            )
        self._slots, self._filled_for = {}, now

    @property
    def infos(self) -> tuple[TensorInfo, ...]:
        lib, pointer = library(), self._open_handle().pointer
        found = []
        for index in range(lib.wc_region_count(pointer)):
            slot = SlotStruct()
            check(lib.wc_region_slot, pointer, index, byref(slot))
            found.append(_slot_of(slot).info)
        return tuple(found)

    def _look_up(self, name: str) -> _Slot:
        """One by one, because a rank fills few of the lists that a publication of changes has."""
        if name not in self._slots:
            slot = SlotStruct()
            try:
                check(library().wc_region_find, self._region.pointer, name.encode(), byref(slot))
            except Error as error:
                raise KeyError(name) from error
            self._slots[name] = _slot_of(slot)
        return self._slots[name]

    def _slot(self, name: str) -> _Slot:
        self._open_handle()
        return super()._slot(name)

    def close(self) -> None:
        """Unmaps the memory, once no view of it is left."""
        self._revoke()
        super().close()


def attach(where: Union[PathLike, int], *, id: Optional[int] = None) -> Region:
    """Maps the memory that another process has begun, to fill parts of it: several processes fill, one commits.

    `where` is that process's Publication.path, or a descriptor, which stays the caller's, and then `id` is that
    publication's. All of them stop writing before the one that began it commits.
    Errors: OSError (no such path), ValueError (a path that is no Publication's), Error with INVALID_ARGUMENT (not a
    region; not of the publication whose path it is, because that was committed or aborted), CORRUPT, NO_SPACE, IO.
    """
    if isinstance(where, int):
        return Region(where, id)
    path, _, filled_for = os.fspath(where).partition("#")
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return Region(fd, int(filled_for, 16) if filled_for else None)
    finally:
        os.close(fd)


def fill_all(publication: Publication, infos: Iterable[TensorInfo], named: Iterable[tuple[str, Any]]) -> set[str]:
    """Fills what comes, and returns the names in `infos`, which it was begun with, that did not. Errors: those of fill()."""
    missing = {info.name for info in infos}
    for name, tensor in named:
        publication.fill(name, tensor)
        missing.discard(name)
    return missing
