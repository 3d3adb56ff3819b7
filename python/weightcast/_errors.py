"""Errors: one exception with a code."""

from __future__ import annotations

import enum
import re
from typing import Any


class Code(enum.IntEnum):
    """Why a call failed. The numbers are those of `wc_code` in weightcast.h."""

    INVALID_ARGUMENT = 1  # the caller's input is wrong; repeating the call cannot help
    CORRUPT = 2  # bytes do not match their format
    TOO_LARGE = 3  # a length exceeds its limit
    UNSUPPORTED = 4  # well formed, but of a kind that the other side does not know; releases differ
    NOT_FOUND = 5  # no such daemon, version, file or tensor
    ALREADY_EXISTS = 6  # the version is not greater than the last one
    WRONG_BASE = 7  # a change is against another version than the last one
    BUSY = 8  # something else holds it now; try again later
    TIMED_OUT = 9  # the call's time was over
    CLOSED = 10  # the daemon ended or closed the connection during the call, or the handle is closed
    NO_SPACE = 11  # memory, a disk or a quota is full
    IO = 12  # the operating system refused; the text carries its words
    NOT_ALLOWED = 13  # this node may not do that, or another user owns it
    CANCELLED = 14  # cancel() ended the call
    TOO_FAR = 15  # the changes are not known, or cost more than the whole: take the whole


class Error(Exception):
    """A call that failed. str() is one line for a person: what failed, on what, why, and what to do."""

    def __init__(self, code: Code, operation: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        #: What was being done: "publish", "connect", ...
        self.operation = operation

    def __reduce__(self) -> tuple:
        return type(self), (self.code, self.operation, str(self))


class TimedOut(Error, TimeoutError):
    """Error with Code.TIMED_OUT."""

    #: Publisher.wait(): an Outcome, how far the publication came; None where the daemon did not answer.
    outcome: Any = None


# The library and the daemon name what a C program or the command line would set, which is something else here.
_NAMES = {
    "WC_ALLOW_NONFINITE": "allow_nonfinite=True",
    "--allow-nonfinite": "allow_nonfinite=True",
    "WC_NEW_MODEL": "new_model=True",
    "--new-model": "new_model=True",
    "WC_SECOND_REGION": "second_region=True",
    "WC_INIT": "this package",
    "wc_publish_options has": "the arguments have",
    "wc_region_fd()": "Publication.path",
    "wc_begin()": "begin()",
}
_NAME = re.compile("|".join(map(re.escape, _NAMES)))


def in_python(message: str) -> str:
    """A message of the library with the names that things have in this package."""
    return _NAME.sub(lambda found: _NAMES[found.group()], message)


def make_error(code: int, operation: str, message: str) -> Error:
    """The exception for a number of the library. A later library may know more codes: those are Code.IO."""
    try:
        known = Code(code)
    except ValueError:
        known = Code.IO
    return (TimedOut if known is Code.TIMED_OUT else Error)(known, operation, in_python(message))
