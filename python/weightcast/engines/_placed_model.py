"""A model of an engine's, in torch: how a version gets into it, at the places where its own loader writes."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Optional

import numpy
import torch

from .._snapshot import Snapshot
from .._subscription import Change
from .._tensors import RawTensor
from ._places import Places
from ._rank import NotInPlace, Refused, Staged, Tensors, check_tensors, tensors_of
from ._recording import Recorder, memory_of

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SAMPLE = 4096  # elements of a tensor whose cells the probe follows one by one


class PlacedModel:
    """Its places are recorded with the first version. A probe compares each recorded cell with the element that it is said to
    hold, by their bits: before that version with what the server was started with, and after it. What differs, or keeps
    something made from its weights, is reloaded. A subclass says how its engine loads."""

    def __init__(self, device: torch.device, model: torch.nn.Module, log: Any) -> None:
        self._device, self._model, self._log = device, model, log
        self._tensors: Optional[Tensors] = None  # of the first version
        self._places: Optional[Places] = None
        self._why_not = ""  # there are no places
        self._is_untouched = True  # it has what the server was started with
        self._flat: dict[Hashable, torch.Tensor] = {}

    # What an engine does in its own way.

    def _load(self, snapshot: Snapshot) -> None:
        """Loads all weights as the engine does. Errors: any; the weights may be mixed then."""
        raise NotImplementedError

    def _loading(self) -> contextlib.AbstractContextManager[Any]:
        """What the model's load_weights() needs around it."""
        return contextlib.nullcontext()

    def _missing(self, loaded: Any) -> str:
        """Parameters that load_weights() was given nothing for, by what it returned; "" if none are known."""
        return ""

    def _obstacle(self) -> str:
        """Why the loader cannot be watched at all; "" if it can."""
        return ""

    def _derived(self) -> dict[Hashable, str]:
        """Memories from which a layer makes something else when they were loaded, and what does it."""
        return {}

    def _checkpoint(self, snapshot: Snapshot) -> Mapping[str, RawTensor]:
        """What the server was started with, of the tensors that the version has, too; none where that is not known."""
        return {}

    # What a Rank calls.

    def check(self, snapshot: Snapshot) -> None:
        if self._tensors is not None:
            check_tensors(self._tensors, snapshot)

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
            cells = (torch.cat([cells for cells, _ in found]) if len(found) > 1 else found[0][0]).to(self._device)
            new = torch.cat([part for _, part in found]).view(integers).to(self._device)
            writes.append((flat.view(integers), cells, new))
        if self._device.type != "cpu":
            torch.accelerator.current_stream().synchronize()

        def write() -> None:
            with torch.no_grad():
                for flat, cells, new in writes:
                    flat.scatter_(0, cells, new)

        return Staged("cells", write, sum(len(cells) for _, cells, _ in writes), "")

    def stage_whole(self, snapshot: Snapshot, why: str) -> Staged:
        cells = sum(tensor.torch().numel() for tensor in snapshot.values())
        if self._tensors is None:
            return Staged("reload", lambda: self._load_first(snapshot), cells, why)
        try:
            places = self._in_place(snapshot)
        except NotInPlace as error:
            return Staged("reload", lambda: self._load_again(snapshot), cells, f"{why}; {error}")

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

    def _load_again(self, snapshot: Snapshot) -> None:
        self._load(snapshot)
        if self._places is not None:
            self._mend(self._places, snapshot)

    def _mend(self, places: Places, snapshot: Mapping[str, RawTensor]) -> None:
        """Writes in place what a load did not bring to its recorded cells. Errors: RuntimeError (that does not help either)."""
        with torch.no_grad():
            for target, source, name in self._pairs(places, snapshot):
                if _same_bits(target, source):
                    continue
                why = "weightcast: a reload leaves other cells for tensor %s than the version's; they are written"
                self._log.warning(why, name)
                target.copy_(source)
                if not _same_bits(target, source):
                    raise RuntimeError(f"tensor {name}: its cells have other bits than the version's after they were written")

    # The first version: the engine loads it, and its loader is watched.

    def _load_first(self, snapshot: Snapshot) -> None:
        places, self._why_not = None, self._obstacle()
        started_with: Mapping[str, RawTensor] = {}
        if not self._why_not:
            try:
                places = self._record(snapshot)
                if self._is_untouched:
                    started_with = self._checkpoint(snapshot)
                    self._probe(places, started_with)
            except Refused:
                raise
            except Exception as error:
                places, self._why_not = None, f"where its loader writes cannot be recorded: {error}"
        self._is_untouched = False
        self._load(snapshot)
        used: set[Hashable] = set()
        if places is not None:
            # What had the checkpoint's bits has the version's, or the load has failed.
            self._mend(places, {name: snapshot[name] for name in started_with})
            self._probe(places, snapshot)
            exact = [found for name, found in places.places.items() if name not in places.reasons]
            used = {memory for found in exact for memory, _ in found}
        # Of a layer that is processed again the engine may replace the rest, which must not be kept here.
        self._flat = {memory: flat for memory, flat in self._flat.items() if memory in used}
        self._places = places
        self._tensors = tensors_of(snapshot)
        self._report(snapshot)

    def _record(self, snapshot: Snapshot) -> Places:
        tensors = [*self._model.parameters(), *self._model.buffers()]
        recorder = Recorder(tensors)
        given = recorder.given((name, tensor.torch()) for name, tensor in snapshot.items())
        with torch.no_grad(), self._loading(), recorder:
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
            self._log.warning("weightcast: versions are reloaded as a whole: %s", self._why_not)
            return
        reasons = collections.defaultdict(list)
        for name, why in self._places.reasons.items():
            reasons[why].append(name)
        self._log.info(
            "weightcast: changes of %d of %d tensors are written in place; the probe found each of their bits",
            len(snapshot) - len(self._places.reasons), len(snapshot),
        )  # fmt: skip
        for why, names in reasons.items():
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self._log.warning("weightcast: a change of %s%s takes a reload: %s", ", ".join(names[:3]), more, why)


def _same_bits(target: torch.Tensor, source: torch.Tensor) -> bool:
    integers = _INTEGERS[target.element_size()]
    wanted = source.to(target.device, target.dtype).contiguous()
    return torch.equal(target.contiguous().view(integers), wanted.view(integers))
