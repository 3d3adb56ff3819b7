"""One rank's checkpoint engine, as verl and NeMo-RL mean it: what both have in common.

Rank 0 of the trainer publishes, through the origin on its host. Each rollout's rank takes the weights from the daemon on
its own. What the ranks agree on is in `_updates`; here are torch, its TCPStore, where they meet, and the daemons.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, Optional

import ray
import torch
import torch.distributed as dist

from .._arguments import Files
from .._errors import Error
from .._library import PathLike
from .._publisher import Publisher
from .._snapshot import Snapshot
from .._subscription import Pin, Subscription, pin_when_installed
from ._updates import Update, UpdateError, WeightsPublisher

# How long a rank may take to reach rank 0.
_CONNECT_S = 60.0
# How often a rank looks whether the others are there.
_LOOK_S = 0.05
# Who waits for other ranks waits this much longer, so that a rank whose own time is over can say what it waited for.
_LONGER_S = 5.0


class _TcpStore:
    """A `Store` that rank 0 holds."""

    def __init__(self, host: str, port: int) -> None:
        """Errors: UpdateError (rank 0 is not reached)."""
        self._where = f"{host} port {port}"
        with self._reached():
            self._store = dist.TCPStore(host, port, is_master=False, timeout=datetime.timedelta(seconds=_CONNECT_S))

    def add(self, key: str) -> int:
        with self._reached():
            return self._store.add(key, 1)

    def decide(self, key: str, value: str) -> str:
        with self._reached():
            return self._store.compare_set(key, "", value).decode()

    def wait(self, key: str, timeout: float) -> Optional[str]:
        # Not its wait(), which logs two lines each time that nothing came, and keeps other threads from the store.
        end = time.monotonic() + timeout
        with self._reached():
            while not self._store.check([key]):
                if time.monotonic() >= end:
                    return None
                time.sleep(_LOOK_S)
            return self._store.get(key).decode()

    @contextlib.contextmanager
    def _reached(self) -> Any:
        try:
            yield
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise UpdateError(f"the trainer's rank 0 is not reached at {self._where}: {reason}") from error


class EngineRank:
    """One rank, of the trainer or of a rollout. Each update takes prepare(), join(), then send() or receive(), then
    finalize(). After an error prepare() begins anew.

    An update fails on every rank or on none: no rank is given weights before all rollouts' hosts have the version, and
    all ranks mean the same step. The framework handles failures after that. The version is the step, or the next number
    where that is not above the last one's.
    """

    def __init__(
        self,
        *,
        state_dir: Optional[PathLike] = None,
        rollout_state_dir: Optional[PathLike] = None,
        files: Optional[Files] = None,
        new_model: bool = False,
        allow_nonfinite: bool = False,
        timeout: float = 600.0,
    ) -> None:
        """`state_dir`: the origin's, on the host of the trainer's rank 0; None: $WEIGHTCAST_STATE. `rollout_state_dir`: that
        of the daemon on each rollout's host, a worker or the origin itself; None: the same path. `timeout`: how long, in
        seconds, an update may take until its version is published, and as long again until all hosts have it. `files`,
        `new_model` (of the first version) and `allow_nonfinite`: as for Publisher.publish(). Errors: ValueError.
        """
        if not timeout > 0:
            raise ValueError(f"weightcast: a time-out of {timeout!r} s; give more than 0")
        self._state_dir = state_dir
        self._rollout_state_dir = state_dir if rollout_state_dir is None else rollout_state_dir
        self._options = {"files": files, "new_model": new_model, "allow_nonfinite": allow_nonfinite}
        self._timeout = timeout
        self._is_prepared = False
        self._server: Optional[dist.TCPStore] = None  # of this update, on rank 0
        self._publisher: Optional[WeightsPublisher] = None  # on rank 0
        self._subscription: Optional[Subscription] = None  # on a rollout's rank
        self._update: Optional[Update] = None  # joined, and not sent or received yet
        self._is_rollout = False

    def connect(self) -> None:
        """On rank 0: to the origin, unless it is connected.

        Errors: Error with NOT_FOUND (no origin runs on rank 0's host), NOT_ALLOWED, TIMED_OUT.
        """
        if self._publisher is None:
            self._publisher = WeightsPublisher(Publisher(self._state_dir), _copied, **self._options)

    def prepare(self, offers: bool) -> dict[str, Any]:
        """Begins an update, in whatever state the last one was left. Where this rank `offers` to be where the ranks meet,
        it returns that for join(), else nothing."""
        self.finalize()
        self._is_prepared = True
        if not offers:
            return {}
        host = ray.util.get_node_ip_address().strip("[]")
        # A new one for each update: who is left of the last one finds it gone.
        self._server = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
        return {"host": host, "port": self._server.port}

    def join(self, rank: int, trainers: int, rollouts: int, is_rollout: bool, meeting: dict[str, Any]) -> None:
        """Joins the update. `rank` counts among the trainer's ranks, or among the rollouts'. `meeting`: what prepare() gave
        on the trainer's rank 0.

        Errors: RuntimeError (not prepared), UpdateError (rank 0 is not reached); on a rollout's rank Error with NOT_FOUND
        (no daemon runs on its host), NOT_ALLOWED, TIMED_OUT.
        """
        if not self._is_prepared:
            raise RuntimeError("weightcast: the ranks are joined after prepare(), once for each update")
        self._is_prepared = False
        if is_rollout:
            self._subscription = Subscription(self._rollout_state_dir)
        self._is_rollout = is_rollout
        who = f"{'rollout' if is_rollout else 'trainer'} rank {rank} on {socket.gethostname()}"
        self._update = Update(_TcpStore(meeting["host"], meeting["port"]), trainers, rollouts, who)

    def withdraw_offer(self) -> None:
        """Another rank is where the ranks meet."""
        self._server = None

    def finalize(self) -> None:
        """Lets go what the update has taken. Repeating it is harmless."""
        self._is_prepared = False
        self._update = None
        self._server = None
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    async def send(self, weights: Iterable[tuple[str, torch.Tensor]], step: Optional[int]) -> dict[str, float]:
        """Walks `weights` to their end, on all of the trainer's ranks; the one that is connected publishes them. Returns when
        all hosts have them: metrics on that rank, nothing on the others.

        Errors: RuntimeError (out of order), this rank's own error, UpdateError (another rank's, or one that is not there in
        time).
        """
        update = self._joined(False)
        began = time.monotonic()
        end, late = began + self._timeout, began + self._timeout + _LONGER_S
        with update.failing_for_all():
            if self._publisher is None:
                with torch.no_grad():
                    for _ in weights:
                        pass
                update.gathered.passed()
                await asyncio.to_thread(update.wait_published, step, late)
                await asyncio.to_thread(self._wait_installed, update)
                return {}
            with torch.no_grad():
                publication = self._publisher.fill(weights, end)
            with publication:
                update.gathered.passed()
                await asyncio.to_thread(update.gathered.wait, end)
                gathered = time.monotonic()
                version, digest = await asyncio.to_thread(self._publish, publication, step, end)
            update.published.passed({"version": version, "digest": digest, "global_steps": step})
            await asyncio.to_thread(update.wait_published, step, late)
            published = time.monotonic()
            await asyncio.to_thread(self._wait_installed, update)
        metrics = {
            "weightcast/version": version,
            "weightcast/gather_s": gathered - began,
            "weightcast/publish_s": published - gathered,
            "weightcast/install_s": time.monotonic() - published,
        }
        with contextlib.suppress(Error):  # all ranks have the weights, whatever the origin says now
            metrics["weightcast/payload_bytes"] = (await asyncio.to_thread(self._publisher.outcome, version)).payload_bytes
        return metrics

    def receive(self, step: Optional[int], device: str) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """The tensors of the version that the trainer publishes for this step, when all rollouts' hosts have it: on
        `device`, one after the other, or views of mapped files where that is "cpu".

        It waits in this call, not in the iterator: so a framework that tells its inference engine of new weights only after
        it leaves none waiting for those of an update that failed.
        Errors: RuntimeError (out of order), this rank's own error, UpdateError.
        """
        update, subscription = self._joined(True), self._subscription
        with update.failing_for_all():
            try:
                found = update.wait_published(step, time.monotonic() + self._timeout + _LONGER_S)
                pin = pin_when_installed(
                    subscription, found["version"], found["digest"], time.monotonic() + self._timeout, update.installed.check)
                tensors = Snapshot(pin.directory)
                self._wait_installed(update)
            except BaseException:
                subscription.close()  # with it a pin goes
                raise
        return _yielded(tensors, pin, subscription, device)

    def _joined(self, is_rollout: bool) -> Update:
        """The update that this rank has joined, for the one call that it makes of it."""
        update, self._update = self._update, None
        what = "receives" if is_rollout else "sends"
        if update is None:
            raise RuntimeError(f"weightcast: a rank {what} weights after it has joined, once for each update")
        if is_rollout != self._is_rollout:
            raise RuntimeError(f"weightcast: no rank of {'the rollouts' if self._is_rollout else 'the trainer'} {what} weights")
        return update

    def _wait_installed(self, update: Update) -> None:
        update.installed.passed()
        update.installed.wait(time.monotonic() + self._timeout + _LONGER_S)

    def _publish(self, publication: Any, step: Optional[int], end: float) -> tuple[int, str]:
        """The version and its digest. Errors: those of WeightsPublisher.commit() and pin_when_installed()."""
        version = self._publisher.commit(publication, step, end)
        with Subscription(self._state_dir) as subscription, pin_when_installed(subscription, version, None, end) as pin:
            return version, pin.digest


async def _yielded(
    tensors: Snapshot, pin: Pin, subscription: Subscription, device: str
) -> AsyncIterator[tuple[str, torch.Tensor]]:
    """`pin` holds the version until `subscription` is closed, at the end or by finalize()."""
    with subscription:
        for name, tensor in tensors.items():
            yield name, tensor.torch().to(device)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)
