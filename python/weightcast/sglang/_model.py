"""A model of SGLang's: how a version gets into it. By the names of SGLang's classes, without importing it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Hashable, Iterator

import torch

from .._snapshot import Snapshot
from .._subscription import Change
from ..engines._placed_model import PlacedModel
from ..engines._rank import NotInPlace, Staged
from ..engines._recording import memory_of

# Methods of layers that compute from the parameters themselves. What SGLang makes of them on some devices, the probe finds.
_AS_LOADED = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod", "UnquantizedFusedMoEMethod"}


class SglangModel(PlacedModel):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(next(model.parameters()).device, model, logging.getLogger("weightcast.sglang"))

    def stage_cells(self, changes: dict[str, Change]) -> Staged:
        if self._places is not None and not set(self._flat) <= self._memories():
            raise NotInPlace("SGLang has moved parameters since the probe")
        return super().stage_cells(changes)

    def probe(self, snapshot: Snapshot) -> None:
        """Again, when SGLang has processed what was loaded: `snapshot` is the version that is in."""
        if self._places is None:
            return
        memories = self._memories()
        for name, found in self._places.places.items():
            if any(memory not in memories for memory, _ in found):
                self._places.give_up(name, "SGLang moves its parameter after loading")
        self._probe(self._places, snapshot)
        exact = [found for name, found in self._places.places.items() if name not in self._places.reasons]
        used = {memory for found in exact for memory, _ in found}
        self._flat = {memory: flat for memory, flat in self._flat.items() if memory in used}
        self._report(snapshot)

    def _load(self, snapshot: Snapshot) -> None:
        """SGLang processes the layers when the follower ends the update."""
        with torch.no_grad():
            self._model.load_weights((name, tensor.torch()) for name, tensor in snapshot.items())

    @contextlib.contextmanager
    def _loading(self) -> Iterator[None]:
        """The recorder sees one thread. Some of SGLang's loaders have several; what those did would go unseen."""
        start, this = threading.Thread.start, threading.current_thread()

        def refuse(thread: threading.Thread) -> None:
            if threading.current_thread() is this:
                raise NotImplementedError("the loader uses threads")
            start(thread)

        threading.Thread.start = refuse  # type: ignore[method-assign]
        try:
            yield
        finally:
            threading.Thread.start = start  # type: ignore[method-assign]

    def _obstacle(self) -> str:
        if getattr(self._model, "quant_config", None) is not None:
            return "the model is quantised"
        if hasattr(self._model, "post_load_weights"):
            return "the model makes something of all of its weights"
        return ""

    def _derived(self) -> dict[Hashable, str]:
        found: dict[Hashable, str] = {}
        for name, module in self._model.named_modules():
            method = getattr(module, "quant_method", None)
            if method is not None and type(method).__name__ not in _AS_LOADED:
                for tensor in module.parameters():
                    found[memory_of(tensor)] = f"{type(method).__name__} of {name} processes it"
        return found

    def _memories(self) -> set[Hashable]:
        return {memory_of(tensor) for tensor in [*self._model.parameters(), *self._model.buffers()]}
