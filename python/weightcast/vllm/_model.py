"""A model of vLLM's: how a version gets into it."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Optional

import numpy
import torch
from vllm.config import set_current_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.attention import is_deferred_attention_layer
from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEExperts
from vllm.model_executor.model_loader.reload.layerwise import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.v1.attention.backend import AttentionImplBase

from .._errors import Error
from .._snapshot import Snapshot
from .._subscription import Change
from .._tensors import RawTensor
from . import UNPACKED
from ._places import Places
from ._rank import NotInPlace, Refused, Staged
from ._recording import Recorder, memory_of

logger = init_logger("vllm.weightcast")

# Methods of layers that compute from the parameters themselves, and keep nothing that was made from them.
_AS_LOADED = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod", "UnquantizedFusedMoEMethod"}
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SAMPLE = 4096  # elements of a tensor whose cells the probe follows one by one


class VllmModel:
    """Its places are recorded with the first version. A probe compares each recorded cell with the element that it is said to
    hold, by their bits: before that version with what the server was started with, and after it. What differs, or keeps
    something made from its weights, is reloaded."""

    def __init__(self, vllm_config: Any, device: torch.device, model: torch.nn.Module) -> None:
        self._config, self._device, self._model = vllm_config, device, model
        self._tensors: Optional[dict[str, tuple[str, tuple[int, ...]]]] = None  # of the first version: dtype and shape
        self._places: Optional[Places] = None
        self._why_not = ""  # there are no places
        self._is_untouched = True  # it has what the server was started with
        self._flat: dict[Hashable, torch.Tensor] = {}

    def check(self, snapshot: Snapshot) -> None:
        if self._tensors is None:
            return
        for name, known in self._tensors.items():
            tensor = snapshot.get(name)
            if tensor is None:
                raise ValueError(f"tensor {name} of the served model is missing in it")
            if (tensor.dtype, tensor.shape) != known:
                raise ValueError(
                    f"tensor {name} is {tensor.dtype} {tensor.shape} in it, and {known[0]} {known[1]} in the served model; "
                    "start the server anew for another model"
                )
        extra = next((name for name in snapshot if name not in self._tensors), None)
        if extra is not None:
            raise ValueError(f"the served model has no tensor {extra}; start the server anew for another model")

    def stage_cells(self, changes: dict[str, Change]) -> Staged:
        places = self._in_place(changes)
        parts: dict[Hashable, list[tuple[torch.Tensor, torch.Tensor]]] = collections.defaultdict(list)
        values = {name: change.values.torch() for name, change in changes.items()}
        cells_of = {name: change.indices.numpy() for name, change in changes.items()}
        for memory, name, chosen, cells in places.targets(cells_of):
            part = values[name][chosen if isinstance(chosen, slice) else torch.from_numpy(chosen)]
            parts[memory].append((torch.from_numpy(cells), part.to(self._flat[memory].dtype)))
        writes = []
        for memory, found in parts.items():
            flat = self._flat[memory]
            integers = _INTEGERS[flat.element_size()]  # a NaN's bits stay as they are
            cells = torch.cat([cells for cells, _ in found]).to(self._device)
            new = torch.cat([part for _, part in found]).view(integers).to(self._device)
            writes.append((flat.view(integers), cells, new))
        if self._device.type != "cpu":
            torch.accelerator.current_stream().synchronize()

        def write() -> None:
            with torch.no_grad():
                for flat, cells, new in writes:
                    flat.index_copy_(0, cells, new)

        return Staged("cells", write, sum(len(cells) for _, cells, _ in writes), "")

    def stage_whole(self, snapshot: Snapshot, why: str) -> Staged:
        cells = sum(tensor.torch().numel() for tensor in snapshot.values())
        if self._tensors is None:
            return Staged("reload", lambda: self._load_first(snapshot), cells, why)
        try:
            places = self._in_place(snapshot)
        except NotInPlace as error:
            return Staged("reload", lambda: self._load(snapshot), cells, f"{why}; {error}")

        def write() -> None:
            with torch.no_grad():
                for target, source, _ in self._pairs(places, snapshot):
                    target.copy_(source)

        return Staged("copies", write, cells, why)

    def settle(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize()

    def _in_place(self, names: Any) -> Places:
        if self._places is None:
            raise NotInPlace(self._why_not)
        for name in names:
            why = self._places.reasons.get(name)
            if why is not None:
                raise NotInPlace(f"tensor {name}: {why}")
        return self._places

    def _pairs(self, places: Places, snapshot: Mapping[str, RawTensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor, str]]:
        """Of each place what it writes to and what with, as views, and the tensor's name."""
        for name, tensor in snapshot.items():
            whole = tensor.torch().reshape(-1)
            for memory, place in places.at(name) if name not in places.reasons else ():
                offset, shape, strides = place.target
                target = torch.as_strided(self._flat[memory], shape, strides, offset)
                offset, shape, strides = place.source
                yield target, torch.as_strided(whole, shape, strides, offset), name

    # The first version: vLLM loads it, and its loader is watched.

    def _load_first(self, snapshot: Snapshot) -> None:
        places, self._why_not = None, self._obstacle()
        if not self._why_not:
            try:
                places = self._record(snapshot)
                if self._is_untouched:
                    self._probe(places, self._checkpoint(snapshot))
            except Refused:
                raise
            except Exception as error:
                places, self._why_not = None, f"where its loader writes cannot be recorded: {error}"
        self._is_untouched = False
        self._load(snapshot)
        used: set[Hashable] = set()
        if places is not None:
            self._probe(places, snapshot)
            exact = [found for name, found in places.places.items() if name not in places.reasons]
            used = {memory for found in exact for memory, _ in found}
        # Of a layer that is processed again vLLM may replace the rest, which must not be kept here.
        self._flat = {memory: flat for memory, flat in self._flat.items() if memory in used}
        self._places = places
        self._tensors = {name: (tensor.dtype, tensor.shape) for name, tensor in snapshot.items()}
        self._report(snapshot)

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

    def _pack_again(self) -> None:
        """What vLLM packs for a CPU when it starts, and its reload forgets: tied heads, and experts."""
        for module in self._model.modules() if self._device.type == "cpu" else ():
            if _is_packed(module) and module.weight.numel():
                module.quant_method.process_weights_after_loading(module)
            experts = _packing_experts(module)
            if experts is not None:
                experts.process_weights_after_loading(module)

    def _missing(self, loaded: Optional[set[str]]) -> str:
        if loaded is None or self._config.model_config.quantization is not None:
            return ""
        missing = sorted({name for name, _ in self._model.named_parameters()} - loaded)
        return ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")

    def _obstacle(self) -> str:
        """Why the loader cannot be watched at all; "" if it can."""
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

    def _record(self, snapshot: Snapshot) -> Places:
        tensors = [*self._model.parameters(), *self._model.buffers()]
        recorder = Recorder(tensors)
        given = recorder.given((name, tensor.torch()) for name, tensor in snapshot.items())
        with torch.no_grad(), set_current_vllm_config(self._config), recorder:
            loaded = self._model.load_weights(given)
        missing = self._missing(loaded)
        if missing:
            raise Refused(f"the version has nothing for {missing} of the served model")
        for tensor in tensors:
            if tensor.numel():
                count = tensor.untyped_storage().nbytes() // tensor.element_size()
                self._flat[memory_of(tensor)] = torch.as_strided(tensor.detach(), (count,), (1,), 0)
        places = recorder.record.places()
        derived = self._derived()
        for name, found in places.places.items():
            for memory, _ in found:
                if memory in derived:
                    places.give_up(name, derived[memory])
        return places

    def _derived(self) -> dict[Hashable, str]:
        """Memories from which a layer makes something else when they were loaded, and what does it."""
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

    def _probe(self, places: Places, snapshot: Mapping[str, RawTensor]) -> None:
        """Gives up what is not, bit for bit, at its recorded cells."""
        for target, source, name in self._pairs(places, snapshot):
            if not _same_bits(target, source):
                places.give_up(name, "its layer changes it after loading")
        # And by the way that changes take.
        for name, tensor in snapshot.items():
            values = tensor.torch().reshape(-1)
            count = values.numel()
            if not count or name in places.reasons:
                continue
            indices = numpy.unique(numpy.linspace(0, count - 1, min(count, _SAMPLE), dtype=numpy.int64))
            for memory, _, chosen, cells in places.targets({name: indices}):
                source = values[torch.from_numpy(indices[chosen])]
                if not _same_bits(self._flat[memory][torch.from_numpy(cells).to(self._device)], source):
                    places.give_up(name, "its recorded cells hold other elements")

    def _report(self, snapshot: Snapshot) -> None:
        if self._places is None:
            logger.warning("weightcast: versions are reloaded layer by layer: %s", self._why_not)
            return
        reasons = collections.defaultdict(list)
        for name, why in self._places.reasons.items():
            reasons[why].append(name)
        logger.info(
            "weightcast: changes of %d of %d tensors are written in place; the probe found each of their bits",
            len(snapshot) - len(self._places.reasons), len(snapshot),
        )  # fmt: skip
        for why, names in reasons.items():
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            logger.warning("weightcast: a change of %s%s takes a reload: %s", ", ".join(names[:3]), more, why)


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


def _same_bits(target: torch.Tensor, source: torch.Tensor) -> bool:
    integers = _INTEGERS[target.element_size()]
    wanted = source.to(target.device, target.dtype).contiguous()
    return torch.equal(target.contiguous().view(integers), wanted.view(integers))
