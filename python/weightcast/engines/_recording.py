"""Watches a model's loader: which elements of which tensor it copies to which cells of the parameters."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Optional

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._places import Box, Record

_CONSTANTS = {
    torch.ops.aten.zero_.default,
    torch.ops.aten.fill_.Scalar,
}


def memory_of(tensor: torch.Tensor) -> Hashable:
    """What tells memories apart: where it begins."""
    return (str(tensor.device), tensor.untyped_storage().data_ptr())


def box_of(tensor: torch.Tensor) -> Box:
    return Box(tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))


class Recorder(TorchDispatchMode):
    """While it is entered, on this thread, nothing is written to `parameters`: the record is told what would have been.

    The loader takes its tensors from given().
    """

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.record = Record()
        self._parameters = {memory_of(tensor): tensor.dtype for tensor in parameters if tensor.numel()}
        self._given: dict[Hashable, tuple[str, torch.Tensor]] = {}
        # What was made from given tensors' elements; kept, so that no other memory takes its place.
        self._made: dict[Hashable, tuple[set[str], str, torch.Tensor]] = {}

    def given(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in tensors:
            self.record.give(name)
            if tensor.numel():
                self._given[memory_of(tensor)] = (name, tensor)
            yield name, tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[dict] = None) -> Any:
        kwargs = kwargs or {}
        written, read = [], []
        for argument, value in _arguments(func, args, kwargs):
            for tensor in _tensors(value):
                is_write = argument.alias_info is not None and argument.alias_info.is_write
                (written if is_write else read).append(tensor)
        targets = [tensor for tensor in written if memory_of(tensor) in self._parameters]
        names, why = self._sources(read)
        if targets:
            if func is torch.ops.aten.copy_.default:
                self._copy(targets[0], args[1], names, why)
            elif func in _CONSTANTS:
                self.record.constant(memory_of(targets[0]), box_of(targets[0]))
            else:
                self._spoil(targets, names, f"the loader writes it by {func}")
            if len(func._schema.returns) != 1 or len(written) != 1:
                raise NotImplementedError(f"the loader uses {func}")
            return written[0]
        if any(memory_of(tensor) in self._given for tensor in written):
            raise NotImplementedError(f"the loader changes a tensor that it was given, by {func}")
        result = func(*args, **kwargs)
        names |= self._sources(written)[0]
        if names:
            for tensor in _tensors(result):
                self._follow(func, names, tensor)
            for tensor in written:
                self._follow(func, names, tensor)
            if not list(_tensors(result)) and not written:
                self._compute(names, f"the loader reads it by {func}")
        return result

    def _sources(self, read: list[torch.Tensor]) -> tuple[set[str], str]:
        """The given tensors that these come from; and by what, if not as they are."""
        names: set[str] = set()
        why = ""
        for tensor in read:
            memory = memory_of(tensor)
            if memory in self._given:
                names.add(self._given[memory][0])
            elif memory in self._made:
                made, why, _ = self._made[memory]
                names |= made
        return names, why

    def _follow(self, func: Any, names: set[str], tensor: torch.Tensor) -> None:
        """`tensor` was made, or written, from the elements of those, unless it is a view of one."""
        memory = memory_of(tensor)
        if memory in self._given and func.is_view:
            return
        why = f"the loader computes with it by {func}"
        if memory not in self._made:
            self._made[memory] = (set(names), why, tensor)
        self._made[memory][0].update(names)
        self._compute(names, why)

    def _compute(self, names: set[str], why: str) -> None:
        for name in names:
            self.record.compute(name, why)

    def _copy(self, target: torch.Tensor, source: torch.Tensor, names: set[str], why: str) -> None:
        memory = memory_of(source)
        if target.dtype != self._parameters[memory_of(target)]:
            self._spoil([target], names, f"the loader writes {target.dtype} over {self._parameters[memory_of(target)]}")
        elif memory in self._given:
            name = self._given[memory][0]
            whole = self._given[memory][1]
            if whole.dtype != source.dtype:
                self._spoil([target], names, f"the loader reads {whole.dtype} as {source.dtype}")
                return
            source = source.expand_as(target)
            offset, shape, strides = box_of(source)
            box = Box(offset - whole.storage_offset(), shape, strides)
            self.record.copy(name, box, memory_of(target), box_of(target))
        else:
            self._spoil([target], names, why or "the loader computes it from what is there")

    def _spoil(self, targets: list[torch.Tensor], names: set[str], why: str) -> None:
        self._compute(names, why)
        for target in targets:
            self.record.other(memory_of(target), box_of(target), why)


def _arguments(func: Any, args: Any, kwargs: dict) -> Iterator[tuple[Any, Any]]:
    arguments = func._schema.arguments
    yield from zip(arguments, args)
    by_name = {argument.name: argument for argument in arguments}
    for name, value in kwargs.items():
        yield by_name[name], value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
