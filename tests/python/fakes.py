"""Tensors of libraries that are not installed: what they show is their protocol alone."""

import ctypes
import struct

from weightcast import _tensors


class DLPackTensor:
    """A tensor that has DLPack and nothing else. `strides`: in elements, or None; `data`: the memory that they walk."""

    def __init__(self, data, shape, *, code, bits, lanes=1, strides=None, byte_offset=0, device=1):
        self.memory = ctypes.create_string_buffer(bytes(data), max(1, len(data)))
        self.freed = 0
        self._given = (shape, code, bits, lanes, strides, byte_offset, device)
        self._capsules = []

    def __dlpack_device__(self):
        return (self._given[6], 0)

    def __dlpack__(self, *, stream=None):
        shape, code, bits, lanes, strides, byte_offset, device = self._given
        deleter_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

        class Managed(ctypes.Structure):
            _fields_ = [("tensor", _tensors._DLTensor), ("context", ctypes.c_void_p), ("deleter", deleter_type)]

        managed = Managed()
        tensor = managed.tensor
        tensor.data = ctypes.addressof(self.memory)
        tensor.device_type, tensor.device_id, tensor.ndim = device, 0, len(shape)
        tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = code, bits, lanes
        kept_shape = (ctypes.c_int64 * len(shape))(*shape)
        tensor.shape = kept_shape
        kept_strides = None
        if strides is not None:
            kept_strides = (ctypes.c_int64 * len(shape))(*strides)
            tensor.strides = kept_strides
        tensor.byte_offset = byte_offset

        # As producers do: a capsule that nobody took over frees its tensor.
        def destroy(_):
            self.freed += 1

        destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(destroy)
        self._capsules.append((managed, kept_shape, kept_strides, destructor))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(managed), b"dltensor", ctypes.cast(destructor, ctypes.c_void_p))


def bfloat16(values):
    """Values as BF16's bytes, cut off."""
    return b"".join(struct.pack("<f", value)[2:] for value in values)
