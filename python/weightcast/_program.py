"""What a program of this package that runs for long does first: python -m weightcast.sglang, and the bridge of
directories. What it says waits for nobody, and what it opens gets no number that words are written to."""

from __future__ import annotations

import collections
import logging
import os
import signal
import sys
import threading
import time
from typing import Any, Callable, Deque

_WAITING_MAX = 8192  # lines that nobody has read
_END_S = 0.5  # for what is not written yet, at the end


def _open_standard_descriptors() -> None:
    """The interpreter leaves closed ones closed: the next file opened would get their number, and log lines with it."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)


class LineHandler(logging.Handler):
    """Writes to descriptor `number` on a thread of its own. What is not read is dropped, counted and said."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number
        self._waiting: Deque[str] = collections.deque()
        self._dropped = 0
        self._changed = threading.Condition()
        self._is_writing = False
        threading.Thread(target=self._run, name="weightcast-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            return self.handleError(record)
        with self._changed:
            if len(self._waiting) < _WAITING_MAX:
                self._waiting.append(line)
            else:
                self._dropped += 1
            self._changed.notify_all()

    def flush(self) -> None:
        """At most _END_S."""
        end = time.monotonic() + _END_S
        with self._changed:
            while (self._waiting or self._is_writing) and time.monotonic() < end:
                self._changed.wait(end - time.monotonic())

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                while not self._waiting and not self._dropped:
                    self._changed.wait()
                if self._waiting:
                    line = self._waiting.popleft()
                else:
                    line, self._dropped = f"{self._dropped} lines of this log are missing here: nobody read it", 0
                self._is_writing = True
            data = (line + "\n").encode(errors="backslashreplace")
            while data:
                try:
                    data = data[os.write(self._number, data) :]
                except BlockingIOError:
                    time.sleep(0.05)
                except OSError:
                    break


def start(says: str = "%(asctime)s %(levelname)s %(message)s") -> Callable[[], bool]:
    """Sets the log up, on stderr. The result says whether a signal asks for the end: SIGTERM, SIGINT, or SIGHUP, unless
    nohup ignores it. A second one ends the program at once. SIGUSR1 and SIGUSR2 are told, and mean nothing."""
    _open_standard_descriptors()
    handler = LineHandler(2)
    logging.basicConfig(level=logging.INFO, format=says, handlers=[handler])
    stopped: list[int] = []

    def stop(number: int, frame: Any) -> None:
        stopped.append(number)
        signal.signal(number, signal.SIG_DFL)

    def tell(number: int, frame: Any) -> None:
        logging.warning("signal %d means nothing to this program, which goes on", number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, tell)
    return lambda: bool(stopped)
