"""What a publisher is given: names, tensors and options, as the library takes them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping
from ctypes import c_uint64, c_void_p
from typing import Any, Optional, Union

from ._library import FileStruct, PathLike, PublishOptions, TensorStruct
from ._tensors import Source, TensorInfo, tensor_bytes

_ALLOW_NONFINITE = 1
_SECOND_REGION = 2
_NEW_MODEL = 4
FILE_TREE = 8

#: A state dict, pairs, or what has a state_dict(), such as a torch Module.
Tensors = Any
#: A directory, or bytes by name.
Files = Union[PathLike, Mapping[str, Any]]
Changes = Union[Mapping[str, "tuple[Any, Any]"], Iterable["tuple[str, tuple[Any, Any]]"]]
Infos = Iterable[Union[TensorInfo, "tuple[str, str, Iterable[int]]"]]


def name_bytes(name: Any, what: str = "tensor") -> bytes:
    """A name as the library takes it. Errors: TypeError, UnicodeEncodeError."""
    if not isinstance(name, str) or "\0" in name:
        raise TypeError(f"weightcast: the name of a {what} is {name!r}, not a string without NUL")
    return name.encode()


def structs_of(infos: Infos) -> tuple[list[TensorInfo], Any]:
    """The descriptions, and the array of them that the library takes. It keeps alive what it points to."""
    listed = []
    for name, dtype, shape in infos:
        listed.append(TensorInfo(name, dtype, tuple(int(length) for length in shape)))
    array = (TensorStruct * len(listed))()
    kept: list[Any] = []
    for struct, info in zip(array, listed):
        try:
            name = name_bytes(info.name)
            size = tensor_bytes(info.dtype, info.shape)
            shape = (c_uint64 * len(info.shape))(*info.shape)
        except ValueError as error:
            raise ValueError(f"weightcast: tensor {info.name!r}: {error}") from None
        kept.append((name, shape))
        struct.name, struct.dtype, struct.rank, struct.size_bytes = name, info.dtype.encode(), len(shape), size
        struct.shape = ctypes.cast(shape, ctypes.POINTER(c_uint64))
    array.kept = kept
    return listed, array


def options_of(
    version: Optional[int],
    allow_nonfinite: bool,
    second_region: bool,
    new_model: bool = False,
    files: Optional[Files] = None,
    parts: int = 0,
) -> PublishOptions:
    """What the library takes. It keeps alive what it points to."""
    if version is not None and not 0 < version < 2**63:
        raise ValueError(f"weightcast: version {version} is not between 1 and 2^63 - 1")
    flags = _ALLOW_NONFINITE * allow_nonfinite | _SECOND_REGION * second_region | _NEW_MODEL * new_model
    if not 0 <= parts < 2**32:
        raise ValueError(f"weightcast: {parts} parts are not a number of them")
    options = PublishOptions(version=version or 0, flags=flags, parts=parts)
    if isinstance(files, Mapping):
        array = (FileStruct * len(files))()
        array.kept = kept = []
        for struct, (name, data) in zip(array, files.items()):
            encoded, copied = name_bytes(name, "file"), bytes(data.encode() if isinstance(data, str) else data)
            kept.append((encoded, copied))
            struct.name, struct.size_bytes = encoded, len(copied)
            struct.data = ctypes.cast(ctypes.c_char_p(copied), c_void_p)
        options.files, options.file_count = array, len(array)
        options.kept = array
    elif files is not None:
        options.files_directory = os.fsencode(files)
    return options


def items(tensors: Union[Tensors, Changes]) -> Iterator[tuple[str, Any]]:
    if not isinstance(tensors, Mapping) and callable(getattr(tensors, "state_dict", None)):
        tensors = tensors.state_dict()
    return iter(tensors.items() if isinstance(tensors, Mapping) else tensors)


def untied(named: list[tuple[str, Source]]) -> tuple[list[tuple[str, Source]], dict[str, str]]:
    """The first of each group of tied tensors and all others, and which name stands for each that is left out."""
    kept: list[tuple[str, Source]] = []
    first: dict[Any, str] = {}
    tied: dict[str, str] = {}
    for name, source in named:
        memory = source.memory()
        if memory is not None and first.setdefault(memory, name) != name:
            tied[name] = first[memory]
        else:
            kept.append((name, source))
    return kept, tied
