"""SGLang's own classes, with what weightcast.sglang sends them: its requests, its unpickler, its weight updater with our loader
on a model whose loader fuses, slices and ties; and the trap of its loads from disk. `run.sh --sglang` has the release."""

import array
import os
import types
import unittest
from unittest import mock

import msgspec
import torch
import weightcast
from daemons import PublisherTest
from fixtures import enter
from sglang.srt.managers import io_struct
from sglang.srt.model_executor.model_runner_components import weight_updater
from sglang.srt.utils import MultiprocessingSerializer
from sglang.srt.utils.common import normalize_serialized_named_tensor_payloads
from weightcast import RawTensor
from weightcast.engines._installs import Action, Step, Version
from weightcast.sglang import EXCHANGE, LOADER
from weightcast.sglang._engine import Engine, Mode, PauseMode
from weightcast.sglang._exchange import Exchange

ROUTES = {
    "/pause_generation": io_struct.PauseGenerationReqInput,
    "/continue_generation": io_struct.ContinueGenerationReqInput,
    "/update_weights_from_disk": io_struct.UpdateWeightFromDiskReqInput,
    "/begin_weight_update": io_struct.BeginWeightUpdateReqInput,
    "/end_weight_update": io_struct.EndWeightUpdateReqInput,
    "/update_weight_version": io_struct.UpdateWeightVersionReqInput,
    "/abort_request": io_struct.AbortReq,
}


class UnquantizedLinearMethod:
    pass


class Fused(torch.nn.Module):
    """Its second half is q and k of rank 1 of two, its head is tied, and its norm is computed."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Parameter(torch.zeros(8, 4), requires_grad=False)
        self.qk = torch.nn.Parameter(torch.zeros(6, 4), requires_grad=False)
        self.norm = torch.nn.Parameter(torch.zeros(4), requires_grad=False)
        self.lm_head = self.embed
        self.fails = 0

    def load_weights(self, weights):
        for name, tensor in weights:
            if name == "embed":
                self.embed.data.copy_(tensor)
            elif name in ("q", "k"):
                rows = self.qk.data.narrow(0, 3 * (name == "k"), 3)
                rows.copy_(tensor.narrow(0, 3, 3))
            elif name == "norm":
                self.norm.data.copy_(tensor + 1)
            if self.fails:
                self.fails -= 1
                raise RuntimeError("a fault")

    def expected(self, tensors):
        qk = torch.cat([tensors["q"][3:], tensors["k"][3:]])
        return {"embed": tensors["embed"], "qk": qk, "norm": tensors["norm"] + 1}


def tensors_of(number):
    made = {}
    for name, shape in (("embed", (8, 4)), ("q", (6, 4)), ("k", (6, 4)), ("norm", (4,))):
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = torch.arange(size, dtype=torch.float32) + ord(name[0])
        if number > 1 and (name != "norm" or number == 4):
            values[number % size] = -number
            values[-1] = number
        made[name] = values.reshape(shape)
    return made


class RealServer:
    """SGLang's control plane as far as it is plain Python: one scheduler, one runner."""

    def __init__(self, model):
        self.model, self.calls = model, []
        self.config = types.SimpleNamespace(model_path="/start", dtype=torch.float32)
        self.updater = weight_updater.WeightUpdater(
            tp_rank=0, device="cpu", gpu_id=0, model_config=self.config, custom_weight_loaders=[LOADER],
            get_model=lambda: model, update_model_fields=lambda *a, **k: None, recapture_cuda_graph=lambda: None,
            get_model_runner=lambda: None)  # fmt: skip

    def get(self, path, limit_s):
        return {"model_path": "/start", "weight_version": "default", "custom_weight_loader": [LOADER], "tp_size": 1}

    def post(self, path, body, limit_s):
        self.calls.append(path)
        if path == "/update_weights_from_tensor":
            # As FastAPI decodes it, and the scheduler's process after it.
            payloads = normalize_serialized_named_tensor_payloads(body["serialized_named_tensors"])
            known = io_struct.UpdateWeightsFromTensorReqInput.__struct_fields__
            assert set(body) <= set(known), set(body) - set(known)
            success, message = self.updater.update_weights_from_tensor(
                MultiprocessingSerializer.deserialize(payloads[0]), load_format=body["load_format"])  # fmt: skip
            assert success, message
        elif path in ROUTES:
            # Its names and types, as they reach the scheduler.
            msgspec.msgpack.decode(msgspec.msgpack.encode(ROUTES[path](**body)), type=ROUTES[path])
        return {}


class UpdaterTest(PublisherTest):
    def setUp(self):
        super().setUp()
        # What a scheduler's process publishes when it starts.
        model, parallel = types.SimpleNamespace(weight_cache_mode="off"), types.SimpleNamespace(tp_rank=0, pp_size=1)
        made = {
            "get_model": lambda: model, "get_parallel": lambda: parallel, "get_pp_stage_load_group": lambda: None,
            "_unsupported_derived_weight_cache_error": lambda *arguments: None,
        }  # fmt: skip
        for name, value in made.items():
            enter(self, mock.patch.object(weight_updater, name, value))
        exchange = str(self.directory / "exchange")
        enter(self, mock.patch.dict(os.environ, {EXCHANGE: exchange, "WEIGHTCAST_STATE": self.origin.state}))
        self.model = Fused()
        self.server = RealServer(self.model)
        self.engine = Engine(self.server, Mode.CHANGES, PauseMode.RETRACT, Exchange(exchange), mock.Mock())
        self.addCleanup(self.engine.close)
        self.engine.meet()

    def publish(self, number):
        made = {name: RawTensor("F32", tuple(tensor.shape), bytearray(array.array("f", tensor.reshape(-1).tolist()).tobytes()))
                for name, tensor in tensors_of(number).items()}  # fmt: skip
        version = self.publish_and_wait(made)
        with weightcast.load(self.origin.state, version) as found:
            return Version(version, found.digest), found.directory

    def install(self, number):
        version, _ = self.publish(number)
        for step in (Step.PREPARE, Step.PAUSE, Step.WRITE, Step.LABEL, Step.RESUME):
            results = self.engine.perform(Action(step, version))
            self.assertTrue(all(result["ok"] for result in results), results)
            if step is Step.WRITE:
                written = results
        self.engine.keep()
        for name, tensor in self.model.expected(tensors_of(number)).items():
            self.assertTrue(torch.equal(getattr(self.model, name), tensor), f"{name} of {number}")
        self.assertIs(self.model.lm_head, self.model.embed)
        return written[0]

    def test_changes_go_where_the_models_own_loader_writes(self):
        self.assertEqual(self.install(1)["kind"], "reload")
        self.assertEqual(self.install(2)["kind"], "cells")
        self.assertEqual(self.install(3)["kind"], "cells")
        last = self.install(4)  # norm is computed
        self.assertEqual(last["kind"], "reload")
        self.assertIn("norm", last["why"])
        self.assertEqual(self.install(5)["kind"], "reload")  # norm goes back
        self.assertEqual(self.install(6)["kind"], "cells")

    def test_a_loader_with_threads_is_not_recorded(self):
        from concurrent.futures import ThreadPoolExecutor

        load = self.model.load_weights

        def threaded(weights):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(load, list(weights)).result()

        self.model.load_weights = threaded
        self.assertEqual(self.install(1)["kind"], "reload")
        last = self.install(2)
        self.assertEqual(last["kind"], "reload")
        self.assertIn("the loader uses threads", last["why"])

    def test_parameters_that_sglang_moves_are_reloaded(self):
        self.install(1)
        self.model.qk.data = self.model.qk.data.clone()
        self.assertEqual(self.install(2)["kind"], "reload")

    def test_a_failing_loader_is_an_answer_and_no_exception(self):
        self.install(1)
        self.model.qk.data = self.model.qk.data.clone()  # so that it loads
        self.model.fails = 1
        version, _ = self.publish(2)
        self.engine.perform(Action(Step.PREPARE, version))
        results = self.engine.perform(Action(Step.WRITE, version))
        self.assertEqual((results[0]["ok"], results[0]["wrote"], results[0]["error"]), (False, True, "a fault"))

    def test_every_request_is_one_that_sglang_takes(self):
        version, directory = self.publish(1)
        self.engine.perform(Action(Step.PREPARE, version))
        self.engine._by_disk = True
        for step in (Step.PAUSE, Step.WRITE, Step.LABEL, Step.REFUSE, Step.RESUME):
            self.engine.perform(Action(step, version, whole=True))
        self.install(2)
        self.assertLessEqual(set(ROUTES), set(self.server.calls))

    def test_a_failed_load_leaves_its_path_and_its_way_back_reads_that(self):
        """What the engine's second load is about. Of SGLang, so that a release without the trap is noticed."""
        read = []

        class Loader(weight_updater.DefaultModelLoader):
            Source = types.SimpleNamespace(init_new=lambda config, model: config.model_path)

            def __init__(self):
                pass

            def _get_weights_iterator(self, path):
                read.append(path)
                return iter(tensors_of(2).items())

            @staticmethod
            def restore_weights_before_loading(model, device):
                pass

            @staticmethod
            def load_weights_and_postprocess(model, weights, device):
                model.load_weights(weights)

        loader = Loader()
        self.model.fails = 1
        with (
            mock.patch.object(weight_updater, "DefaultModelLoader", Loader),
            mock.patch.object(weight_updater, "get_model_loader", lambda *arguments: loader),
            mock.patch.object(weight_updater, "get_available_gpu_memory", lambda *a, **k: 0.0),
        ):
            success, message = self.server.updater.update_weights_from_disk("/new", "auto")
            self.assertEqual((success, self.server.config.model_path), (False, "/new"))
            self.assertEqual(read, ["/new", "/new"])
            self.model.fails = 2
            with self.assertRaises(RuntimeError):
                self.server.updater.update_weights_from_disk("/new", "auto")


if __name__ == "__main__":
    unittest.main()
