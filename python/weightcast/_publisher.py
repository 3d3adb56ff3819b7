"""Publishing: whole state dicts, in-place filling by one process or several, files."""

from __future__ import annotations

import ctypes
import enum
import os
from collections.abc import Iterable
from ctypes import byref, c_void_p
from dataclasses import dataclass, fields
from typing import Any, Optional

from ._arguments import FILE_TREE, Changes, Files, Infos, Tensors, items, named_tensors, options_of, structs_of, untied, version_number
from ._changes import Piece, changes_of, pieces_of
from ._errors import Error, TimedOut, in_python
from ._library import (
    Closable,
    Handle,
    OutcomeStruct,
    PathLike,
    PublishOptions,
    WaitOptions,
    in_a_thread,
    library,
    milliseconds,
    open_client,
)
from ._publication import Leftover, Publication
from ._tensors import Source, TensorInfo, source_of

_UNTIL_TAKEN_OVER = 1
_UNTIL_INSTALLED = 2


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


def _fraction_of(installed: Any) -> float:
    """Errors: ValueError."""
    try:
        if 0 < installed <= 1:
            return float(installed)
    except TypeError:  # no number
        pass
    raise ValueError(f"weightcast: installed={installed!r} is no fraction of the workers; give one above 0, up to 1")


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
        self._leftover = Leftover()
        self._with_cells: set[str] = set()  # names of the tensors that the last publish() gave cells
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
        named, tied = untied([(name, source_of(name, tensor)) for name, tensor in named_tensors(tensors)])
        infos = [TensorInfo(name, source.dtype, source.shape) for name, source in named]
        if not new_model:
            self._check_cells(infos)
        options = options_of(version, allow_nonfinite, second_region, new_model, files)
        addresses = [source.address() for _, source in named]
        published = self._publish(named, infos, addresses, options, timeout)
        self._tied = tied
        self._remember_cells(infos)
        return published

    def _remember_cells(self, infos: Iterable[TensorInfo]) -> None:
        """What was published."""
        self._with_cells = {info.name for info in infos if 0 not in info.shape}

    async def publish_async(self, tensors: Tensors, **options: Any) -> int:
        """publish() for asyncio: the event loop goes on meanwhile. The arguments, and what is returned, are publish()'s.

        The tensors may not change until it is over. Where the task is cancelled the call ends: the origin has the version
        or not, as wait_async() tells, and the publisher takes the next call. Errors: those of publish().
        """
        return await in_a_thread(self.cancel, self.publish, tensors, **options)

    async def wait_async(
        self, version: int = 0, *, installed: Optional[float] = None, timeout: float = 60.0
    ) -> Outcome:
        """wait() for asyncio. Errors: those of wait()."""
        return await in_a_thread(self.cancel, self.wait, version, installed=installed, timeout=timeout)

    def _check_cells(self, infos: Iterable[TensorInfo]) -> None:
        """Errors: ValueError (a tensor that had cells when this publisher published last, and has none now)."""
        emptied = next((info.name for info in infos if 0 in info.shape and info.name in self._with_cells), None)
        if emptied is not None:
            raise ValueError(
                f"weightcast: tensor {emptied!r} had cells in the version before and has none now; gather it, if a trainer "
                "has taken it to pieces or moved it away, or publish with new_model=True"
            )

    def _publish(
        self,
        named: list[tuple[str, Source]],
        infos: list[TensorInfo],
        addresses: list[Optional[int]],
        options: PublishOptions,
        timeout: float,
    ) -> int:
        if None not in addresses:
            # The library copies them all in one call.
            listed, array = structs_of(infos)
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
        options = options_of(version, allow_nonfinite, second_region, new_model, files, parts)
        return self._begin_whole(infos, options, timeout)

    def _begin_whole(self, infos: Infos, options: PublishOptions, timeout: float) -> Publication:
        listed, array = structs_of(infos)
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
        base = version_number(base, "base version")
        options = options_of(version, allow_nonfinite, second_region, parts=parts)
        infos, array = pieces_of(pieces)
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
        listed, array = structs_of(infos)
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
        return self._publish_path(path, options_of(version, allow_nonfinite, False, new_model, files), timeout)

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
        options = options_of(version, allow_nonfinite, False, new_model)
        options.flags |= FILE_TREE
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
        base = version_number(base, "base version")
        options = options_of(version, allow_nonfinite, second_region)
        array = changes_of(self._untied_changes(changes))
        return self._open_handle().call_for_number(
            library().wc_publish_sparse, byref(options), base, array, len(array), milliseconds(timeout)
        )

    def _untied_changes(self, changes: Changes) -> Changes:
        """Changes under the names that are published: of tied tensors one, under whatever name it comes."""
        if not self._tied:
            return changes
        named = dict(items(changes))
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
        version = version_number(version, least=0)
        options = WaitOptions(until=_UNTIL_TAKEN_OVER)
        if installed is not None:
            options = WaitOptions(until=_UNTIL_INSTALLED, fraction=_fraction_of(installed))
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
