"""A model of vLLM's: how a version gets into it."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator
from typing import Any, Optional

import torch
from vllm.config import set_current_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.attention import is_deferred_attention_layer
from vllm.model_executor.model_loader import get_model_loader
from vllm.v1.attention.backend import AttentionImplBase

from .._errors import Error
from .._snapshot import Snapshot
from .._tensors import RawTensor
from ..engines._placed_model import PlacedModel
from ..engines._recording import memory_of
from . import UNPACKED
from ._reload import Reload, is_packed, packing_experts, plain_name

# Methods of layers that compute from the parameters themselves, and keep nothing that was made from them.
_AS_LOADED = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod", "UnquantizedFusedMoEMethod"}


class VllmModel(PlacedModel):
    def __init__(self, vllm_config: Any, device: torch.device, model: torch.nn.Module) -> None:
        super().__init__(device, model, init_logger("vllm.weightcast"))
        self._config = vllm_config
        self._reload = Reload(vllm_config, device, model)
        self._holds_reload = False  # that is known

    def verify_at_start(self) -> None:
        """With the checkpoint that the server was started with, where vLLM can read it again; else the first version does it.

        Errors: RuntimeError (a reload would give other weights than a version's: which layer, and what to do).
        """
        loader = get_model_loader(self._config.load_config)
        if self._config.load_config.load_format == "dummy" or not hasattr(loader, "get_all_weights"):
            return
        self._reload.verify(lambda: loader.get_all_weights(self._config.model_config, self._model))
        self._holds_reload = True

    def _load(self, snapshot: Snapshot) -> None:
        """As vLLM reloads: layer by layer, with what each layer makes of its weights."""

        def tensors() -> Iterator[tuple[str, torch.Tensor]]:
            return ((name, tensor.torch()) for name, tensor in snapshot.items())

        missing = self._missing(self._reload.load(tensors))
        if missing:
            raise RuntimeError(f"the version has nothing for {missing}")
        if not self._holds_reload:
            self._reload.verify(tensors)
            self._holds_reload = True
        self._reload.check()

    def _loading(self) -> contextlib.AbstractContextManager[Any]:
        return set_current_vllm_config(self._config)

    def _missing(self, loaded: Optional[set[str]]) -> str:
        if loaded is None or self._config.model_config.quantization is not None:
            return ""
        # With --enable-lora a layer's parameters stand beneath its adapter; what loads them leaves that out of their names, or not.
        known = {name for name, _ in self._model.named_parameters()} - self._reload.made()
        missing = sorted({plain_name(name) for name in known} - {plain_name(name) for name in loaded})
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
        packed = next((name for name, module in self._model.named_modules() if is_packed(module)), None)
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
            elif packing_experts(module) is not None:
                why = f"{type(packing_experts(module)).__name__} of {name} packs it"
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


def _overrides(implementation: type) -> bool:
    hook = getattr(implementation, "process_weights_after_loading", None)
    return hook is not getattr(AttentionImplBase, "process_weights_after_loading", None)
