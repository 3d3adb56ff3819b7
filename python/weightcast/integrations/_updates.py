"""One update of the weights, and how its ranks agree on what became of it: plain Python, without torch.

The trainer's ranks walk their weights, one of them publishes, and each rollout's rank pins that version at the daemon of its
host. Between these steps stand gates, so that all ranks go on with the same version, or all have the same error.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional, Protocol

from .._arguments import Files
from .._errors import Code, TimedOut
from .._publication import Publication
from .._publisher import Outcome, Publisher
from .._subscription import seconds_left
from .._tensors import TensorInfo, describe

# How long one wait takes before other things are looked at.
_SLICE_S = 1.0


class UpdateError(RuntimeError):
    """An update that failed, on every rank. None of them was given any of its weights."""

    def __init__(self, why: str) -> None:
        super().__init__(f"weightcast: no rank has new weights: {why}")
        self.why = why

    def __reduce__(self) -> tuple:
        return type(self), (self.why,)


class Store(Protocol):
    """What all ranks of an update reach. Errors: UpdateError (whoever holds it is gone)."""

    def add(self, key: str) -> int:
        """Adds 1 to the number `key`, from 0 on, and returns it."""

    def decide(self, key: str, value: str) -> str:
        """Sets `key`, unless it is set; returns what it has."""

    def wait(self, key: str, timeout: float) -> Optional[str]:
        """What `key` is set to; None where it is not within `timeout` seconds."""


class Gate:
    """What `parties` ranks are to do, and its one outcome: that all have done it, or the first failure.

    Invariant: an outcome never changes. Who gives up waiting decides it, for all others too.
    """

    def __init__(self, store: Store, name: str, parties: int, late: str) -> None:
        """`late`: what is so, where there is no outcome in time."""
        self._store = store
        self._name = name
        self._parties = parties
        self._late = late

    def passed(self, value: Any = None) -> None:
        """This rank has done its part. The last one's `value`, of JSON, is what wait() returns. Once per rank."""
        if self._store.add(self._name + ".passed") == self._parties:
            self._decide(value=value)

    def failed(self, why: str) -> None:
        """No effect where there is an outcome already."""
        self._decide(error=why)

    def wait(self, end: float) -> Any:
        """Waits until time.monotonic() is `end`. Errors: UpdateError (a rank failed, or is not there in time)."""
        began = time.monotonic()
        while True:
            found = self._store.wait(self._name, min(seconds_left(end), _SLICE_S))
            if found is not None:
                return _value_of(found)
            if not seconds_left(end):
                waited = time.monotonic() - began
                return _value_of(self._decide(error=f"{self._late} after {waited:.0f} s; see what the others are doing"))

    def check(self) -> None:
        """Errors: UpdateError (a rank failed already)."""
        found = self._store.wait(self._name, 0.0)
        if found is not None:
            _value_of(found)

    def _decide(self, **outcome: Any) -> str:
        return self._store.decide(self._name, json.dumps(outcome))


def _value_of(outcome: str) -> Any:
    """Errors: UpdateError."""
    found = json.loads(outcome)
    if "error" in found:
        raise UpdateError(found["error"])
    return found["value"]


class Update:
    """One update as one rank sees it. Used once."""

    def __init__(self, store: Store, trainers: int, rollouts: int, who: str) -> None:
        self._who = who
        #: The trainer's ranks have walked all their weights.
        self.gathered = Gate(store, "gathered", trainers, "a rank of the trainer has not made all its weights")
        #: The one that publishes has: version, digest and global_steps.
        self.published = Gate(store, "published", 1, "the trainer has published nothing")
        #: Each rank agrees to that, and each rollout's has it pinned.
        self.installed = Gate(store, "installed", trainers + rollouts, "a rank does not say that it has the version")

    @contextlib.contextmanager
    def failing_for_all(self) -> Iterator[None]:
        """What is raised within fails the update on every rank."""
        try:
            yield
        except BaseException as error:
            why = error.why if isinstance(error, UpdateError) else f"{self._who}: {type(error).__name__}: {error}"
            with contextlib.suppress(UpdateError):
                for gate in (self.gathered, self.published, self.installed):
                    gate.failed(why)
            raise

    def wait_published(self, global_steps: Optional[int], end: float) -> dict[str, Any]:
        """Errors: UpdateError, ValueError (the trainer sends another step)."""
        found = self.published.wait(end)
        if found["global_steps"] != global_steps:
            raise ValueError(f"step {global_steps} was asked for, but the trainer sends step {found['global_steps']}")
        return found


class WeightsPublisher:
    """Publishes what a generator yields, name and tensor, one by one."""

    def __init__(
        self, publisher: Publisher, copied: Callable[[Any], Any], *, files: Optional[Files] = None, new_model: bool = False,
        allow_nonfinite: bool = False,
    ) -> None:
        """`copied`: a tensor's copy in host memory. The others are for Publisher.begin(), `new_model` for the first one."""
        self._publisher = publisher
        self._copied = copied
        self._files = files
        self._new_model = new_model
        self._allow_nonfinite = allow_nonfinite
        self._infos: Optional[list[TensorInfo]] = None  # of the last version: what the next one has, too

    def fill(self, weights: Iterable[tuple[str, Any]], end: float) -> Publication:
        """Walks all weights, also after an error: making them may take all ranks. To be committed by commit().

        Only the walk tells which tensors there are. So the first one keeps a copy of all in host memory; the next ones
        copy each tensor to its place. Errors: ValueError (a tensor twice, or other tensors than in the last version; the
        next call takes them), those of Publisher.begin() and Publication.fill(), and what `weights` raises.
        """
        weights = iter(weights)
        try:
            if self._infos is not None:
                return self._fill(weights, self._infos, end)
            kept: dict[str, Any] = {}
            for name, tensor in weights:
                if name in kept:
                    raise ValueError(f"tensor {name!r} came twice")
                kept[name] = self._copied(tensor)
            return self._fill(iter(kept.items()), [describe(name, tensor) for name, tensor in kept.items()], end)
        except BaseException:
            self._infos = None
            with contextlib.suppress(Exception):
                for _ in weights:
                    pass
            raise

    def _fill(self, weights: Iterator[tuple[str, Any]], infos: list[TensorInfo], end: float) -> Publication:
        publication = self._publisher.begin(
            infos, files=self._files, new_model=self._new_model, allow_nonfinite=self._allow_nonfinite,
            timeout=seconds_left(end),
        )
        try:
            missing = {info.name for info in infos}
            for name, tensor in weights:
                if name not in missing:
                    raise ValueError(f"tensor {name!r} came twice, or was not in the last version")
                publication.fill(name, tensor)
                missing.remove(name)
            if missing:
                some = ", ".join(sorted(missing)[:3])
                raise ValueError(f"{len(missing)} of the last version's {len(infos)} tensors are missing, such as {some}")
        except BaseException:
            publication.abort()
            raise
        self._infos = infos
        return publication

    def commit(self, publication: Publication, global_steps: Optional[int], end: float) -> int:
        """Publishes it as version `global_steps` or, where that is not above the last one's, as the next number.

        Returns the number when the origin has taken it over. Errors: TimedOut, those of Publication.commit() and Publisher.wait().
        """
        try:
            if not seconds_left(end):
                raise TimedOut(Code.TIMED_OUT, "publish", "weightcast: making the weights took longer than the time-out")
            number = max(global_steps or 0, self._publisher.next_version(timeout=seconds_left(end)))
            version = publication.commit(version=number, timeout=seconds_left(end))
            self._publisher.wait(version, timeout=seconds_left(end))
        except BaseException:
            self._infos = None
            raise
        self._new_model = False
        return version

    def outcome(self, version: int) -> Outcome:
        """Errors: those of Publisher.wait()."""
        return self._publisher.wait(version)
