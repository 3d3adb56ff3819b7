"""verl's checkpoint engine of the name "weightcast": importing this module registers it.

    actor_rollout_ref.rollout.checkpoint_engine.backend=weightcast
    actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=weightcast.integrations.verl
    +actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs.weightcast.state_dir=/var/lib/weightcast

What verl calls is CheckpointEngine's; what becomes of it is in `_checkpoint_engine`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Optional

import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.utils.device import get_device_name, get_torch_device

from ._checkpoint_engine import EngineRank


@CheckpointEngineRegistry.register("weightcast")
class WeightcastCheckpointEngine(CheckpointEngine):
    """One rank's engine, of the trainer or of a rollout. verl has it made, prepared, joined and finalized for each update.
    The version is `global_steps`, or the next number where that is not above the last one's.
    """

    wire_format = "named_tensors"

    def __init__(self, bucket_size: int, is_master: bool = False, **options: Any) -> None:
        """verl gives the first two; `bucket_size` has no use here. `options` are `engine_kwargs.weightcast`, as for
        EngineRank. Errors: ValueError."""
        self._is_master = is_master
        self._rank = EngineRank(**options)

    # ------------------------------------------------------------------------------------------- what verl's manager calls

    def prepare(self) -> dict[str, Any]:
        """Begins an update, in whatever state the last one was left. Returns where the ranks meet, on rank 0.

        Errors: Error with NOT_FOUND (no origin runs on rank 0's host), NOT_ALLOWED, TIMED_OUT.
        """
        self._rank.finalize()
        if self._is_master:
            self._rank.connect()
        return self._rank.prepare(offers=self._is_master)

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
        """Joins the update. Errors: those of EngineRank.join()."""
        self._rank.join(rank, trainers, rollouts, is_rollout, meeting)

    def finalize(self) -> None:
        """Lets go what the update has taken. Repeating it is harmless."""
        self._rank.finalize()

    # --------------------------------------------------------------------------------------------- what verl's workers call

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: Optional[int] = None
    ) -> dict[str, float]:
        """Returns when all hosts have the weights: metrics on rank 0, nothing on the others. Errors: those of
        EngineRank.send()."""
        return await self._rank.send(weights, global_steps)

    def receive_weights(self, global_steps: Optional[int] = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """It waits in this call, not in the iterator: verl tells its inference engine of new weights only after it.
        Errors: those of EngineRank.receive()."""
        device = "cpu"
        if get_torch_device().is_available():
            device = f"{get_device_name()}:{get_torch_device().current_device()}"
        return self._rank.receive(global_steps, device)
