"""What a publisher is given: names, tensors and options, as the library takes them."""

from __future__ import annotations

import array
import ctypes
import operator
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import c_uint64, c_void_p
from typing import Any, Optional, Union

from ._library import FileStruct, PathLike, PublishOptions, TensorStruct
from ._tensors import Source, TensorInfo, in_pieces, is_in_pieces, tensor_bytes

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


# What torch.compile(), activation checkpointing and FSDP put into a parameter's name, wherever they wrap a module.
_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:(?:_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)\.)+")


def unwrapped(name: str) -> str:
    """A parameter's name without what wrappers put into it."""
    return _WRAPPERS.sub("", name) if "._" in name or name.startswith("_") else name


def structs_of(infos: Infos) -> tuple[list[TensorInfo], Any]:
    """The descriptions, and the array of them that the library takes. It keeps alive what it points to."""
    listed: list[TensorInfo] = []
    names, lengths, sizes = bytearray(), array.array("Q"), []
    begins, dtypes = [], {}
    for given in infos:
        try:
            name, dtype, shape = given
        except (TypeError, ValueError):
            raise TypeError(
                f"weightcast: {given!r} describes no tensor; give a TensorInfo, which describe(name, tensor) makes, or (name, "
                "dtype, shape)"
            ) from None
        encoded = name_bytes(name)
        info = TensorInfo(unwrapped(name), dtype, tuple(map(int, shape)))
        try:
            sizes.append(tensor_bytes(info.dtype, info.shape))
        except ValueError as error:
            raise ValueError(f"weightcast: tensor {info.name!r}: {error}") from None
        begins.append(len(names))
        names += encoded if info.name == name else info.name.encode()
        names.append(0)
        lengths.extend(info.shape)
        if dtype not in dtypes:
            dtypes[dtype] = ctypes.create_string_buffer(dtype.encode())
        listed.append(info)
    if not listed:
        return listed, (TensorStruct * 0)()
    # Each struct is eight words, so one row has them all: field by field takes five times as long.
    kept_names = ctypes.create_string_buffer(bytes(names))
    names_at, shape_at = ctypes.addressof(kept_names), lengths.buffer_info()[0]
    dtype_at = {dtype: ctypes.addressof(kept) for dtype, kept in dtypes.items()}
    words = array.array("Q")
    for info, begin, size in zip(listed, begins, sizes):
        rank = len(info.shape)
        words.extend((names_at + begin, dtype_at[info.dtype], shape_at, rank, 0, size, 0, 0))
        shape_at += rank * lengths.itemsize
    structs = (TensorStruct * len(listed)).from_buffer(words)
    structs.kept = (kept_names, lengths, dtypes)
    return listed, structs


def version_number(version: Any, what: str = "version", least: int = 1) -> int:
    """Errors: TypeError (no integer), ValueError (below `least`, or above all that a version can have)."""
    try:
        number = operator.index(version)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"weightcast: {what} {version!r} is a {type(version).__qualname__}; give an int") from None
    if not least <= number < 2**63:
        raise ValueError(f"weightcast: {what} {number} is not between {least} and 2^63 - 1")
    return number


def options_of(
    version: Optional[int],
    allow_nonfinite: bool,
    second_region: bool,
    new_model: bool = False,
    files: Optional[Files] = None,
    parts: int = 0,
) -> PublishOptions:
    """What the library takes. It keeps alive what it points to."""
    if version is not None:
        version = version_number(version)
    flags = _ALLOW_NONFINITE * allow_nonfinite | _SECOND_REGION * second_region | _NEW_MODEL * new_model
    if not 0 <= parts < 2**32:
        raise ValueError(f"weightcast: {parts} parts are not a number of them")
    options = PublishOptions(version=version or 0, flags=flags, parts=parts)
    if isinstance(files, Mapping):
        structs = (FileStruct * len(files))()
        structs.kept = kept = []
        for struct, (name, data) in zip(structs, files.items()):
            encoded, copied = name_bytes(name, "file"), _file_bytes(name, data)
            kept.append((encoded, copied))
            struct.name, struct.size_bytes = encoded, len(copied)
            struct.data = ctypes.cast(ctypes.c_char_p(copied), c_void_p)
        options.files, options.file_count = structs, len(structs)
        options.kept = structs
    elif files is not None:
        options.files_directory = os.fsencode(files)
    return options


def _file_bytes(name: str, data: Any) -> bytes:
    """Errors: TypeError."""
    if isinstance(data, str):
        return data.encode()
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"weightcast: file {name!r} is given as a {type(data).__qualname__}; give bytes, or a str") from None


def items(tensors: Union[Tensors, Changes]) -> Iterator[tuple[str, Any]]:
    """Names and tensors of what publish() takes. Errors: TypeError, of what has none."""
    if not isinstance(tensors, Mapping):
        if callable(getattr(tensors, "state_dict", None)):
            tensors = _state_of(tensors)
        elif isinstance(tensors, (str, bytes, os.PathLike)):
            raise TypeError(
                f"weightcast: {os.fspath(tensors)!r} is a path, not tensors; publish_path() publishes a file or a directory"
            )
    try:
        pairs = iter(tensors.items() if isinstance(tensors, Mapping) else tensors)
    except TypeError:
        raise TypeError(
            f"weightcast: a {type(tensors).__qualname__} has no tensors with names; give a Module, a state dict or pairs"
        ) from None
    return map(_pair, pairs)


def _pair(pair: Any) -> tuple[str, Any]:
    if isinstance(pair, (tuple, list)) and len(pair) == 2:
        return unwrapped(pair[0]) if isinstance(pair[0], str) else pair[0], pair[1]
    raise TypeError(
        f"weightcast: a {type(pair).__qualname__} has no name; give pairs of a name and a tensor, such as a model's "
        "state_dict() or named_parameters()"
    )


def named_tensors(tensors: Tensors) -> list[tuple[str, Any]]:
    """All that is to be published, under the names that a checkpoint has. Errors: TypeError; ValueError (names of a
    wrapper)."""
    named = list(items(tensors))
    check_names([name for name, _ in named])
    return named


def check_names(names: Sequence[str]) -> None:
    """Errors: ValueError, for the names that a model has within DistributedDataParallel or another wrapper."""
    if names and all(isinstance(name, str) and name.startswith(_MODULE) for name in names):
        raise ValueError(
            f"weightcast: all names begin with {_MODULE!r}, as {names[0]!r}: they are those of a wrapper, such as "
            "DistributedDataParallel, and engines know none of them; publish the model within, which is its .module, or "
            f"{{name.removeprefix({_MODULE!r}): tensor for name, tensor in state_dict.items()}}"
        )


_MODULE = "module."
# Wrappers of torch's, whose module is the model; others are known by all names beginning with it.
_HOLDERS = {"DataParallel", "DistributedDataParallel"}


def _state_of(model: Any) -> Any:
    """A model's state dict, without the names of wrappers by which data is parallel."""
    if callable(getattr(model, "named_parameters", None)):
        for name, parameter in model.named_parameters():
            if is_in_pieces(parameter):
                raise in_pieces(name)
    state = model.state_dict()
    if not callable(getattr(model, "named_modules", None)) or not isinstance(state, Mapping):
        return state
    holders = [name for name, module in model.named_modules() if type(module).__name__ in _HOLDERS]
    # The inner ones first: what is taken out of the outer ones' names then stands.
    for holder in sorted(holders, key=len, reverse=True):
        outer = f"{holder}." if holder else ""
        inner = outer + _MODULE
        state = {outer + name[len(inner) :] if name.startswith(inner) else name: value for name, value in state.items()}
    return state


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
