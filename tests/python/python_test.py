"""The package against real daemons on loopback."""

import array
import asyncio
import dataclasses
import gc
import multiprocessing
import os
import pathlib
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import warnings
import weakref
from unittest import mock

import weightcast
from daemons import DaemonTest, PublisherTest, eventually
from fakes import DLPackTensor, FakeTorch, bfloat16
from weightcast import Code, EventKind, Piece, RawTensor, Snapshot, TensorInfo
from weightcast._library import interruptible

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples"


def tensors(seed=0):
    """One of each kind that is taken, and the bytes that it is."""
    made = random.Random(seed)
    floats = array.array("f", [made.uniform(-1, 1) for _ in range(1000)])
    halves = bfloat16([made.uniform(-1, 1) for _ in range(300)])
    eights = made.randbytes(64)
    return {
        "buffer": (floats, "F32", (1000,), floats.tobytes()),
        "strided": (memoryview(floats)[::-2], "F32", (500,), array.array("f", floats[::-2]).tobytes()),
        "dlpack": (DLPackTensor(halves, (3, 100), code=4, bits=16), "BF16", (3, 100), halves),
        "raw": (RawTensor("I8", (8, 8), eights), "I8", (8, 8), eights),
        "scalar": (RawTensor("I64", (), bytes(8)), "I64", (), bytes(8)),
        "empty": (array.array("f"), "F32", (0,), b""),
    }


def named(made):
    return {name: tensor for name, (tensor, *_) in made.items()}


def fill_half(path, half):
    """What one process of a sharded trainer does."""
    with weightcast.attach(path) as region:
        view = region.buffer("shared")
        middle = len(view) // 2
        if half == 0:
            view[:middle] = b"\1" * middle
            region.fill("own", array.array("f", [2.5] * 4))
        else:
            view[middle:] = b"\2" * (len(view) - middle)
        del view


def receive_and_fill(connection):
    """What a process that cannot open the path does, as it has another user: the memory comes over a socket."""
    if os.getuid() == 0:
        os.setuid(65534)
    with connection:
        message, (fd,), _, _ = socket.recv_fds(connection, 8, 1)
        id = int.from_bytes(message, "little")
        with weightcast.attach(fd, id=id) as region:
            os.close(fd)
            region.fill("m", array.array("f", [7.0, 8.0]), offset=(2,))
            region.done(1)


def busy(*_):
    raise weightcast.Error(Code.BUSY, "configure", "another thread is inside a call of this handle")


def descriptors():
    return len(os.listdir("/proc/self/fd"))


class Publishing(PublisherTest):
    def current(self):
        return Snapshot(pathlib.Path(self.origin.state) / "current")

    def expect(self, made):
        found = self.current()
        self.assertEqual(
            {name: (tensor.dtype, tensor.shape, bytes(tensor.data)) for name, tensor in found.items()},
            {name: (dtype, shape, data) for name, (_, dtype, shape, data) in made.items()},
        )

    def test_every_kind_of_tensor_arrives_byte_for_byte(self):
        for seed in range(3):
            made = tensors(seed)
            version = self.publisher.publish(named(made))
            self.assertEqual(version, seed + 1)
            self.assertEqual(self.publisher.wait(version).version, version)
            eventually(lambda: self.origin.node()["version"] == version)
            self.expect(made)

    def test_tensors_on_a_device_are_copied_once_behind_what_writes_them(self):
        torch = FakeTorch()
        weights = bfloat16([0.5, -1.0, 2.0, 3.0, -4.0, 0.25])
        floats = array.array("f", [1.5, -2.5])
        made = {
            "device": ("BF16", (2, 3), weights),
            "other": ("F32", (2,), floats.tobytes()),
            "host": ("U8", (4,), b"abcd"),
        }
        with mock.patch.dict(sys.modules, torch=torch):
            self.publish_and_wait(
                {
                    "device": torch.on_device(weights, torch.bfloat16, (2, 3)),
                    "other": torch.on_device(floats.tobytes(), torch.float32, (2,)),
                    "host": b"abcd",
                }
            )
            found = {name: (t.dtype, t.shape, bytes(t.data)) for name, t in self.current().items()}
            self.assertEqual(found, made)
            # On the caller's thread, whose current stream it is.
            self.assertEqual(torch.copies, [(12, threading.get_ident()), (8, threading.get_ident())])

    def test_pairs_versions_and_the_socket_as_address(self):
        with weightcast.Publisher(os.path.join(self.origin.state, "api.sock")) as publisher:
            self.assertEqual(publisher.next_version(), 1)
            pairs = ((name, tensor) for name, tensor in named(tensors()).items())
            self.assertEqual(publisher.publish(pairs, version=70), 70)
            self.assertEqual(publisher.next_version(), 71)
            with self.raises(Code.ALREADY_EXISTS):
                publisher.publish(named(tensors()), version=70)
            self.assertEqual(publisher.publish(named(tensors(1))), 71)
            publisher.wait()
            self.assertEqual([v["version"] for v in weightcast.versions(self.origin.state)["versions"]][-1], 71)
            told = weightcast.history(self.origin.state)
            self.assertEqual([entry["version"] for entry in told["publications"]], [70, 71])
            one = weightcast.history(self.origin.state, version=71)
            self.assertEqual([entry["version"] for entry in one["publications"]], [71])
            with self.raises(Code.NOT_FOUND):
                weightcast.history(self.origin.state, version=5)

    def test_filling_in_place_in_any_order(self):
        made = tensors()
        infos = [weightcast.describe(name, tensor) for name, tensor in named(made).items()]
        self.publisher.reserve(infos, regions=2)
        with self.publisher.begin(infos) as publication:
            self.assertEqual(publication.infos, tuple(infos))
            for name in reversed(list(made)):
                if name == "raw":
                    publication.buffer(name)[:] = made[name][3]
                else:
                    publication.fill(name, made[name][0])
            with self.assertRaisesRegex(ValueError, "'raw' is F32 .*was begun as I8"):
                publication.fill("raw", made["buffer"][0])
            with self.assertRaises(KeyError):
                publication.fill("absent", b"")
            view = publication.buffer("raw")
            self.assertEqual(publication.commit(), 1)
            with self.assertRaises(ValueError):
                view[0] = 1  # it is the origin's now
            with self.assertRaises(weightcast.Error):
                publication.fill("raw", made["raw"][0])
        self.publisher.wait()
        self.expect(made)

    def test_changes_of_cells_give_what_publishing_all_gives(self):
        made = tensors()
        with self.raises(Code.WRONG_BASE):
            self.publisher.publish_sparse({}, base=1)
        self.publisher.publish(named(made))
        changes = {
            "buffer": (array.array("I", [3, 999]), array.array("f", [0.5, -2.0])),
            "raw": (array.array("q", [0, 9, 63]), RawTensor("I8", (3,), b"abc")),
            "dlpack": (array.array("Q", [299]), RawTensor("BF16", (1,), bfloat16([0.25]))),
            "strided": (memoryview(array.array("i", [9, 8, 7]))[::-1], memoryview(array.array("f", [3, 2, 1]))[::-1]),
            "empty": (array.array("I"), array.array("f")),
        }
        self.assertEqual(self.publisher.publish_sparse(changes, base=1), 2)
        self.publisher.wait()
        for name, (indices, values) in changes.items():
            _, dtype, shape, data = made[name]
            width = weightcast._tensors.DTYPE_BITS[dtype] // 8
            raw = bytes(values.data) if isinstance(values, RawTensor) else memoryview(values).tobytes()
            data = bytearray(data)
            for i, index in enumerate(indices):
                data[index * width : (index + 1) * width] = raw[i * width : (i + 1) * width]
            made[name] = (None, dtype, shape, bytes(data))
        self.expect(made)
        # A copy of the last one, by pairs, under a number of its own.
        self.assertEqual(self.publisher.publish_sparse(iter(()), base=2, version=9), 9)
        self.publisher.wait()
        self.expect(made)

    def test_changes_that_cannot_be_are_refused(self):
        one = array.array("I", [0])
        value = array.array("f", [1.0])
        self.publish_and_wait({"w": array.array("f", [1.0] * 4)})
        for bad, error in (
            ({"w": (value, value)}, "indices of F32; give int32"),
            ({"w": (one, array.array("f"))}, "two rows of one length"),
            ({"w": (one, object())}, "neither a torch tensor"),
            ({5: (one, value)}, "not a string"),
        ):
            with self.assertRaisesRegex((TypeError, ValueError), error):
                self.publisher.publish_sparse(bad, base=1)
        for base in (0, -1, 2**63):
            with self.assertRaisesRegex(ValueError, "base version"):
                self.publisher.publish_sparse({}, base=base)
        for bad, error in (
            ({"v": (one, value)}, "tensor 'v': the version that is changed has no such tensor"),
            ({"w": (one, array.array("d", [1.0]))}, "its values are of dtype 'F64', its elements of F32"),
            ({"w": (array.array("i", [-1]), value)}, "index 4294967295 is not one of its 4 elements; as int32 it is -1"),
            ({"w": (array.array("q", [-2]), value)}, "index -2 is not one of its 4 elements"),
            ({"w": (array.array("I", [2, 1]), array.array("f", [1.0, 2.0]))}, "sort them"),
            ({"w": (one, array.array("f", [float("nan")]))}, "publish with allow_nonfinite=True"),
        ):
            version = self.publisher.publish_sparse(bad, base=1)
            with self.raises(Code.INVALID_ARGUMENT, error):
                self.publisher.wait(version)
        with self.raises(Code.WRONG_BASE, "the last one is 1"):
            self.publisher.publish_sparse({"w": (one, value)}, base=2)
        with self.raises(Code.INVALID_ARGUMENT, "of tensor 'w': it is given twice"):
            self.publisher.publish_sparse([("w", (one, value))] * 2, base=1)
        nan = array.array("f", [float("nan")])
        self.assertEqual(self.publisher.publish_sparse({"w": (one, nan)}, base=1, allow_nonfinite=True), 2)
        self.publisher.wait()

    def test_what_is_not_committed_is_aborted(self):
        infos = [TensorInfo("w", "U8", (4,))]
        with self.assertRaisesRegex(RuntimeError, "mine"):
            with self.publisher.begin(infos):
                raise RuntimeError("mine")
        with self.publisher.begin(infos) as publication:
            with self.raises(Code.BUSY):
                self.publisher.begin(infos)
            publication.abort()
        self.assertEqual(self.publisher.next_version(), 1)

    def test_what_is_dropped_or_interrupted_does_not_stay_begun(self):
        infos = [TensorInfo("w", "U8", (4,))]
        self.publisher.begin(infos)
        gc.collect()
        self.publisher.reserve(infos)
        self.publisher.begin(infos)
        gc.collect()
        self.assertEqual(self.publisher.publish({"w": b"abcd"}), 1)
        with mock.patch("weightcast._publisher.Publication", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                self.publisher.begin(infos)
        with self.publisher.begin(infos) as publication:
            publication.fill("w", b"efgh")
            self.assertEqual(publication.commit(), 2)

    def test_a_tensor_that_is_refused_publishes_nothing(self):
        with self.assertRaisesRegex(TypeError, "tensor 'bad'"):
            self.publisher.publish({"good": b"abc", "bad": object()})
        for infos in ([("w", "X8", (1,))], [("w", "F4", (3,))], [("w", "U8", (-1,))]):
            with self.assertRaisesRegex(ValueError, "tensor 'w'"):
                self.publisher.begin(infos)
        with self.raises(Code.INVALID_ARGUMENT):
            self.publisher.begin([("w", "U8", (1,)), ("w", "U8", (1,))])
        self.assertEqual(self.publisher.publish({"good": b"abc"}), 1)

    def test_nan_needs_to_be_allowed(self):
        bad = {"w": array.array("f", [float("nan")])}
        with self.raises(Code.INVALID_ARGUMENT, "publish with allow_nonfinite=True"):
            self.publish_and_wait(bad)
        self.publish_and_wait(bad, allow_nonfinite=True)

    def test_a_path_is_published(self):
        self.publish_and_wait(named(tensors(5)))
        source = self.directory / "copy.safetensors"
        source.write_bytes((pathlib.Path(self.origin.state) / "current" / "model.safetensors").read_bytes())
        here = os.getcwd()
        os.chdir(self.directory)
        self.addCleanup(os.chdir, here)
        self.assertEqual(self.publisher.publish_path("copy.safetensors"), 2)
        self.publisher.wait()
        self.expect(tensors(5))

    def test_a_directory_of_any_files_is_published(self):
        worker = self.start_worker("worker", "--files")
        tree = self.directory / "tree"
        (tree / "bin").mkdir(parents=True)
        (tree / "bin" / "tool.py").write_text("print()")
        (tree / "bin" / "tool.py").chmod(0o755)
        self.publish_and_wait(named(tensors()), installed=1.0)
        self.publisher.publish_files(tree)
        with self.assertRaisesRegex(weightcast.Error, "new_model=True"):
            self.publisher.wait()
        version = self.publisher.publish_files(tree, new_model=True)
        self.publisher.wait(version, installed=1.0)
        tool = pathlib.Path(worker.state) / "current" / "bin" / "tool.py"
        self.assertEqual(tool.read_text(), "print()")
        self.assertTrue(os.access(tool, os.X_OK))

    def test_processes_fill_parts_of_one_region_and_one_commits(self):
        spawn = multiprocessing.get_context("spawn")
        with self.publisher.begin([("shared", "U8", (1001,)), ("own", "F32", (4,))]) as publication:
            ranks = [spawn.Process(target=fill_half, args=(publication.path, half)) for half in (0, 1)]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join(60)
                self.assertEqual(rank.exitcode, 0)
            publication.commit()
        self.publisher.wait()
        self.assertEqual(bytes(self.current()["shared"].data), b"\1" * 500 + b"\2" * 501)
        self.assertEqual(bytes(self.current()["own"].data), array.array("f", [2.5] * 4).tobytes())

    def test_the_memory_goes_to_others_by_its_descriptor(self):
        ours, theirs = socket.socketpair()
        rank = multiprocessing.get_context("fork").Process(target=receive_and_fill, args=(theirs,))
        rank.start()
        theirs.close()
        with ours:
            with self.publisher.begin([("m", "F32", (4,))], parts=2) as publication:
                publication.fill("m", array.array("f", [5.0, 6.0]), offset=(0,))
                publication.done(0)
                with self.raises(Code.BUSY, "1 of 2 parts are not done .1."):
                    publication.commit()
                socket.send_fds(ours, [publication.id.to_bytes(8, "little")], [publication.fileno()])
                rank.join(60)
                self.assertEqual(rank.exitcode, 0)
                with self.raises(Code.INVALID_ARGUMENT):
                    publication.done(2)
                with self.assertRaisesRegex(weightcast.Error, "of another one by now"):
                    weightcast.attach(publication.fileno(), id=publication.id + 1)
                publication.commit()
            self.publisher.wait()
            with self.assertRaisesRegex(ValueError, "parts"):
                self.publisher.begin([("m", "F32", (4,))], parts=-1)
        self.assertEqual(bytes(self.current()["m"].data), array.array("f", [5, 6, 7, 8]).tobytes())

    def test_parts_of_a_tensor_are_filled_where_they_belong(self):
        with self.publisher.begin([("m", "I16", (3, 4)), ("s", "F32", ())]) as publication:
            numbers = memoryview(array.array("h", range(12))).cast("B").cast("h", (3, 4))
            publication.fill("m", numbers[:1], offset=(0, 0))
            left = memoryview(array.array("h", [4, 5, 8, 9])).cast("B").cast("h", (2, 2))
            publication.fill("m", left, offset=(1, 0))
            right = array.array("h", [6, 7, 10, 11]).tobytes()
            publication.fill("m", DLPackTensor(right, (2, 2), code=0, bits=16), offset=(1, 2))
            publication.fill("m", DLPackTensor(b"", (3, 0), code=0, bits=16), offset=(0, 4))
            publication.fill("s", RawTensor("F32", (), b"abcd"), offset=())
            self.assertEqual(bytes(publication.buffer("m")), numbers.tobytes())
            for part, offset in ((left, (1, 3)), (left, (0,)), (left, (-1, 0)), (left, (0, 0, 0))):
                with self.assertRaisesRegex(ValueError, "are not within"):
                    publication.fill("m", part, offset=offset)
            with self.assertRaisesRegex(ValueError, "was begun as I16; a part of F32"):
                publication.fill("m", array.array("f", [1.0]), offset=(0, 0))

    def test_a_mapping_is_kept_from_one_publication_to_the_next(self):
        first = self.publisher.begin([("a", "U8", (4,)), ("b", "U8", (8,))])
        rank = weightcast.attach(first.path)
        self.assertEqual(rank.memory, first.memory)
        first.abort()
        with self.publisher.begin([("a", "U8", (8,)), ("b", "U8", (4,))]) as second:
            self.assertEqual(rank.memory, second.memory)
            with self.assertRaisesRegex(weightcast.Error, "of another one by now"):
                rank.renew(first.id)
            with self.assertRaisesRegex(weightcast.Error, "was committed or aborted"):
                rank.fill("a", b"abcd")
            rank.renew(second.id)
            rank.fill("a", b"abcdefgh")
            rank.fill("b", b"ijkl")
            second.commit()
        self.publisher.wait()
        rank.close()
        self.assertEqual(bytes(self.current()["a"].data), b"abcdefgh")
        self.assertEqual(bytes(self.current()["b"].data), b"ijkl")

    def test_changes_by_pieces_give_what_publishing_all_gives(self):
        self.publisher.publish({"m": RawTensor("U8", (3, 4), bytes(12)), "v": bytes(5)})
        left, right = Piece("m", "U8", (0, 0), (3, 2), 3), Piece("m", "U8", (0, 2), (3, 2), 2)
        whole = Piece("v", "U8", (), (), 1)
        with self.publisher.begin_changes([left, right, whole], base=1, parts=1) as publication:
            with weightcast.attach(publication.path) as rank:
                rank.fill(left.indices, array.array("I", [0, 3, 5]))
                rank.fill(left.values, b"abc")
                rank.done(0)
            publication.fill(right.indices, array.array("I", [1, 4]))
            publication.fill(right.values, b"de")
            publication.fill(whole.indices, array.array("I", [4]))
            publication.fill(whole.values, b"f")
            self.assertEqual(publication.commit(), 2)
        self.publisher.wait()
        self.assertEqual(bytes(self.current()["m"].data), b"a\0\0d\0b\0\0\0ce\0")
        self.assertEqual(bytes(self.current()["v"].data), b"\0\0\0\0f")
        # Pieces that overlap are found where both change an element.
        with self.publisher.begin_changes([left._replace(count=1), whole._replace(name="m")], base=2) as publication:
            for piece in (left, whole._replace(name="m")):
                publication.fill(piece.indices, array.array("I", [0]))
                publication.fill(piece.values, b"x")
            version = publication.commit()
        with self.raises(Code.INVALID_ARGUMENT, "two pieces change element 0"):
            self.publisher.wait(version)
        with self.publisher.begin_changes([], base=1) as publication:
            with self.raises(Code.WRONG_BASE, "the last one is 2"):
                publication.commit()
        for bad, error in (
            (left._replace(start=(0,)), "is no piece"),
            (left._replace(count=-1), "is no piece"),
            (left._replace(name=5), "not a string"),
        ):
            with self.assertRaisesRegex((TypeError, ValueError), error):
                self.publisher.begin_changes([bad], base=2)
        with self.assertRaisesRegex(weightcast.Error, "7 changes in a box of 6 elements"):
            self.publisher.begin_changes([left._replace(count=7)], base=2)
        with self.assertRaisesRegex(ValueError, "base version"):
            self.publisher.begin_changes([], base=0)

    def test_a_rank_notices_that_its_memory_is_of_another_publication(self):
        infos = [TensorInfo("w", "U8", (4,))]
        first = self.publisher.begin(infos)
        path = first.path
        rank = weightcast.attach(path)
        rank.fill("w", b"abcd")
        first.commit()
        self.publisher.wait()
        with self.assertRaisesRegex(weightcast.Error, "was committed or aborted"):
            rank.buffer("w")
        # The same memory at the same path, in another publication.
        with self.publisher.begin(infos) as second:
            self.assertEqual(second.path.split("#")[0], path.split("#")[0])
            with self.assertRaisesRegex(weightcast.Error, "was committed or aborted"):
                rank.fill("w", b"late")
            with self.raises(Code.INVALID_ARGUMENT, "of another one by now"):
                weightcast.attach(path)
            with weightcast.attach(second.path) as again:
                again.fill("w", b"efgh")
            second.commit()
        self.publisher.wait()
        # Nobody fills it now.
        with self.assertRaises((weightcast.Error, FileNotFoundError)):
            weightcast.attach(path)
        rank.close()
        self.assertEqual(bytes(self.current()["w"].data), b"efgh")

    def test_attach_refuses_what_is_no_region(self):
        with self.assertRaises(FileNotFoundError):
            weightcast.attach(self.directory / "absent")
        with self.raises(Code.INVALID_ARGUMENT):
            weightcast.attach(self.origin.state + ".log")

    def test_memory_outlives_its_publisher_while_a_view_does(self):
        publisher = weightcast.Publisher(self.origin.state)
        view = publisher.begin([("w", "U8", (1 << 20,))]).buffer("w")
        publisher.close()
        gc.collect()
        view[:] = b"\7" * len(view)
        self.assertEqual(view[12345], 7)

    def test_a_view_that_is_kept_survives_an_abort_and_another_layout(self):
        publication = self.publisher.begin([("w", "U8", (1 << 20,))])
        kept = publication.buffer("w")[1:]  # not the one that abort() ends
        kept[:] = b"\7" * len(kept)
        publication.abort()
        with self.publisher.begin([("v", "U8", (1 << 21,))]) as other:
            other.fill("v", bytes(1 << 21))
            self.assertEqual((kept[0], kept[-1]), (7, 7))
            kept[5] = 8
            other.commit()
        self.publisher.wait()
        self.assertEqual(bytes(self.current()["v"].data), bytes(1 << 21))

    def test_views_that_nobody_has_are_forgotten(self):
        with self.publisher.begin([("w", "U8", (64,))]) as publication:
            with weightcast.attach(publication.path) as region:
                for _ in range(1000):
                    publication.buffer("w")
                    region.buffer("w")
                kept = region.buffer("w")
                self.assertEqual((len(publication._views), len(region._views)), (0, 1))
            with self.assertRaises(ValueError):
                kept[0] = 1  # its region was closed

    def test_tensors_over_the_memory_empty_ones_among_them(self):
        torch = FakeTorch()
        infos = [("w", "F32", (2, 2)), ("empty", "BF16", (0, 3))]
        with mock.patch.dict(sys.modules, torch=torch):
            with self.publisher.begin(infos) as publication:
                place = publication.raw("w").torch()
                self.assertEqual((place.dtype, place.shape), (torch.float32, (2, 2)))
                place.memory[:] = array.array("f", [1, 2, 3, 4]).tobytes()
                empty = publication.raw("empty").torch()
                self.assertEqual((empty.dtype, empty.shape), (torch.bfloat16, (0, 3)))
                del place
                publication.commit()
            self.publisher.wait()
        self.assertEqual(bytes(self.current()["w"].data), array.array("f", [1, 2, 3, 4]).tobytes())

    def test_tied_tensors_travel_once_and_a_module_gives_its_state_dict(self):
        torch = FakeTorch()
        weights, norm = bytearray(bfloat16([1.0, 2.0])), bytearray(bfloat16([3.0]))
        embed = torch.Tensor(weights, torch.bfloat16, (2,))

        class Module:
            def state_dict(self):
                # Parameters that are tied are tensors of their own over one memory.
                head = torch.Tensor(weights, torch.bfloat16, (2,))
                view = torch.Tensor(weights, torch.bfloat16, (2, 1))
                return {"embed": embed, "norm": torch.Tensor(norm, torch.bfloat16, (1,)), "head": head, "view": view}

        with mock.patch.dict(sys.modules, torch=torch):
            self.publish_and_wait(Module())
            self.assertEqual(set(self.current()), {"embed", "norm", "view"})
            # Changes under the name that was left out are changes all the same.
            cell = (array.array("I", [1]), RawTensor("BF16", (1,), bfloat16([9.0])))
            for changes in ({"head": cell}, {"embed": cell, "head": cell}):
                self.publisher.publish_sparse(changes, base=self.publisher.next_version() - 1)
                self.publisher.wait()
                self.assertEqual(bytes(self.current()["embed"].data), bfloat16([1.0, 9.0]))

    def test_files_accompany_the_weights_until_they_are_replaced(self):
        model = self.directory / "model"
        model.mkdir()
        (model / "config.json").write_text("{}")
        (model / "tokenizer.json").write_text("[]")
        (model / "modeling.py").write_text("import os")
        (model / "model.safetensors").write_bytes(b"not looked at")

        def files():
            here = pathlib.Path(self.origin.state) / "current"
            return {file.name: file.read_text() for file in here.iterdir() if file.suffix != ".safetensors"}

        both = {"config.json": "{}", "tokenizer.json": "[]"}
        self.publisher.publish({"w": b"abcd"}, files=model)
        self.assertEqual(self.publisher.wait().notice, "")
        self.assertEqual(files(), both)
        # What somebody else puts there is not the trainer's.
        (pathlib.Path(self.origin.state) / "current" / "notes.txt").write_text("mine")
        self.publish_and_wait({"w": b"efgh"})
        self.assertEqual(files(), both)
        self.publisher.publish_sparse({"w": (array.array("I", [0]), b"x")}, base=2)
        self.publisher.wait()
        self.assertEqual(files(), both)
        self.origin.kill()
        self.origin.start()
        with self.publisher.begin([("w", "U8", (4,))]) as publication:
            publication.fill("w", b"ijkl")
            publication.commit(version=9)
        self.assertEqual(self.publisher.wait().notice, "")
        self.assertEqual(files(), both)
        # Fewer of them replace all, and the origin says what is gone.
        self.publisher.publish({"w": b"mnop"}, files={"config.json": b'{"a": 1}', "merges.txt": "x"})
        self.assertIn("tokenizer.json", self.publisher.wait().notice)
        self.assertEqual(files(), {"config.json": '{"a": 1}', "merges.txt": "x"})
        with self.publisher.begin([("w", "U8", (4,))], files={"config.json": b"{}"}) as publication:
            publication.fill("w", b"qrst")
            publication.commit()
        self.assertIn("merges.txt", self.publisher.wait().notice)
        self.assertEqual(files(), {"config.json": "{}"})

    def test_files_that_no_worker_would_take_are_refused(self):
        empty = self.directory / "empty"
        empty.mkdir()
        for bad, why in (
            ({"modeling.py": b"import os"}, "may accompany weights"),
            ({"../config.json": b"{}"}, "may accompany weights"),
            ({".hidden.json": b"{}"}, "may accompany weights"),
            ({"model.safetensors": b""}, "may accompany weights"),
            ({"model.safetensors.index.json": b"{}"}, "may accompany weights"),
            ({"config.json": bytes((32 << 20) + 1)}, "limit of 33554432"),
            ({f"{i}.json": b"" for i in range(257)}, "limit of 256"),
            ({}, "no files were given"),
            (empty, "holds no configuration"),
            (self.directory / "absent", "absent"),
        ):
            with self.assertRaisesRegex(weightcast.Error, why):
                self.publisher.publish({"w": b"abcd"}, files=bad)
        for bad in ({5: b""}, {"config.json": 7.5}):
            with self.assertRaises(TypeError):
                self.publisher.publish({"w": b"abcd"}, files=bad)
        self.assertEqual(self.publisher.next_version(), 1)

    def test_another_model_is_refused_unless_that_is_meant(self):
        self.publish_and_wait({"w": array.array("f", [1.0] * 4), "v": b"ab"}, files={"config.json": b"{}"})
        for other, why in (
            ({"a": array.array("f", [1.0] * 4)}, "'a' is new, 'w' is gone, 'v' is gone"),
            ({"w": array.array("d", [1.0] * 4), "v": b"ab"}, r"'w' is F64 \[4\] and was F32 \[4\]"),
            ({"w": array.array("f", [1.0] * 5), "v": b"ab"}, r"'w' is F32 \[5\] and was F32 \[4\]"),
            ({"w": array.array("f", [1.0] * 4)}, "'v' is gone; publish with new_model=True"),
        ):
            self.publisher.publish(other)
            with self.raises(Code.INVALID_ARGUMENT, why):
                self.publisher.wait()
        self.assertEqual(set(self.current()), {"w", "v"})
        # The configuration of the model before would be wrong.
        self.publisher.publish({"a": b"abc"}, new_model=True)
        self.assertIn("config.json", self.publisher.wait().notice)
        self.assertEqual(set(self.current()), {"a"})
        self.publish_and_wait({"a": b"def"})

    def test_nothing_is_left_open(self):
        def cycle():
            with weightcast.Publisher(self.origin.state) as publisher:
                with publisher.begin([("w", "U8", (4,))]) as publication:
                    weightcast.attach(publication.path).close()
                    publication.fill("w", b"abcd")
                    publication.commit()
                publisher.wait()
            with weightcast.Subscription(self.origin.state) as subscription:
                subscription.current()

        cycle()
        before = descriptors()
        for _ in range(20):
            cycle()
        self.assertEqual(descriptors(), before)


class Failing(PublisherTest):
    def test_no_daemon_is_not_found(self):
        for call in (weightcast.Publisher, weightcast.Subscription, weightcast.status, weightcast.versions):
            with self.raises(Code.NOT_FOUND, "no daemon runs there"):
                call(str(self.directory / "nowhere"))

    def test_a_time_out_is_a_timeouterror_with_what_was_reached(self):
        worker = self.start_worker()
        worker.process.send_signal(signal.SIGSTOP)
        try:
            self.publisher.publish({"w": b"abcd"})
            began = time.monotonic()
            with self.assertRaises(TimeoutError) as caught:
                self.publisher.wait(installed=1.0, timeout=1.5)
            self.assertLess(time.monotonic() - began, 6)
        finally:
            worker.process.send_signal(signal.SIGCONT)
        self.assertEqual(caught.exception.code, Code.TIMED_OUT)
        self.assertEqual((caught.exception.outcome.version, caught.exception.outcome.installed), (1, 0))
        outcome = self.publisher.wait(installed=1.0)
        self.assertEqual((outcome.installed, outcome.workers), (1, 1))
        self.assertGreater(outcome.t100_s, 0)

    def test_negative_time_outs_and_versions_are_refused(self):
        with self.assertRaises(ValueError):
            self.publisher.next_version(timeout=-1)
        for version in (0, -1, 2**63):
            with self.assertRaises(ValueError):
                self.publisher.publish({"w": b"a"}, version=version)
        for arguments, error in (((-1,), "version -1 is not between 0"), (("3",), "version '3' is a str")):
            with self.assertRaisesRegex((TypeError, ValueError), error):
                self.publisher.wait(*arguments)
        for installed in (0, 2, float("nan"), "1"):
            with self.assertRaisesRegex(ValueError, f"installed={installed!r} is no fraction of the workers"):
                self.publisher.wait(installed=installed)

    def test_who_serves_is_said_of_workers_that_the_origin_knows(self):
        self.publisher.serve(None, False, provisions=True)
        for serves, verb in ((True, "activate"), (False, "release")):
            with self.raises(Code.NOT_FOUND, f"cannot {verb}: 'nobody' is no worker"):
                self.publisher.serve("nobody", serves)

    def test_a_worker_that_is_lost_can_be_forgotten(self):
        with self.raises(Code.NOT_FOUND, "cannot forget: 'nobody' is no worker"):
            self.publisher.forget("nobody")

    def test_the_environment_names_the_state_directory_that_is_not_given(self):
        with mock.patch.dict(os.environ, WEIGHTCAST_STATE=str(self.origin.state)):
            weightcast.wait_until_ready()
            with weightcast.Publisher() as publisher, weightcast.Subscription() as subscription:
                version = publisher.publish({"w": b"abcd"})
                publisher.wait(version)
                self.assertEqual(subscription.next(timeout=60).version, version)
            self.assertEqual(weightcast.status()["latest_version"], version)
            self.assertEqual(len(weightcast.versions()["versions"]), 1)
            with weightcast.load() as weights, weightcast.load(version=version) as same:
                self.assertEqual((weights.version, bytes(same["w"].data)), (version, b"abcd"))

    def test_a_commit_that_does_not_leave_can_be_aborted_or_repeated(self):
        """A daemon that has closed the connection and takes no other: the request stays here."""
        state = self.directory / "stopped"
        state.mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(state / "api.sock"))
            listener.listen(0)
            publisher = weightcast.Publisher(state)
            listener.accept()[0].close()
            waiting = []
            for _ in range(100):
                waiting.append(socket.socket(socket.AF_UNIX))
                self.addCleanup(waiting[-1].close)
                waiting[-1].setblocking(False)
                try:
                    waiting[-1].connect(str(state / "api.sock"))
                except BlockingIOError:
                    break
            with publisher:
                publication = publisher.begin([("w", "U8", (4,))])
                publication.fill("w", b"abcd")
                with self.assertRaises(TimeoutError):
                    publication.commit(timeout=0.05)
                publication.fill("w", b"efgh")  # it is still this program's
                real = signal.signal(signal.SIGALRM, self.interrupt)
                self.addCleanup(signal.signal, signal.SIGALRM, real)
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                with self.assertRaises(KeyboardInterrupt):
                    publication.commit(timeout=60)
                publication.abort()
                with self.assertRaisesRegex(weightcast.Error, "committed or aborted"):
                    publication.fill("w", b"efgh")
                with publisher.begin([("w", "U8", (4,))]) as publication, self.assertRaises(TimeoutError):
                    publication.commit(timeout=0.05)
                publisher.begin([("v", "U8", (8,))]).abort()

    @staticmethod
    def interrupt(*_):
        raise KeyboardInterrupt

    def test_a_closed_publisher_says_so(self):
        publisher = weightcast.Publisher(self.origin.state)
        publisher.close()
        publisher.close()
        with self.raises(Code.CLOSED, "is closed"):
            publisher.next_version()

    def test_the_daemon_may_be_restarted(self):
        self.publish_and_wait({"w": b"abcd"})
        self.origin.kill()
        with self.assertRaises(weightcast.Error) as caught:
            self.publisher.next_version()
        self.assertIn(caught.exception.code, (Code.CLOSED, Code.NOT_FOUND))
        self.origin.start()
        self.assertEqual(self.publisher.publish({"w": b"efgh"}), 2)


class Subscribing(PublisherTest):
    def test_events_pins_and_the_version_in_use(self):
        worker = self.start_worker()
        with weightcast.Subscription(worker.state) as subscription:
            self.assertIsNone(subscription.next(0))
            with self.raises(Code.NOT_FOUND):
                subscription.current()
            self.publisher.publish({"w": b"abcd"})
            event = next(iter(subscription))
            self.assertEqual((event.kind, event.version), (EventKind.INSTALLED, 1))
            self.assertEqual(subscription.current(), event)
            with subscription.acquire(1) as pin:
                for version in range(2, 7):
                    self.publish_and_wait({"w": bytes([version] * 4)}, installed=1.0)
                self.assertEqual(bytes(Snapshot(pin.directory)["w"].data), b"abcd")
                pins = [subscription.acquire() for _ in range(3)]
                with self.raises(Code.BUSY):
                    subscription.acquire()
                for other in pins:
                    other.release()
                    other.release()
            eventually(lambda: not os.path.exists(pin.directory))
            self.assertEqual(subscription.current().version, 6)

    def test_a_pin_that_is_dropped_is_released_with_a_warning(self):
        self.publish_and_wait({"w": b"abcd"})
        with weightcast.Subscription(self.origin.state) as subscription:
            pins = [subscription.acquire() for _ in range(4)]
            with self.assertWarnsRegex(ResourceWarning, "pin of version 1 was dropped"):
                del pins
                gc.collect()
            # All four are free again.
            for pin in [subscription.acquire() for _ in range(4)]:
                pin.release()
            kept = subscription.acquire()
            with subscription.acquire(), warnings.catch_warnings():
                warnings.simplefilter("error")
                kept.release()
                del kept
                gc.collect()
            # Where another thread is inside a call, the next call releases it.
            pin = subscription.acquire()
            with mock.patch.object(subscription._handle, "call_at_once", side_effect=busy), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                del pin
                gc.collect()
            self.assertEqual(list(subscription._dropped), [1])
            subscription.next(0)
            self.assertEqual(list(subscription._dropped), [])

    def test_load_gives_all_tensors_of_one_version_and_keeps_it(self):
        with self.raises(Code.NOT_FOUND):
            weightcast.load(self.origin.state)
        torch, empty = FakeTorch(), array.array("f")
        self.publish_and_wait({"w": b"abcd", "empty": empty})
        weights = weightcast.load(self.origin.state)
        for data in (b"efgh", b"ijkl", b"mnop", b"qrst"):
            self.publish_and_wait({"w": data, "empty": empty})
        self.assertEqual((weights.version, set(weights)), (1, {"w", "empty"}))
        self.assertTrue(os.path.exists(os.path.join(weights.directory, "model.safetensors")))
        self.assertEqual(bytes(weights["w"].data), b"abcd")
        with mock.patch.dict(sys.modules, torch=torch):
            state_dict = weights.torch()
        self.assertEqual(bytes(state_dict["w"].memory), b"abcd")
        self.assertEqual(state_dict["empty"].shape, (0,))
        with weightcast.load(self.origin.state) as newest:
            self.assertEqual((newest.version, bytes(newest["w"].data)), (5, b"qrst"))
        # The directory goes with the pin; what was taken stays.
        directory, tensor = weights.directory, weights["w"]
        del weights
        gc.collect()
        eventually(lambda: not os.path.exists(directory))
        self.assertEqual(bytes(tensor.data), b"abcd")

    def test_changes_lead_from_one_version_to_another(self):
        rng = random.Random(1)
        weights = {
            "half": array.array("H", range(40000)),
            "single": array.array("f", [i / 7 for i in range(4000)]),
            "long": array.array("q", range(900)),
            "still": array.array("f", [1.0] * 10),
        }
        kept, seen = {}, {}
        worker = self.start_worker()
        with weightcast.Subscription(worker.state) as subscription:
            for version in range(1, 6):
                for name in ("half", "single", "long") if version > 1 else ():
                    for index in rng.sample(range(len(weights[name])), len(weights[name]) // 50):
                        weights[name][index] = weights[name][(index * 7 + version) % len(weights[name])]
                kept[version] = {name: cells[:] for name, cells in weights.items()}
                self.publish_and_wait(weights, installed=1.0)
                seen[version] = subscription.current()
            fourth = {name: cells[:] for name, cells in kept[4].items()}
            with subscription.acquire() as pin:
                self.assertEqual(pin.version, 5)
                for base in (2, 3, 4, 5):
                    changes = subscription.changes(seen[base], pin)
                    self.assertEqual(set(changes), {"half", "single", "long"} if base < 5 else set())
                    for name, (indices, values, _) in changes.items():
                        made = kept[base][name]
                        self.assertEqual((indices.dtype, indices.shape), ("U32", values.shape))
                        indices, values = indices.data.cast("I"), values.data.cast(made.typecode)
                        self.assertEqual(list(indices), sorted(set(indices)))
                        self.assertLess(len(indices), len(made) // 10)
                        for index, value in zip(indices, values):
                            made[index] = value
                    self.assertEqual(kept[base], kept[5], f"from version {base}")
                # Of a number that nobody knows; of numbers that another run had, too.
                for version, like in ((1000, 4), (4, 3), (5, 4)):
                    with self.raises(Code.TOO_FAR, "load version 5 whole"):
                        subscription.changes(dataclasses.replace(seen[like], version=version), pin)
                last = subscription.changes(seen[4], pin)["half"].values
            with self.raises(Code.NOT_FOUND):
                subscription.changes(seen[4], pin)
        self.assertTrue(set(last.data.cast("H")) <= set(weights["half"]), "the list lives by itself")
        # An origin has found the lists as it published, and the values before them in the versions that it keeps: two.
        with weightcast.Subscription(self.origin.state) as subscription, subscription.acquire() as pin:
            self.lead_both_ways(subscription.changes(seen[4], pin, old_values=True), fourth, kept[5])
            self.assertEqual(set(subscription.changes(seen[2], pin)), {"half", "single", "long"})
            with self.raises(Code.TOO_FAR, "old values are read from version 2, which is not here any more"):
                subscription.changes(seen[2], pin, old_values=True)

    def lead_both_ways(self, changes, before, after):
        made, back = ({name: cells[:] for name, cells in kept.items()} for kept in (before, after))
        self.assertTrue(changes)
        for name, change in changes.items():
            code = made[name].typecode
            arrays = zip(
                change.indices.data.cast("I"), change.values.data.cast(code), change.old_values.data.cast(code)
            )
            for index, value, old in arrays:
                made[name][index], back[name][index] = value, old
        self.assertEqual((made, back), (after, before))

    def publish_two(self, subscription):
        """Two versions that differ a little: what they are, and their events."""
        kept, seen = [], []
        for version in (1, 2):
            weights = {"w": array.array("f", range(5000)), "still": array.array("f", [1.0] * 10)}
            for index in range(version, 5000, 97) if version == 2 else ():
                weights["w"][index] += 0.5
            self.publish_and_wait(weights, installed=1.0)
            kept.append(weights)
            seen.append(subscription.current())
        return kept, seen

    def test_changes_are_told_after_a_restart_and_in_either_direction(self):
        worker = self.start_worker()
        with weightcast.Subscription(worker.state) as subscription:
            (before, after), (first, second) = self.publish_two(subscription)
            with subscription.acquire() as pin:
                self.lead_both_ways(subscription.changes(first, pin, old_values=True), before, after)
            with subscription.acquire(1) as pin:
                self.lead_both_ways(subscription.changes(second, pin, old_values=True), after, before)
        worker.kill()
        worker.start()
        with weightcast.Subscription(worker.state) as subscription, subscription.acquire(timeout=30) as pin:
            self.assertEqual(pin.version, 2)
            for old_values in (False, True):
                changes = subscription.changes(first, pin, old_values=old_values)
                self.assertEqual(set(changes), {"w"})
                self.assertEqual(changes["w"].old_values is not None, old_values)
            self.lead_both_ways(changes, before, after)

    def test_old_values_are_read_from_the_base(self):
        worker = self.start_worker("worker", "--keep", "1")
        with weightcast.Subscription(worker.state) as subscription:
            _, (first, _) = self.publish_two(subscription)
            with subscription.acquire() as pin:
                eventually(lambda: not os.path.exists(first.directory))
                self.assertEqual(set(subscription.changes(first, pin)), {"w"})
                with self.raises(Code.TOO_FAR, "old values are read from version 1, which is not here any more"):
                    subscription.changes(first, pin, old_values=True)

    def test_a_list_outlives_daemon_pin_and_subscription(self):
        worker = self.start_worker()
        with weightcast.Subscription(worker.state) as subscription:
            (before, after), (first, _) = self.publish_two(subscription)
            pin = subscription.acquire()
            changes = subscription.changes(first, pin, old_values=True)
            worker.kill()
            with self.assertRaises(weightcast.Error):
                subscription.changes(first, pin, timeout=2)
            pin.release()
            pin.release()
        self.lead_both_ways(changes, before, after)
        values = changes["w"].values
        del changes
        gc.collect()
        self.assertEqual(values.data.cast("f")[0], after["w"][2])

    def test_tensors_come_one_by_one_once_a_version_is_there(self):
        worker = self.start_worker()
        weights = {"a": array.array("f", [1, 2]), "b": array.array("i", [3])}
        with weightcast.Subscription(worker.state) as subscription:
            with self.raises(Code.NOT_FOUND):
                next(subscription.tensors(timeout=0.2))
            self.publisher.publish(weights)
            found = {name: bytes(tensor.data) for name, tensor in subscription.tensors(timeout=30)}
        self.assertEqual(found, {name: cells.tobytes() for name, cells in weights.items()})

    def test_ready_says_what_is_missing(self):
        weightcast.wait_until_ready(self.origin.state)
        with self.assertRaisesRegex(weightcast.TimedOut, "no version is in use yet"):
            weightcast.wait_until_ready(self.origin.state, has_version=True, timeout=2)
        with self.assertRaisesRegex(weightcast.TimedOut, "no daemon runs there"):
            weightcast.wait_until_ready("/nowhere", timeout=0.1)
        self.publisher.publish({"w": b"abcd"})
        weightcast.wait_until_ready(self.origin.state, has_version=True)
        with self.assertRaises(ValueError):
            weightcast.wait_until_ready(self.origin.state, timeout=-1)

    def test_the_descriptor_becomes_readable(self):
        with weightcast.Subscription(self.origin.state) as subscription:
            while subscription.next(0.2) is not None:
                pass
            self.publisher.publish({"w": b"abcd"})
            versions = []
            end = time.monotonic() + 30
            while not versions and time.monotonic() < end:
                select.select([subscription], [], [], 1)
                event = subscription.next(0)
                if event is not None:
                    versions.append(event.version)
            self.assertEqual(versions, [1])

    def test_a_restart_of_the_daemon_is_told(self):
        self.publish_and_wait({"w": b"abcd"})
        with weightcast.Subscription(self.origin.state) as subscription:
            events = iter(subscription)
            self.assertEqual(next(events).version, 1)
            pin = subscription.acquire()
            self.origin.kill()
            self.assertEqual(next(events).kind, EventKind.DISCONNECTED)
            self.origin.start()
            self.assertEqual(next(events).version, 1)
            pin.release()  # its connection has taken it

    def test_acquire_connects_again_by_itself(self):
        self.publish_and_wait({"w": b"abcd"})
        with weightcast.Subscription(self.origin.state) as subscription:
            self.origin.kill()
            with self.raises(Code.NOT_FOUND):  # no daemon runs
                subscription.acquire()
            self.origin.start()
            with subscription.acquire() as pin:
                self.assertEqual(pin.version, 1)
            self.assertEqual(subscription.next(0).kind, EventKind.DISCONNECTED)


class Waiting(DaemonTest):
    def test_another_thread_runs_while_one_waits(self):
        with weightcast.Subscription(self.origin.state) as subscription:
            counted = [0]
            stop = threading.Event()

            def count():
                while not stop.is_set():
                    counted[0] += 1
                    time.sleep(0.001)

            thread = threading.Thread(target=count)
            thread.start()
            try:
                self.assertIsNone(subscription.next(1.0))
                self.assertGreater(counted[0], 5)  # a busy host lets it run less often
            finally:
                stop.set()
                thread.join()

    def start_waiting(self, subscription, caught):
        """A thread in the middle of next(). How that ends comes into `caught`."""

        def wait():
            while not caught:
                try:
                    subscription.next(60)
                except weightcast.Error as error:
                    # is_busy() may be first.
                    if error.code != Code.BUSY:
                        caught.append(error.code)

        def is_busy():
            try:
                subscription.next(0)
            except weightcast.Error as error:
                return error.code == Code.BUSY
            return False

        thread = threading.Thread(target=wait)
        thread.start()
        eventually(is_busy)
        return thread

    def test_cancel_and_close_end_a_call_of_another_thread(self):
        for end in (weightcast.Subscription.cancel, weightcast.Subscription.close):
            subscription = weightcast.Subscription(self.origin.state)
            caught = []
            thread = self.start_waiting(subscription, caught)
            end(subscription)
            thread.join(30)
            self.assertEqual(caught, [Code.CANCELLED])
            subscription.close()

    def test_a_close_just_before_a_call_ends_an_iteration(self):
        subscription = weightcast.Subscription(self.origin.state)
        in_time = weightcast._subscription.milliseconds
        caught = []

        def close_first(timeout):
            subscription.close()
            return in_time(timeout)

        def iterate():
            try:
                next(iter(subscription))
            except weightcast.Error as error:
                caught.append(error.code)

        with mock.patch("weightcast._subscription.milliseconds", close_first):
            thread = threading.Thread(target=iterate, daemon=True)
            thread.start()
            thread.join(60)
        self.assertEqual(caught, [Code.CLOSED])

    def test_a_handle_stays_while_a_call_that_was_left_behind_runs(self):
        class Owner:
            def cancel(self):
                pass  # as in the middle of a copy

        class LeftBehind(BaseException):
            pass

        wait = threading.Event.wait

        def wait_or_leave(event, timeout=None):
            if threading.current_thread() is threading.main_thread():
                raise LeftBehind
            return wait(event, timeout)

        running, over = threading.Lock(), threading.Event()
        owner = Owner()
        gone = weakref.ref(owner)

        def call(_):
            with running:
                over.set()
            return 0

        with running:
            # As after two times Ctrl-C.
            with mock.patch.object(threading.Event, "wait", wait_or_leave), self.assertRaises(LeftBehind):
                interruptible(owner.cancel, call)
            del owner
            gc.collect()
            self.assertIsNotNone(gone())
        self.assertTrue(over.wait(60))
        eventually(lambda: gone() is None)

    def test_a_second_thread_is_told_that_a_handle_is_busy(self):
        with weightcast.Subscription(self.origin.state) as subscription:
            thread = self.start_waiting(subscription, [])
            with self.raises(Code.BUSY):
                subscription.next(0)
            subscription.cancel()
            thread.join()

    def test_ctrl_c_ends_a_call_that_waits(self):
        program = (
            "import sys, weightcast\n"
            "subscription = weightcast.Subscription(sys.argv[1])\n"
            "try:\n"
            "    print('waiting', flush=True)\n"
            "    subscription.next(60)\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted', subscription.next(0))\n"
        )
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        with subprocess.Popen(
            [sys.executable, "-c", program, self.origin.state], stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            try:
                self.assertEqual(process.stdout.readline(), "waiting\n")
                time.sleep(0.2)
                process.send_signal(signal.SIGINT)
                began = time.monotonic()
                # Still usable, so the call has ended.
                self.assertEqual(process.communicate(timeout=30)[0], "interrupted None\n")
                self.assertLess(time.monotonic() - began, 10)
            finally:
                process.kill()


    def test_a_process_ends_whatever_is_alive_then(self):
        """No thread begins any more while the interpreter ends."""
        self.publish_first()
        kept = (
            "import array, sys, weightcast\n"
            "class Late:\n"
            "    def __init__(self):\n"
            "        self.me, self.publish = self, weightcast.Publisher(sys.argv[1]).publish\n"
            "    def __del__(self):\n"
            "        print('published', self.publish({'a': array.array('f', [2.0])}))\n"
            "late = Late()\n"
        )
        reading = "import sys, weightcast\ntensors = weightcast.Subscription(sys.argv[1]).tensors()\nprint(next(tensors)[0])\n"
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        for program, printed in ((kept, "published 2\n"), (reading, "a\n")):
            ended = subprocess.run(
                [sys.executable, "-c", program, self.origin.state], capture_output=True, text=True, env=environment, timeout=60
            )
            self.assertEqual((ended.stdout, ended.stderr, ended.returncode), (printed, "", 0))

    def test_asyncio_goes_on_and_cancels(self):
        async def run():
            ticks, seen = 0, []

            async def tick():
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0.01)

            async def follow():
                with weightcast.Subscription(self.origin.state) as subscription:
                    async for event in subscription:
                        seen.append(event.version)
                        if event.version == 2:
                            return

            ticking = asyncio.ensure_future(tick())
            with weightcast.Publisher(self.origin.state) as publisher:
                self.assertEqual(await publisher.publish_async({"a": array.array("f", [1.0])}), 1)
                await publisher.wait_async(1)
                following = asyncio.ensure_future(follow())
                waiting = asyncio.ensure_future(publisher.wait_async(1, installed=1.0, timeout=60))
                await asyncio.sleep(0.3)
                self.assertGreater(ticks, 5)
                began = time.monotonic()
                if not waiting.done():
                    waiting.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await waiting
                self.assertLess(time.monotonic() - began, 10)
                self.assertEqual(await publisher.publish_async({"a": array.array("f", [2.0])}), 2)
                await asyncio.wait_for(following, 30)
            with weightcast.Subscription(self.origin.state) as subscription:
                async def forever():
                    async for _ in subscription:
                        pass

                task = asyncio.ensure_future(forever())
                await asyncio.sleep(0.2)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertEqual(subscription.current().version, 2)
            ticking.cancel()
            return seen

        self.start_worker("slow").process.send_signal(signal.SIGSTOP)
        self.assertIn(2, asyncio.run(run()))

    def publish_first(self):
        with weightcast.Publisher(self.origin.state) as publisher:
            publisher.publish({"a": array.array("f", [1.0])})
            publisher.wait()


class Examples(DaemonTest):
    def run_example(self, name, *arguments):
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        return subprocess.run(
            [sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, env=environment, timeout=60
        )

    def test_publish_and_subscribe(self):
        ran = self.run_example("publish.py", self.origin.state)
        said = "published version 1\npublished version 2, 0 workers\npublished version 3\n"
        self.assertEqual((ran.stdout, ran.stderr), (said, ""))
        ran = self.run_example("subscribe.py", self.origin.state, "1")
        self.assertEqual((ran.stdout, ran.stderr), ("version 3: 2 tensors, 36864 bytes\n", ""))

    def test_without_a_daemon_they_say_so(self):
        for name in ("publish.py", "subscribe.py"):
            ran = self.run_example(name, str(self.directory / "nowhere"))
            self.assertEqual(ran.returncode, 1)
            self.assertRegex(ran.stderr, r"no daemon runs there.* \(NOT_FOUND\)\n$")


if __name__ == "__main__":
    unittest.main()
