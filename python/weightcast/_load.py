"""The weights that a daemon has in use, all of one version."""

from __future__ import annotations

from typing import Any, Optional

from ._library import PathLike
from ._snapshot import Snapshot
from ._subscription import Subscription


class Weights(Snapshot):
    """All tensors of one version, by name, and that version pinned; load() makes it.

    The version stays in `directory`, complete and unchanged, until this is closed or dropped, or the daemon ends. Tensors
    that were taken from it stay longer: they are views of mapped files, which the kernel keeps for them. With
    --single-copy a worker waits for the last of them before it takes the next version.
    """

    def __init__(self, state_dir: Optional[PathLike], version: int, timeout: float) -> None:
        # Its connection holds the pin. It ends when this is dropped.
        self._subscription = Subscription(state_dir, timeout=timeout)
        pinned = self._subscription._acquire(version, timeout)
        self.version = pinned.version
        self.directory = pinned.directory
        self.digest = pinned.digest
        self.run = pinned.run
        super().__init__(self.directory)

    def torch(self) -> dict[str, Any]:
        """A state dict of torch tensors on the CPU over the mapped files: see RawTensor.torch()."""
        return {name: tensor.torch() for name, tensor in self.items()}

    def close(self) -> None:
        """Lets the version go. Its tensors stay as they are. Repeating it is harmless."""
        self._subscription.close()

    def __repr__(self) -> str:
        return f"<weightcast.Weights of version {self.version}: {len(self)} tensors>"

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(state_dir: Optional[PathLike] = None, version: int = 0, *, timeout: float = 5.0) -> Weights:
    """Pins the version that the daemon has in use (or `version`), and maps all its tensors.

    `state_dir` is that daemon's; None: the one that WEIGHTCAST_STATE names.
    Shards that are opened one by one below `current/` may be of several versions; these are of one.
    Errors: Error with NOT_FOUND (no daemon runs there; it has not that version, or none yet), BUSY (the version gives
    way to another), TIMED_OUT, NOT_ALLOWED, CLOSED; those of Snapshot.
    """
    return Weights(state_dir, version, timeout)
