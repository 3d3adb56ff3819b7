"""Which part of each tensor every rank holds, and who publishes it: plain arithmetic, without torch."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from .._tensors import DTYPE_BITS, Box, TensorInfo


class Split(NamedTuple):
    """How a mesh dimension splits a tensor along one of the tensor's: torch's Shard(dim), or _StridedShard(dim) where
    `factor` is its split factor, above 1."""

    dim: int
    factor: int = 1


class Shard(NamedTuple):
    """A box of a tensor, which lies in a rank's local tensor from `local_start` on."""

    box: Box
    local_start: tuple[int, ...]


class Held(NamedTuple):
    """What one rank holds of a tensor."""

    dtype: str
    shape: tuple[int, ...]  # of the whole tensor
    boxes: tuple[Box, ...]  # those with elements
    tied_to: str  # the first name under which this rank holds the same memory; its own name, if that is the first


def _chunk(ranges: list[range], chunks: int, index: int) -> list[range]:
    """What torch.chunk() gives of the elements in `ranges`, in that order."""
    total = sum(map(len, ranges))
    size = -(-total // chunks)
    begin, end, at, chosen = index * size, (index + 1) * size, 0, []
    for elements in ranges:
        part = elements[max(begin - at, 0) : max(end - at, 0)]
        if part:
            chosen.append(part)
        at += len(elements)
    return chosen


def _joined(ranges: list[range]) -> list[range]:
    joined: list[range] = []
    for elements in ranges:
        if joined and joined[-1].stop == elements.start:
            joined[-1] = range(joined[-1].start, elements.stop)
        else:
            joined.append(elements)
    return joined


@functools.lru_cache(maxsize=4096)
def local_shards(
    shape: tuple[int, ...], mesh: tuple[int, ...], coordinate: tuple[int, ...], splits: tuple[Optional[Split], ...]
) -> tuple[tuple[int, ...], tuple[Shard, ...]]:
    """The shape of the local tensor at `coordinate` of a mesh, and the boxes of the whole that it consists of.

    `splits` has one entry for each dimension of the mesh, None where it replicates. They apply from left to right; uneven
    splits give the last coordinates less, or nothing, as torch.chunk() does. Several boxes come of strided splits alone.
    """
    held = [[range(length)] if length else [] for length in shape]
    for size, at, split in zip(mesh, coordinate, splits):
        if split is None:
            continue
        if not 0 <= split.dim < len(shape) or split.factor < 1:
            raise ValueError(f"{split} of a tensor of {len(shape)} dimensions")
        ranges = held[split.dim]
        pieces = [_chunk(ranges, split.factor, i) for i in range(split.factor)]
        held[split.dim] = _joined([part for piece in pieces for part in _chunk(piece, size, at)])
    starts = [list(itertools.accumulate(map(len, ranges), initial=0)) for ranges in held]
    shards = tuple(
        Shard(
            Box(tuple(ranges[i].start for ranges, i in zip(held, which)),
                tuple(len(ranges[i]) for ranges, i in zip(held, which))),
            tuple(start[i] for start, i in zip(starts, which)),
        )
        for which in itertools.product(*(range(len(ranges)) for ranges in held))
    )  # fmt: skip
    return tuple(sum(map(len, ranges)) for ranges in held), shards


@dataclass
class Plan:
    """Who publishes what: each element of each tensor once."""

    infos: list[TensorInfo] = field(default_factory=list)  # those that are published
    owned: list[list[tuple[str, Box]]] = field(default_factory=list)  # by rank: tensor and box
    stands_for: dict[str, str] = field(default_factory=dict)  # tied names that are left out: the one that is published

    @property
    def size_bytes(self) -> int:
        return sum(math.prod(info.shape) * DTYPE_BITS[info.dtype] // 8 for info in self.infos)


def make_plan(held: Sequence[dict[str, Held]], fills: Collection[int]) -> Plan:
    """`held` is by rank. `fills` are the ranks that can fill the origin's memory.

    Of replicas the lowest rank that can fill is the owner of each box, so that all of them are of one replica. A name is
    left out where it is the same memory as an earlier one on all ranks that hold something of it. Names keep the order in
    which the ranks have them.
    Errors: ValueError (ranks that contradict each other; elements that no rank holds, or none that can fill them; boxes
    that overlap).
    """
    plan = Plan(owned=[[] for _ in held])
    names = {name: None for rank in held for name in rank}
    holders = {name: [rank for rank, has in enumerate(held) if name in has] for name in names}
    for name in names:
        having = {rank: held[rank][name] for rank in holders[name]}
        first_rank, first = next(iter(having.items()))
        for rank, has in having.items():
            if (has.dtype, has.shape) != (first.dtype, first.shape):
                raise ValueError(
                    f"tensor {name!r} is {first.dtype} {first.shape} on rank {first_rank}, but {has.dtype} {has.shape} on "
                    f"rank {rank}"
                )
        ties = {has.tied_to for has in having.values() if has.boxes}
        if len(ties) == 1 and name not in ties:
            root = next(iter(ties))
            root = plan.stands_for.get(root, root)
            if [held[rank].get(root, first)[:3] for rank in having] == [has[:3] for has in having.values()]:
                plan.stands_for[name] = root
                continue
        for box, ranks in _distinct(name, first.shape, having).items():
            able = [rank for rank in ranks if rank in fills]
            if not able:
                raise ValueError(
                    f"tensor {name!r}: ranks {ranks} hold {box.shape} elements from {box.start} on, but none of them runs "
                    "on the origin's host; gather it to one that does"
                )
            plan.owned[min(able)].append((name, box))
        plan.infos.append(TensorInfo(name, first.dtype, first.shape))
    return plan


def _distinct(name: str, shape: tuple[int, ...], having: dict[int, Held]) -> dict[Box, list[int]]:
    """The boxes that cover the tensor, each with the ranks that hold it."""
    found: dict[Box, list[int]] = {}
    for rank, has in having.items():
        for box in has.boxes:
            box.check(shape)
            if rank not in found.setdefault(box, []):
                found[box].append(rank)
    # By the first dimension, so that a box is compared with those only which begin before it ends.
    ordered = sorted(found, key=lambda box: box.start)
    for i, box in enumerate(ordered):
        for other in ordered[i + 1 :]:
            if box.start and other.start[0] >= box.start[0] + box.shape[0]:
                break
            if all(a < b + m and b < a + n for a, n, b, m in zip(box.start, box.shape, other.start, other.shape)):
                raise ValueError(
                    f"tensor {name!r}: ranks {found[box]} hold {box.shape} elements from {box.start} on, and ranks "
                    f"{found[other]} {other.shape} from {other.start}: these overlap without being the same"
                )
    covered, elements = sum(box.volume for box in found), math.prod(shape)
    if covered != elements:
        raise ValueError(f"tensor {name!r}: the ranks hold {covered} of its {elements} elements; publish from all that have some")
    return found
