"""The commands of the wheel. Each becomes the program that lies in bin/ beside this file: the same process, so that signals
and the exit status are the program's."""

import os
import sys


def _become(name: str) -> None:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: cannot run {path}: {error.strerror}; install the wheel again, where programs may be executed")


def weightcast() -> None:
    _become("weightcast")


def weightcast_engine() -> None:
    _become("weightcast-engine")
