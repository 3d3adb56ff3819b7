"""Tensors of other libraries: what they are in safetensors' words, and their bytes in row-major order."""

from __future__ import annotations

import ctypes
import itertools
import math
import sys
from collections.abc import Sequence
from ctypes import (
    POINTER,
    byref,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_ssize_t,
    c_uint8,
    c_uint16,
    c_uint64,
    c_void_p,
    py_object,
)
from typing import Any, NamedTuple, Optional

# The dtypes of safetensors, in bits per element.
DTYPE_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip

# How torch, NumPy and ml_dtypes call those that they have.
LIBRARY_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn_x2",
}  # fmt: skip
DTYPE_OF_NAME = {name: dtype for dtype, name in LIBRARY_NAMES.items()}
# NumPy has these only by ml_dtypes, and gives no buffers of them.
_ML_DTYPES = {"BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}
_NOT_NUMPY = _ML_DTYPES | {"F4"}

# Letters of the struct module, by kind; the buffer's item size says how wide they are here.
_KIND_OF_LETTER = {"?": "BOOL", "e": "F", "f": "F", "d": "F", "Zf": "C", "Zd": "C"}
_KIND_OF_LETTER.update(dict.fromkeys("bhilqn", "I"))
_KIND_OF_LETTER.update(dict.fromkeys("BHILQNc", "U"))

# DLPack's type codes (dlpack.h). A kind and the number of bits make a dtype; the other codes are dtypes already.
_DLPACK_KINDS = {0: "I", 1: "U", 2: "F", 5: "C"}
_DLPACK_DTYPES = {
    4: "BF16", 6: "BOOL", 10: "F8_E4M3", 11: "F8_E4M3FNUZ", 12: "F8_E5M2", 13: "F8_E5M2FNUZ", 14: "F8_E8M0",
}  # fmt: skip
# Devices of torch whose tensors have no pointers.
_WITHOUT_POINTERS = {"lazy", "xla"}
_DLPACK_HOST = {1, 3}  # CPU, pinned by CUDA
_DLPACK_DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA managed", 14: "oneAPI"}


class TensorInfo(NamedTuple):
    """One tensor's description. `dtype` is as safetensors writes it: "BF16", "F32", "F8_E4M3", "I64", ..."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def tensor_bytes(dtype: str, shape: Sequence[int]) -> int:
    """The bytes that `shape` takes in `dtype`. Errors: ValueError (an unknown dtype; not a whole number of bytes)."""
    bits = DTYPE_BITS.get(dtype)
    if bits is None:
        raise ValueError(f"dtype {dtype!r} is not one of safetensors: {', '.join(DTYPE_BITS)}")
    for length in shape:
        if length < 0:
            raise ValueError(f"shape {tuple(shape)} has a negative length")
        bits *= length
    if bits % 8 != 0:
        raise ValueError(f"shape {tuple(shape)} in {dtype} is not a whole number of bytes")
    return bits // 8


def paired_shape(shape: tuple[int, ...]) -> Optional[tuple[int, ...]]:
    """A shape of 4-bit elements as torch counts them, two in one along the last axis; None: it has no such pairs."""
    return (*shape[:-1], shape[-1] // 2) if shape and shape[-1] % 2 == 0 else None


class Box(NamedTuple):
    """A part of a tensor: from element `start` on, `shape` of them, in each dimension."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def volume(self) -> int:
        return math.prod(self.shape)

    def check(self, whole: Sequence[int]) -> None:
        """Errors: ValueError (it is not within a tensor of shape `whole`)."""
        fits = len(self.start) == len(self.shape) == len(whole) and all(
            0 <= start and 0 <= length and start + length <= limit
            for start, length, limit in zip(self.start, self.shape, whole)
        )
        if not fits:
            raise ValueError(f"{tuple(self.shape)} elements from {tuple(self.start)} on are not within {tuple(whole)}")

    def rows(self, whole: Sequence[int]) -> list[int]:
        """Where, in elements of a tensor of shape `whole`, each part of the box begins that lies there in one."""
        inner = len(whole)
        while inner and self.shape[inner - 1] == whole[inner - 1]:
            inner -= 1
        strides = [1] * len(whole)
        for i in reversed(range(len(whole) - 1)):
            strides[i] = strides[i + 1] * whole[i + 1]
        # The dimension that is not there in full lies in one, too.
        outer = max(inner - 1, 0)
        base = sum(start * stride for start, stride in zip(self.start, strides))
        ranges = [range(0, self.shape[i] * strides[i], strides[i]) for i in range(outer) if strides[i]]
        return [base + sum(steps) for steps in itertools.product(*ranges)]


class RawTensor:
    """Bytes of a tensor in this host's memory, little-endian, row-major and without gaps.

    It carries any dtype of safetensors, those that torch or NumPy lack among them. A Snapshot gives it, and publish()
    takes it. The bytes are not copied: `data` keeps alive what it was made from.
    """

    def __init__(self, dtype: str, shape: Sequence[int], data: Any) -> None:
        """`data`: a contiguous buffer of just the tensor's bytes.

        A dtype that this release does not know has any size; a Snapshot may hold one, and begin() refuses it.
        Errors: ValueError (dtype, shape and size do not fit together), TypeError (not a contiguous buffer).
        """
        view = memoryview(data)
        if not view.c_contiguous:
            raise TypeError("weightcast: the data of a RawTensor is not contiguous; copy it first")
        size = tensor_bytes(dtype, shape) if dtype in DTYPE_BITS else view.nbytes
        if view.nbytes != size:
            raise ValueError(f"weightcast: shape {tuple(shape)} in {dtype} takes {size} bytes, not {view.nbytes}")
        self.dtype = dtype
        self.shape = tuple(shape)
        #: The bytes, as a memoryview of format "B".
        self.data = view.cast("B") if size else memoryview(b"")

    def __repr__(self) -> str:
        return f"RawTensor({self.dtype!r}, {self.shape})"

    def _bytes_shape(self) -> tuple[int, ...]:
        """The shape as uint8: an axis more for wide elements, one axis for those below a byte."""
        bits = DTYPE_BITS.get(self.dtype, 0)
        if bits < 8:
            return (self.data.nbytes,)
        return self.shape if bits == 8 else (*self.shape, bits // 8)

    def numpy(self) -> Any:
        """A read-only NumPy array over the same memory.

        BF16, FP8 and what else NumPy lacks comes as uint8: `shape` where an element is a byte, an axis more (of the
        bytes of an element) where it is wider, and one axis of bytes where it is narrower. `dtype` says what they are.
        Errors: ImportError (no NumPy).
        """
        import numpy

        if self.dtype in LIBRARY_NAMES and self.dtype not in _NOT_NUMPY:
            name, shape = LIBRARY_NAMES[self.dtype], self.shape
        else:
            name, shape = "uint8", self._bytes_shape()
        return numpy.frombuffer(self.data.toreadonly(), dtype=name).reshape(shape)

    def torch(self) -> Any:
        """A torch tensor on the CPU over the same memory; a dtype that this torch lacks comes as uint8, as for numpy().

        F4 is float4_e2m1fn_x2, whose elements are pairs: the last axis is half as long. torch has no read-only tensors. Of
        a Snapshot the memory is a private mapping: writing changes this process's copy of a page, and never the file. Errors: ImportError (no torch), ValueError (the buffer is read-only).
        """
        import torch

        if self.data.nbytes and self.data.readonly:
            raise ValueError("weightcast: torch takes no read-only memory; use numpy(), or copy the bytes first")
        dtype = getattr(torch, LIBRARY_NAMES.get(self.dtype, ""), None)
        shape = self.shape
        if dtype is not None and self.dtype == "F4":
            paired = paired_shape(shape)
            dtype, shape = (None, shape) if paired is None else (dtype, paired)
        if dtype is None:
            dtype, shape = torch.uint8, self._bytes_shape()
        if not self.data.nbytes:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self.data, dtype=torch.uint8).view(dtype).reshape(shape)

    def pinned(self) -> Any:
        """torch(), for an engine on a device: where CUDA is available a copy in pinned memory, which
        `.to("cuda", non_blocking=True)` takes at the bus's rate; else no copy. Errors: those of torch()."""
        return pinned(self.torch())


def pinned(tensor: Any) -> Any:
    """A torch tensor in pinned memory where CUDA is available, else itself."""
    import torch

    return tensor.pin_memory() if torch.cuda.is_available() else tensor


# ------------------------------------------------------------------------------------------------ what can be taken


class PyBuffer(ctypes.Structure):
    """Py_buffer, whose layout has been the same in every Python 3."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("suboffsets", POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_FULL_RO = 0x11C  # PyBUF_FULL_RO: any strides, read-only allowed

_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = [py_object, POINTER(PyBuffer), c_int], c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [POINTER(PyBuffer)], None
_is_contiguous = ctypes.pythonapi.PyBuffer_IsContiguous
_is_contiguous.argtypes, _is_contiguous.restype = [POINTER(PyBuffer), c_char], c_int
_to_contiguous = ctypes.pythonapi.PyBuffer_ToContiguous
_to_contiguous.argtypes, _to_contiguous.restype = [c_void_p, POINTER(PyBuffer), c_ssize_t, c_char], c_int


class Source:
    """A tensor of another library that can be published. It keeps the tensor alive, and so its memory."""

    dtype: str
    shape: tuple[int, ...]

    def address(self) -> Optional[int]:
        """Where the bytes lie in this host's memory, if they are row-major and without gaps there; else None."""
        raise NotImplementedError

    def is_readonly(self) -> bool:
        """Whether the bytes at address() may not be written, as far as that is known."""
        return False

    def memory(self) -> Any:
        """What is equal for tensors of one library that are the same memory, read the same way; None: not known."""
        return None

    def copy_to(self, address: int, size_bytes: int) -> None:
        """Writes the tensor's bytes; `size_bytes`, what dtype and shape say, is above 0."""
        here = self.address()
        if here is None:
            self._gather_to(address, size_bytes)
        else:
            ctypes.memmove(address, here, size_bytes)  # without the GIL

    def contiguous(self) -> tuple[Optional[int], Any]:
        """Where the bytes lie in this host's memory, copied if need be, and what keeps them there; None: there are none."""
        size = tensor_bytes(self.dtype, self.shape)
        if not size:
            return None, None
        address = self.address()
        if address is not None:
            return address, self
        copied = ctypes.create_string_buffer(size)
        address = ctypes.addressof(copied)
        self.copy_to(address, size)
        return address, copied

    def copy_into(self, address: int, whole: Sequence[int], offset: Sequence[int]) -> None:
        """Writes the tensor into a greater one of shape `whole` at `address`, from element `offset` on."""
        box, width = Box(tuple(offset), self.shape), DTYPE_BITS[self.dtype] // 8
        if not box.volume:
            return
        rows = box.rows(whole)
        if len(rows) == 1:
            self.copy_to(address + rows[0] * width, box.volume * width)
        else:
            self._scatter_into(address, whole, box)

    def _scatter_into(self, address: int, whole: Sequence[int], box: Box) -> None:
        width, rows = DTYPE_BITS[self.dtype] // 8, box.rows(whole)
        here, kept = self.contiguous()
        row_bytes = box.volume * width // len(rows)
        for i, row in enumerate(rows):
            ctypes.memmove(address + row * width, here + i * row_bytes, row_bytes)

    def _gather_to(self, address: int, size_bytes: int) -> None:
        raise NotImplementedError


class _BufferSource(Source):
    def __init__(self, dtype: str, shape: Sequence[int], view: memoryview) -> None:
        self.dtype, self.shape, self._view = dtype, tuple(shape), view

    def is_readonly(self) -> bool:
        return self._view.readonly

    def address(self) -> Optional[int]:
        if not self._view.c_contiguous:
            return None
        view = PyBuffer()
        _get_buffer(self._view, byref(view), _FULL_RO)
        _release_buffer(byref(view))  # the memoryview still holds the memory
        return view.buf

    def _gather_to(self, address: int, size_bytes: int) -> None:
        view = PyBuffer()
        _get_buffer(self._view, byref(view), _FULL_RO)
        try:
            _to_contiguous(address, byref(view), size_bytes, b"C")
        finally:
            _release_buffer(byref(view))


class _TorchSource(Source):
    def __init__(self, dtype: str, shape: Sequence[int], tensor: Any) -> None:
        self.dtype, self.shape, self._tensor = dtype, tuple(shape), tensor

    def address(self) -> Optional[int]:
        tensor = self._tensor
        plain = tensor.device.type == "cpu" and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())
        return tensor.data_ptr() if plain else None

    def memory(self) -> Any:
        tensor = self._tensor
        if not tensor.numel() or not _pointer_of(tensor):
            return None
        flags = (tensor.is_conj(), tensor.is_neg())
        return (str(tensor.device), tensor.data_ptr(), self.dtype, self.shape, tuple(tensor.stride()), flags)

    def _scatter_into(self, address: int, whole: Sequence[int], box: Box) -> None:
        import torch

        # Strides on either side, in one copy.
        memory = (c_char * tensor_bytes(self.dtype, whole)).from_address(address)
        place = torch.frombuffer(memory, dtype=torch.uint8).view(self._tensor.dtype).view(tuple(whole))
        place[tuple(slice(start, start + length) for start, length in zip(box.start, box.shape))].copy_(self._tensor)

    def _gather_to(self, address: int, size_bytes: int) -> None:
        import torch

        place = torch.frombuffer((c_char * size_bytes).from_address(address), dtype=torch.uint8)
        # From any device and any strides. Without non_blocking it runs on this thread's current stream of the device,
        # behind what wrote the tensor there, and returns when the bytes are here. The memory is not pinned: to register
        # it with CUDA would take longer than the copy, each time that the tensors' layout changes.
        place.view(self._tensor.dtype).view(tuple(self._tensor.shape)).copy_(self._tensor)


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("dtype", _DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),  # in elements; NULL: row-major without gaps
        ("byte_offset", c_uint64),
    ]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [py_object, c_char_p], c_void_p


class _DLPackSource(Source):
    """The capsule is never taken over, so that its own destructor frees what it leads to."""

    def __init__(self, dtype: str, capsule: Any, tensor: _DLTensor) -> None:
        self.dtype, self._capsule, self._tensor = dtype, capsule, tensor
        self.shape = tuple(tensor.shape[i] for i in range(tensor.ndim))

    def address(self) -> Optional[int]:
        view = self._layout()
        return view.buf if _is_contiguous(byref(view), b"C") else None

    def _gather_to(self, address: int, size_bytes: int) -> None:
        _to_contiguous(address, byref(self._layout()), size_bytes, b"C")

    def _layout(self) -> PyBuffer:
        tensor, rank = self._tensor, len(self.shape)
        itemsize = DTYPE_BITS[self.dtype] // 8
        strides, step = [0] * rank, itemsize
        for i in reversed(range(rank)):
            strides[i] = tensor.strides[i] * itemsize if tensor.strides else step
            step *= self.shape[i]
        where = (tensor.data or 0) + tensor.byte_offset
        size = tensor_bytes(self.dtype, self.shape)
        view = PyBuffer(buf=where, len=size, itemsize=itemsize, readonly=1, ndim=rank)
        view.shape = (c_ssize_t * rank)(*self.shape)
        view.strides = (c_ssize_t * rank)(*strides)
        return view


def _refusal(name: str, why: str) -> TypeError:
    return TypeError(f"weightcast: tensor {name!r}: {why}")


def _on_device(where: str) -> str:
    return f"it is on a device ({where}); copy it to the host first, or give a torch tensor"


def _kind_of(tensor: Any) -> str:
    return f"{type(tensor).__module__}.{type(tensor).__qualname__}"


def _pointer_of(tensor: Any) -> int:
    """Where a torch tensor's memory is; 0: it has none of its own, or none that it tells."""
    try:
        return tensor.data_ptr()
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):  # fake and functional tensors
        return 0


def is_in_pieces(tensor: Any) -> bool:
    """Whether a torch tensor is a parameter that ZeRO-3 has taken to pieces, and that nobody has gathered."""
    return hasattr(tensor, "ds_id") and getattr(getattr(tensor, "ds_status", None), "name", "") != "AVAILABLE"


_PIECES = (
    "ZeRO-3 has taken it to pieces; publish within `with deepspeed.zero.GatheredParameters(list(model.parameters())):`, on every "
    "rank, where rank 0 publishes"
)


def in_pieces(name: str) -> TypeError:
    """What is_in_pieces() means for a publication."""
    return _refusal(name, _PIECES)


def _check_memory(name: str, tensor: Any) -> None:
    """Errors: TypeError (a torch tensor that has no dense bytes of its own)."""
    if is_in_pieces(tensor):
        raise in_pieces(name)
    if "deepspeed" in sys.modules and tuple(tensor.shape) == (0,):
        # As state_dict() gives such a parameter, without what tells it apart.
        raise _refusal(name, f"it is empty, and {_PIECES}. If it is meant to be empty, give a NumPy array")
    if hasattr(tensor, "local_shards") or getattr(tensor, "_is_flat_param", False):
        raise _refusal(
            name, "FSDP1 has it in shards (named_parameters(), SHARDED_STATE_DICT without a mesh, or LOCAL_STATE_DICT); give FSDP "
            "a device_mesh and SHARDED_STATE_DICT, use fully_shard(), or publish a FULL_STATE_DICT on one rank"
        )
    if hasattr(tensor, "materialize"):
        raise _refusal(name, "it has no shape yet; run the model once on an input, then publish")
    if hasattr(tensor, "full_tensor"):
        raise _refusal(name, "it is distributed; give full_tensor(), or let each process fill its part of one region")
    if getattr(tensor, "is_nested", False):
        raise _refusal(name, "it is nested, and its rows have lengths of their own; give to_padded_tensor(), or its parts")
    if str(tensor.layout) != "torch.strided" or tensor.device.type == "meta":
        raise _refusal(name, f"a {tensor.layout} tensor on {tensor.device} has no dense bytes; give a dense one")
    if hasattr(tensor, "__tensor_flatten__") or (
        tensor.numel() and not _pointer_of(tensor) and tensor.device.type not in _WITHOUT_POINTERS
    ):
        raise _refusal(
            name, f"a {_kind_of(tensor)} has no memory of its own: it wraps other tensors, or its memory was freed; give "
            "dequantize() of it, the plain tensors that it is made of, or the model before it was quantised or offloaded"
        )


def _from_torch(name: str, tensor: Any) -> Source:
    if hasattr(tensor, "trigger_wait"):  # what a collective operation is still to give
        tensor = tensor.wait()
    _check_memory(name, tensor)
    dtype = DTYPE_OF_NAME.get(str(tensor.dtype).rpartition(".")[2])
    if dtype is None:
        raise _refusal(name, f"safetensors has no {tensor.dtype}; view it as torch.uint8, or give a RawTensor")
    tensor, shape = tensor.detach(), tuple(tensor.shape)
    if dtype == "F4":
        if not shape:
            raise _refusal(name, "safetensors has no scalar of torch.float4_e2m1fn_x2, which is a pair; give it an axis")
        import torch

        # As safetensors writes it: torch counts pairs.
        tensor, shape = tensor.view(torch.uint8), (*shape[:-1], shape[-1] * 2)
    return _TorchSource(dtype, shape, tensor)


def _from_buffer(name: str, view: memoryview) -> Source:
    letters = view.format.lstrip("@=" + ("<" if sys.byteorder == "little" else ">"))
    kind, bits = _KIND_OF_LETTER.get(letters, ""), view.itemsize * 8
    dtype = kind if kind == "BOOL" else f"{kind}{bits}"
    if DTYPE_BITS.get(dtype) != bits:
        raise _refusal(name, f"safetensors has no elements of the buffer format {view.format!r}; convert them")
    return _BufferSource(dtype, view.shape, view)


def _from_dlpack(name: str, tensor: Any) -> Source:
    if callable(getattr(tensor, "is_deleted", None)) and tensor.is_deleted():
        raise _refusal(name, "it was deleted, as JAX does with donated arguments; give the array that came of it")
    try:
        device = int(tensor.__dlpack_device__()[0])
        if device in _DLPACK_HOST:
            capsule = tensor.__dlpack__()
    except (AttributeError, BufferError, TypeError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise _refusal(
            name, f"a {_kind_of(tensor)} gives no DLPack ({why}); give a whole array in host memory, such as "
            "numpy.asarray() of it"
        ) from None
    if device not in _DLPACK_HOST:
        raise _refusal(name, _on_device(_DLPACK_DEVICES.get(device, f"DLPack type {device}")))
    # A DLManagedTensor begins with its DLTensor.
    found = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    code, bits = found.dtype.code, found.dtype.bits
    dtype = _DLPACK_DTYPES.get(code) or f"{_DLPACK_KINDS.get(code, '')}{bits}"
    if found.dtype.lanes != 1 or DTYPE_BITS.get(dtype) != bits:
        raise _refusal(name, f"safetensors has no DLPack type {code} of {bits} bits x {found.dtype.lanes}; convert it")
    source = _DLPackSource(dtype, capsule, found)
    if not found.data and tensor_bytes(dtype, source.shape):
        raise _refusal(name, f"a {_kind_of(tensor)} gives no memory; give a whole array in host memory")
    return source


def source_of(name: str, tensor: Any) -> Source:
    """How `tensor` is published: a torch tensor on any device, a RawTensor, a buffer (NumPy), or DLPack in host memory.

    Errors: TypeError, one line with the name and what to do.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return _from_torch(name, tensor)
    if isinstance(tensor, RawTensor):
        return _BufferSource(tensor.dtype, tensor.shape, tensor.data)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(tensor, numpy.ma.MaskedArray):
        raise _refusal(
            name, "it is a masked array, whose mask would be lost; give filled(value), or data and mask by names of their own"
        )
    if numpy is not None and isinstance(tensor, numpy.ndarray) and DTYPE_OF_NAME.get(tensor.dtype.name) in _ML_DTYPES:
        integers = tensor.view(f"u{tensor.dtype.itemsize}")
        return _BufferSource(DTYPE_OF_NAME[tensor.dtype.name], tensor.shape, memoryview(integers))
    try:
        view = memoryview(tensor)
    except (TypeError, ValueError, BufferError, RuntimeError):  # the last: JAX's, of an array that was deleted
        if hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__"):
            return _from_dlpack(name, tensor)
        if hasattr(tensor, "__cuda_array_interface__"):
            raise _refusal(name, _on_device("CUDA")) from None
        raise _refusal(
            name, f"a {_kind_of(tensor)} is neither a torch tensor, a RawTensor, a buffer (such as a NumPy array) nor DLPack"
        ) from None
    return _from_buffer(name, view)


def describe(name: str, tensor: Any) -> TensorInfo:
    """What begin() takes for `tensor`. Copies nothing. Errors: TypeError (what publish() refuses)."""
    source = source_of(name, tensor)
    return TensorInfo(name, source.dtype, source.shape)
