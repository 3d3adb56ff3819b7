"""Before SGLang reads a directory of versions for /pull_weights: puts this host's version there.

SGLang wants source_dir/weight_v000007 for version 7, and copies a whole checkpoint from there to its local_checkpoint_dir. So
that name becomes a link to the version's directory, which stays pinned in this process until the next call. Every rank of a
host calls; the links are the same.
"""

from __future__ import annotations

import os
from typing import Optional

from .._errors import Code, Error
from .._subscription import Subscription

_INSTALL_S_MAX = 5.0
_held: Optional[Subscription] = None  # of the version that SGLang copies now


def pre_read(source_dir: str, target_version: int) -> None:
    global _held
    subscription = Subscription()
    try:
        pin = subscription.acquire(target_version, timeout=_INSTALL_S_MAX)
    except Error as error:
        subscription.close()
        if error.code is Code.NOT_FOUND:
            why = f"{error}; wait for the version (Publisher.wait()) before /pull_weights"
            raise Error(error.code, error.operation, why) from None
        raise
    if _held is not None:
        _held.close()
    _held = subscription
    # SGLang's own name for it.
    path = os.path.join(source_dir, f"weight_v{target_version:06d}")
    os.makedirs(source_dir, exist_ok=True)
    making = f"{path}.{os.getpid()}"
    if os.path.lexists(making):
        os.unlink(making)
    os.symlink(pin.directory, making)
    os.replace(making, path)
