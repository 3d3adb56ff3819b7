"""Snapshots on disk, read by the rules of safetensors. Pure Python: it needs neither the library nor a daemon."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ._errors import Code, Error
from ._library import PathLike
from ._tensors import DTYPE_BITS, RawTensor, tensor_bytes

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_ADAPTER = "adapter_model.safetensors"  # as PEFT names it
_HEADER_BYTES_MAX = 100_000_000  # the format's
_INDEX_BYTES_MAX = 32 << 20
_NAME_BYTES_MAX = 16384
_TENSORS_MAX = 1_000_000
_RANK_MAX = 64
# Pages of a private mapping take memory only when they are written to.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def _corrupt(path: str, why: str, code: Code = Code.CORRUPT) -> Error:
    return Error(code, "open", f"cannot open: {path}: {why}; write it again")


class Snapshot(Mapping[str, RawTensor]):
    """The tensors of a safetensors file, or of a directory in the style of Hugging Face: model.safetensors, or shards
    and model.safetensors.index.json, or adapter_model.safetensors alone. A mapping of names to RawTensors, in the order
    of the files and of their bytes.

    Nothing is copied: a tensor's `data`, `numpy()` and `torch()` are views of the mapped file, which stays mapped while
    one of them lives. Pin a daemon's version while it is read (Subscription.acquire()), or open it by the directory
    that an event named: what is mapped stays whole even if the daemon deletes it. With --single-copy drop all views
    before the version changes.
    """

    def __init__(self, path: PathLike) -> None:
        """Reads the headers, and refuses what the format forbids: overlaps, holes, sizes that dtype and shape do not
        give, what lies outside of the file, names given twice, and shards that disagree with the index.

        Errors: OSError (no such file), Error with CORRUPT, TOO_LARGE (a limit of the format or of weightcast),
        NOT_FOUND (a directory without weights), INVALID_ARGUMENT (weights by
        both names; a shard outside of the directory).
        """
        path = os.fspath(path)
        if os.path.isdir(path):
            self._tensors = _open_directory(path)
        else:
            self._tensors = _open_file(path)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    def __getitem__(self, name: str) -> RawTensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"<weightcast.Snapshot of {len(self)} tensors>"


def _parse(path: str, what: str, data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. A name that an object has twice is refused."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            twice = next(name for i, (name, _) in enumerate(pairs) if any(name == other for other, _ in pairs[:i]))
            raise _corrupt(path, f"{what} gives {twice!r} twice")
        return made

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    try:
        parsed = json.loads(data.decode(), object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, f"{what} is not JSON ({error})") from None
    if not isinstance(parsed, dict):
        raise _corrupt(path, f"{what} is not an object")
    return parsed


def _is_length(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**64


def _read_entry(path: str, name: str, entry: Any) -> tuple[int, int, str, tuple[int, ...]]:
    """begin, end, dtype and shape of one tensor."""

    def wrong(why: str, code: Code = Code.CORRUPT) -> Error:
        return _corrupt(path, f"tensor {name[:96]!r}: {why}", code)

    try:
        if len(name.encode()) > _NAME_BYTES_MAX:
            raise wrong(f"its name is longer than {_NAME_BYTES_MAX} bytes", Code.TOO_LARGE)
    except UnicodeEncodeError:
        raise wrong("its name is not Unicode") from None
    if not isinstance(entry, dict):
        raise wrong("its entry is not an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str):
        raise wrong("dtype is not a string")
    if not isinstance(shape, list) or not all(map(_is_length, shape)):
        raise wrong("shape is not a list of lengths")
    if len(shape) > _RANK_MAX:
        raise wrong(f"more than {_RANK_MAX} dimensions", Code.TOO_LARGE)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_length, offsets)):
        raise wrong("data_offsets are not two offsets")
    begin, end = offsets
    if end < begin:
        raise wrong(f"its data_offsets {offsets} end before they begin")
    try:
        size = tensor_bytes(dtype, shape) if dtype in DTYPE_BITS else end - begin
    except ValueError as error:
        raise wrong(str(error)) from None
    if end - begin != size:
        raise wrong(f"shape {shape} in {dtype} takes {size} bytes, but its data_offsets are {offsets}")
    return begin, end, dtype, tuple(shape)


def _open_file(path: str) -> dict[str, RawTensor]:
    with open(path, "rb") as file:
        file_bytes = os.fstat(file.fileno()).st_size
        prefix = file.read(8)
        if len(prefix) < 8:
            raise _corrupt(path, f"{file_bytes} bytes are too few for a safetensors file")
        header_bytes = int.from_bytes(prefix, "little")
        if header_bytes > _HEADER_BYTES_MAX:
            raise _corrupt(path, f"its header claims {header_bytes} bytes; is it a safetensors file?", Code.TOO_LARGE)
        if header_bytes > file_bytes - 8:
            raise _corrupt(path, f"its header claims {header_bytes} bytes, but the file has {file_bytes}")
        text = file.read(header_bytes)
        if not text.startswith(b"{"):
            raise _corrupt(path, "its header does not start with '{'")
        header = _parse(path, "its header", text)
        # Writable for torch, which has no read-only tensors, and private, so that no write reaches the file.
        flags, access = mmap.MAP_PRIVATE | _MAP_NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
        data = memoryview(mmap.mmap(file.fileno(), file_bytes, flags=flags, prot=access))[8 + header_bytes :]

    metadata = header.pop("__metadata__", None)
    if metadata is not None:
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise _corrupt(path, "its __metadata__ is not an object of strings")
    if len(header) > _TENSORS_MAX:
        raise _corrupt(path, f"more than {_TENSORS_MAX} tensors", Code.TOO_LARGE)
    entries = sorted((*_read_entry(path, name, entry)[:2], name) for name, entry in header.items())
    tensors, expected = {}, 0
    for begin, end, name in entries:
        if begin != expected:
            kind = "a hole" if begin > expected else "an overlap"
            raise _corrupt(path, f"tensor {name[:96]!r} begins at byte {begin} of the data, not {expected}: {kind}")
        if end > data.nbytes:
            raise _corrupt(path, f"tensor {name[:96]!r} ends at byte {end} of the data, but there are {data.nbytes}")
        tensors[name] = RawTensor(header[name]["dtype"], header[name]["shape"], data[begin:end])
        expected = end
    if expected != data.nbytes:
        raise _corrupt(path, f"{data.nbytes - expected} bytes after the last tensor belong to none")
    return tensors


def _open_directory(path: str) -> dict[str, RawTensor]:
    single, index = os.path.join(path, _SINGLE), os.path.join(path, _INDEX)
    if os.path.lexists(single) and os.path.lexists(index):
        why = f"cannot open: {path}: holds both {_SINGLE} and {_INDEX}; remove the one that is out of date"
        raise Error(Code.INVALID_ARGUMENT, "open", why)
    if os.path.lexists(single):
        return _open_file(single)
    if not os.path.lexists(index):
        adapter = os.path.join(path, _ADAPTER)
        if os.path.lexists(adapter):
            return _open_file(adapter)
        why = f"holds neither {_SINGLE} nor {_INDEX}, nor {_ADAPTER}; name a directory with one of them, or a file"
        raise Error(Code.NOT_FOUND, "open", f"cannot open: {path}: {why}")
    with open(index, "rb") as file:
        text = file.read(_INDEX_BYTES_MAX + 1)
    if len(text) > _INDEX_BYTES_MAX:
        raise _corrupt(index, f"it exceeds {_INDEX_BYTES_MAX} bytes", Code.TOO_LARGE)
    weight_map = _parse(index, "it", text).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise _corrupt(index, "it has no weight_map of names to shards")
    tensors: dict[str, RawTensor] = {}
    for shard in sorted(set(weight_map.values())):
        if "/" in shard or "\0" in shard or shard.startswith(".") or not shard.endswith(".safetensors"):
            why = f"shard {shard[:96]!r} is not a .safetensors file of the directory"
            raise _corrupt(index, why, Code.INVALID_ARGUMENT)
        for name, tensor in _open_file(os.path.join(path, shard)).items():
            if weight_map.get(name) != shard:
                listed = weight_map.get(name)
                raise _corrupt(index, f"tensor {name[:96]!r} is in shard {shard!r}, but listed in {listed!r}")
            tensors[name] = tensor
    absent = next((name for name in weight_map if name not in tensors), None)
    if absent is not None:
        shard = weight_map[absent]
        raise _corrupt(index, f"tensor {absent[:96]!r} is listed in shard {shard!r}, which does not hold it")
    return tensors
