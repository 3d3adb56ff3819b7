"""slime and miles update their engines without a shared disk.

    --custom-update-weight-post-write-path weightcast.integrations.slime.post_write
    --sglang-custom-pull-weights-pre-read-hook weightcast.integrations.slime.pre_read

Read: slime at commit 624b824 (after v0.3.1), miles at 31f1ca9, SGLang with slime's patch for /pull_weights. The directories of
the trainer's hosts and of the engines' have the same path. WEIGHTCAST_STATE, in the environment of both, is the state directory
of the daemon on each host: the origin on that of the trainer's rank 0, elsewhere a worker with --files.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

from torch import distributed

from .._errors import Code, Error
from .._publisher import Publisher
from ..sglang import pre_read

__all__ = ["post_write", "pre_read"]

# Seconds for one version: until the origin has it, and all active workers.
_TIMEOUT_S = float(os.environ.get("WEIGHTCAST_TIMEOUT_S", "600"))
_NAME = re.compile(r"weight_v([0-9]+)")


def post_write(args: Any, version_dir: str, rollout_engines: Any) -> None:
    """Publishes what lies in `version_dir`, and returns when all active workers have installed it.

    Every rank calls; rank 0 publishes, from its host, where the files of all ranks have to be. The version has the number in the
    directory's name, which has to be greater than the origin's last one. A delta is published with all those before it, which an
    engine needs that joins or missed some. The call that announces an empty directory, before version 1, has nothing to publish.
    Errors: those of Publisher.publish_files() and Publisher.wait(). Engines have not been told of the version then.
    """
    path = os.path.normpath(version_dir)
    found = _NAME.fullmatch(os.path.basename(path))
    if found is None or distributed.get_rank() != 0:
        return
    version = int(found[1])
    deadline = time.monotonic() + _TIMEOUT_S
    with Publisher() as publisher:
        try:
            publisher.publish_files(os.path.dirname(path) if _is_delta(path) else path, version=version, timeout=_TIMEOUT_S)
        except Error as error:
            if error.code is not Code.ALREADY_EXISTS:
                raise
            why = f"{error}; a run that begins again needs an origin with an empty state directory"
            raise Error(error.code, error.operation, why) from None
        publisher.wait(version, installed=1.0, timeout=max(deadline - time.monotonic(), 0.0))


def _is_delta(path: str) -> bool:
    """As SGLang tells it."""
    try:
        with open(os.path.join(path, "model.safetensors.index.json"), encoding="utf-8") as index:
            return "delta_encoding" in json.load(index).get("metadata", {})
    except FileNotFoundError:
        return False
