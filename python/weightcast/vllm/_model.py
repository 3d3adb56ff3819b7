"""A model of vLLM's: how a version gets into it."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from typing import Any, Optional

import torch
from vllm.config import set_current_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.attention import is_deferred_attention_layer
from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEExperts
from vllm.model_executor.model_loader.reload.layerwise import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.v1.attention.backend import AttentionImplBase

from .._errors import Error
from .._snapshot import Snapshot
from .._tensors import RawTensor
from ..engines._placed_model import PlacedModel
from ..engines._recording import memory_of
from . import UNPACKED

# Methods of layers that compute from the parameters themselves, and keep nothing that was made from them.
_AS_LOADED = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod", "UnquantizedFusedMoEMethod"}


class VllmModel(PlacedModel):
    def __init__(self, vllm_config: Any, device: torch.device, model: torch.nn.Module) -> None:
        super().__init__(device, model, init_logger("vllm.weightcast"))
        self._config = vllm_config

    def _load(self, snapshot: Snapshot) -> None:
        """As vLLM reloads: layer by layer, with what each layer makes of its weights."""
        model = self._model
        with torch.no_grad(), set_current_vllm_config(self._config):
            initialize_layerwise_reload(model)
            try:
                loaded = model.load_weights((name, tensor.torch()) for name, tensor in snapshot.items())
            finally:
                # Also after a failure: what a layer has already would else count for the next load.
                finalize_layerwise_reload(model, self._config.model_config)
            self._pack_again()
        missing = self._missing(loaded)
        if missing:
            raise RuntimeError(f"the version has nothing for {missing}")

    def _loading(self) -> contextlib.AbstractContextManager[Any]:
        return set_current_vllm_config(self._config)

    def _pack_again(self) -> None:
        """What vLLM packs for a CPU when it starts, and its reload forgets: tied heads, and experts."""
        for module in self._model.modules() if self._device.type == "cpu" else ():
            if hasattr(module, "base_layer"):
                continue  # of an adapter, which shows what the layer beneath it has
            if _is_packed(module) and module.weight.numel():
                module.quant_method.process_weights_after_loading(module)
            experts = _packing_experts(module)
            if experts is not None:
                experts.process_weights_after_loading(module)

    def _missing(self, loaded: Optional[set[str]]) -> str:
        if loaded is None or self._config.model_config.quantization is not None:
            return ""
        # With --enable-lora a layer's parameters stand beneath its adapter; what loads them leaves that out of their names, or not.
        names = {name.replace(".base_layer.", ".") for name, _ in self._model.named_parameters()}
        missing = sorted(names - {name.replace(".base_layer.", ".") for name in loaded})
        return ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")

    def _obstacle(self) -> str:
        if self._config.model_config.quantization is not None:
            return f"the model is quantised ({self._config.model_config.quantization})"
        if self._config.parallel_config.enable_eplb:
            return "vLLM moves experts between ranks (--enable-eplb)"
        if self._config.lora_config is not None:
            return "adapters are enabled (--enable-lora)"
        if hasattr(self._model, "process_weights_after_loading"):
            return "the model makes something of all of its weights"
        packed = next((name for name, module in self._model.named_modules() if _is_packed(module)), None)
        if packed is not None:
            return f"vLLM packs weights for the CPU, such as {packed}; {UNPACKED}=1 leaves them as they are"
        return ""

    def _derived(self) -> dict[Hashable, str]:
        found: dict[Hashable, str] = {}
        for name, module in self._model.named_modules():
            method = getattr(module, "quant_method", None)
            why = ""
            if method is not None and type(method).__name__ not in _AS_LOADED:
                why = f"{type(method).__name__} of {name} processes it"
            elif _packing_experts(module) is not None:
                why = f"{type(_packing_experts(module)).__name__} of {name} packs it"
            elif is_deferred_attention_layer(module):
                implementation = type(getattr(module, "impl", None))
                if type(module).__name__ != "Attention" or _overrides(implementation):
                    why = f"{name} ({type(module).__name__}, {implementation.__name__}) processes it"
            if why:
                parent = self._model.get_submodule(name.rpartition(".")[0])
                for tensor in [*module.parameters(), *parent.parameters(recurse=False)]:
                    found[memory_of(tensor)] = why
        return found

    def _checkpoint(self, snapshot: Snapshot) -> dict[str, RawTensor]:
        """What the server was started with, of the tensors that the version has, too; none where that is no directory."""
        if self._config.load_config.load_format == "dummy":
            return {}
        try:
            found = Snapshot(self._config.model_config.model)
        except (OSError, Error):
            return {}
        known = {name: tensor.shape for name, tensor in snapshot.items()}
        return {name: tensor for name, tensor in found.items() if known.get(name) == tensor.shape}


def _is_packed(module: torch.nn.Module) -> bool:
    return getattr(module, "cpu_linear", torch.nn.functional.linear) is not torch.nn.functional.linear


def _packing_experts(module: torch.nn.Module) -> Any:
    """The kernel of a layer of experts, if it makes something else of their weights; else None."""
    kernel = getattr(getattr(module, "quant_method", None), "moe_kernel", None)
    experts = getattr(kernel, "fused_experts", None)
    hook = getattr(type(experts), "process_weights_after_loading", None)
    return experts if hook is not getattr(FusedMoEExperts, "process_weights_after_loading", None) else None


def _overrides(implementation: type) -> bool:
    hook = getattr(implementation, "process_weights_after_loading", None)
    return hook is not getattr(AttentionImplBase, "process_weights_after_loading", None)
