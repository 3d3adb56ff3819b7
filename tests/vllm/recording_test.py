"""What the recorder sees of loaders: the ways in which vLLM's copy and compute. Run by the Python that vLLM has."""

import unittest
from unittest import mock

import torch
from weightcast import RawTensor
from weightcast.engines._placed_model import PlacedModel
from weightcast.engines._recording import Recorder, memory_of


class RecordingTest(unittest.TestCase):
    def setUp(self):
        self.parameter = torch.nn.Parameter(torch.zeros(8, 6), requires_grad=False)
        self.tensors = {"a": torch.rand(4, 6), "b": torch.rand(4, 6)}

    def record(self, loader):
        recorder = Recorder([self.parameter])
        with torch.no_grad(), recorder:
            loader(dict(recorder.given(self.tensors.items())))
        self.assertEqual(int(self.parameter.count_nonzero()), 0, "recording wrote")
        return recorder.record.places()

    def cells(self, places, name):
        """How many cells of the parameter each element of the tensor has, and that they are those that a load gives."""
        indices = torch.arange(self.tensors[name].numel()).numpy()
        found = torch.zeros(self.parameter.numel())
        for memory, _, chosen, cells in places.targets({name: indices}):
            self.assertEqual(memory, memory_of(self.parameter))
            found[torch.from_numpy(cells)] = self.tensors[name].reshape(-1)[chosen].to(found.dtype)
        return found.view(8, 6)

    def expect_exact(self, loader, *names):
        places = self.record(loader)
        self.assertEqual(places.reasons, {})
        loader(self.tensors)
        torch.testing.assert_close(sum(self.cells(places, name) for name in names), self.parameter.data, rtol=0, atol=0)

    def expect_reason(self, loader, reasons):
        found = self.record(loader).reasons
        self.assertEqual(set(found), set(reasons))
        for name, why in reasons.items():
            self.assertIn(why, found[name])

    def test_fused_rows_and_padding(self):
        def loader(given):
            self.parameter.data.narrow(0, 0, 4).copy_(given["a"])
            self.parameter[4:7].data.copy_(given["b"][:3])
            self.parameter[7:].data.fill_(0)

        self.expect_exact(loader, "a", "b")

    def test_slices_turned_and_viewed(self):
        def loader(given):
            self.parameter.data[:6, :4].copy_(given["a"].t())
            self.parameter.data[:2, 4:].copy_(given["b"].view(-1)[4:8].view(2, 2))

        self.expect_exact(loader, "a", "b")

    def test_another_dtype(self):
        self.tensors["a"] = self.tensors["a"].to(torch.bfloat16)
        self.expect_exact(lambda given: self.parameter.data[:4].copy_(given["a"]), "a")

    def test_what_is_computed(self):
        def loader(given):
            self.parameter.data[:4].copy_(given["a"] + 1)
            self.parameter.data[4:].copy_(given["b"])

        self.expect_reason(loader, {"a": "aten.add"})

    def test_what_is_gathered_first(self):
        self.expect_reason(lambda given: self.parameter.data.copy_(torch.cat([given["a"], given["b"]])),
                           {"a": "aten.cat", "b": "aten.cat"})

    def test_what_is_collected_elsewhere(self):
        def loader(given):
            scratch = torch.empty(4, 6)
            scratch.copy_(given["a"])
            self.parameter.data[:4].copy_(scratch)

        self.expect_reason(loader, {"a": "aten.copy_"})

    def test_what_is_changed_after_the_copy(self):
        def loader(given):
            self.parameter.data[:4].copy_(given["a"])
            self.parameter.data[:4].copy_(-self.parameter.data[:4])

        self.expect_reason(loader, {"a": "computes it from what is there"})

    def test_what_is_read_as_a_number(self):
        def loader(given):
            self.parameter.data[0, 0].fill_(given["a"][0, 0].item())

        self.expect_reason(loader, {"a": "_local_scalar_dense"})

    def test_one_value_for_several_cells(self):
        self.expect_reason(lambda given: self.parameter.data[:2].copy_(given["a"][0]), {"a": "several cells"})

    def test_another_reading_of_the_bits(self):
        self.expect_reason(lambda given: self.parameter.data.view(torch.int32)[:4].copy_(given["a"]), {"a": "int32"})

    def test_a_loader_that_changes_what_it_is_given_is_not_run(self):
        before = self.tensors["a"].clone()
        with self.assertRaisesRegex(NotImplementedError, "neg_"):
            self.record(lambda given: given["a"].neg_())
        torch.testing.assert_close(self.tensors["a"], before, rtol=0, atol=0)


class TwoTensors(torch.nn.Module):
    """Its norm is computed, so that a change of it takes a reload."""

    def __init__(self):
        super().__init__()
        self.norm, self.bias = (torch.nn.Parameter(torch.zeros(4), requires_grad=False) for _ in range(2))

    def load_weights(self, weights):
        for name, tensor in weights:
            getattr(self, name).data.copy_(tensor + 1 if name == "norm" else tensor)


class LosingModel(PlacedModel):
    """Its engine's reload forgets the bias."""

    def __init__(self, started_with):
        self.model, self.started_with = TwoTensors(), started_with
        self.model.load_weights((name, tensor.torch()) for name, tensor in started_with.items())
        super().__init__(torch.device("cpu"), self.model, mock.Mock())

    def _load(self, snapshot):
        self.model.load_weights((name, tensor.torch()) for name, tensor in snapshot.items() if name != "bias")

    def _checkpoint(self, snapshot):
        return self.started_with


class ReloadTest(unittest.TestCase):
    def weights(self, value):
        return {name: RawTensor("F32", (4,), bytearray(torch.full((4,), value).numpy().tobytes())) for name in ("norm", "bias")}

    def test_what_a_reload_loses_is_written_in_place(self):
        model = LosingModel(self.weights(1.0))
        for value in (2.0, 3.0):  # the first version, and one for whose norm all is loaded
            staged = model.stage_whole(self.weights(value), "")
            self.assertEqual(staged.kind, "reload")
            staged.write()
            self.assertEqual(model.model.bias.tolist(), [value] * 4)
            self.assertEqual(model.model.norm.tolist(), [value + 1] * 4)
            self.assertIn("other cells for tensor %s", model._log.warning.call_args_list[0].args[0])
        self.assertEqual(model.stage_whole({"bias": self.weights(4.0)["bias"]}, "").kind, "copies")


if __name__ == "__main__":
    unittest.main()
