"""What can be published, and how its bytes are laid out. No daemon."""

import array
import ctypes
import pathlib
import struct
import typing
import unittest
import unittest.mock

import weightcast
from fakes import DLPackTensor, bfloat16
from weightcast._arguments import named_tensors, options_of, structs_of, unwrapped
from weightcast._tensors import source_of, tensor_bytes

try:
    import numpy
except ImportError:
    numpy = None

needs_numpy = unittest.skipIf(numpy is None, "python3-numpy is not installed")


def taken(tensor):
    """dtype, shape and bytes, as publish() takes them."""
    source = source_of("t", tensor)
    size = tensor_bytes(source.dtype, source.shape)
    place = ctypes.create_string_buffer(b"\xee" * (size + 8), size + 8)
    if size:
        source.copy_to(ctypes.addressof(place), size)
    assert place.raw[size:] == b"\xee" * 8, "written past the end"
    return source.dtype, source.shape, place.raw[:size]


class Shadows(unittest.TestCase):
    def test_what_differs_is_listed_and_taken_over(self):
        for letter in "BHIQ":
            shadow, now = array.array(letter, range(5)), array.array(letter, [0, 9, 2, 8, 7])
            indices, values = array.array("I", [99] * 4), array.array(letter, [99] * 4)
            self.assertEqual(weightcast.update_shadow(shadow, now, indices, values), 3)
            self.assertEqual(shadow, now)
            self.assertEqual(list(indices), [1, 3, 4, 99])
            self.assertEqual(list(values), [9, 8, 7, 99])
            self.assertEqual(weightcast.update_shadow(shadow, now, indices, values), 0)

    def test_more_than_there_is_room_for_is_counted(self):
        shadow, now = array.array("H", range(5)), array.array("H", [9] * 5)
        indices, values = array.array("i", [0]), array.array("H", [0])
        self.assertEqual(weightcast.update_shadow(shadow, now, indices, values), 5)
        self.assertEqual((shadow, indices[0], values[0]), (now, 0, 9))

    def test_bits_are_compared(self):
        shadow = array.array("f", [0.0, float("nan")])
        now = array.array("f", [-0.0, shadow[1]])
        indices, values = array.array("I", [9, 9]), array.array("f", [9, 9])
        self.assertEqual(weightcast.update_shadow(shadow, now, indices, values), 1)
        self.assertEqual(indices[0], 0)

    def test_arrays_that_do_not_fit_together_are_refused(self):
        row, index = array.array("H", [1, 2]), array.array("I", [0, 0])
        for given, error in (
            ((bytes(4), row, index, row), "the shadow are read-only"),
            ((row, array.array("H", [1]), index, row), "the shadow is U16 .2,., the tensor U16 .1,."),
            ((row, row, array.array("q", [0, 0]), row), "two rows of one length, of int32"),
            ((row, row, index, array.array("H", [1])), "two rows of one length"),
            ((row, row, index, array.array("f", [1, 2])), "two rows of one length"),
            ((memoryview(row)[::-1], row, index, row), "not contiguous"),
        ):
            with self.assertRaisesRegex((TypeError, ValueError), error):
                weightcast.update_shadow(*given)
        nothing = array.array("H")
        self.assertEqual(weightcast.update_shadow(nothing, nothing, array.array("I"), nothing), 0)


class Buffers(unittest.TestCase):
    def test_bytes_are_a_row_of_u8(self):
        for kind in (bytes, bytearray, memoryview):
            self.assertEqual(taken(kind(b"abc")), ("U8", (3,), b"abc"))

    def test_formats_map_to_dtypes_by_kind_and_width(self):
        for letter, dtype in zip("bBhHiIqQfd", "I8 U8 I16 U16 I32 U32 I64 U64 F32 F64".split()):
            values = array.array(letter, [1, 2, 3])
            self.assertEqual(taken(values), (dtype, (3,), values.tobytes()))
        self.assertEqual(taken(array.array("l", [1]))[0], f"I{8 * struct.calcsize('l')}")
        self.assertEqual(taken(memoryview(b"\1\0").cast("?"))[0], "BOOL")

    def test_empty_and_scalar_shapes(self):
        self.assertEqual(taken(array.array("f"))[:2], ("F32", (0,)))
        self.assertEqual(taken(ctypes.c_float(1.5)), ("F32", (), struct.pack("<f", 1.5)))

    def test_strides_of_a_memoryview_are_followed(self):
        self.assertEqual(taken(memoryview(b"abcdefg")[::2]), ("U8", (4,), b"aceg"))
        self.assertEqual(taken(memoryview(b"abc")[::-1]), ("U8", (3,), b"cba"))

    def test_the_other_byte_order_is_refused(self):
        swapped = (ctypes.c_uint16.__ctype_be__ * 2)(1, 2)
        with self.assertRaisesRegex(TypeError, "tensor 'w': safetensors has no elements of the buffer format '>"):
            source_of("w", swapped)

    def test_what_has_no_bytes_is_refused_in_one_line(self):
        for bad in (None, 3, 1.5, "text", [1, 2], {"a": 1}, object()):
            with self.assertRaisesRegex(TypeError, "tensor 'w': a .* is neither a torch tensor") as caught:
                source_of("w", bad)
            self.assertNotIn("\n", str(caught.exception))

    def test_the_object_is_kept_until_it_is_copied(self):
        held = bytearray(b"abc")
        source = source_of("w", held)
        with self.assertRaises(BufferError):
            held.append(1)
        del source
        held.append(1)


@needs_numpy
class NumPyArrays(unittest.TestCase):
    def test_every_dtype_that_safetensors_has(self):
        for dtype in "bool uint8 int8 uint16 int16 float16 uint32 int32 float32 uint64 int64 float64 complex64".split():
            values = numpy.arange(6).reshape(2, 3).astype(dtype)
            source = source_of("w", values)
            self.assertEqual(weightcast._tensors.LIBRARY_NAMES[source.dtype], dtype)
            self.assertEqual(taken(values)[1:], ((2, 3), values.tobytes()))

    def test_any_strides_come_out_row_major(self):
        base = numpy.arange(2 * 3 * 4 * 5, dtype="int32").reshape(2, 3, 4, 5)
        for view in (
            base.T, base[::-1], base[:, ::2, 1:, ::-2], base.transpose(2, 0, 3, 1), base[:, :0], base[0, 0, 0, 0],
            numpy.broadcast_to(base[:1], base.shape), numpy.asfortranarray(base), base.reshape(-1)[7::11],
        ):  # fmt: skip
            self.assertEqual(taken(view), ("I32", view.shape, view.tobytes()))

    def test_read_only_arrays_are_taken(self):
        values = numpy.arange(5, dtype="float32")
        values.flags.writeable = False
        self.assertEqual(taken(values)[2], values.tobytes())

    def test_what_safetensors_lacks_is_refused(self):
        for bad in ("complex128", "U3", "M8[s]", "float128", ">f4", [("a", "i4")], "O", "V3"):
            with self.assertRaisesRegex(TypeError, "tensor 'w': "):
                source_of("w", numpy.zeros(2, dtype=bad))


    def test_a_mask_is_not_lost_in_silence(self):
        masked = numpy.ma.masked_array([1.0, 2.0], mask=[0, 1])
        with self.assertRaisesRegex(TypeError, "tensor 'w': it is a masked array.*filled"):
            source_of("w", masked)
        self.assertEqual(taken(masked.filled(0.5))[2], struct.pack("<dd", 1.0, 0.5))


class Gone:
    """As JAX's array is that was deleted, or lies on several devices."""

    def __init__(self, at, error):
        self.at, self.error = at, error

    def __dlpack_device__(self):
        if self.at == "device":
            raise self.error
        return (1, 0)

    def __dlpack__(self):
        raise self.error


class DLPack(unittest.TestCase):
    def test_arrays_that_are_gone_or_in_pieces_are_refused_by_name(self):
        for at in ("device", "capsule"):
            for error in (RuntimeError("Array has been\ndeleted"), BufferError("sharded"), TypeError("sharded"), ValueError("no")):
                with self.assertRaisesRegex(TypeError, "tensor 'w': a .*Gone gives no DLPack .*numpy.asarray") as caught:
                    source_of("w", Gone(at, error))
                self.assertNotIn("\n", str(caught.exception))

    def test_types_map_to_dtypes(self):
        for code, bits, dtype in (
            (0, 8, "I8"), (0, 64, "I64"), (1, 8, "U8"), (1, 16, "U16"), (2, 16, "F16"), (2, 32, "F32"), (2, 64, "F64"),
            (4, 16, "BF16"), (5, 64, "C64"), (6, 8, "BOOL"), (10, 8, "F8_E4M3"), (12, 8, "F8_E5M2"), (14, 8, "F8_E8M0"),
        ):  # fmt: skip
            data = bytes(range(2 * bits // 8))
            self.assertEqual(taken(DLPackTensor(data, (2,), code=code, bits=bits)), (dtype, (2,), data))

    def test_strides_and_offset_are_followed(self):
        data = bfloat16(range(7))
        transposed = DLPackTensor(data, (3, 2), code=4, bits=16, strides=(1, 3), byte_offset=2)
        self.assertEqual(taken(transposed), ("BF16", (3, 2), bfloat16([1, 4, 2, 5, 3, 6])))

    def test_scalars_and_empty_tensors(self):
        self.assertEqual(taken(DLPackTensor(b"\1\2\3\4", (), code=2, bits=32)), ("F32", (), b"\1\2\3\4"))
        self.assertEqual(taken(DLPackTensor(b"", (0, 3), code=2, bits=32)), ("F32", (0, 3), b""))

    def test_pinned_memory_is_taken_and_devices_are_refused(self):
        self.assertEqual(taken(DLPackTensor(b"ab", (2,), code=1, bits=8, device=3))[2], b"ab")
        for device, name in ((2, "CUDA"), (10, "ROCm"), (99, "DLPack type 99")):
            with self.assertRaisesRegex(TypeError, rf"tensor 'w': it is on a device \({name}\); copy it to the host"):
                source_of("w", DLPackTensor(b"ab", (2,), code=1, bits=8, device=device))

    def test_an_array_that_only_a_device_can_read_is_refused_before_anything_reads_it(self):
        class DeviceArray:  # as Numba's: an address that is none on the host
            __cuda_array_interface__ = {"shape": (2,), "typestr": "|u1", "data": (64, False), "version": 3}

        with self.assertRaisesRegex(TypeError, r"tensor 'w': it is on a device \(CUDA\); copy it to the host"):
            source_of("w", DeviceArray())

    def test_types_that_safetensors_lacks_are_refused(self):
        for code, bits, lanes in ((2, 128, 1), (5, 128, 1), (1, 4, 1), (0, 32, 4), (3, 64, 1), (7, 8, 1), (10, 16, 1)):
            with self.assertRaisesRegex(TypeError, "tensor 'w': safetensors has no DLPack type"):
                source_of("w", DLPackTensor(b"a" * 64, (2,), code=code, bits=bits, lanes=lanes))

    def test_the_tensor_is_freed_once_by_its_own_capsule(self):
        tensor = DLPackTensor(b"ab", (2,), code=1, bits=8)
        source = source_of("w", tensor)
        self.assertEqual(tensor.freed, 0)
        del source
        self.assertEqual(tensor.freed, 1)


class RawTensors(unittest.TestCase):
    def test_any_dtype_is_carried(self):
        for dtype, size in (("BF16", 12), ("F8_E4M3", 6), ("F4", 3), ("U64", 48)):
            data = bytes(range(size))
            self.assertEqual(taken(weightcast.RawTensor(dtype, (2, 3), data)), (dtype, (2, 3), data))

    def test_a_size_that_does_not_fit_is_refused(self):
        for dtype, shape, data in (("BF16", (2,), b"abc"), ("F4", (3,), b"ab"), ("F32", (-1,), b""), ("U8", (), b"")):
            with self.assertRaises(ValueError):
                weightcast.RawTensor(dtype, shape, data)
        with self.assertRaisesRegex(TypeError, "not contiguous"):
            weightcast.RawTensor("U8", (2,), memoryview(b"abcd")[::2])

    @needs_numpy
    def test_numpy_gives_bytes_for_what_it_lacks(self):
        data = bytes(range(12))
        for dtype, shape, as_numpy in (
            ("BF16", (2, 3), ("uint8", (2, 3, 2))), ("F8_E5M2", (3, 4), ("uint8", (3, 4))),
            ("F4", (2, 12), ("uint8", (12,))), ("F16", (2, 3), ("float16", (2, 3))),
            ("F32", (3,), ("float32", (3,))), ("X9", (5,), ("uint8", (12,))),
        ):  # fmt: skip
            got = weightcast.RawTensor(dtype, shape, data).numpy()
            self.assertEqual((got.dtype.name, got.shape, got.tobytes()), (*as_numpy, data))
            self.assertFalse(got.flags.writeable)
        self.assertEqual(weightcast.RawTensor("F32", (0, 2), b"").numpy().shape, (0, 2))


class Names(unittest.TestCase):
    def test_what_wrappers_put_into_them_is_left_out(self):
        for name, expected in (
            ("_orig_mod.a.weight", "a.weight"), ("a._orig_mod.weight", "a.weight"), ("a._orig_mod", "a._orig_mod"),
            ("_orig_mod._checkpoint_wrapped_module.a._fsdp_wrapped_module._orig_mod.b", "a.b"), ("my_orig_mod.a", "my_orig_mod.a"),
            ("module.a", "module.a"), ("", ""),
        ):  # fmt: skip
            self.assertEqual(unwrapped(name), expected)
            listed, structs = structs_of([(name, "U8", (2, 3)), ("z", "BF16", ())])
            self.assertEqual(listed, [(expected, "U8", (2, 3)), ("z", "BF16", ())])
            self.assertEqual([struct.name.decode() for struct in structs], [expected, "z"])

    def test_names_within_data_parallel_wrappers_are_refused(self):
        given = {"module.a": b"1", "_orig_mod.module.b": b"2"}
        with self.assertRaisesRegex(ValueError, "all names begin with 'module.', .*its .module.*removeprefix"):
            named_tensors(given)
        self.assertEqual([name for name, _ in named_tensors({**given, "a": b"3"})], ["module.a", "module.b", "a"])

    def test_what_has_no_names_is_refused_with_what_has(self):
        for given, error in (
            ("dir", "'dir' is a path, not tensors; publish_path"), (pathlib.Path("dir"), "'dir' is a path.*publish_path"),
            ([b"1", b"2"], "a bytes has no name; .*named_parameters"), (3, "a int has no tensors with names"),
        ):  # fmt: skip
            with self.assertRaisesRegex(TypeError, error):
                named_tensors(given)

    def test_versions_are_integers(self):
        for given, error in (("21", "version '21' is a str; give an int"), (1.5, "a float"), (0, "version 0 is not between 1")):
            with self.assertRaisesRegex((TypeError, ValueError), error):
                options_of(given, False, False)


    def test_what_describes_no_tensor_and_what_is_no_file_are_refused_by_name(self):
        for given in ("x", ["w"], [("w", "F32")], {"w": bytes(4)}):
            with self.assertRaisesRegex(TypeError, "'[xw].* describes no tensor; give a TensorInfo, which describe"):
                structs_of(given)
        with self.assertRaisesRegex(TypeError, "file 'config.json' is given as a dict; give bytes, or a str"):
            options_of(None, False, False, files={"config.json": {"vocab_size": 256}})


class Describing(unittest.TestCase):
    def test_describe_gives_what_begin_takes(self):
        tensor = DLPackTensor(bfloat16(range(6)), (2, 3), code=4, bits=16)
        self.assertEqual(weightcast.describe("w", tensor), ("w", "BF16", (2, 3)))


class Typing(unittest.TestCase):
    def test_what_with_gives_has_its_type(self):
        """A type checker knows what `with Publisher(...) as publisher` is."""
        managers = [kind for kind in map(weightcast.__dict__.get, weightcast.__all__) if hasattr(kind, "__enter__")]
        self.assertLess({"Publisher", "Subscription", "Region", "Pin", "Weights"}, {kind.__name__ for kind in managers})
        for kind in managers:
            given = kind.__enter__.__annotations__["return"]
            if given != kind.__name__:
                # The type of what it is called on.
                self.assertEqual(kind.__enter__.__annotations__["self"], given)
                module = vars(__import__(kind.__enter__.__module__, fromlist=["_"]))
                self.assertIsInstance(module[given], typing.TypeVar)
