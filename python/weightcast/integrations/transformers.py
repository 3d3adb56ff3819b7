"""Any Hugging Face Trainer publishes through weightcast: one callback.

    Trainer(..., callbacks=[PublishCallback("/var/lib/weightcast")])

TRL's trainers are Hugging Face Trainers, too. For its asynchronous GRPO trainer see weightcast.integrations.trl.
"""

from __future__ import annotations

import copy
import pathlib
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Optional

import torch
import transformers
from accelerate.utils import extract_model_from_parallel
from transformers.utils import is_peft_available

from .._arguments import Files, unwrapped
from .._library import PathLike
from .._publisher import Outcome, Publisher
from .._tensors import describe, tensor_bytes
from ._step_log import StepLog, figures_of

try:
    from transformers.core_model_loading import revert_weight_conversion
except ImportError:  # before transformers 5 a model had the names of its files
    revert_weight_conversion = None

_BASE_LAYER = "base_layer."
_MODEL_OF_PEFT = "base_model.model."
# What to do with sharded tensors that files have in another form.
_FUSED_SHARDED = (
    "publish its shards as Parts by ShardedPublisher, or gather the model on rank 0 and publish what save_pretrained() writes by "
    "publish_path()"
)
_SAVED_MODULE = re.compile(r"\.modules_to_save\.([^.]+)\.")


class PublishCallback(StepLog):
    """Publishes the model when training begins, after each optimiser step that is due, and when training ends.

    The main process publishes, on the origin's host; with FSDP2 each rank publishes its own shards (ShardedPublisher). PEFT:
    the adapters are merged for it, one layer at a time, and the trainer's weights are afterwards what they were, bit for
    bit. Refused: FSDP1, DeepSpeed's ZeRO-3, quantised and offloaded weights, and of PEFT what cannot be merged. With
    `adapter` the adapter alone is published, as PEFT saves it, over whatever weights it lies on.
    """

    def __init__(
        self,
        state_dir: Optional[PathLike] = None,
        every_steps: int = 1,
        *,
        files: Optional[Files] = None,
        dtype: Optional[torch.dtype] = None,
        new_model: bool = False,
        installed: Optional[float] = None,
        timeout: float = 600.0,
        adapter: bool = False,
        allow_nonfinite: bool = False,
    ) -> None:
        """`state_dir`: the origin's; None: WEIGHTCAST_STATE's. `files`: what accompanies the weights, as for
        Publisher.publish(); None: the model's configuration and the trainer's tokenizer, of an adapter its
        adapter_config.json. `dtype`: in which floating tensors
        are published, such as that of the engines. FP32 weights change in nearly every element of a step, their BF16 values
        in a few per cent. `new_model`: the first publication may have other tensors than the origin's last version.
        `installed`: the fraction of the active workers that training waits for; None: it goes on when the origin has its
        own copy. `timeout`: seconds for each version. `allow_nonfinite`: NaN and infinity are published, too.

        What a publication raises ends the training: the errors of Publisher.begin(), Publication.commit() and
        Publisher.wait(), and with FSDP2 RankError; at the begin ValueError (what is refused, above).
        Errors: ValueError (no interval, fraction or time-out).
        """
        super().__init__()
        if every_steps < 1 or not timeout > 0 or not (installed is None or 0 < installed <= 1):
            raise ValueError(
                f"weightcast: every_steps={every_steps}, installed={installed}, timeout={timeout}: give steps from 1 on, a "
                "fraction up to 1, and seconds"
            )
        self._state_dir, self._every_steps = state_dir, every_steps
        self._files, self._dtype, self._new_model = files, dtype, new_model
        self._installed, self._timeout, self._adapter = installed, timeout, adapter
        self._allow_nonfinite = allow_nonfinite
        self._model_publisher: Any = None  # on ranks that publish
        self._step: Optional[int] = None  # that was published last

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        self._end()
        (_check_adapter if self._adapter else _check)(model)
        model = extract_model_from_parallel(model)
        options = {"files": self._files, "new_model": self._new_model}
        is_sharded = not self._adapter and any(hasattr(tensor, "placements") for tensor in model.parameters())
        if not is_sharded and not state.is_world_process_zero:
            return
        kind = _AdapterPublisher if self._adapter else _ShardedPublisher if is_sharded else _WholePublisher
        self._model_publisher = kind(self._state_dir, self._dtype, self._timeout, self._allow_nonfinite)
        if self._files is None and self._adapter:
            options["files"] = _adapter_files(model)
        elif self._files is None and state.is_world_process_zero:
            tokenizer = more.get("processing_class") or more.get("tokenizer")
            options["files"] = _files_of(model, tokenizer, self._dtype)
        self._publish(state, model, options)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.global_step % self._every_steps == 0:
            self._publish(state, model, {})

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.global_step != self._step:
            self._publish(state, model, {})
        self._end()

    def _publish(self, state: Any, model: Any, options: dict[str, Any]) -> None:
        if self._model_publisher is None:
            return
        began = time.monotonic()
        version, weights_bytes = self._model_publisher.publish(extract_model_from_parallel(model), options)
        published = time.monotonic()
        outcome = self._model_publisher.wait(version, self._installed)
        self._step = state.global_step
        until = "taken" if self._installed is None else "installed"
        self._tell(figures_of(outcome, published - began, time.monotonic() - began, until, weights_bytes))

    def _end(self) -> None:
        if self._model_publisher is not None:
            self._model_publisher.close()
            self._model_publisher = None


class _ModelPublisher:
    """Its publish() gives the version, and the bytes of its tensors."""

    def __init__(
        self, state_dir: Optional[PathLike], dtype: Optional[torch.dtype], timeout: float, allow_nonfinite: bool
    ) -> None:
        self._dtype, self._timeout = dtype, timeout
        self._common = {"allow_nonfinite": allow_nonfinite}  # options of each publication
        self._modules: Any = None  # of the model that was published last
        self._publisher = self._connect(state_dir)

    def _connect(self, state_dir: Optional[PathLike]) -> Any:
        return Publisher(state_dir)

    def check_modules(self, model: Any) -> None:
        """Errors: ValueError (what is published would have other tensors than the merged model's files). Where the modules
        are those of the last time nothing is done."""
        modules = [(name, type(module)) for name, module in model.named_modules()], getattr(model, "active_adapters", None)
        if modules != self._modules:
            _check(model)
            _check_merged(model)
            self._modules = modules

    def wait(self, version: int, installed: Optional[float]) -> Outcome:
        return self._publisher.wait(version, installed=installed, timeout=self._timeout)

    def close(self) -> None:
        self._publisher.close()


class _WholePublisher(_ModelPublisher):
    """All tensors are in this process."""

    def publish(self, model: Any, options: Mapping[str, Any]) -> tuple[int, int]:
        self.check_modules(model)
        held = _held(model)
        infos = [
            describe(name, of.tensor)._replace(dtype=_dtype_of(of.tensor, self._dtype)) for name, of in held.items()
        ]
        by_layer: dict[Any, list[str]] = {}
        for name, of in held.items():
            by_layer.setdefault(of.layer, []).append(name)
        with self._publisher.begin(infos, timeout=self._timeout, **self._common, **options) as publication:
            for layer, names in by_layer.items():
                with _merged(layer):
                    # Read after the merge, which may put other modules into the place of those before.
                    merged = None if layer is None else layer.get_base_layer().state_dict(keep_vars=True)
                    for name in names:
                        tensor = held[name].tensor if merged is None else merged[held[name].inner]
                        publication.fill(name, _cast(tensor, self._dtype))
            version = publication.commit(timeout=self._timeout)
        return version, sum(tensor_bytes(info.dtype, info.shape) for info in infos)


class _ShardedPublisher(_ModelPublisher):
    """Each rank has shards of them; all ranks make the same calls."""

    def _connect(self, state_dir: Optional[PathLike]) -> Any:
        from .fsdp import ShardedPublisher

        return ShardedPublisher(state_dir, timeout=self._timeout)

    def publish(self, model: Any, options: Mapping[str, Any]) -> tuple[int, int]:
        tensors = {name: _cast(held.tensor, self._dtype) for name, held in _held(model).items()}
        if options:
            version = self._publisher.publish(tensors, **self._common, **options)
        else:
            version = self._publisher.publish_changed(tensors, **self._common)
        return version, sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


class _AdapterPublisher(_ModelPublisher):
    """A PEFT model's adapter, all in this process."""

    def publish(self, model: Any, options: Mapping[str, Any]) -> tuple[int, int]:
        tensors = {name: _cast(tensor, self._dtype) for name, tensor in _each_its_own(_adapter_tensors(model)).items()}
        version = self._publisher.publish(tensors, timeout=self._timeout, **self._common, **options)
        return version, sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


class _Held(NamedTuple):
    tensor: Any  # the parameter itself, whose data a merge changes
    layer: Any  # of PEFT, if it is beneath one, else None
    inner: str  # its name in that layer's base layer


def _check(model: Any) -> None:
    """Errors: ValueError, where not all of the weights can be published as they are."""

    def refuse(why: str) -> None:
        raise ValueError(f"weightcast: {_kind_of(model)} cannot be published: {why}")

    parameters = list(model.parameters())
    is_sharded = any(hasattr(tensor, "placements") for tensor in parameters)
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        refuse("FSDP1 flattens its parameters; set fsdp_version to 2")
    if any(hasattr(tensor, "ds_id") for tensor in parameters):
        refuse("ZeRO-3 has its parameters in pieces; use FSDP2, or ZeRO-2")
    if any(tensor.device.type == "meta" for tensor in parameters):
        refuse("parameters are offloaded, and not in memory; train without device_map")
    packed = next((name for name, tensor in model.named_parameters() if not tensor.is_floating_point()), None)
    if packed is not None:
        refuse(f"{packed} is quantised, and an engine cannot load what it is packed in; train on unquantised weights")
    if getattr(model, "active_peft_config", None) is not None and model.active_peft_config.is_prompt_learning:
        refuse("prompts that are learned cannot be merged into weights; use LoRA")
    if getattr(model, "active_peft_config", None) is not None and not callable(getattr(model, "unload", None)):
        refuse("PEFT merges no adapter of this kind into weights; use LoRA")
    if any(hasattr(module, "token_adapter") for module in model.modules()):
        refuse("trainable_token_indices cannot be merged layer by layer; use modules_to_save")
    layers = _tuner_layers(model)
    for name, layer in layers.items():
        if is_sharded:
            refuse("merging adapters into sharded weights is not supported; train it with DDP, or without adapters")
        if not hasattr(layer, "merge") or any(_is_tuner_layer(inner) for inner in layer.get_base_layer().modules()):
            refuse(f"{name} is a {type(layer).__name__}, which cannot be merged by itself; use LoRA on plain layers")
    if is_sharded or layers:
        names = {name: torch.empty(held.tensor.shape, device="meta") for name, held in _held(model, as_saved=False).items()}
        saved = _as_saved(model, names)
        fused = next((name for name in names if name not in saved), None)
        if fused is not None:
            split = next((name for name in saved if name not in names), "none")
            way = _FUSED_SHARDED if is_sharded else "publish the adapter by adapter=True, or train without adapters"
            refuse(f"{fused} is in memory what files have as other tensors, such as {split}; {way}")


def _kind_of(model: Any) -> str:
    """Its class, and what PEFT calls the adapters on it."""
    configs = getattr(model, "peft_config", None)
    kinds = {config.peft_type.value for config in configs.values()} if isinstance(configs, Mapping) else set()
    return type(model).__name__ + (f" with {', '.join(sorted(kinds))}" if kinds else "")


def _check_merged(model: Any) -> None:
    """Errors: ValueError, where what would be published of an adapted model has not the names, shapes and dtypes of what
    save_pretrained() writes of it when its adapters are merged."""
    if not callable(getattr(model, "unload", None)) or not hasattr(model, "peft_config"):
        return
    # Without memory: a copy of the modules alone.
    kept = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        empty = torch.empty_like(tensor, device="meta")
        kept[id(tensor)] = torch.nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else empty
    with torch.no_grad():
        expected = _shapes_of(_held(copy.deepcopy(model, kept).unload()))
    found = _shapes_of(_held(model))
    _check_ties(_base_of(model), found)
    name = next((name for name in {**expected, **found} if expected.get(name) != found.get(name)), None)
    if name is not None:
        raise ValueError(
            f"weightcast: {_kind_of(model)} cannot be published: {name} is {found.get(name, 'left out')}, and "
            f"{expected.get(name, 'left out')} where save_pretrained() writes the merged model; use LoRA on plain layers, or "
            "publish the adapter by adapter=True"
        )


def _check_ties(model: Any, names: Mapping[str, Any]) -> None:
    """Errors: ValueError (an adapter has parted tensors that loading ties again, by the model's configuration)."""
    ties = getattr(model, "_tied_weights_keys", None)
    if not isinstance(ties, dict) or not getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        return
    for name, root in ties.items():
        if name in names and root in names:
            raise ValueError(
                f"weightcast: {type(model).__name__} cannot be published: {name} is trained apart from {root}, but who loads the "
                "model ties them by tie_word_embeddings; leave it out of modules_to_save, or set tie_word_embeddings=False and "
                "untie them before get_peft_model()"
            )


def _shapes_of(held: Mapping[str, _Held]) -> dict[str, str]:
    return {name: f"{of.tensor.dtype} {tuple(of.tensor.shape)}" for name, of in held.items()}


def _check_adapter(model: Any) -> None:
    """Errors: ValueError, where there is no adapter that can be published by itself."""

    def refuse(why: str) -> None:
        raise ValueError(f"weightcast: {type(model).__name__} has no adapter to publish: {why}")

    model = extract_model_from_parallel(model)
    if not is_peft_available() or not hasattr(model, "active_adapter") or not hasattr(model, "peft_config"):
        refuse("it is no PEFT model; make it one by get_peft_model(), or publish without adapter=True")
    if not isinstance(model.active_adapter, str):
        refuse(f"several are active, {model.active_adapter}; train one of them")
    if model.active_peft_config.is_prompt_learning:
        refuse("prompts that are learned have no matrices that engines add to a model's; use LoRA")
    tensors = _adapter_tensors(model)
    if not tensors:
        refuse(f"PEFT has no tensors of it by themselves ({_kind_of(model)}); use LoRA")
    for name, tensor in tensors.items():
        if hasattr(tensor, "placements") or hasattr(tensor, "ds_id") or tensor.device.type == "meta":
            refuse(f"{name} is not whole in this process; train it with DDP, or ZeRO-2")


def _adapter_tensors(model: Any) -> dict[str, Any]:
    """By the names that PEFT saves them under, without the embeddings beneath, which PEFT may look for at its hub."""
    from peft import get_peft_model_state_dict

    return get_peft_model_state_dict(model, adapter_name=model.active_adapter, save_embedding_layers=False)


def _each_its_own(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """What several names share is copied, as PEFT's file has it: those who read an adapter look for each name."""
    seen: set[Any] = set()
    apart = {}
    for name, tensor in tensors.items():
        place = (tensor.device, tensor.data_ptr())
        apart[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return apart


def _tuner_layers(model: Any) -> dict[str, Any]:
    return {name: module for name, module in model.named_modules() if _is_tuner_layer(module)}


def _is_tuner_layer(module: Any) -> bool:
    if not is_peft_available():
        return False
    from peft.tuners.tuners_utils import BaseTunerLayer

    return isinstance(module, BaseTunerLayer)


def _held(model: Any, *, as_saved: bool = True) -> dict[str, _Held]:
    """By the names that a checkpoint has: tied tensors under the one that save_pretrained() keeps, and of adapters what they are
    for.

    Errors: ValueError (an adapter on one of several tied tensors).
    """
    layers = _tuner_layers(model)
    ignored = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    held: dict[str, _Held] = {}
    seen: dict[int, tuple[str, Any]] = {}
    tied = getattr(_base_of(model), "all_tied_weights_keys", None) or {}
    tensors = model.state_dict(keep_vars=True)
    for name, tensor in sorted(tensors.items(), key=lambda named: _published_name(named[0]) in tied):
        if not _is_of_model(name, model):
            continue
        owner, inner = next((owner for owner in layers if name.startswith(f"{owner}.")), None), ""
        if owner is not None:
            inner = name[len(owner) + 1 :]
            if not inner.startswith(_BASE_LAYER):
                continue  # the adapter itself
            inner = inner[len(_BASE_LAYER) :]
            name = f"{owner}.{inner}"
        published = _published_name(name)
        if published in ignored:
            continue
        layer = layers.get(owner)
        first, first_layer = seen.setdefault(id(tensor), (published, layer))
        if layer is not first_layer:
            raise ValueError(
                f"weightcast: {type(model).__name__} cannot be published: {published} and {first} are tied, and an adapter is on "
                "one of them: merged, the other would change, too; leave it out of target_modules, or untie them before "
                "get_peft_model()"
            )
        if first == published:
            held[published] = _Held(tensor, layer, inner)
    if as_saved and not layers:
        tensors = {name: of.tensor for name, of in held.items()}
        held = {name: _Held(tensor, None, "") for name, tensor in _as_saved(model, tensors).items()}
    return held


def _is_of_model(name: str, model: Any) -> bool:
    """Whether it is a tensor of the model that is trained: not one that PEFT keeps beside, or of an adapter at rest."""
    if hasattr(model, "peft_config") and hasattr(model, "base_model") and not name.startswith(_MODEL_OF_PEFT):
        return not any(other.startswith(_MODEL_OF_PEFT) for other, _ in model.named_parameters())
    if ".original_module." in name:
        return False
    saved = _SAVED_MODULE.search(name)
    active = getattr(model, "active_adapters", None)
    active = active if isinstance(active, (list, tuple)) else None
    return saved is None or active is None or saved.group(1) in active


def _published_name(name: str) -> str:
    return unwrapped(_SAVED_MODULE.sub(".", name)).removeprefix(_MODEL_OF_PEFT)


def _base_of(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _as_saved(model: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    """As save_pretrained() would write them: transformers 5 has experts fused in memory, for example."""
    model = _base_of(model)
    if revert_weight_conversion is None or not isinstance(model, transformers.PreTrainedModel):
        return tensors
    return revert_weight_conversion(model, tensors)


@contextmanager
def _merged(layer: Any) -> Iterator[None]:
    """The layer's weights have its adapters in them meanwhile. Then they are what they were, in the same memory, and the layer
    takes its adapters for apart again. Errors: ValueError (this kind of adapter has no merge)."""
    if layer is None or layer.merged:
        yield
        return
    with torch.no_grad():
        before = [(tensor, tensor.data, tensor.data.clone()) for tensor in layer.parameters()]
        try:
            _merge(layer)
            yield
        finally:
            try:
                if layer.merged:
                    layer.unmerge()  # which rounds
            finally:
                layer.merged_adapters.clear()  # some kinds cannot unmerge, and would go on as merged
                for tensor, data, saved in before:
                    tensor.data = data
                    data.copy_(saved)


def _merge(layer: Any) -> None:
    """Errors: ValueError."""
    try:
        layer.merge()
    except Exception as error:
        raise ValueError(
            f"weightcast: an adapter's layer, {type(layer).__module__}.{type(layer).__qualname__}, cannot be merged into weights "
            f"({str(error) or type(error).__name__}); publish the adapter by adapter=True, or train with LoRA"
        ) from error


def _cast(tensor: Any, dtype: Optional[torch.dtype]) -> Any:
    return tensor.detach().to(dtype) if dtype is not None and tensor.is_floating_point() else tensor.detach()


def _dtype_of(tensor: Any, dtype: Optional[torch.dtype]) -> str:
    return describe("", torch.empty(0, dtype=dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype)).dtype


def _adapter_files(model: Any) -> dict[str, bytes]:
    """adapter_config.json, as PEFT's save_pretrained() writes it."""
    config = copy.deepcopy(model.active_peft_config)
    config.inference_mode = True
    if config.base_model_name_or_path is None:
        config.base_model_name_or_path = getattr(model.get_base_model(), "name_or_path", None) or None
    with tempfile.TemporaryDirectory() as directory:
        config.save_pretrained(directory, auto_mapping_dict=_auto_mapping(model, config))
        return {path.name: path.read_bytes() for path in pathlib.Path(directory).iterdir()}


def _auto_mapping(model: Any, config: Any) -> Optional[dict[str, str]]:
    """By which class PEFT loads the base of an adapter without a task type."""
    if config.task_type is not None:
        return None
    kind = type(model.get_base_model())
    return {"base_model_class": kind.__name__, "parent_library": kind.__module__}


def _files_of(model: Any, tokenizer: Any, dtype: Optional[torch.dtype]) -> dict[str, bytes]:
    """config.json and the tokenizer's files, as save_pretrained() writes them."""
    model, files = _base_of(model), {}
    with tempfile.TemporaryDirectory() as directory:
        if hasattr(model, "config"):
            config = copy.deepcopy(model.config)
            config.architectures = [type(model).__name__.removeprefix("FSDP")]
            name = str(dtype if dtype is not None else model.dtype).rpartition(".")[2]
            setattr(config, "dtype" if hasattr(config, "dtype") else "torch_dtype", name)
            config.save_pretrained(directory)
        for part in (getattr(model, "generation_config", None), tokenizer):
            if hasattr(part, "save_pretrained"):
                part.save_pretrained(directory)
        for path in pathlib.Path(directory).iterdir():
            if path.is_file():
                files[path.name] = path.read_bytes()
    return files
