"""Changes of some cells: of tensors, and of pieces of them; and finding them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from ctypes import byref, c_uint64
from typing import Any, NamedTuple

from ._arguments import Changes, items, name_bytes, unwrapped
from ._library import ChangeStruct, PieceStruct, check, library
from ._tensors import DTYPE_BITS, TensorInfo, source_of, tensor_bytes

_INDEX_BYTES = {"U32": 4, "I32": 4, "U64": 8, "I64": 8}


class Piece(NamedTuple):
    """Changes of a box of a tensor: from element `start` on, `shape` of them, in each dimension; the whole tensor where
    both are (). The indices are numbers of elements of the box, row-major in it."""

    name: str
    dtype: str
    start: tuple[int, ...]
    shape: tuple[int, ...]
    count: int  # elements that change

    @property
    def indices(self) -> str:
        """Under which name fill() and buffer() know the indices: U32, (count,), ascending, each once."""
        return f"indices{self._box()}/{self.name}"

    @property
    def values(self) -> str:
        """The same for the new values: `dtype`, (count,)."""
        return f"values{self._box()}/{self.name}"

    def _box(self) -> str:
        sides = ",".join(f"{start}+{length}" for start, length in zip(self.start, self.shape))
        return f"[{sides}]" if sides else ""


def changes_of(changes: Changes) -> Any:
    """The array of changes that the library takes. It keeps alive what it points to."""
    listed = list(items(changes))
    array = (ChangeStruct * len(listed))()
    array.kept = kept = []
    for struct, (name, change) in zip(array, listed):
        if not isinstance(change, (tuple, list)) or len(change) != 2:
            raise TypeError(
                f"weightcast: tensor {name!r}: its change is a {type(change).__qualname__}; give a pair of indices and values"
            )
        indices, values = change
        encoded, where, what = name_bytes(name), source_of(name, indices), source_of(name, values)
        if where.dtype not in _INDEX_BYTES:
            raise TypeError(f"weightcast: tensor {name!r}: indices of {where.dtype}; give int32, int64 or unsigned ones")
        if len(where.shape) != 1 or where.shape != what.shape:
            raise ValueError(
                f"weightcast: tensor {name!r}: indices of shape {where.shape} and values of shape {what.shape}; give "
                "two rows of one length"
            )
        dtype = what.dtype.encode()
        struct.indices, kept_indices = where.contiguous()
        struct.values, kept_values = what.contiguous()
        kept.append((encoded, dtype, kept_indices, kept_values))
        struct.name, struct.dtype, struct.count = encoded, dtype, where.shape[0]
        struct.index_bytes = _INDEX_BYTES[where.dtype]
    return array


def pieces_of(pieces: Iterable[Piece]) -> tuple[list[TensorInfo], Any]:
    """The lists of each piece, indices and values in turn, and the array of pieces that the library takes."""
    listed = [Piece(*piece) for piece in pieces]
    array = (PieceStruct * len(listed))()
    array.kept = kept = []
    infos: list[TensorInfo] = []
    for struct, piece in zip(array, listed):
        name_bytes(piece.name)  # or it is none
        piece = piece._replace(name=unwrapped(piece.name))
        name, dtype, rank = name_bytes(piece.name), piece.dtype.encode(), len(piece.start)
        if len(piece.shape) != rank or min((*piece.start, *piece.shape, piece.count)) < 0:
            raise ValueError(f"weightcast: tensor {piece.name!r}: {piece} is no piece")
        start, lengths = (c_uint64 * rank)(*piece.start), (c_uint64 * rank)(*piece.shape)
        kept.append((name, dtype, start, lengths))
        struct.name, struct.dtype, struct.rank, struct.count, struct.index_bytes = name, dtype, rank, piece.count, 4
        struct.start = ctypes.cast(start, ctypes.POINTER(c_uint64))
        struct.lengths = ctypes.cast(lengths, ctypes.POINTER(c_uint64))
        infos.append(TensorInfo(piece.indices, "U32", (piece.count,)))
        infos.append(TensorInfo(piece.values, piece.dtype, (piece.count,)))
    return infos, array


def update_shadow(shadow: Any, now: Any, indices: Any, values: Any) -> int:
    """Finds the elements in which `now` differs from `shadow`, and makes the shadow equal, in one pass in native code.

    For a trainer that keeps a copy of what it published, and does not know which elements have changed. Both are tensors
    of one dtype and shape. Writes the numbers of those that differ, ascending, into the row `indices` (32 bits), and
    their new values into the row `values`: what a Piece takes. All are contiguous and on the host: torch, NumPy,
    buffers. Elements are compared bit by bit. Returns how many differ; beyond the length of the rows they are not
    listed, but the shadow is equal all the same.
    Errors: TypeError and ValueError (arrays that do not fit together), Error with TOO_LARGE (above 2^32 elements).
    """
    sources = {name: source_of(name, tensor) for name, tensor in
               (("shadow", shadow), ("now", now), ("indices", indices), ("values", values))}  # fmt: skip
    old, new, where, what = sources.values()
    for name, source in sources.items():
        if source.is_readonly() and name != "now":
            raise TypeError(f"weightcast: the {name} are read-only; give what can be written to")
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        raise ValueError(f"weightcast: the shadow is {old.dtype} {old.shape}, the tensor {new.dtype} {new.shape}")
    if where.dtype not in ("U32", "I32") or what.dtype != new.dtype or len(where.shape) != 1 or where.shape != what.shape:
        raise ValueError(
            f"weightcast: indices are {where.dtype} {where.shape} and values {what.dtype} {what.shape}; give two rows of "
            f"one length, of int32 and {new.dtype}"
        )
    addresses = [source.address() if tensor_bytes(source.dtype, source.shape) else 0 for source in sources.values()]
    if None in addresses:
        raise TypeError("weightcast: an array is not contiguous in this host's memory; copy it first")
    changed, width = c_uint64(), DTYPE_BITS[new.dtype]
    if width % 8:
        raise TypeError(f"weightcast: elements of {new.dtype} are not whole bytes")
    check(
        library().wc_update_shadow, addresses[0], addresses[1], math.prod(new.shape), width // 8, where.shape[0],
        addresses[2], addresses[3], byref(changed),
    )
    return changed.value
