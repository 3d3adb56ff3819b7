"""Publishing: whole state dicts, in-place filling by one process or several, files."""

from __future__ import annotations

import ctypes
import enum
import math
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import byref, c_char, c_int, c_uint64, c_void_p
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Optional, Union

from ._errors import Code, Error, TimedOut, in_python
from ._library import (
    ChangeStruct,
    Closable,
    FileStruct,
    Handle,
    OutcomeStruct,
    PathLike,
    PieceStruct,
    PublishOptions,
    SlotStruct,
    TensorStruct,
    WaitOptions,
    check,
    library,
    milliseconds,
    open_client,
)
from ._tensors import DTYPE_BITS, Box, RawTensor, Source, TensorInfo, source_of, tensor_bytes

_ALLOW_NONFINITE = 1
_SECOND_REGION = 2
_NEW_MODEL = 4
_FILE_TREE = 8
_UNTIL_TAKEN_OVER = 1
_UNTIL_INSTALLED = 2
# How long a call that was cancelled may take to return: ten times what the library promises.
_CANCELLED_S = 1.0

#: A state dict, pairs, or what has a state_dict(), such as a torch Module.
Tensors = Any
#: A directory, or bytes by name.
Files = Union[PathLike, Mapping[str, Any]]
Changes = Union[Mapping[str, "tuple[Any, Any]"], Iterable["tuple[str, tuple[Any, Any]]"]]
Infos = Iterable[Union[TensorInfo, "tuple[str, str, Iterable[int]]"]]


class Payload(enum.IntEnum):
    """What travels for a version."""

    UNDECIDED = 0  # it is being made
    FULL = 1  # the snapshot as it is
    PACKED = 2  # the snapshot, encoded
    PATCH = 3  # the changes against the version before


@dataclass(frozen=True)
class Outcome:
    """How far a publication was when wait() ended. Times are in seconds since the origin began; None: not reached."""

    version: int
    payload: Payload
    payload_bytes: int
    workers: int  # active ones
    installed: int
    t50_s: Optional[float]  # T_bcast(0.5)
    t90_s: Optional[float]
    t100_s: Optional[float]
    take_s: Optional[float]  # until the origin had its own copy; None also where this publisher does not know it
    predicted_s: float
    origin_egress_bytes: int
    topology: str
    missing: tuple[str, ...]  # names of some workers that have not installed it
    notice: str = ""  # what the origin said when it took it over: files that the version before had


def _outcome_of(found: OutcomeStruct) -> Outcome:
    given = {field.name: getattr(found, field.name) for field in fields(Outcome)}
    for name in ("t50_s", "t90_s", "t100_s", "take_s"):
        given[name] = given[name] if given[name] >= 0 else None
    given["payload"] = Payload(found.payload)
    given["topology"] = found.topology.decode()
    given["missing"] = tuple(found.missing.decode("utf-8", "replace").splitlines())
    given["notice"] = in_python(found.notice.decode("utf-8", "replace"))
    return Outcome(**given)


class Piece(NamedTuple):
    """Changes of a box of a tensor: from element `start` on, `shape` of them, in each dimension; the whole tensor where
    both are (). The indices are numbers of elements of the box, row-major in it."""

    name: str
    dtype: str
    start: tuple[int, ...]
    shape: tuple[int, ...]
    count: int  # elements that change

    @property
    def indices(self) -> str:
        """Under which name fill() and buffer() know the indices: U32, (count,), ascending, each once."""
        return f"indices{self._box()}/{self.name}"

    @property
    def values(self) -> str:
        """The same for the new values: `dtype`, (count,)."""
        return f"values{self._box()}/{self.name}"

    def _box(self) -> str:
        sides = ",".join(f"{start}+{length}" for start, length in zip(self.start, self.shape))
        return f"[{sides}]" if sides else ""


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
            slot = self._look_up(name)
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


class _Leftover:
    """Whether a publisher's client may have something begun that nobody can commit or abort."""

    is_begun = False


class Publication(_Slots):
    """A publication that has begun: memory to fill, in any order and from any threads. Publisher.begin() makes it.

    As a context manager it aborts at the end what was not committed. So does the publisher's next one, where this is
    dropped.
    """

    _open = False

    def __init__(
        self, handle: Handle, infos: list[TensorInfo], addresses: Any, options: PublishOptions, leftover: _Leftover
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
            self._options.version = version
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


def _encoded(name: Any, what: str = "tensor") -> bytes:
    """A name as the library takes it. Errors: TypeError, UnicodeEncodeError."""
    if not isinstance(name, str) or "\0" in name:
        raise TypeError(f"weightcast: the name of a {what} is {name!r}, not a string without NUL")
    return name.encode()


def _structs_of(infos: Infos) -> tuple[list[TensorInfo], Any]:
    """The descriptions, and the array of them that the library takes. It keeps alive what it points to."""
    listed = []
    for name, dtype, shape in infos:
        listed.append(TensorInfo(name, dtype, tuple(int(length) for length in shape)))
    array = (TensorStruct * len(listed))()
    kept: list[Any] = []
    for struct, info in zip(array, listed):
        try:
            name = _encoded(info.name)
            size = tensor_bytes(info.dtype, info.shape)
            shape = (c_uint64 * len(info.shape))(*info.shape)
        except ValueError as error:
            raise ValueError(f"weightcast: tensor {info.name!r}: {error}") from None
        kept.append((name, shape))
        struct.name, struct.dtype, struct.rank, struct.size_bytes = name, info.dtype.encode(), len(shape), size
        struct.shape = ctypes.cast(shape, ctypes.POINTER(c_uint64))
    array.kept = kept
    return listed, array


_INDEX_BYTES = {"U32": 4, "I32": 4, "U64": 8, "I64": 8}


def _changes_of(changes: Changes) -> Any:
    """The array of changes that the library takes. It keeps alive what it points to."""
    listed = list(_items(changes))
    array = (ChangeStruct * len(listed))()
    array.kept = kept = []
    for struct, (name, (indices, values)) in zip(array, listed):
        encoded, where, what = _encoded(name), source_of(name, indices), source_of(name, values)
        if where.dtype not in _INDEX_BYTES:
            raise TypeError(f"weightcast: tensor {name!r}: indices of {where.dtype}; give int32, int64 or unsigned ones")
        if len(where.shape) != 1 or where.shape != what.shape:
            raise ValueError(
                f"weightcast: tensor {name!r}: indices of shape {where.shape} and values of shape {what.shape}; give "
                "two rows of one length"
            )
        dtype = what.dtype.encode()
        struct.indices, kept_indices = where.contiguous()
        struct.values, kept_values = what.contiguous()
        kept.append((encoded, dtype, kept_indices, kept_values))
        struct.name, struct.dtype, struct.count = encoded, dtype, where.shape[0]
        struct.index_bytes = _INDEX_BYTES[where.dtype]
    return array


def _pieces_of(pieces: Iterable[Piece]) -> tuple[list[TensorInfo], Any]:
    """The lists of each piece, indices and values in turn, and the array of pieces that the library takes."""
    listed = [Piece(*piece) for piece in pieces]
    array = (PieceStruct * len(listed))()
    array.kept = kept = []
    infos: list[TensorInfo] = []
    for struct, piece in zip(array, listed):
        name, dtype, rank = _encoded(piece.name), piece.dtype.encode(), len(piece.start)
        if len(piece.shape) != rank or min((*piece.start, *piece.shape, piece.count)) < 0:
            raise ValueError(f"weightcast: tensor {piece.name!r}: {piece} is no piece")
        start, lengths = (c_uint64 * rank)(*piece.start), (c_uint64 * rank)(*piece.shape)
        kept.append((name, dtype, start, lengths))
        struct.name, struct.dtype, struct.rank, struct.count, struct.index_bytes = name, dtype, rank, piece.count, 4
        struct.start = ctypes.cast(start, ctypes.POINTER(c_uint64))
        struct.lengths = ctypes.cast(lengths, ctypes.POINTER(c_uint64))
        infos.append(TensorInfo(piece.indices, "U32", (piece.count,)))
        infos.append(TensorInfo(piece.values, piece.dtype, (piece.count,)))
    return infos, array


def update_shadow(shadow: Any, now: Any, indices: Any, values: Any) -> int:
    """Finds the elements in which `now` differs from `shadow`, and makes the shadow equal, in one pass in native code.

    For a trainer that keeps a copy of what it published, and does not know which elements have changed. Both are tensors
    of one dtype and shape. Writes the numbers of those that differ, ascending, into the row `indices` (32 bits), and
    their new values into the row `values`: what a Piece takes. All are contiguous and on the host: torch, NumPy,
    buffers. Elements are compared bit by bit. Returns how many differ; beyond the length of the rows they are not
    listed, but the shadow is equal all the same.
    Errors: TypeError and ValueError (arrays that do not fit together), Error with TOO_LARGE (above 2^32 elements).
    """
    sources = {name: source_of(name, tensor) for name, tensor in
               (("shadow", shadow), ("now", now), ("indices", indices), ("values", values))}  # fmt: skip
    old, new, where, what = sources.values()
    for name, source in sources.items():
        if source.is_readonly() and name != "now":
            raise TypeError(f"weightcast: the {name} are read-only; give what can be written to")
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        raise ValueError(f"weightcast: the shadow is {old.dtype} {old.shape}, the tensor {new.dtype} {new.shape}")
    if where.dtype not in ("U32", "I32") or what.dtype != new.dtype or len(where.shape) != 1 or where.shape != what.shape:
        raise ValueError(
            f"weightcast: indices are {where.dtype} {where.shape} and values {what.dtype} {what.shape}; give two rows of "
            f"one length, of int32 and {new.dtype}"
        )
    addresses = [source.address() if tensor_bytes(source.dtype, source.shape) else 0 for source in sources.values()]
    if None in addresses:
        raise TypeError("weightcast: an array is not contiguous in this host's memory; copy it first")
    changed, width = c_uint64(), DTYPE_BITS[new.dtype]
    if width % 8:
        raise TypeError(f"weightcast: elements of {new.dtype} are not whole bytes")
    check(
        library().wc_update_shadow, addresses[0], addresses[1], math.prod(new.shape), width // 8, where.shape[0],
        addresses[2], addresses[3], byref(changed),
    )
    return changed.value


def _options(
    version: Optional[int],
    allow_nonfinite: bool,
    second_region: bool,
    new_model: bool = False,
    files: Optional[Files] = None,
    parts: int = 0,
) -> PublishOptions:
    """What the library takes. It keeps alive what it points to."""
    if version is not None and not 0 < version < 2**63:
        raise ValueError(f"weightcast: version {version} is not between 1 and 2^63 - 1")
    flags = _ALLOW_NONFINITE * allow_nonfinite | _SECOND_REGION * second_region | _NEW_MODEL * new_model
    if not 0 <= parts < 2**32:
        raise ValueError(f"weightcast: {parts} parts are not a number of them")
    options = PublishOptions(version=version or 0, flags=flags, parts=parts)
    if isinstance(files, Mapping):
        array = (FileStruct * len(files))()
        array.kept = kept = []
        for struct, (name, data) in zip(array, files.items()):
            encoded, copied = _encoded(name, "file"), bytes(data.encode() if isinstance(data, str) else data)
            kept.append((encoded, copied))
            struct.name, struct.size_bytes = encoded, len(copied)
            struct.data = ctypes.cast(ctypes.c_char_p(copied), c_void_p)
        options.files, options.file_count = array, len(array)
        options.kept = array
    elif files is not None:
        options.files_directory = os.fsencode(files)
    return options


class Publisher(Closable):
    """A trainer's connection to the origin on its host. It connects again by itself after the daemon was restarted.

    One call at a time: a second thread gets Error with BUSY. Close it, or use it as a context manager.
    Every call that asks the daemon can fail with Error: TIMED_OUT, CANCELLED, CLOSED (the daemon ended during the
    call), NOT_FOUND (no daemon runs there), NOT_ALLOWED (another user's), IO.
    """

    def __init__(self, state_dir: Optional[PathLike] = None, *, timeout: float = 5.0) -> None:
        """Connects. `state_dir` is the daemon's state directory, or the api.sock in it; None: WEIGHTCAST_STATE's.

        Errors: Error with NOT_FOUND, NOT_ALLOWED, TIMED_OUT, IO.
        """
        self._handle = open_client(state_dir, timeout)
        self._leftover = _Leftover()
        self._tied: dict[str, str] = {}  # names that the last publish() left out, and those of the same memory

    def publish(
        self,
        tensors: Tensors,
        *,
        version: Optional[int] = None,
        allow_nonfinite: bool = False,
        second_region: bool = False,
        new_model: bool = False,
        files: Optional[Files] = None,
        timeout: float = 60.0,
    ) -> int:
        """Publishes named tensors; returns the version's number when the origin has accepted it.

        `tensors`: a torch Module, a state dict, or an iterable of (name, tensor), which is read to its end before the
        first copy. For tensors that are made one by one, use begin(). Each is a torch tensor on any device, a RawTensor,
        a buffer (NumPy arrays) or a DLPack tensor in host memory, with any strides. It is copied once, into memory that
        the origin reads; afterwards the caller may change it. For tensors on a device see fill() of begin()'s result.
        Of torch tensors that are tied (the same memory under several names) the first name is published, as
        save_pretrained() does: what loads the model ties the others to it, by tie_word_embeddings in config.json.
        `version`: greater than the last one; None lets the origin number it. `allow_nonfinite`: NaN and infinity are
        published, too. `second_region`: rather take more memory than wait until the origin has read the last one.
        `new_model`: the tensors may have other names, dtypes and shapes than those of the version before; wait() refuses
        that else (INVALID_ARGUMENT).
        `files`: what accompanies the weights, so that from_pretrained() and engines can load the directory: bytes by
        name, or the directory that has them: config.json, generation_config.json, the tokenizer (*.json, *.jinja,
        *.model, *.txt). They replace those of the version before. Without any, those are kept, whatever was restarted
        since, unless the tensors are a new model's. Where files are lost, wait() says so in Outcome.notice.
        Errors: TypeError (a tensor that cannot be taken), those of begin() and of Publication.commit().
        """
        named, self._tied = _untied([(name, source_of(name, tensor)) for name, tensor in _items(tensors)])
        infos = [TensorInfo(name, source.dtype, source.shape) for name, source in named]
        addresses = [source.address() for _, source in named]
        options = _options(version, allow_nonfinite, second_region, new_model, files)
        if None not in addresses:
            # The library copies them all in one call.
            listed, array = _structs_of(infos)
            for struct, address in zip(array, addresses):
                struct.data = address
            array.sources = named  # lives as long as the call, even if a second Ctrl-C leaves it behind
            handle = self._ready_handle()
            return handle.call_for_number(library().wc_publish, byref(options), array, len(listed), milliseconds(timeout))
        with self._begin_whole(infos, options, timeout) as publication:
            for name, source in named:
                publication._write(publication._slots[name], source)
            return publication.commit(timeout=timeout)

    def begin(
        self,
        infos: Infos,
        *,
        version: Optional[int] = None,
        allow_nonfinite: bool = False,
        second_region: bool = False,
        new_model: bool = False,
        files: Optional[Files] = None,
        parts: int = 0,
        timeout: float = 60.0,
    ) -> Publication:
        """Begins a publication that is filled in place: memory that the origin will read itself.

        `infos`: a TensorInfo, or (name, dtype, shape), per tensor; describe() makes one of a tensor. `parts`: how many
        parts several processes fill, at most 4096; commit() is refused until done() was called for each. The other
        arguments are those of publish(). The memory is used again for the next publication of the same tensors. Waits
        while the origin is still reading it. Its contents are undefined.
        Errors: ValueError (a dtype or shape that safetensors does not have), Error with INVALID_ARGUMENT (a name that
        is given twice), TOO_LARGE, BUSY (the last publication is neither committed nor aborted), TIMED_OUT (the origin
        is still reading), CANCELLED, NO_SPACE, IO.
        """
        options = _options(version, allow_nonfinite, second_region, new_model, files, parts)
        return self._begin_whole(infos, options, timeout)

    def _begin_whole(self, infos: Infos, options: PublishOptions, timeout: float) -> Publication:
        listed, array = _structs_of(infos)
        addresses = (c_void_p * len(listed))()
        return self._begin(
            listed, addresses, options, library().wc_begin, array, len(listed), addresses, milliseconds(timeout)
        )

    def begin_changes(
        self,
        pieces: Iterable[Piece],
        *,
        base: int,
        version: Optional[int] = None,
        allow_nonfinite: bool = False,
        second_region: bool = False,
        parts: int = 0,
        timeout: float = 60.0,
    ) -> Publication:
        """Begins a publication of changes that is filled in place: publish_sparse() for processes that each know the
        changes of their own pieces of the tensors.

        Each piece's lists are filled under `piece.indices` and `piece.values`, here and after attach(). The pieces of a
        tensor may not overlap; the origin merges them. `base` is that of publish_sparse(), the other arguments are those
        of begin(). wait() tells what publish_sparse() says, and of pieces that overlap, or do not fit their tensor
        (INVALID_ARGUMENT).
        Errors: ValueError and TypeError (no pieces), those of begin(), and from commit() WRONG_BASE.
        """
        if not 0 < base < 2**63:
            raise ValueError(f"weightcast: base version {base} is not between 1 and 2^63 - 1")
        options = _options(version, allow_nonfinite, second_region, parts=parts)
        infos, array = _pieces_of(pieces)
        addresses = (c_void_p * len(infos))()  # all indices, then all values
        values = byref(addresses, len(array) * ctypes.sizeof(c_void_p))
        return self._begin(
            infos[::2] + infos[1::2], addresses, options, library().wc_begin_changes, base, array, len(array),
            addresses, ctypes.cast(values, ctypes.POINTER(c_void_p)), milliseconds(timeout),
        )

    def _begin(
        self, infos: list[TensorInfo], addresses: Any, options: PublishOptions, function: Any, *args: Any
    ) -> Publication:
        """Calls `function`, which writes one of `addresses` for each of `infos`."""
        handle = self._ready_handle()
        try:
            handle.call(function, byref(options), *args)
            return Publication(handle, infos, addresses, options, self._leftover)
        except BaseException as error:
            if not isinstance(error, Error):
                self._leftover.is_begun = True  # perhaps: an interrupt comes at any moment
            raise

    def _ready_handle(self) -> Handle:
        """The handle, without what was begun and is nobody's any more."""
        handle = self._open_handle()
        if self._leftover.is_begun:
            handle.call_at_once(library().wc_abort)
            self._leftover.is_begun = False
        return handle

    def reserve(self, infos: Infos, *, regions: int = 1) -> None:
        """Takes the memory for these tensors ahead of time, 1 or 2 regions of it, so that no publication pays for it.

        Takes as long as touching that memory does. Errors: those of begin(); BUSY (a region in use has other tensors).
        """
        listed, array = _structs_of(infos)
        self._ready_handle().call(library().wc_reserve, array, len(listed), regions)

    def publish_path(
        self,
        path: PathLike,
        *,
        version: Optional[int] = None,
        allow_nonfinite: bool = False,
        new_model: bool = False,
        files: Optional[Files] = None,
        timeout: float = 60.0,
    ) -> int:
        """Publishes a safetensors file, or a directory in the style of Hugging Face, which the daemon reads.

        Returns the version's number when the origin has accepted it. The files may not be changed until wait() has
        returned. `files` is for a lone safetensors file: a directory brings its own. The others are those of publish().
        Errors: those of Publication.commit().
        """
        return self._publish_path(path, _options(version, allow_nonfinite, False, new_model, files), timeout)

    def publish_files(
        self,
        directory: PathLike,
        *,
        version: Optional[int] = None,
        allow_nonfinite: bool = False,
        new_model: bool = False,
        timeout: float = 60.0,
    ) -> int:
        """Publishes all files below a directory, of any kind, which the daemon reads: adapters, tokenizers, programs.

        Workers take them only where the daemon was started with --files. Symbolic links to files of the directory become
        files, any other link is refused by wait(); empty directories are left out. `new_model` changes over from a model
        to files; publish_path() with it changes back. Returns, and errors: as publish_path().
        """
        options = _options(version, allow_nonfinite, False, new_model)
        options.flags |= _FILE_TREE
        return self._publish_path(directory, options, timeout)

    def _publish_path(self, path: PathLike, options: PublishOptions, timeout: float) -> int:
        where = os.fsencode(os.path.abspath(path))
        return self._open_handle().call_for_number(library().wc_publish_path, byref(options), where, milliseconds(timeout))

    def publish_sparse(
        self,
        changes: Changes,
        *,
        base: int,
        version: Optional[int] = None,
        allow_nonfinite: bool = False,
        second_region: bool = False,
        timeout: float = 60.0,
    ) -> int:
        """Publishes the last version with other values in some cells; returns the version's number when the origin has
        accepted it. The result is the same as that of publish() with all tensors; the cost grows with the changes.

        `changes`: name -> (indices, values), as a mapping or as pairs. The indices are a row of int32, int64, uint32 or
        uint64: which elements of the flattened tensor, ascending, each once. The values are a row of the tensor's
        dtype, as many. Both may be whatever publish() takes: torch, NumPy, buffers, RawTensor. A value may be the old
        one. `base` is the last version; the other arguments are those of publish().
        wait() tells whether the origin took the changes over, and why not: INVALID_ARGUMENT (no such tensor, or of
        another dtype; indices out of bounds or not ascending; NaN or infinity), CORRUPT (its copy of the base is
        damaged: use publish()).
        Errors: TypeError and ValueError (what cannot be taken), Error with WRONG_BASE (the last version is another,
        which the text names: use publish()), and those of begin() and Publication.commit().
        """
        if not 0 < base < 2**63:
            raise ValueError(f"weightcast: base version {base} is not between 1 and 2^63 - 1")
        options = _options(version, allow_nonfinite, second_region)
        array = _changes_of(self._untied_changes(changes))
        return self._open_handle().call_for_number(
            library().wc_publish_sparse, byref(options), base, array, len(array), milliseconds(timeout)
        )

    def _untied_changes(self, changes: Changes) -> Changes:
        """Changes under the names that are published: of tied tensors one, under whatever name it comes."""
        if not self._tied:
            return changes
        named = dict(_items(changes))
        return {self._tied.get(name, name): change for name, change in reversed(list(named.items()))}

    def next_version(self, *, timeout: float = 5.0) -> int:
        """The number that the origin would give to the next version. Another program may take it first.

        Errors: Error with NOT_ALLOWED (the daemon is a worker).
        """
        return self._open_handle().call_for_number(library().wc_next_version, milliseconds(timeout))

    def serve(self, name: Optional[str], serves: bool, *, provisions: bool = False, timeout: float = 5.0) -> None:
        """Activates a worker: it receives versions, and counts. Or releases it: it waits on standby.

        Either holds when the worker joins again, until the origin's daemon ends. With `provisions` no standby worker
        takes a lost one's place by itself, until this publisher is closed; `name` None says no more than that.
        Errors: Error with NOT_FOUND (the origin knows no such worker), NOT_ALLOWED (the daemon is a worker).
        """
        self._open_handle().call(
            library().wc_serve, name.encode() if name is not None else None, int(serves), 1 if provisions else 0,
            milliseconds(timeout),
        )

    def forget(self, name: str, *, timeout: float = 5.0) -> None:
        """The origin knows that lost worker no more, nor what it holds against it. If it joins again it is new.

        Errors: Error with NOT_FOUND (the origin knows no such worker), BUSY (it is connected), NOT_ALLOWED (the daemon
        is a worker).
        """
        self._open_handle().call(library().wc_forget, name.encode(), milliseconds(timeout))

    def wait(self, version: int = 0, *, installed: Optional[float] = None, timeout: float = 60.0) -> Outcome:
        """Waits until the origin has its own copy or, with `installed`, until that fraction (above 0, at most 1) of
        the active workers has installed it.

        `version` 0 is the last one that this publisher committed.
        Errors: TimedOut (its `outcome` says how far it came, or is None where the daemon did not answer); Error with
        why the origin did not take it over (CORRUPT; INVALID_ARGUMENT: NaN or infinity; NO_SPACE, IO), NOT_FOUND
        (nothing was committed; the version is unknown or superseded).
        """
        until = _UNTIL_TAKEN_OVER if installed is None else _UNTIL_INSTALLED
        options = WaitOptions(until=until, fraction=installed or 0.0)
        outcome = OutcomeStruct()
        try:
            self._open_handle().call(
                library().wc_wait, version, byref(options), milliseconds(timeout), byref(outcome)
            )
        except TimedOut as error:
            error.outcome = _outcome_of(outcome) if outcome.version else None
            raise
        return _outcome_of(outcome)

    def cancel(self) -> None:
        """Ends the call that another thread has begun: it raises Error with CANCELLED. Without one it has no effect."""
        self._open_handle().cancel()


def _items(tensors: Union[Tensors, Changes]) -> Iterator[tuple[str, Any]]:
    if not isinstance(tensors, Mapping) and callable(getattr(tensors, "state_dict", None)):
        tensors = tensors.state_dict()
    return iter(tensors.items() if isinstance(tensors, Mapping) else tensors)


def _untied(named: list[tuple[str, Source]]) -> tuple[list[tuple[str, Source]], dict[str, str]]:
    """The first of each group of tied tensors and all others, and which name stands for each that is left out."""
    kept: list[tuple[str, Source]] = []
    first: dict[Any, str] = {}
    tied: dict[str, str] = {}
    for name, source in named:
        memory = source.memory()
        if memory is not None and first.setdefault(memory, name) != name:
            tied[name] = first[memory]
        else:
            kept.append((name, source))
    return kept, tied
