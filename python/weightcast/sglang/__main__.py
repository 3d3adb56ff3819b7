"""python -m weightcast.sglang: an SGLang server follows the daemon of its host."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Optional

from .. import _program
from .._subscription import Subscription
from ..engines._installs import Limits
from . import EXCHANGE
from ._engine import Engine, Mode, PauseMode, Unfit
from ._exchange import Exchange
from ._follower import Follower
from ._server import Server

_API_KEY = "WEIGHTCAST_SGLANG_API_KEY"


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise ValueError(text)
    return seconds


def main(arguments: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser("weightcast-sglang", description=__doc__)
    parser.add_argument("--server", default="http://127.0.0.1:30000", help="the server's address")
    parser.add_argument("--state", default=None, help="the daemon's state directory; default: $WEIGHTCAST_STATE")
    parser.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.DISK, metavar="disk|changes",
                        help="disk: the server loads each version's directory; changes: it writes what changed")
    parser.add_argument("--pause", type=PauseMode, choices=list(PauseMode), default=PauseMode.RETRACT,
                        metavar="abort|retract|in_place", help="what becomes of answers under way")
    parser.add_argument("--install-s-max", type=_seconds, default=Limits().write_s, metavar="SECONDS",
                        help="bound of a pause's write (default: %(default)g)")  # fmt: skip
    found = parser.parse_args(arguments)
    is_stopped = _program.start()
    log = logging.getLogger("weightcast.sglang")
    if found.state is not None:
        os.environ["WEIGHTCAST_STATE"] = found.state
    try:
        exchange = None
        if found.mode is Mode.CHANGES:
            directory = os.environ.get(EXCHANGE)
            if not directory:
                raise Unfit(f"--mode changes needs {EXCHANGE}: a directory, the same for the server and for this program")
            exchange = Exchange(directory)
        server = Server(found.server, os.environ.get(_API_KEY))
        engine = Engine(server, found.mode, found.pause, exchange, log, Subscription)
        Follower(engine, Limits(write_s=found.install_s_max), log).run(is_stopped)
    except (Unfit, ValueError, OSError) as error:
        log.error("weightcast-sglang: %s", error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
