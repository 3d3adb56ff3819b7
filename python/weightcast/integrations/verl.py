"""verl's checkpoint engine of the name "weightcast": importing this module registers it.

    actor_rollout_ref.rollout.checkpoint_engine.backend=weightcast
    actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=weightcast.integrations.verl
    +actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs.weightcast.state_dir=/var/lib/weightcast

Rank 0 of the trainer publishes, through the origin on its host. Each rollout's rank takes the weights from the daemon on
its own. What verl calls is CheckpointEngine's; what the ranks agree on is in `_updates`.
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
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.utils.device import get_device_name, get_torch_device

from .._errors import Error
from .._library import PathLike
from .._publisher import Files, Publisher
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


@CheckpointEngineRegistry.register("weightcast")
class WeightcastCheckpointEngine(CheckpointEngine):
    """One rank's engine, of the trainer or of a rollout. Each update takes prepare(), init_process_group(), then
    send_weights() or receive_weights(), then finalize(). After an error prepare() begins anew.

    An update fails on every rank or on none: no rank is given weights before all rollouts' hosts have the version, and
    all ranks mean the same step. verl handles failures after that. The version is `global_steps`, or the next number where
    that is not above the last one's.
    """

    wire_format = "named_tensors"

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        *,
        state_dir: Optional[PathLike] = None,
        rollout_state_dir: Optional[PathLike] = None,
        files: Optional[Files] = None,
        new_model: bool = False,
        allow_nonfinite: bool = False,
        timeout: float = 600.0,
    ) -> None:
        """verl gives the first two; `bucket_size` has no use here. The others are `engine_kwargs.weightcast`.

        `state_dir`: the origin's, on the host of the trainer's rank 0; None: $WEIGHTCAST_STATE. `rollout_state_dir`: that
        of the daemon on each rollout's host, a worker or the origin itself; None: the same path. `timeout`: how long, in
        seconds, an update may take until its version is published, and as long again until all hosts have it. `files`,
        `new_model` (of the first version) and `allow_nonfinite`: as for Publisher.publish().
        """
        if not timeout > 0:
            raise ValueError(f"weightcast: a time-out of {timeout!r} s; give more than 0")
        self._is_master = is_master
        self._state_dir = state_dir
        self._rollout_state_dir = state_dir if rollout_state_dir is None else rollout_state_dir
        self._options = {"files": files, "new_model": new_model, "allow_nonfinite": allow_nonfinite}
        self._timeout = timeout
        self._is_prepared = False
        self._server: Optional[dist.TCPStore] = None  # of this update, on rank 0
        self._publisher: Optional[WeightsPublisher] = None
        self._subscription: Optional[Subscription] = None
        self._update: Optional[Update] = None  # joined, and not sent or received yet
        self._is_rollout = False

    # ------------------------------------------------------------------------------------------- what verl's manager calls

    def prepare(self) -> dict[str, Any]:
        """Begins an update, in whatever state the last one was left. Returns where the ranks meet, on rank 0.

        Errors: Error with NOT_FOUND (no origin runs on rank 0's host), NOT_ALLOWED, TIMED_OUT.
        """
        self.finalize()
        self._is_prepared = True
        if not self._is_master:
            return {}
        if self._publisher is None:
            self._publisher = WeightsPublisher(Publisher(self._state_dir), _copied, **self._options)
        host = ray.util.get_node_ip_address().strip("[]")
        # A new one for each update: who is left of the last one finds it gone.
        self._server = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
        return {"host": host, "port": self._server.port}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """What init_process_group() takes, for the trainer's ranks and for the rollouts'. `metadata`: what prepare() gave
        on all ranks, the trainer's first. Errors: ValueError (not just one of the trainer's ranks is the master)."""
        meetings = [given for given in metadata[:actor_wg_world_size] if given]
        if len(meetings) != 1:
            raise ValueError(f"weightcast: {len(meetings)} of the trainer's {actor_wg_world_size} ranks are masters; 1 has to be")

        def arguments(ranks: range, is_rollout: bool) -> dict[str, list[Any]]:
            same = {
                "trainers": actor_wg_world_size, "rollouts": rollout_world_size, "is_rollout": is_rollout,
                "meeting": meetings[0],
            }
            return {"rank": list(ranks), **{name: [value] * len(ranks) for name, value in same.items()}}

        return arguments(range(actor_wg_world_size), False), arguments(range(rollout_world_size), True)

    def init_process_group(
        self, rank: int, trainers: int, rollouts: int, is_rollout: bool, meeting: dict[str, Any]
    ) -> None:
        """Joins the update. `rank` counts among the trainer's ranks, or among the rollouts'.

        Errors: RuntimeError (not prepared), UpdateError (rank 0 is not reached); on a rollout's rank Error with NOT_FOUND
        (no daemon runs on its host), NOT_ALLOWED, TIMED_OUT.
        """
        if not self._is_prepared:
            raise RuntimeError("weightcast: init_process_group() comes after prepare(), once for each update")
        self._is_prepared = False
        if is_rollout:
            self._subscription = Subscription(self._rollout_state_dir)
        self._is_rollout = is_rollout
        who = f"{'rollout' if is_rollout else 'trainer'} rank {rank} on {socket.gethostname()}"
        self._update = Update(_TcpStore(**meeting), trainers, rollouts, who)

    def finalize(self) -> None:
        """Lets go what the update has taken. Repeating it is harmless."""
        self._is_prepared = False
        self._update = None
        self._server = None
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    # --------------------------------------------------------------------------------------------- what verl's workers call

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: Optional[int] = None
    ) -> dict[str, float]:
        """Walks `weights` to their end, on all of the trainer's ranks; rank 0 publishes them. Returns when all hosts have
        them: metrics on rank 0, nothing on the others.

        Errors: RuntimeError (out of order), this rank's own error, UpdateError (another rank's, or one that is not there in
        time).
        """
        update = self._joined(False)
        began = time.monotonic()
        end, late = began + self._timeout, began + self._timeout + _LONGER_S
        with update.failing_for_all():
            if not self._is_master:
                with torch.no_grad():
                    for _ in weights:
                        pass
                update.gathered.passed()
                await asyncio.to_thread(update.wait_published, global_steps, late)
                await asyncio.to_thread(self._wait_installed, update)
                return {}
            with torch.no_grad():
                publication = self._publisher.fill(weights, end)
            with publication:
                update.gathered.passed()
                await asyncio.to_thread(update.gathered.wait, end)
                gathered = time.monotonic()
                version, digest = await asyncio.to_thread(self._publish, publication, global_steps, end)
            update.published.passed({"version": version, "digest": digest, "global_steps": global_steps})
            await asyncio.to_thread(update.wait_published, global_steps, late)
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

    def receive_weights(self, global_steps: Optional[int] = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """The tensors of the version that the trainer publishes for this step, when all rollouts' hosts have it. They are
        views of mapped files on the CPU; else on the rank's device, one after the other.

        It waits in this call, not in the iterator: verl tells its inference engine of new weights only after it, so an
        engine never waits for those of an update that failed.
        Errors: RuntimeError (out of order), this rank's own error, UpdateError.
        """
        update, subscription = self._joined(True), self._subscription
        with update.failing_for_all():
            try:
                found = update.wait_published(global_steps, time.monotonic() + self._timeout + _LONGER_S)
                pin = pin_when_installed(
                    subscription, found["version"], found["digest"], time.monotonic() + self._timeout, update.installed.check)
                tensors = Snapshot(pin.directory)
                self._wait_installed(update)
            except BaseException:
                subscription.close()  # with it a pin goes
                raise
        return _yielded(tensors, pin, subscription)

    # -------------------------------------------------------------------------------------------------------------- parts

    def _joined(self, is_rollout: bool) -> Update:
        """The update that this rank has joined, for the one call that it makes of it."""
        update, self._update = self._update, None
        call = "receive_weights()" if is_rollout else "send_weights()"
        if update is None:
            raise RuntimeError(f"weightcast: {call} comes after init_process_group(), once for each update")
        if is_rollout != self._is_rollout:
            raise RuntimeError(f"weightcast: {call} is not for {'rollouts' if self._is_rollout else 'the trainer'}")
        return update

    def _wait_installed(self, update: Update) -> None:
        update.installed.passed()
        update.installed.wait(time.monotonic() + self._timeout + _LONGER_S)

    def _publish(self, publication: Any, global_steps: Optional[int], end: float) -> tuple[int, str]:
        """The version and its digest. Errors: those of WeightsPublisher.commit() and pin_when_installed()."""
        version = self._publisher.commit(publication, global_steps, end)
        with Subscription(self._state_dir) as subscription, pin_when_installed(subscription, version, None, end) as pin:
            return version, pin.digest


async def _yielded(
    tensors: Snapshot, pin: Pin, subscription: Subscription
) -> AsyncIterator[tuple[str, torch.Tensor]]:
    """`pin` holds the version until `subscription` is closed, at the end or by finalize()."""
    device = "cpu"
    if get_torch_device().is_available():
        device = f"{get_device_name()}:{get_torch_device().current_device()}"
    with subscription:
        for name, tensor in tensors.items():
            yield name, tensor.torch().to(device)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)
