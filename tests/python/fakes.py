"""Tensors of libraries that are not installed: what they show is their protocol alone."""

import ctypes
import struct
import threading

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


class FakeTorch:
    """What the package uses of torch, with one device whose work waits in a queue until somebody waits for it."""

    strided = "torch.strided"
    uint8, float32, bfloat16 = "torch.uint8", "torch.float32", "torch.bfloat16"
    sizes = {uint8: 1, float32: 4, bfloat16: 2}

    def __init__(self):
        self.copies = []  # of each: its size, and the thread that made it
        module = self

        class Device:
            def __init__(self, kind):
                self.type = kind

            def __str__(self):
                return self.type

        class Tensor:
            layout = FakeTorch.strided

            def __init__(self, memory, dtype, shape, kind="cpu", queue=None):
                self.memory, self.dtype, self.shape, self.device = memory, dtype, tuple(shape), Device(kind)
                self.queue = queue if queue is not None else []

            def detach(self):
                return self

            def is_contiguous(self):
                return True

            def is_conj(self):
                return False

            is_neg = is_conj

            def numel(self):
                return len(self.memory) // FakeTorch.sizes[self.dtype]

            def stride(self):
                steps = [1] * len(self.shape)
                for i in reversed(range(len(steps) - 1)):
                    steps[i] = steps[i + 1] * self.shape[i + 1]
                return tuple(steps)

            def data_ptr(self):
                if self.device.type != "cpu":
                    return id(self.memory) | 1 << 62  # an address on a device is none on the host
                return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

            def view(self, to):
                if isinstance(to, tuple):
                    return Tensor(self.memory, self.dtype, to)
                return Tensor(self.memory, to, (len(self.memory) // FakeTorch.sizes[to],))

            reshape = view

            def copy_(self, source, non_blocking=False):
                assert (self.dtype, self.shape) == (source.dtype, source.shape)
                module.copies.append((len(source.memory), threading.get_ident()))

                def run():
                    self.memory[:] = source.memory

                source.queue.append(run)
                if not non_blocking:
                    while source.queue:
                        source.queue.pop(0)()

        self.Tensor = Tensor

    def frombuffer(self, memory, dtype):
        view = memoryview(memory).cast("B")
        if not len(view):
            raise ValueError("both buffer length (0) and count (-1) must not be 0")  # as torch does
        return self.Tensor(view, dtype, (len(view) // self.sizes[dtype],))

    def empty(self, shape, dtype):
        return self.Tensor(bytearray(), dtype, shape)

    def on_device(self, data, dtype, shape):
        """A tensor that a kernel, which is still queued, will fill with `data`."""
        tensor = self.Tensor(bytearray(len(data)), dtype, shape, "cuda")

        def kernel():
            tensor.memory[:] = data

        tensor.queue.append(kernel)
        return tensor
