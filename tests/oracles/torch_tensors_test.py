"""Tensors of the real torch, as publish() takes them, or says what to do: wrappers of other tensors, parameters in pieces, models
in wrappers, dtypes that are narrower than a byte; and torchao's and JAX's, where they are installed."""

import ctypes
import importlib.util
import sys
import time
import types
import unittest
from unittest import mock

import torch
import weightcast
from daemons import PublisherTest
from torch import nn
from weightcast._arguments import named_tensors, structs_of, untied
from weightcast._tensors import source_of, tensor_bytes


def taken(tensor):
    source = source_of("t", tensor)
    size = tensor_bytes(source.dtype, source.shape)
    place = ctypes.create_string_buffer(size)
    source.copy_to(ctypes.addressof(place), size)
    return source.dtype, source.shape, place.raw


class Wrapper(torch.Tensor):
    """What torchao's tensors are: a shape and a dtype without memory, over other tensors."""

    @staticmethod
    def __new__(cls, inner, *, strides=None):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.bfloat16, strides=strides)

    def __init__(self, inner, *, strides=None):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError(function)


class Flattened(Wrapper):
    def __tensor_flatten__(self):
        return ["inner"], None


class Status:
    name = "NOT_AVAILABLE"


def in_pieces():
    tensor = nn.Parameter(torch.empty(0))
    tensor.ds_id, tensor.ds_status, tensor.ds_shape = 3, Status(), (4, 4)
    return tensor


def freed():
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


class Refused(unittest.TestCase):
    def test_what_has_no_memory_of_its_own_is_refused_by_name(self):
        inner = torch.ones(4, 4, dtype=torch.int8)
        fake = torch._subclasses.FakeTensorMode()
        lazy = nn.LazyLinear(3).weight
        for tensor, why in (
            (Wrapper(inner), "Wrapper has no memory of its own: .*dequantize"),
            (Wrapper(inner, strides=(1, 4)), "Wrapper has no memory of its own"),
            (Flattened(inner), "Flattened has no memory of its own"),
            (nn.Parameter(Flattened(inner), requires_grad=False), "has no memory of its own"),
            (fake.from_tensor(torch.ones(3)), "FakeTensor has no memory of its own|on meta"),
            (freed(), "its memory was freed"),
            (in_pieces(), "GatheredParameters"),
            (lazy, "run the model once"),
            (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "it is nested.*to_padded_tensor"),
            (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "it is nested"),
            (torch.ones(3).to_sparse(), "give a dense one"),
            (torch.ones(3, dtype=torch.complex128), "view it as torch.uint8"),
        ):
            with self.subTest(why), self.assertRaisesRegex(TypeError, f"tensor 'layer.weight': .*(?:{why})") as caught:
                source_of("layer.weight", tensor)
            self.assertNotIn("\n", str(caught.exception))

    def test_a_gathered_parameter_is_taken(self):
        tensor = nn.Parameter(torch.ones(2))
        tensor.ds_id, tensor.ds_status = 3, types.SimpleNamespace(name="AVAILABLE")
        self.assertEqual(taken(tensor)[:2], ("F32", (2,)))

    def test_a_module_in_pieces_is_refused_whatever_its_state_dict_shows(self):
        model = nn.Linear(2, 2)
        model.weight = in_pieces()
        with self.assertRaisesRegex(TypeError, "tensor 'weight': .*GatheredParameters"):
            named_tensors(model)

    def test_a_state_dict_in_pieces_is_refused_where_it_may_be_zero_3s(self):
        model = nn.Linear(2, 2)
        model.weight = in_pieces()
        emptied = model.state_dict()["weight"]
        self.assertEqual(taken(emptied)[:2], ("F32", (0,)))
        with mock.patch.dict(sys.modules, {"deepspeed": types.ModuleType("deepspeed")}):
            with self.assertRaisesRegex(TypeError, "tensor 'weight': it is empty, and ZeRO-3 .*GatheredParameters.*NumPy"):
                source_of("weight", emptied)
            for other in (torch.empty(0, 2), torch.ones(1)):
                self.assertEqual(taken(other)[:2], ("F32", tuple(other.shape)))

    def test_memory_that_is_not_known_is_nobodys(self):
        class Unknown(torch.Tensor):
            def data_ptr(self):
                return 0

        class Device:
            type = "xla"

        sources = [(name, source_of(name, torch.ones(3))) for name in "ab"]
        for _, source in sources:
            source._tensor = source._tensor.as_subclass(Unknown)
        self.assertEqual(untied(sources), (sources, {}))

    @unittest.skipUnless(importlib.util.find_spec("torchao"), "torchao is not installed")
    def test_torchaos_tensors_are_refused(self):
        import torchao.quantization as ao

        model = nn.Linear(64, 64, bias=False).bfloat16()
        ao.quantize_(model, ao.Int8WeightOnlyConfig())
        with self.assertRaisesRegex(TypeError, "tensor 'weight': a torchao.* has no memory of its own: .*dequantize"):
            source_of("weight", model.weight)
        self.assertEqual(taken(model.weight.dequantize())[:2], ("BF16", (64, 64)))

    @unittest.skipUnless(importlib.util.find_spec("jax"), "JAX is not installed")
    def test_jax_arrays_that_are_gone_or_in_pieces_are_refused(self):
        import jax

        jax.config.update("jax_num_cpu_devices", 2)
        for dtype in ("float32", "bfloat16"):
            gone = jax.numpy.ones(4, dtype=dtype)
            mesh = jax.sharding.Mesh(jax.devices(), "x")
            split = jax.device_put(gone, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
            self.assertEqual(taken(gone)[1], (4,))
            gone.delete()
            for tensor, why in ((gone, "it was deleted.*donated"), (split, "gives no DLPack .*numpy.asarray")):
                with self.assertRaisesRegex(TypeError, f"tensor 'w': .*{why}") as caught:
                    source_of("w", tensor)
                self.assertNotIn("\n", str(caught.exception))


class Taken(unittest.TestCase):
    def test_pairs_of_four_bits_are_what_safetensors_writes(self):
        import safetensors
        import safetensors.torch

        for shape in ((6,), (2, 3), (4, 0)):
            data = torch.randint(0, 256, shape, dtype=torch.uint8)
            pairs = data.view(torch.float4_e2m1fn_x2)
            saved = safetensors.torch.save({"t": pairs})
            header = saved[8 : 8 + int.from_bytes(saved[:8], "little")].decode()
            dtype, found, raw = taken(pairs) if data.numel() else (*weightcast.describe("t", pairs)[1:], b"")
            self.assertIn(f'"dtype":"{dtype}","shape":{str(list(found)).replace(" ", "")}', header)
            self.assertEqual(raw, data.numpy().tobytes())
            back = weightcast.RawTensor(dtype, found, bytearray(raw)).torch()
            self.assertEqual((back.dtype, tuple(back.shape)), (pairs.dtype, shape))
            self.assertTrue(torch.equal(back.view(torch.uint8), data))
        strided = torch.arange(12, dtype=torch.uint8).view(3, 4).view(torch.float4_e2m1fn_x2).t()
        self.assertEqual(taken(strided), ("F4", (4, 6), strided.view(torch.uint8).contiguous().numpy().tobytes()))

    def test_what_a_collective_operation_is_to_give_is_waited_for(self):
        from torch.distributed._functional_collectives import AsyncCollectiveTensor

        self.assertEqual(taken(AsyncCollectiveTensor(torch.ones(2)))[2], torch.ones(2).numpy().tobytes())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.module = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])


class Names(unittest.TestCase):
    def names_of(self, model):
        return [name for name, _ in named_tensors(model)]

    def test_wrappers_leave_nothing_in_names(self):
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        expected = self.names_of(Model())
        self.assertIn("module.0.weight", expected)
        parts = Model()
        parts.first = torch.compile(parts.first)
        parts.module[1] = torch.compile(checkpoint_wrapper(parts.module[1]))
        within = Model()
        within.first = nn.DataParallel(within.first)
        for model in (
            torch.compile(Model()), nn.DataParallel(Model()), torch.compile(nn.DataParallel(torch.compile(Model()))), parts, within,
            checkpoint_wrapper(Model()), torch.compile(Model()).state_dict(), dict(torch.compile(parts).named_parameters()),
        ):
            self.assertEqual(self.names_of(model), expected)

    def test_names_of_an_unknown_wrapper_are_refused(self):
        class Engine(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

        for given in (Engine(Model()), nn.DataParallel(Model()).state_dict(), list(nn.DataParallel(Model()).named_parameters())):
            with self.assertRaisesRegex(ValueError, "all names begin with 'module.', .*removeprefix"):
                self.names_of(given)

    def test_structs_take_microseconds(self):
        infos = [weightcast.TensorInfo(f"model.layers.{i}.mlp.experts.{i}.down_proj.weight", "BF16", (i, 7)) for i in range(20000)]
        best = min(self._seconds(infos) for _ in range(5))
        self.assertLess(best / len(infos), 10e-6)
        listed, structs = structs_of(infos)
        self.assertEqual(listed, infos)
        for i in (0, 1, 19999):
            struct = structs[i]
            self.assertEqual((struct.name.decode(), struct.dtype, struct.rank), (infos[i].name, b"BF16", 2))
            self.assertEqual((struct.shape[0], struct.shape[1], struct.size_bytes, struct.data), (i, 7, i * 14, None))

    @staticmethod
    def _seconds(infos):
        began = time.process_time()
        structs_of(infos)
        return time.process_time() - began


class Published(PublisherTest):
    def test_wrappers_end_no_process_and_vanish_in_none(self):
        inner = torch.ones(4, 4, dtype=torch.int8)
        strided = torch.arange(16.0).view(4, 4).t()
        with self.assertRaisesRegex(TypeError, "tensor 'b': .*no memory"):
            self.publisher.publish({"a": strided, "b": Wrapper(inner)})
        with self.publisher.begin([("b", "BF16", (4, 4))]) as publication:
            with self.assertRaisesRegex(TypeError, "tensor 'b': .*no memory"):
                publication.fill("b", Wrapper(inner))
        version = self.publish_and_wait({"a": strided})
        with self.assertRaisesRegex(TypeError, "tensor 'a': .*no memory"):
            self.publisher.publish_sparse({"a": (torch.tensor([1]), Wrapper(torch.ones(1)))}, base=version)

    def test_a_compiled_model_is_published_filled_and_changed_by_its_own_names(self):
        model = torch.compile(nn.Linear(2, 2))
        version = self.publish_and_wait(model)
        version = self.publisher.publish_sparse({"_orig_mod.bias": (torch.tensor([1]), torch.tensor([5.0]))}, base=version)
        self.publisher.wait(version)
        with self.publisher.begin(weightcast.describe(name, t) for name, t in model.state_dict().items()) as publication:
            for name, tensor in model.state_dict().items():
                publication.fill(name, tensor)
            publication.commit()
        self.publisher.wait()
        self.assertEqual(set(weightcast.Snapshot(f"{self.origin.state}/current")), {"weight", "bias"})

    def test_emptied_tensors_are_refused(self):
        self.publish_and_wait({"a": torch.ones(4), "b": torch.ones(2)})
        with self.assertRaisesRegex(ValueError, "tensor 'b' had cells in the version before and has none now.*new_model=True"):
            self.publisher.publish({"a": torch.ones(4), "b": torch.ones(0)})
        self.publish_and_wait({"a": torch.ones(4), "b": torch.ones(0)}, new_model=True)
        self.publish_and_wait({"a": torch.ones(4), "b": torch.ones(0)})


if __name__ == "__main__":
    unittest.main()
