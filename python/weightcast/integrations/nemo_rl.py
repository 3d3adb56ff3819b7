"""NeMo-RL's refit between a policy and vLLM that do not share GPUs: a checkpoint engine that its configuration names.

    policy.generation.refit_transport: "weightcast.integrations.nemo_rl:WeightcastCheckpointEngine"
    policy.generation.refit_cfg:
      "weightcast.integrations.nemo_rl:WeightcastCheckpointEngine": {release_after_refit: true, state_dir: /var/lib/weightcast}

What NeMo-RL calls is CheckpointEngine's, read at commit 7ea279a (0.6); what becomes of it is in `_checkpoint_engine`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import torch
from nemo_rl.utils.checkpoint_engines.base import CheckpointEngine

from ._checkpoint_engine import EngineRank

_log = logging.getLogger("nemo_rl.weightcast")  # NeMo-RL shows INFO of its own loggers


class WeightcastCheckpointEngine(CheckpointEngine):
    """One rank's engine, of the policy or of vLLM. With `release_after_refit` NeMo-RL has it prepared, joined and finalized for
    each refit, and so the next one begins anew after a failure."""

    def __init__(self, bucket_size: int, release_after_refit: bool = False, **options: Any) -> None:
        """NeMo-RL gives the first one: how many bytes vLLM is given at once, unless one tensor has more. The others are its
        `refit_cfg`; `options` as for EngineRank. Errors: ValueError."""
        if not release_after_refit:
            raise ValueError("weightcast: set release_after_refit: true beside state_dir; each refit has its own meeting of ranks")
        self._bucket_bytes = bucket_size
        self._rank = EngineRank(**options)

    def prepare(self) -> dict[str, Any]:
        """Begins a refit. Nobody has said yet which rank this is, so each offers to be where the ranks meet."""
        return self._rank.prepare(offers=True)

    def init_policy_process_group(
        self, *, worker_rank: int, train_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> None:
        """Errors: those of EngineRank.join(); on rank 0 those of EngineRank.connect()."""
        if worker_rank == 0:
            self._rank.connect()
        else:
            self._rank.withdraw_offer()
        self._rank.join(worker_rank, train_world_size, rollout_world_size, False, metadata[0])

    def init_rollout_process_group(
        self, *, rollout_rank: int, train_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> None:
        """Errors: those of EngineRank.join()."""
        self._rank.withdraw_offer()
        self._rank.join(rollout_rank, train_world_size, rollout_world_size, True, metadata[0])

    def finalize(self) -> None:
        """Lets go what the refit has taken. Repeating it is harmless."""
        self._rank.finalize()

    async def send_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Returns when all hosts have the weights. Errors: those of EngineRank.send()."""
        metrics = await self._rank.send(weights, None)
        if metrics:
            _log.info("weightcast: %s", ", ".join(f"{name.partition('/')[2]} {value:g}" for name, value in metrics.items()))

    async def receive_weight_batches(self) -> AsyncGenerator[list[tuple[str, torch.Tensor]], None]:
        """Errors: those of EngineRank.receive(), before the first batch."""
        device = f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"
        batch: list[tuple[str, torch.Tensor]] = []
        held = 0
        async for name, tensor in self._rank.receive(None, device):
            if batch and held + tensor.nbytes > self._bucket_bytes:
                yield batch
                batch, held = [], 0
            batch.append((name, tensor))
            held += tensor.nbytes
        if batch:
            yield batch
