"""libweightcast.so: where it is, its structs and functions, and how Python calls them."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import weakref
from ctypes import (
    POINTER,
    byref,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Callable, Optional, TypeVar, Union

from ._errors import Code, Error, make_error

PathLike = Union[str, "os.PathLike[str]"]

_T = TypeVar("_T")

SONAME = "libweightcast.so.0"


class Sized(ctypes.Structure):
    """A struct that tells the library how much of it the caller knows."""

    _fields_ = [("struct_size", c_size_t)]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.struct_size = ctypes.sizeof(self)


class ErrorStruct(Sized):
    _fields_ = [("code", c_int), ("operation", c_char * 16), ("message", c_char * 1024)]


class TensorStruct(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_uint64)),
        ("rank", c_uint64),
        ("data", c_void_p),
        ("size_bytes", c_uint64),
        ("reserved", c_uint64 * 2),
    ]


class ChangeStruct(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("indices", c_void_p),
        ("index_bytes", c_uint32),
        ("reserved32", c_uint32),
        ("values", c_void_p),
        ("count", c_uint64),
        ("old_values", c_void_p),
        ("reserved", c_uint64),
    ]


class PieceStruct(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("start", POINTER(c_uint64)),
        ("lengths", POINTER(c_uint64)),
        ("rank", c_uint64),
        ("count", c_uint64),
        ("index_bytes", c_uint32),
        ("reserved32", c_uint32),
        ("reserved", c_uint64 * 2),
    ]


class FileStruct(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("size_bytes", c_uint64), ("reserved", c_uint64)]


class PublishOptions(Sized):
    _fields_ = [
        ("version", c_uint64),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("files", POINTER(FileStruct)),
        ("file_count", c_size_t),
        ("files_directory", c_char_p),
        ("parts", c_uint32),
        ("reserved2", c_uint32),
    ]


class WaitOptions(Sized):
    _fields_ = [
        ("until", c_int),
        ("reserved", c_uint32),
        ("fraction", c_double),
        ("on_progress", c_void_p),
        ("context", c_void_p),
    ]


class OutcomeStruct(Sized):
    _fields_ = [
        ("version", c_uint64),
        ("payload", c_int),
        ("reached", c_uint32),
        ("payload_bytes", c_uint64),
        ("workers", c_uint32),
        ("installed", c_uint32),
        ("t50_s", c_double),
        ("t90_s", c_double),
        ("t100_s", c_double),
        ("take_s", c_double),
        ("predicted_s", c_double),
        ("origin_egress_bytes", c_uint64),
        ("topology", c_char * 16),
        ("missing", c_char * 2048),
        ("notice", c_char * 512),
    ]


class SlotStruct(Sized):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_uint64)),
        ("rank", c_uint64),
        ("address", c_void_p),
        ("size_bytes", c_uint64),
    ]


class EventStruct(Sized):
    _fields_ = [
        ("kind", c_int),
        ("run", c_uint32),
        ("version", c_uint64),
        ("directory", c_char * 4096),
        ("digest", c_char * 64),
    ]


_ERROR = POINTER(ErrorStruct)

# What the functions take. Those that take an error return a wc_code; _RETURNS has the types of others that return something.
_TAKES = {
    "wc_version": [],
    "wc_open": [c_char_p, c_int64, POINTER(c_void_p), _ERROR],
    "wc_close": [c_void_p],
    "wc_cancel": [c_void_p],
    "wc_ready": [c_char_p, c_uint32, c_int64, _ERROR],
    "wc_status": [c_void_p, c_int64, POINTER(c_void_p), _ERROR],
    "wc_versions": [c_void_p, c_int64, POINTER(c_void_p), _ERROR],
    "wc_history": [c_void_p, c_uint64, c_int64, POINTER(c_void_p), _ERROR],
    "wc_free": [c_void_p],
    "wc_serve": [c_void_p, c_char_p, c_int, c_uint32, c_int64, _ERROR],
    "wc_forget": [c_void_p, c_char_p, c_int64, _ERROR],
    "wc_next_version": [c_void_p, c_int64, POINTER(c_uint64), _ERROR],
    "wc_begin": [
        c_void_p, POINTER(PublishOptions), POINTER(TensorStruct), c_size_t, POINTER(c_void_p), c_int64, _ERROR,
    ],
    "wc_begin_changes": [
        c_void_p, POINTER(PublishOptions), c_uint64, POINTER(PieceStruct), c_size_t, POINTER(c_void_p),
        POINTER(c_void_p), c_int64, _ERROR,
    ],
    "wc_update_shadow": [
        c_void_p, c_void_p, c_uint64, c_uint32, c_uint64, c_void_p, c_void_p, POINTER(c_uint64), _ERROR,
    ],
    "wc_commit": [c_void_p, POINTER(PublishOptions), c_int64, POINTER(c_uint64), _ERROR],
    "wc_abort": [c_void_p, _ERROR],
    "wc_reserve": [c_void_p, POINTER(TensorStruct), c_size_t, c_uint, _ERROR],
    "wc_publish": [
        c_void_p, POINTER(PublishOptions), POINTER(TensorStruct), c_size_t, c_int64, POINTER(c_uint64), _ERROR,
    ],
    "wc_publish_path": [c_void_p, POINTER(PublishOptions), c_char_p, c_int64, POINTER(c_uint64), _ERROR],
    "wc_publish_sparse": [
        c_void_p, POINTER(PublishOptions), c_uint64, POINTER(ChangeStruct), c_size_t, c_int64, POINTER(c_uint64), _ERROR,
    ],
    "wc_wait": [c_void_p, c_uint64, POINTER(WaitOptions), c_int64, POINTER(OutcomeStruct), _ERROR],
    "wc_region_fd": [c_void_p, POINTER(c_int), _ERROR],
    "wc_region_id": [c_void_p, POINTER(c_uint64), _ERROR],
    "wc_region_hold": [c_void_p, POINTER(c_void_p), _ERROR],
    "wc_region_attach": [c_int, POINTER(c_void_p), _ERROR],
    "wc_region_close": [c_void_p],
    "wc_region_filled_for": [c_void_p],
    "wc_region_memory": [c_void_p],
    "wc_region_renew": [c_void_p, _ERROR],
    "wc_region_done": [c_void_p, c_uint64, c_uint32, _ERROR],
    "wc_region_count": [c_void_p],
    "wc_region_slot": [c_void_p, c_size_t, POINTER(SlotStruct), _ERROR],
    "wc_region_find": [c_void_p, c_char_p, POINTER(SlotStruct), _ERROR],
    "wc_subscribe": [c_char_p, c_int64, POINTER(c_void_p), _ERROR],
    "wc_subscription_close": [c_void_p],
    "wc_subscription_fd": [c_void_p],
    "wc_subscription_cancel": [c_void_p],
    "wc_next": [c_void_p, c_int64, POINTER(EventStruct), _ERROR],
    "wc_acquire": [c_void_p, c_uint64, c_int64, POINTER(EventStruct), _ERROR],
    "wc_release": [c_void_p, c_uint64, c_int64, _ERROR],
    "wc_changes": [c_void_p, c_uint64, c_char_p, c_uint64, c_uint32, c_int64, POINTER(c_void_p), _ERROR],
    "wc_change_list_count": [c_void_p],
    "wc_change_list_at": [c_void_p, c_size_t],
    "wc_change_list_close": [c_void_p],
}
_RETURNS = {
    "wc_version": c_char_p,
    "wc_region_filled_for": c_uint64,
    "wc_region_memory": c_uint64,
    "wc_region_count": c_size_t,
    "wc_subscription_fd": c_int,
    "wc_change_list_count": c_size_t,
    "wc_change_list_at": POINTER(ChangeStruct),
}


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Loads the library: $WEIGHTCAST_LIBRARY, else the one that was installed with this package, else the system's."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)
    path = os.environ.get("WEIGHTCAST_LIBRARY") or (beside if os.path.exists(beside) else SONAME)
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"weightcast: cannot load {path}: {error}; install this package by 'pip install', or name the library in "
            "$WEIGHTCAST_LIBRARY"
        ) from None
    for name, takes in _TAKES.items():
        try:
            function = getattr(loaded, name)
        except AttributeError:
            raise ImportError(f"weightcast: {path} has no {name}: it is of another release than this package") from None
        function.argtypes = takes
        function.restype = c_int if _ERROR in takes else _RETURNS.get(name)
    return loaded


def library_version() -> str:
    """The library's release, such as "0.1.0"."""
    return library().wc_version().decode()


def milliseconds(timeout: float) -> int:
    """A time-out in seconds as the library takes it. It rounds up, so that a short wait is not a poll."""
    try:
        is_time = timeout >= 0
    except TypeError:
        is_time = False
    if not is_time:
        raise ValueError(
            f"weightcast: a time-out of {timeout!r} s is not a number of seconds from 0 on; math.inf waits without an end"
        )
    return min(-int(-timeout * 1000 // 1), 2**62) if timeout < 2**50 else 2**62


def check(function: Callable[..., int], *args: Any) -> None:
    """Calls `function` in this thread. Errors: Error, with what the library says."""
    error = ErrorStruct()
    code = function(*args, byref(error))
    if code != 0:
        raise make_error(code, error.operation.decode("utf-8", "replace"), error.message.decode("utf-8", "replace"))


def interruptible(cancel: Callable[[], None], function: Callable[..., int], *args: Any) -> None:
    """As check(), but a signal handler that raises (KeyboardInterrupt) ends the call by `cancel`.

    Python runs signal handlers in the main thread only, and not while that is inside the library. So there another
    thread makes the call, and the main thread waits for it in Python. That costs about 0.1 ms.
    """
    if threading.current_thread() is not threading.main_thread() or sys.is_finalizing():
        check(function, *args)  # at the interpreter's end a thread that is started never begins
        return
    failed: list[BaseException] = []
    done = threading.Event()

    # `_kept` is what `cancel` belongs to: a second Ctrl-C leaves the thread behind, and the handle must not go before it.
    def run(_kept: Callable[[], None]) -> None:
        try:
            check(function, *args)
        except BaseException as error:  # handed to the thread that waits
            failed.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, args=(cancel,), name="weightcast-call", daemon=True)
    try:
        try:
            thread.start()
        except RuntimeError:  # no more threads: Python 3.12 starts none after threading's end
            check(function, *args)
            return
        done.wait()
    except BaseException:
        # A cancel that comes before the call has begun has no effect, so it is repeated.
        while thread.is_alive() and not done.is_set():
            cancel()
            done.wait(0.01)
        raise
    if failed:
        raise failed.pop()


class Handle:
    """One handle of the library, freed when nothing refers to it any more.

    Views of a region's memory refer to the handle of that region. So the memory stays mapped for as long as a view does,
    whatever is closed first.
    """

    def __init__(self, pointer: c_void_p, close: str, cancel: Optional[str] = None) -> None:
        lib = library()
        self.pointer = pointer
        self._cancel = getattr(lib, cancel) if cancel else None
        # Not at the interpreter's end: there the process's end frees it, and views may still be alive.
        weakref.finalize(self, getattr(lib, close), pointer).atexit = False

    def cancel(self) -> None:
        """Ends the call that runs in another thread, if one does."""
        if self._cancel is not None:
            self._cancel(self.pointer)

    def call(self, function: Callable[..., int], *args: Any) -> None:
        """function(handle, *args, error), interruptible. Errors: Error."""
        interruptible(self.cancel, function, self.pointer, *args)

    def call_for_number(self, function: Callable[..., int], *args: Any) -> int:
        """The same for function(handle, *args, number, error), which writes a number."""
        number = c_uint64()
        self.call(function, *args, byref(number))
        return number.value

    def call_at_once(self, function: Callable[..., int], *args: Any) -> None:
        """function(handle, *args, error) for what does not wait. Errors: Error."""
        check(function, self.pointer, *args)


async def in_a_thread(cancel: Callable[[], None], function: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
    """function(*args, **kwargs) in another thread, while the event loop goes on. Where the task is cancelled `cancel` ends
    the call, and that is waited for, so that the handle is free afterwards."""
    import asyncio

    call = asyncio.get_running_loop().run_in_executor(None, functools.partial(function, *args, **kwargs))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        # A cancel that comes before the call has begun has no effect, so it is repeated.
        while not call.done():
            cancel()
            try:
                await asyncio.wait([call], timeout=0.01)
            except asyncio.CancelledError:
                pass  # again: the call must not be left behind
        if not call.cancelled():
            call.exception()  # is not told to anybody
        raise


_C = TypeVar("_C", bound="Closable")


class Closable:
    """What owns a handle: close(), `with`, and a clear error after that."""

    _handle: Optional[Handle]

    def _open_handle(self) -> Handle:
        if self._handle is None:
            raise Error(Code.CLOSED, "call", f"weightcast: this {type(self).__name__} is closed; make a new one")
        return self._handle

    def close(self) -> None:
        """Frees the handle. A call that another thread has begun ends with Code.CANCELLED. Repeating it is harmless."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel()

    def __enter__(self: _C) -> _C:
        self._open_handle()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def state_directory(path: Optional[PathLike]) -> bytes:
    """The state directory that `path` is or, where it is a daemon's socket, lies in. None: the one that the environment
    names in WEIGHTCAST_STATE."""
    if path is None:
        return b""
    text = os.fspath(path)
    if os.path.basename(text) == "api.sock":
        text = os.path.dirname(text) or "."
    return os.fsencode(text)


def open_client(state_dir: Optional[PathLike], timeout: float) -> Handle:
    """wc_open(). Errors: Error with NOT_FOUND, NOT_ALLOWED, TIMED_OUT, IO."""
    pointer = c_void_p()
    # Nothing can cancel it, since there is no handle yet: an interrupt takes effect at the end of the time-out.
    check(library().wc_open, state_directory(state_dir), milliseconds(timeout), byref(pointer))
    return Handle(pointer, "wc_close", "wc_cancel")
