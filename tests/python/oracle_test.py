"""Beside the safetensors package, NumPy, ml_dtypes and torch: what they write we publish, what we install they read."""

import array
import pathlib
import unittest

import ml_dtypes
import numpy
import safetensors
import safetensors.numpy
import weightcast
from daemons import PublisherTest, eventually
from weightcast import RawTensor, Snapshot

try:
    import torch
except ImportError:
    torch = None

needs_torch = unittest.skipIf(torch is None, "torch is not installed; the package is python3-torch")


def numpy_tensors():
    source = numpy.random.default_rng(7)
    base = source.standard_normal((6, 8)).astype("float32")
    made = {
        "f32": base,
        "f64.transposed": base.astype("float64").T,
        "f16.sliced": base.astype("float16")[::2, ::-3],
        "i64.scalar": numpy.int64(-5) * numpy.ones((), "int64"),
        "bool": base > 0,
        "empty": base[:0],
    }
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        made[name] = base.astype(getattr(ml_dtypes, name))
        made[name + ".transposed"] = made[name].T
    return made


class Safetensors(PublisherTest):
    def current(self):
        return pathlib.Path(self.origin.state) / "current"

    def publish(self, tensors):
        version = self.publish_and_wait(tensors)
        eventually(lambda: self.origin.node()["version"] == version)

    def test_its_reader_opens_what_numpy_arrays_became(self):
        made = numpy_tensors()
        self.publish(made)
        with safetensors.safe_open(self.current() / "model.safetensors", framework="np") as opened:
            self.assertEqual(set(opened.keys()), set(made))
        raw = dict(safetensors.deserialize((self.current() / "model.safetensors").read_bytes()))
        for name, tensor in made.items():
            self.assertEqual(tuple(raw[name]["shape"]), tensor.shape)
            self.assertEqual(bytes(raw[name]["data"]), tensor.tobytes(), name)
        self.assertEqual(raw["bfloat16"]["dtype"], "BF16")
        self.assertEqual(raw["float8_e4m3fn"]["dtype"], "F8_E4M3")

    def test_what_it_writes_we_publish_and_read(self):
        made = {name: numpy.ascontiguousarray(t) for name, t in numpy_tensors().items() if t.dtype.isbuiltin == 1}
        path = self.directory / "model.safetensors"
        safetensors.numpy.save_file(made, path, metadata={"format": "np"})
        self.publisher.wait(self.publisher.publish_path(path))
        self.assertEqual((self.current() / "model.safetensors").read_bytes(), path.read_bytes())
        found = Snapshot(self.current())
        self.assertEqual(set(found), set(made))
        for name, tensor in made.items():
            got = found[name].numpy()
            self.assertEqual((got.dtype, got.shape), (tensor.dtype, tensor.shape))
            numpy.testing.assert_array_equal(got, tensor)

    @needs_torch
    def test_torch_tensors_of_any_strides_and_dtype(self):
        base = torch.randn(6, 8)
        made = {
            "f32": torch.nn.Parameter(base),
            "bf16": base.to(torch.bfloat16),
            "bf16.transposed": base.to(torch.bfloat16).t(),
            "f16.sliced": base.half()[::2, 1::3],
            "expanded": base[:1].expand(4, 8),
            "i64.scalar": torch.tensor(-5),
            "bool": base > 0,
            "c64": torch.complex(base, -base).conj(),
            "empty": base[:0],
            "raw": RawTensor("F8_E4M3", (2, 3), b"abcdef"),
        }
        for name in ("float8_e4m3fn", "float8_e5m2"):
            if hasattr(torch, name):
                made[name] = base.to(getattr(torch, name)).t()
        self.publish(made)
        found = Snapshot(self.current())
        for name, tensor in made.items():
            if name == "raw":
                self.assertEqual((found[name].dtype, bytes(found[name].data)), ("F8_E4M3", b"abcdef"))
                continue
            got = found[name].torch()
            self.assertEqual((got.dtype, got.shape), (tensor.dtype, tensor.shape), name)
            wide = torch.complex64 if tensor.is_complex() else torch.float64
            self.assertTrue(torch.equal(got.to(wide), tensor.detach().to(wide)), name)

    @needs_torch
    def test_torch_views_are_of_the_mapping(self):
        self.publish({"w": torch.arange(4.0)})
        path = self.current() / "model.safetensors"
        before = path.read_bytes()
        snapshot = Snapshot(path)
        snapshot["w"].torch()[0] = 9.0
        self.assertEqual(snapshot["w"].torch()[0], 9.0)  # the same private page
        self.assertEqual(path.read_bytes(), before)

    @needs_torch
    def test_changes_are_torch_tensors_over_the_list(self):
        def raw(dtype, code, cells):
            return weightcast.RawTensor(dtype, (len(cells),), bytearray(array.array(code, cells).tobytes()))

        change = weightcast.Change(raw("U32", "I", [1, 3, 9]), raw("F32", "f", [5, 6, 7]), raw("F32", "f", [1, 2, 3]))
        tensors = change.torch()
        indices, values = tensors
        weights = torch.zeros(10)
        weights[indices] = values
        self.assertEqual(weights.tolist(), [0, 5, 0, 6, 0, 0, 0, 0, 0, 7])
        self.assertEqual(tensors.old_values.tolist(), [1, 2, 3])
        if not torch.cuda.is_available():
            values[0] = 8.0
            self.assertEqual(change.values.torch()[0], 8.0)  # the same memory
        wide = weightcast.Change(raw("U32", "I", [1, 2**32 - 1]), raw("F32", "f", [5, 6])).torch()
        self.assertEqual(wide.indices.tolist(), [1, 2**32 - 1])
        self.assertIsNone(wide.old_values)
        self.assertEqual(weightcast.Change(raw("U64", "Q", [2**33]), raw("F32", "f", [5])).torch().indices[0], 2**33)
        none = weightcast.Change(weightcast.RawTensor("U32", (0,), b""), weightcast.RawTensor("BF16", (0,), b"")).torch()
        self.assertEqual((none.indices.shape, none.values.dtype), ((0,), torch.bfloat16))

    @needs_torch
    def test_torch_tensors_without_dense_bytes_are_refused(self):
        for bad in (torch.eye(3).to_sparse(), torch.empty(3, device="meta"), torch.zeros(2, dtype=torch.complex128)):
            with self.assertRaisesRegex(TypeError, "tensor 'w': "):
                weightcast.describe("w", bad)


if __name__ == "__main__":
    unittest.main()
