"""Low-rank adapters (LoRA) in PEFT's layout: which directory is one, and whether an engine can load it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from .._snapshot import Snapshot

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_MODELS = ("model.safetensors", "model.safetensors.index.json")
_CONFIG_BYTES_MAX = 1 << 20


def refuse_adapter(directory: str) -> None:
    """For a version that is to be a model. Errors: ValueError (it is an adapter)."""
    if os.path.isfile(os.path.join(directory, CONFIG)) and not _is_model(directory):
        raise ValueError("it is an adapter, and no model: have it followed as one (docs/VLLM.md), or publish merged weights")


def _is_model(directory: str) -> bool:
    return any(os.path.isfile(os.path.join(directory, name)) for name in _MODELS)


def find(directory: str, name: str) -> str:
    """Where in a version's directory the adapter `name` is: the directory itself, or the one of that name in a set.

    Errors: ValueError, with what the version is instead.
    """
    if _is_model(directory):
        raise ValueError("it is a model, and no adapter; follow it by --weight-transfer-config, or publish an adapter here")
    for found in (directory, os.path.join(directory, name)):
        if os.path.isfile(os.path.join(found, CONFIG)):
            return found
    raise ValueError(f"it is no adapter: it has neither {CONFIG} nor {name}/{CONFIG}, as PEFT's save_pretrained() writes it")


def check(directory: str, rank_max: int, served: Sequence[str] = ()) -> None:
    """Whether an engine could use the adapter, as far as its files alone tell. `rank_max`: of the engine. `served`: what its
    model is called; none if that is not known.

    Errors: ValueError, with what is wrong; Error and OSError, where the weights cannot be read.
    """
    config = _read_config(os.path.join(directory, CONFIG))
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        raise ValueError(f"its peft_type is {kind!r}, and vLLM loads LORA alone")
    _check_base(config.get("base_model_name_or_path"), served)
    if not os.path.isfile(os.path.join(directory, WEIGHTS)):
        raise ValueError(f"it has no {WEIGHTS}; save it with safe_serialization")
    ranks = [config.get("r"), *(config.get("rank_pattern") or {}).values()]
    if not all(type(rank) is int and rank > 0 for rank in ranks):
        raise ValueError(f"{CONFIG} gives ranks {ranks}, which are not all whole numbers above 0")
    if max(ranks) > rank_max:
        raise ValueError(f"its rank is {max(ranks)}, and the server takes {rank_max}: start it with --max-lora-rank {max(ranks)}")
    tensors = {name: tensor.shape for name, tensor in Snapshot(os.path.join(directory, WEIGHTS)).items()}
    pairs = [(name, _partner(name)) for name in tensors]
    if all(name == partner for name, partner in pairs):
        raise ValueError(f"{WEIGHTS} has no matrices of an adapter")
    for name, partner in pairs:
        if partner not in tensors:
            raise ValueError(f"it has {name}, but no {partner}")
        if name >= partner:
            continue  # A comes before B
        first, second = tensors[name], tensors[partner]
        if len(first) != 2 or len(second) != 2 or first[0] != second[1]:
            raise ValueError(f"{name} of shape {list(first)} and {partner} of {list(second)} have no product")
        # Experts may have the ranks of all in one.
        if first[0] not in ranks and ".experts." not in name:
            raise ValueError(f"{name} is of rank {first[0]}, and {CONFIG} gives {ranks}")


def _check_base(base: object, served: Sequence[str]) -> None:
    """A model has other paths on other hosts, so the last part of a name decides. Errors: ValueError (it is another model's)."""
    if not base or not served:
        return
    if not isinstance(base, str):
        raise ValueError(f"{CONFIG} has {base!r} for base_model_name_or_path, which is no text")
    if _last_part(base) not in [_last_part(name) for name in served]:
        raise ValueError(
            f"it was trained on {base!r} (base_model_name_or_path), and the server has {', '.join(map(repr, served))}: an adapter "
            f"of another model of these shapes would be served as nonsense. If it is the same model, start the server with "
            f"{base!r} as one more --served-model-name"
        )


def _last_part(name: str) -> str:
    """Of Org/Name, of a path, and of Hugging Face's cache, where .../models--Org--Name/snapshots/REVISION is a model's."""
    parts = name.rstrip("/").split("/")
    if len(parts) > 2 and parts[-2] == "snapshots" and parts[-3].startswith("models--"):
        return parts[-3].rpartition("--")[2]
    return parts[-1]


def _partner(name: str) -> str:
    """The name of B for that of A, and the other way round; itself, where it is neither's."""
    for one, other in (("lora_A", "lora_B"), ("lora_embedding_A", "lora_embedding_B")):
        for have, want in ((one, other), (other, one)):
            if have in name.split("."):
                return ".".join(want if part == have else part for part in name.split("."))
    return name


def _read_config(path: str) -> dict:
    with open(path, "rb") as file:
        text = file.read(_CONFIG_BYTES_MAX + 1)
    if len(text) > _CONFIG_BYTES_MAX:
        raise ValueError(f"{CONFIG} exceeds {_CONFIG_BYTES_MAX} bytes")
    try:
        config = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{CONFIG} is not JSON ({error})") from None
    if not isinstance(config, dict) or not isinstance(config.get("rank_pattern") or {}, dict):
        raise ValueError(f"{CONFIG} is not an object with the fields that PEFT writes")
    return config
