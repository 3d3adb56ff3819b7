"""In each worker process of vLLM: loads an adapter beside the others, and says what of it the model would not use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from vllm.lora.layers.base_linear import BaseLinearLayerWithLoRA
from vllm.lora.request import LoRARequest


def load_adapter(worker: Any, label: str, number: int, path: str) -> dict[str, Any]:
    """Loads the adapter at `path` under vLLM's `number`, and looks at what became of it. `unused`: of the adapter's modules
    those that this rank's part of the model does not have. Errors: those of vLLM; ValueError. Nothing is loaded then."""
    runner = worker.model_runner
    try:
        runner.add_lora(LoRARequest(label, number, path))
        manager = runner.lora_manager._adapter_manager
        return {"unused": _unused(manager, manager.get_adapter(number))}
    except BaseException:
        with contextlib.suppress(Exception):
            runner.remove_lora(number)
        raise


def drop_adapter(worker: Any, number: int) -> dict[str, Any]:
    worker.model_runner.remove_lora(number)
    return {}


def _unused(manager: Any, adapter: Any) -> list[str]:
    """vLLM leaves out what it has no module for, and zeros beside a matrix that is smaller than the model's: an adapter of
    another model would be served as if it were of this one. Errors: ValueError (a matrix of another size)."""
    used = set()
    for name, module in manager.modules.items():
        weights = manager._get_lora_layer_weights(adapter, name)
        if not weights:
            continue
        used.add(id(weights))
        if isinstance(module, BaseLinearLayerWithLoRA):
            for given, wanted, side in _sizes(module, weights.lora_a, weights.lora_b):
                if given != wanted:
                    why = f"its matrices for {name} have {given} {side}, and the served model's layer has {wanted}"
                    raise ValueError(f"{why}: is it of another model?")
    return [name for name, weights in adapter.loras.items() if id(weights) not in used and ".experts" not in name]


def _sizes(module: Any, lora_a: Any, lora_b: Any) -> Iterator[tuple[int, int, str]]:
    """Of each matrix of this rank's: what the adapter has, and what the layer takes."""
    if module.tp_size > 1:
        lora_a, lora_b = module.slice_lora_a(lora_a), module.slice_lora_b(lora_b)
    if not isinstance(lora_a, list):
        lora_a = [lora_a]
    if not isinstance(lora_b, list):
        lora_b = [lora_b]
    for matrix, place in zip(lora_a, module.lora_a_stacked):
        if matrix is not None:
            yield matrix.shape[1], place.shape[-1], "inputs"
    if len(lora_b) == len(module.lora_b_stacked):
        for matrix, place in zip(lora_b, module.lora_b_stacked):
            if matrix is not None:
                yield matrix.shape[0], place.shape[-2], "outputs"
    else:  # one for several, which the layer splits
        given = sum(matrix.shape[0] for matrix in lora_b if matrix is not None)
        if module.tp_size == 1 and all(matrix is not None for matrix in lora_b):
            yield given, sum(place.shape[-2] for place in module.lora_b_stacked), "outputs"
