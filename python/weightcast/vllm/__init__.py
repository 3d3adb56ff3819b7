"""vLLM follows the daemon of its host: each version that the daemon installs gets into the engine by itself.

    pip install 'weightcast[vllm]'
    export WEIGHTCAST_STATE=/var/lib/weightcast VLLM_PLUGINS=weightcast
    vllm serve MODEL --weight-transfer-config '{"backend": "weightcast"}'

vLLM finds register() by the entry point group vllm.general_plugins, in every process, and the follower by
vllm.endpoint_plugins, in its API server (_plugin.py). Start with _installs.py (what is done when), then _rank.py (one worker
process), _places.py and _recording.py (where the model's loader puts what), _model.py, _reload.py, _engine.py and _follower.py
(vLLM's side).
Versions that are adapters: _adapters.py (who follows them), then _served.py and _adapter_rank.py (vLLM's side).
"""

from __future__ import annotations

import os
from typing import Any

BACKEND = "weightcast"
#: Set to 1: vLLM's CPU builds leave weights as they are, so that they can be written to, and do not pack them for oneDNN.
UNPACKED = "WEIGHTCAST_VLLM_UNPACKED"


def __getattr__(name: str) -> Any:
    if name == "WeightcastTrainerInit":  # for the trainer's process: it imports vLLM
        from ._trainer import WeightcastTrainerInit

        return WeightcastTrainerInit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register() -> None:
    """Of vllm.general_plugins: it runs in every process of vLLM, and may run more than once in one."""
    from vllm.distributed.weight_transfer import factory
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.worker.worker_base import WorkerBase

    from . import _core

    try:
        factory.WeightTransferEngineFactory.register_engine(BACKEND, "weightcast.vllm._engine", "WeightcastEngine")
    except ValueError:  # it is registered
        return
    if hasattr(factory, "WeightTransferTrainerFactory"):  # older releases have none
        factory.WeightTransferTrainerFactory.register_engine(BACKEND, "weightcast.vllm._trainer", "WeightcastTrainer")
    WorkerBase.weightcast = _call_rank
    setattr(EngineCore, _core.UTILITY, _core.prepare)
    if os.environ.get(UNPACKED) == "1":
        _leave_unpacked()


def _call_rank(worker: Any, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """For collective_rpc(): a method of vLLM's workers. Never raises, see Rank.call()."""
    if operation in ("load_adapter", "drop_adapter"):
        return _call_adapter(worker, operation, arguments)
    engine = getattr(worker, "weight_transfer_engine", None)
    if getattr(engine, "rank", None) is None:
        return {"ok": False, "error": f"the server needs --weight-transfer-config '{{\"backend\": \"{BACKEND}\"}}'"}
    result = engine.rank.call(operation, **arguments)
    if operation == "prepare":
        engine.listener.start()  # there is a follower
    if operation == "write" and result["ok"]:
        try:
            worker.model_runner.reset_lora_state()
        except Exception as error:
            return {"ok": False, "wrote": True, "error": f"adapters could not be reset: {error}"}
    return result


def _call_adapter(worker: Any, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    from . import _adapter_rank

    try:
        return {"ok": True, **getattr(_adapter_rank, operation)(worker, **arguments)}
    except Exception as error:
        return {"ok": False, "error": str(error) or type(error).__name__}


def _leave_unpacked() -> None:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    import torch
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    def process_weights_after_loading(self: Any, layer: torch.nn.Module) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    for method in (UnquantizedLinearMethod, UnquantizedEmbeddingMethod):
        method.process_weights_after_loading = process_weights_after_loading
