"""vLLM's weight transfer engine of the name "weightcast": one in each worker process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo

from .._load import load
from .._subscription import Subscription
from ..engines._installs import Limits
from ..engines._listener import Listener
from ..engines._rank import Rank
from ._model import VllmModel


@dataclass
class InitInfo(WeightTransferInitInfo):
    """Nothing: the daemon is that of $WEIGHTCAST_STATE on each worker's host."""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """For a trainer that drives /update_weights itself, where no follower is loaded."""

    version: int = 0  # of those that the daemon has; 0: the one in use


class WeightcastEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        """Errors: RuntimeError (vLLM's reload would give the model other weights than a version's), which ends the server."""
        super().__init__(config, vllm_config, device, model)
        held = VllmModel(vllm_config, device, model)
        held.verify_at_start()
        self.rank = Rank(held, Subscription)
        self.listener = Listener(self.rank, Subscription)

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        pass

    def start_weight_update(self) -> None:
        pass

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Brings this rank to a version while its caller has generation paused.

        Errors: RuntimeError. Where writing had begun, all has been loaded again; if that failed too, the message says so.
        """
        with load(version=update_info.version) as weights:
            version = {"version": weights.version, "digest": weights.digest}
        why, began = self._install(version, whole=False)
        if began:
            why, began = self._install(version, whole=True)
        if why:
            mixed = "; the weights are of two versions: repeat the call before you resume" if began else ""
            raise RuntimeError(f"weightcast: version {version['version']}: {why}{mixed}")

    def _install(self, version: dict[str, Any], whole: bool) -> tuple[str, bool]:
        """Why it failed, or "", and whether it failed while it wrote."""
        result = self.rank.prepare(**version, whole=whole, limit_s=Limits().prepare_s)
        if result["ok"]:
            result = self.rank.call("write")
        why = "" if result["ok"] else result["error"]
        return why, bool(why and result.get("wrote"))

    def finish_weight_update(self) -> None:
        pass

    def shutdown(self) -> None:
        """Of one trainer's connection, or of the worker: nothing stays pinned."""
        self.listener.close()
        self.rank.call("drop")
