"""SGLang follows the daemon of its host: each version that the daemon installs gets into the server by itself.

    python -m sglang.launch_server --model-path DIR --port 30000
    python -m weightcast.sglang --server http://127.0.0.1:30000 --state /var/lib/weightcast

Start with _follower.py (the process beside the server), then _engine.py (what a server is asked, in which order), _loader.py
and _model.py (in the server's own processes, for --mode changes) and _pull.py (for /pull_weights). engines/_installs.py decides
when something is done. Nothing here imports SGLang, of which release 0.5.23 was read: see docs/SGLANG.md.
"""

from __future__ import annotations

from typing import Any

#: The directory by which a follower and its server's processes know each other, set for both of them.
EXCHANGE = "WEIGHTCAST_SGLANG"
#: As --custom-weight-loader names it.
LOADER = "weightcast.sglang.load_changes"


def load_changes(model: Any, named_tensors: Any) -> None:
    """SGLang's custom weight loader: does what the follower has ordered in $WEIGHTCAST_SGLANG, and reports there.

    SGLang calls it in each process of the server, on its scheduler's thread, while the follower has generation paused.
    `named_tensors` is empty: the weights come from this host's daemon. Never raises: an exception here ends the server.
    """
    from . import _loader

    _loader.obey(model)


def pre_read(source_dir: str, target_version: int) -> None:
    """SGLang's hook before it reads `source_dir` for /pull_weights: see _pull.py.

    Waits for the version at this host's daemon, 60 s at most. Errors: TimedOut, those of Subscription, OSError.
    """
    from . import _pull

    _pull.pre_read(source_dir, target_version)
