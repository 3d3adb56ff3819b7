"""Where a model's own loader puts the elements of a checkpoint's tensors. Pure: it needs NumPy, neither torch nor an engine.

A loader copies boxes: a slice of a checkpoint's tensor into a slice of a parameter. A Record notes each copy, and what else
wrote to the parameters. Its places() then tell for each tensor to which cells its elements go, or why that cannot be said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

import numpy


class Box(NamedTuple):
    """Elements of one memory, counted from its start: `shape` of them, `strides` apart, the first at `offset`."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(numpy.prod(self.shape, dtype=numpy.int64))

    @property
    def end(self) -> int:
        """Behind the last element, where there is one."""
        return self.offset + 1 + sum((length - 1) * stride for length, stride in zip(self.shape, self.strides))


class Place:
    """One copy of a loader: the elements of the box `source` of a tensor went to those of the box `target`, in this order."""

    def __init__(self, source: Box, target: Box) -> None:
        """Errors: ValueError (one element goes to several cells, or several boxes overlap in the source)."""
        self.source, self.target = source, target
        # Of each axis: its length, and its strides in source and target; the widest first, axes that continue joined.
        axes: list[tuple[int, int, int]] = []
        pairs = sorted(zip(source.strides, source.shape, target.strides), reverse=True)
        for stride, length, target_stride in pairs:
            if length == 1:
                continue
            if axes and axes[-1][1] == stride * length and axes[-1][2] == target_stride * length:
                axes[-1] = (axes[-1][0] * length, stride, target_stride)
            else:
                axes.append((length, stride, target_stride))
        inner = 1
        for length, stride, target_stride in reversed(axes):
            if stride < inner or target_stride == 0:
                raise ValueError("one element goes to several cells")
            inner = stride * length
        self._axes = axes

    def follow(self, indices: Any) -> tuple[Any, Any]:
        """Of `indices`, ascending: which lie in the box (a slice, or numbers), and to which cells those go (int64)."""
        first, last = _count_below(indices, self.source.offset), _count_below(indices, self.source.end)
        rest = indices[first:last].astype(numpy.int64)
        rest -= self.source.offset
        if not self._axes or (len(self._axes) == 1 and self._axes[0][1:] == (1, 1)):
            rest += self.target.offset
            return slice(first, last), rest
        cells = numpy.full(len(rest), self.target.offset, numpy.int64)
        inside = numpy.ones(len(rest), bool)
        for length, stride, target_stride in self._axes:
            digit = rest // stride
            rest -= digit * stride
            inside &= digit < length
            digit *= target_stride
            cells += digit
        inside &= rest == 0
        chosen = numpy.flatnonzero(inside)
        return chosen + first, cells[chosen]


def _count_below(indices: Any, value: int) -> int:
    """How many of `indices`, which ascend, are below `value`."""
    if not len(indices) or value <= int(indices[0]):
        return 0
    if value > int(indices[-1]):
        return len(indices)
    # In their width, so that NumPy does not widen all of them to compare.
    return int(numpy.searchsorted(indices, indices.dtype.type(value)))


@dataclass
class Places:
    """What a Record came to. `places`: by tensor, the memories and boxes that its elements go to; none for a tensor that the
    loader leaves out. `reasons`: by tensor, why a change of it takes a reload."""

    places: dict[str, list[tuple[Hashable, Place]]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def give_up(self, name: str, why: str) -> None:
        self.reasons.setdefault(name, why)

    def at(self, name: str) -> list[tuple[Hashable, Place]]:
        return self.places.get(name, [])

    def targets(self, changes: dict[str, Any]) -> Iterator[tuple[Hashable, str, Any, Any]]:
        """Memory, tensor's name, which of its changes (a slice, or numbers) and their cells, for indices by name."""
        for name, indices in changes.items():
            for memory, place in self.at(name):
                chosen, cells = place.follow(indices)
                if len(cells):
                    yield memory, name, chosen, cells


class _Write(NamedTuple):
    target: Box
    name: Optional[str]  # of the tensor that was copied
    source: Optional[Box]
    why: str  # not copied: "" for a constant


class Record:
    """Notes what a loader does, in its order. Its caller sees the loader's operations; memories are what it calls them."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._writes: dict[Hashable, list[_Write]] = defaultdict(list)
        self._reasons: dict[str, str] = {}

    def give(self, name: str) -> None:
        """The loader was given this tensor."""
        self._names.add(name)

    def copy(self, name: str, source: Box, memory: Hashable, target: Box) -> None:
        """Elements of `name` were copied, of another dtype perhaps."""
        write = _Write(target, name, source, "")
        if target.size and write not in self._writes[memory]:
            self._writes[memory].append(write)

    def constant(self, memory: Hashable, target: Box) -> None:
        """Something was written that no tensor decides, such as zeros beyond the vocabulary."""
        self._writes[memory].append(_Write(target, None, None, ""))

    def other(self, memory: Hashable, target: Box, why: str) -> None:
        """Something else was written there."""
        self._writes[memory].append(_Write(target, None, None, why))

    def compute(self, name: str, why: str) -> None:
        """The loader read the elements of `name` for something that is no copy."""
        self._reasons.setdefault(name, why)

    def places(self) -> Places:
        found = Places({name: [] for name in self._names}, dict(self._reasons))
        for memory, writes in self._writes.items():
            for one, another in _overlaps(writes):
                for write, over in ((one, another), (another, one)):
                    if write.name is not None:
                        why = over.why or f"its cells are also those of {over.name or 'a constant'}"
                        found.give_up(write.name, why)
            for write in writes:
                if write.name is None:
                    continue
                try:
                    found.places.setdefault(write.name, []).append((memory, Place(write.source, write.target)))
                except ValueError as error:
                    found.give_up(write.name, str(error))
        return found


def _overlaps(writes: list[_Write]) -> Iterator[tuple[_Write, _Write]]:
    """Each pair of writes, in their order, of which the second wrote cells of the first. A copy over constants is none."""
    spans = sorted((write.target.offset, write.target.end) for write in writes if write.target.size)
    if all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:])):
        return
    # Boxes may interleave without a common cell, so that cells have to be looked at: who wrote each of them last.
    last = numpy.full(max(end for _, end in spans), -1, numpy.int32)
    for number, write in enumerate(writes):
        offset, shape, strides = write.target
        if not write.target.size:
            continue
        steps = [stride * last.itemsize for stride in strides]
        cells = numpy.lib.stride_tricks.as_strided(last[offset:], shape, steps)
        for earlier in numpy.unique(cells):
            if earlier >= 0 and (writes[earlier].name is not None or writes[earlier].why):
                if write.name is None or writes[earlier].name is not None:
                    yield writes[earlier], write
        cells[...] = number
