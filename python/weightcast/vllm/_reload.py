"""vLLM's layer-wise reload, and what shows that a model holds it: by the bytes that it has after it, and by what it computes.

vLLM puts a layer's parameters on the device "meta", so that what a loader gives to their weight loaders is kept until the layer
has all of it. A loader that writes to a parameter itself writes into nothing; _lost() finds such layers, which then have memory
when the loader comes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Callable, NamedTuple, Optional

import torch
from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEExperts
from vllm.model_executor.model_loader.reload import layerwise
from vllm.model_executor.model_loader.reload.layerwise import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.model_executor.model_loader.reload.meta import SKIP_TENSORS, materialize_layer
from vllm.model_executor.model_loader.reload.utils import get_layer_tensors

#: Gives a model's tensors by the names of its checkpoint, anew with each call.
Source = Callable[[], Iterable[tuple[str, torch.Tensor]]]

_TOLERANCE = 1e-3  # of a layer's largest result: two runs over the same weights are closer, and over others further apart


class State(NamedTuple):
    """What tells whether two loads came to the same."""

    vectors: dict[str, torch.Tensor]  # by layer, what it computes from a fixed input
    sums: dict[str, int]  # by parameter or buffer, the sum of its bytes


class Reload:
    def __init__(self, config: Any, device: torch.device, model: torch.nn.Module) -> None:
        self._config, self._device, self._model = config, device, model
        self._unused: set[str] = set()  # layers without weights, which the loader leaves out
        self._direct: set[str] = set()  # layers whose parameters the loader writes to itself

    def load(self, tensors: Source) -> Optional[set[str]]:
        """Loads all weights; the names that the model's loader says. Errors: any; the weights may be mixed then."""
        loaded, lost = self._load(tensors())
        if lost:
            self._direct |= lost
            loaded, lost = self._load(tensors())
        if lost:
            raise RuntimeError(f"layer {min(lost)}: what the loader writes to it is lost in vLLM's reload")
        return loaded

    def check(self) -> None:
        """After a load. Errors: RuntimeError (a layer computes what is no number)."""
        for name, vector in self._state(sums=False).vectors.items():
            if name not in self._unused and not vector.isfinite().all():
                raise RuntimeError(f"layer {name}: after vLLM's reload it computes what is not finite")

    def verify(self, tensors: Source) -> None:
        """Loads other weights and these again. They are what the model has now.

        Errors: RuntimeError (it has not the same afterwards, or not all of it changed: a reload would serve other weights than
        the version's); the model is not to be used then.
        """
        before = self._state()
        loaded = self.load(lambda: ((name, _other(tensor)) for name, tensor in tensors()))
        other = self._state()
        if loaded is not None:
            layers = {plain_name(name).rpartition(".")[0] for name in loaded}
            without = {name: vector for name, vector in before.vectors.items() if plain_name(name) not in layers}
            self._unused = {name for name, vector in without.items() if not vector.isfinite().all()}
        self.load(tensors)
        why = self._difference(before, self._state(), other, loaded)
        if why:
            raise RuntimeError(
                f"vLLM's reload does not hold this model: {why}. Start the server anew for each version, without "
                "--weight-transfer-config"
            )

    def made(self) -> set[str]:
        """Parameters that the checkpoint's loader never knew: vLLM made them after loading."""
        found = set()
        for layer_name, layer in self._model.named_modules():
            known = layerwise.get_layerwise_info(layer).restore_metadata[0].keys() | SKIP_TENSORS
            found |= {_join(layer_name, name) for name in layer._parameters if name not in known}
        return found

    # One load.

    def _load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> tuple[Optional[set[str]], set[str]]:
        """What the loader says, and the layers of which something was lost."""
        model = self._model
        layers = {plain_name(name): layer for name, layer in model.named_modules() if not hasattr(layer, "base_layer")}
        idle: set[torch.nn.Module] = set()
        with torch.no_grad(), set_current_vllm_config(self._config):
            initialize_layerwise_reload(model)
            try:
                for name in self._direct:
                    _give_memory(layers[name])
                loaded = model.load_weights(tensors)
                lost = self._lost(layers, loaded)
                for name in self._direct:
                    layerwise._layerwise_process(layers[name], layerwise.get_layerwise_info(layers[name]))
                for layer in layers.values():
                    info = layerwise.get_layerwise_info(layer)
                    if info.can_load() and info.load_numel <= 0:
                        idle.add(layer)  # vLLM lets it have what it had
            finally:
                # Also after a failure: what a layer has already would else count for the next load.
                finalize_layerwise_reload(model, self._config.model_config)
            for layer in layers.values() if self._device.type == "cpu" else ():
                _pack_again(layer, layer in idle)
        return loaded, lost

    def _lost(self, layers: dict[str, torch.nn.Module], loaded: Optional[set[str]]) -> set[str]:
        """Layers of which a parameter is said to be loaded, and vLLM has kept nothing for it."""
        lost = set()
        for name in loaded or ():
            layer_name, _, parameter = plain_name(name).rpartition(".")
            layer = layers.get(layer_name)
            if layer is None or layer_name in self._direct:
                continue
            info = layerwise.get_layerwise_info(layer)
            tensor = getattr(layer, parameter, None)
            if not info.can_load() or not isinstance(tensor, torch.Tensor) or not tensor.is_meta:
                continue
            if parameter not in {kept for kept, _ in info.loaded_weights}:
                lost.add(layer_name)
        return lost

    # What a model has.

    def _state(self, sums: bool = True) -> State:
        state = State({}, {})
        with torch.no_grad(), set_current_vllm_config(self._config):
            for name, layer in self._model.named_modules():
                vector = self._vector(layer)
                if vector is not None:
                    state.vectors[name] = vector
            for name, tensor in _tensors(self._model) if sums else ():
                state.sums[name] = _sum(tensor)
        return state

    def _vector(self, layer: torch.nn.Module) -> Optional[torch.Tensor]:
        """What it computes from a fixed input; None for a layer that takes more than that."""
        method = getattr(layer, "quant_method", None)
        if not hasattr(method, "apply") or hasattr(layer, "base_layer"):
            return None
        if next(layer.parameters(), None) is None:
            return None  # vLLM leaves it out, as the head of a model that pools
        try:
            if hasattr(layer, "moe_config"):
                result = self._experts(layer, method)
            else:
                size = getattr(layer, "input_size_per_partition", None) or getattr(layer, "input_size", None)
                bias = getattr(layer, "bias", None)
                bias = bias if isinstance(bias, torch.Tensor) else None
                result = method.apply(layer, self._input(1, size or layer.embedding_dim), bias)
        except Exception:  # of whatever kind of layer: its bytes are compared then
            return None
        return result.float().cpu() if isinstance(result, torch.Tensor) else None

    def _experts(self, layer: Any, method: Any) -> Any:
        if layer.moe_config.moe_parallel_config.use_all2all_kernels or method.is_monolithic:
            return None  # ranks would wait for each other, or the method routes
        count, chosen = layer.global_num_experts, layer.moe_config.experts_per_token
        ids = (torch.arange(count)[:, None] + torch.arange(chosen)) % count
        weights = torch.full((count, chosen), 1.0 / chosen, device=self._device)
        rows = self._input(count, layer.moe_config.hidden_dim)
        return method.apply(layer, rows, weights, ids.to(self._device, torch.int32), None, None)

    def _input(self, rows: int, size: int) -> torch.Tensor:
        made = torch.randn(rows, size, generator=torch.Generator("cpu").manual_seed(1), device="cpu")
        return made.to(self._device, self._config.model_config.dtype)

    def _difference(self, before: State, after: State, other: State, loaded: Optional[set[str]]) -> str:
        for name, vector in before.vectors.items():
            if name in self._unused:
                continue
            again = after.vectors.get(name)
            if again is None or not _is_close(again, vector):
                return f"layer {name} computes something else after the same weights were loaded again"
        for name, value in before.sums.items():
            if after.sums.get(name) != value and not _is_of(name, before.vectors):
                return f"{name} has other bytes after the same weights were loaded again"
        loaded_names = {plain_name(name) for name in loaded or ()}
        loaded_layers = {name.rpartition(".")[0] for name in loaded_names}
        for name, vector in before.vectors.items():
            if plain_name(name) in loaded_layers and _is_close(other.vectors[name], vector):
                return f"layer {name} computes the same after other weights were loaded"
        made = self.made()
        for name, tensor in _tensors(self._model):
            if not tensor.is_floating_point() or _is_of(name, before.vectors):
                continue
            if (name in made or plain_name(name) in loaded_names) and other.sums.get(name) == before.sums.get(name):
                return f"{name} has the same bytes after other weights were loaded"
        return ""


def is_packed(module: torch.nn.Module) -> bool:
    return getattr(module, "cpu_linear", torch.nn.functional.linear) is not torch.nn.functional.linear


def packing_experts(module: torch.nn.Module) -> Any:
    """The kernel of a layer of experts, if it makes something else of their weights; else None."""
    kernel = getattr(getattr(module, "quant_method", None), "moe_kernel", None)
    experts = getattr(kernel, "fused_experts", None)
    hook = getattr(type(experts), "process_weights_after_loading", None)
    return experts if hook is not getattr(FusedMoEExperts, "process_weights_after_loading", None) else None


def _pack_again(module: Any, was_idle: bool) -> None:
    """What vLLM packs for a CPU when it starts, and its reload forgets: tied heads; and experts, which it packs in place."""
    if is_packed(module) and module.weight.numel():
        module.quant_method.process_weights_after_loading(module)
    experts = packing_experts(module)
    if experts is not None and not was_idle:
        experts.process_weights_after_loading(module)


def _give_memory(layer: torch.nn.Module) -> None:
    """To a layer of which vLLM has made meta tensors. Cells that the loader leaves out have what they had, or zeros."""
    info = layerwise.get_layerwise_info(layer)
    assert info.kernel_tensors is not None
    materialize_layer(layer, info)
    had = info.kernel_tensors[0] | info.kernel_tensors[1]
    for name, tensor in get_layer_tensors(layer).items():
        tensor.weight_loader = layerwise._get_original_loader(tensor)
        if name in SKIP_TENSORS:
            continue  # they never were meta tensors
        if name in had and had[name].shape == tensor.shape and had[name].dtype == tensor.dtype:
            tensor.data.copy_(had[name])
        else:
            tensor.data.zero_()


def _other(tensor: torch.Tensor) -> torch.Tensor:
    """Of the same shape and dtype, with other values, which a layer's method can take for weights, scales or indices."""
    if tensor.is_floating_point() and tensor.element_size() > 1:
        return tensor.roll(1) * 0.75 + 0.01
    return tensor.view(torch.uint8).roll(1).view(tensor.dtype) if tensor.element_size() == 1 else tensor.roll(1)


def _tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for found in (model.named_parameters(), model.named_buffers()):
        for name, tensor in found:
            if tensor.numel() and not tensor.is_meta:
                yield name, tensor


def _sum(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def _is_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Never of what is not finite."""
    return one.shape == other.shape and bool((one - other).abs().max() <= _TOLERANCE * other.abs().max())


def _is_of(name: str, layers: dict[str, torch.Tensor]) -> bool:
    return name.rpartition(".")[0] in layers


def plain_name(name: str) -> str:
    """With --enable-lora a layer stands beneath its adapter; what loads it leaves that out of its name, or not."""
    return name.replace(".base_layer", "")


def _join(layer: str, name: str) -> str:
    return f"{layer}.{name}" if layer else name
