"""Snapshots on disk: what is read, and what is refused. No daemon."""

import gc
import json
import pathlib
import struct
import unittest

import weightcast
from fixtures import make_directory
from weightcast import Code, Snapshot

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "fuzz" / "corpus" / "safetensors"


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="U8", shape=(1,), begin=0, end=1):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


class Files(unittest.TestCase):
    def setUp(self):
        self.directory = make_directory(self)

    def write(self, data, name="model.safetensors"):
        path = self.directory / name
        path.write_bytes(data)
        return path

    def refused(self, data, code, text):
        path = self.write(data)
        with self.assertRaisesRegex(weightcast.Error, text) as caught:
            Snapshot(path)
        self.assertEqual(caught.exception.code, code)
        self.assertNotIn("\n", str(caught.exception))


class OneFile(Files):
    HEADER = {
        "b": entry("BF16", (2, 1), 0, 4),
        "__metadata__": {"format": "pt"},
        "a": entry("F32", (), 4, 8),
        "empty": entry("F32", (0, 7), 8, 8),
        "f4": entry("F4", (4,), 8, 10),
    }
    DATA = b"\1\2\3\4" + struct.pack("<f", 2.5) + b"xy"

    def test_tensors_come_in_the_order_of_their_bytes(self):
        snapshot = Snapshot(self.write(safetensors(self.HEADER, self.DATA)))
        self.assertEqual(snapshot.names, ("b", "a", "empty", "f4"))
        self.assertEqual(
            [(tensor.dtype, tensor.shape, bytes(tensor.data)) for tensor in snapshot.values()],
            [("BF16", (2, 1), b"\1\2\3\4"), ("F32", (), self.DATA[4:8]), ("F32", (0, 7), b""), ("F4", (4,), b"xy")],
        )
        with self.assertRaises(KeyError):
            snapshot["absent"]

    def test_views_are_of_the_file_and_outlive_everything_else(self):
        path = self.write(safetensors(self.HEADER, self.DATA))
        view = Snapshot(path)["b"].data
        with open(path, "r+b") as file:  # a mapped page shows what is written to the file
            file.seek(path.stat().st_size - len(self.DATA))
            file.write(b"\x09")
        path.unlink()
        gc.collect()
        self.assertEqual(bytes(view), b"\x09\2\3\4")

    def test_writing_to_a_view_leaves_the_file_alone(self):
        path = self.write(safetensors(self.HEADER, self.DATA))
        before = path.read_bytes()
        view = Snapshot(path)["b"].data
        view[:] = b"\0\0\0\0"
        self.assertEqual(path.read_bytes(), before)
        self.assertEqual(bytes(Snapshot(path)["b"].data), b"\1\2\3\4")

    def test_a_dtype_of_a_later_format_is_bytes(self):
        tensor = Snapshot(self.write(safetensors({"w": entry("F9_NEW", (3,), 0, 5)}, b"abcde")))["w"]
        self.assertEqual((tensor.dtype, tensor.shape, bytes(tensor.data)), ("F9_NEW", (3,), b"abcde"))

    def test_no_tensors_at_all(self):
        self.assertEqual(len(Snapshot(self.write(safetensors({})))), 0)

    def test_a_missing_file_is_an_oserror(self):
        with self.assertRaises(FileNotFoundError):
            Snapshot(self.directory / "absent.safetensors")

    def test_truncation_at_every_length_is_refused(self):
        whole = safetensors(self.HEADER, self.DATA)
        for size in range(len(whole)):
            self.refused(whole[:size], Code.CORRUPT, "cannot open: .*; write it again")

    def test_bytes_after_the_last_tensor_are_refused(self):
        self.refused(safetensors(self.HEADER, self.DATA + b"z"), Code.CORRUPT, "1 bytes after the last tensor")

    def test_headers_that_are_no_headers_are_refused(self):
        for header, text in (
            (b"", "does not start with"), (b" {}", "does not start with"), (b"[]", "does not start with"),
            (b"{", "is not JSON"), (b"{}x", "is not JSON"), (b'{"a": NaN}', "NaN"), (b'{"\xff": 1}', "is not JSON"),
            (b"{}\0", "is not JSON"), (b'{"a":' + b"[" * 50000, "is not JSON"),
        ):  # fmt: skip
            self.refused(safetensors(header), Code.CORRUPT, text)
        self.refused(struct.pack("<Q", 100_000_001) + b"{}", Code.TOO_LARGE, "is it a safetensors file")
        self.refused(struct.pack("<Q", 2**64 - 1) + b"{}", Code.TOO_LARGE, "is it a safetensors file")

    def test_names_given_twice_are_refused(self):
        one = json.dumps(entry())
        self.refused(safetensors(f'{{"a":{one},"a":{one}}}'.encode(), b"x"), Code.CORRUPT, "gives 'a' twice")

    def test_entries_of_the_wrong_kind_are_refused(self):
        for bad in (
            3, [], {}, {**entry(), "dtype": 1}, {**entry(), "shape": 1}, {**entry(), "shape": [-1]},
            {**entry(), "shape": [1.0]}, {**entry(), "shape": [True]}, {**entry(), "shape": [2**64]},
            {**entry(), "data_offsets": [0]}, {**entry(), "data_offsets": [0, 1, 1]},
            {**entry(), "data_offsets": [1, 0]},
            {**entry(), "data_offsets": [0, True]}, {**entry(), "shape": [2]}, {**entry("F4"), "shape": [1]},
            {**entry("F32")},
        ):  # fmt: skip
            self.refused(safetensors({"w": bad}, b"x"), Code.CORRUPT, "tensor 'w': ")
        self.refused(safetensors({"\ud800": entry()}, b"x"), Code.CORRUPT, "not Unicode")
        self.refused(safetensors({"w": entry(shape=[1] * 65)}, b"x"), Code.TOO_LARGE, "dimensions")
        self.refused(safetensors({"w" * 16385: entry()}, b"x"), Code.TOO_LARGE, "longer than")
        for bad in ([], "x", {"a": 1}):
            self.refused(safetensors({"__metadata__": bad}), Code.CORRUPT, "__metadata__")

    def test_holes_overlaps_and_what_lies_outside_are_refused(self):
        for second, text in (((0, 1), "an overlap"), ((2, 3), "a hole"), ((1, 9), "ends at byte 9")):
            begin, end = second
            header = {"a": entry(end=1), "b": entry(shape=(end - begin,), begin=begin, end=end)}
            self.refused(safetensors(header, b"xyz"), Code.CORRUPT, text)

    @unittest.skipUnless(CORPUS.is_dir(), "no corpus")
    def test_every_input_of_the_fuzz_corpus_is_read_or_refused(self):
        read = refused = 0
        for path in sorted(CORPUS.iterdir()):
            try:
                for tensor in Snapshot(path).values():
                    bytes(tensor.data)
                read += 1
            except weightcast.Error:
                refused += 1
        self.assertTrue(read and refused, (read, refused))


class Directories(Files):
    def shards(self, weight_map=None, index=None):
        self.write(safetensors({"a": entry()}, b"A"), "model-1.safetensors")
        self.write(safetensors({"b": entry(), "c": entry(begin=1, end=2)}, b"BC"), "model-2.safetensors")
        one, two = "model-1.safetensors", "model-2.safetensors"
        weight_map = {"a": one, "b": two, "c": two} if weight_map is None else weight_map
        index = index or json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
        self.write(index, "model.safetensors.index.json")
        return self.directory

    def refuses(self, code, text):
        with self.assertRaisesRegex(weightcast.Error, text) as caught:
            Snapshot(self.directory)
        self.assertEqual(caught.exception.code, code)

    def test_a_directory_with_one_file(self):
        self.write(safetensors({"a": entry()}, b"A"))
        self.assertEqual(bytes(Snapshot(self.directory)["a"].data), b"A")

    def test_an_adapter_alone_is_a_snapshot(self):
        self.write(safetensors({"a": entry()}, b"A"), "adapter_model.safetensors")
        self.assertEqual(bytes(Snapshot(self.directory)["a"].data), b"A")
        self.write(safetensors({"a": entry()}, b"B"))
        self.assertEqual(bytes(Snapshot(self.directory)["a"].data), b"B", "beside a model it is none")

    def test_shards_are_one_snapshot(self):
        snapshot = Snapshot(self.shards())
        found = {name: bytes(tensor.data) for name, tensor in snapshot.items()}
        self.assertEqual(found, {"a": b"A", "b": b"B", "c": b"C"})

    def test_a_directory_without_weights_and_one_with_both(self):
        self.refuses(Code.NOT_FOUND, "holds neither")
        self.shards()
        self.write(safetensors({}))
        self.refuses(Code.INVALID_ARGUMENT, "holds both")

    def test_an_index_that_disagrees_with_its_shards_is_refused(self):
        one, two = "model-1.safetensors", "model-2.safetensors"
        for weight_map, text in (
            ({"a": one, "b": two, "c": one}, "'c' is in shard"), ({"a": one, "b": two}, "listed in None"),
            ({"a": one, "b": two, "c": two, "d": two}, "'d' is listed in shard"),
        ):  # fmt: skip
            self.shards(weight_map)
            self.refuses(Code.CORRUPT, text)

    def test_indices_that_are_no_indices_are_refused(self):
        for index in (b"[]", b"{", b'{"weight_map": 1}', b'{"weight_map": {"a": 1}}', b"{}", b"\xff"):
            self.shards(index=index)
            self.refuses(Code.CORRUPT, "index.json")

    def test_a_shard_outside_of_the_directory_is_refused(self):
        for stem in ("../x", "/x", "s/x", ".x", "a\0"):
            self.shards({"a": stem + ".safetensors"})
            self.refuses(Code.INVALID_ARGUMENT, "is not a .safetensors file of the directory")
        for shard in ("x.bin", ""):
            self.shards({"a": shard})
            self.refuses(Code.INVALID_ARGUMENT, "is not a .safetensors file of the directory")

    def test_a_shard_that_is_missing_is_an_oserror(self):
        self.shards({"a": "model-9.safetensors"})
        with self.assertRaises(FileNotFoundError):
            Snapshot(self.directory)
