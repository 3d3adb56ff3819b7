"""The code of SkyRL and AReaL that writes steps to a directory, and that which reads them elsewhere, as they are, on the
processor, with both processes of weightcast.integrations.directories between. What is not theirs: the engines behind the
readers, which here keep what was read, and FSDP, of which a model on one rank has no need.
"""

import importlib.util
import os
import pathlib
import sys
import types
import unittest

os.environ |= {"HF_HUB_OFFLINE": "1"}  # before what looks at it


def without_its_init(package):
    """Lets a package's modules be imported without what its __init__ imports."""
    parent, _, name = package.rpartition(".")
    module = types.ModuleType(package)
    module.__path__ = [str(pathlib.Path(path) / name) for path in importlib.util.find_spec(parent).submodule_search_locations]
    sys.modules[package] = module


without_its_init("skyrl.backends")  # it imports SkyRL's server, which takes Python 3.12

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import transformers  # noqa: E402
from areal.api.cli_args import InferenceEngineConfig, NameResolveConfig  # noqa: E402
from areal.api.io_struct import WeightUpdateMeta  # noqa: E402
from areal.engine.fsdp_engine import FSDPEngine  # noqa: E402
from areal.engine.vllm_remote import VLLMBackend  # noqa: E402
from areal.infra.remote_inf_engine import RemoteInfEngine  # noqa: E402
from areal.utils import name_resolve  # noqa: E402
from directories_follow_test import BridgeTest, eventually  # noqa: E402
from json_server import JsonServer  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from served_model import CONFIG, tokenizer_json  # noqa: E402
from skyrl.backends.skyrl_train.weight_sync.delta.checkpoint import DeltaCheckpointPublisher, LocalCheckpointStore  # noqa: E402
from weightcast.integrations.directories import LAYOUTS, wait_for_step  # noqa: E402

STEPS = 4
RETRIES = 300  # what docs/TRAINERS.md says for AReaL


class SkyRlTest(BridgeTest):
    layout = "skyrl"

    def setUp(self):
        super().setUp()
        self.base = self.directory / "base"
        self.base.mkdir()
        torch.manual_seed(1)
        self.weights = {f"layers.{i}.weight": torch.randn(96, 64).to(torch.bfloat16) for i in range(5)}
        save_file(self.weights, self.base / "model.safetensors")
        self.publisher = DeltaCheckpointPublisher(
            str(self.base), sync_dir=str(self.output), publish_staging_dir=str(self.directory / "staging"))

    def train(self):
        """One step: SkyRL's trainer writes its delta, and tells engines its number."""
        for tensor in self.weights.values():
            tensor.view(-1)[torch.randint(0, tensor.numel(), (40,))] += 1
        return int(self.publisher.publish([self.publisher.create_delta_files(self.weights.items())])["target_version"])

    def store(self, name):
        """An engine's, on another host."""
        return LocalCheckpointStore(str(self.base), str(self.directory / name))

    def fetch(self, store, version):
        """As the worker extension of docs/TRAINERS.md, and what vLLM would load then."""
        wait_for_step(self.copies, LAYOUTS["skyrl"], version, timeout=60)
        store.fetch(version, sync_dir=str(self.copies))
        store.validate_ready(version)
        found = {}
        for path in store._current_checkpoint_dir().glob("*.safetensors"):
            found |= load_file(path)
        self.assertEqual(found.keys(), self.weights.keys())
        for name, tensor in self.weights.items():
            self.assertTrue(torch.equal(found[name].view(torch.int16), tensor.view(torch.int16)), name)

    def test_engines_elsewhere_have_what_the_trainer_has_and_one_that_joins_late_too(self):
        self.publish()
        self.follow()
        engine = self.store("engine")
        for step in range(1, STEPS + 1):
            self.assertEqual(self.train(), step)
            self.fetch(engine, step)
        self.train()
        self.fetch(self.store("late"), self.train())
        self.fetch(engine, STEPS + 2)

    def test_an_engine_that_is_told_too_early_fails(self):
        store = self.store("engine")
        with self.assertRaises(FileNotFoundError):
            store.fetch(self.train(), sync_dir=str(self.copies))


class ArealTest(BridgeTest):
    layout = "areal"

    def setUp(self):
        super().setUp()
        name_resolve.reconfigure(NameResolveConfig(type="nfs", nfs_record_root=str(self.directory / "names")))
        dist.init_process_group("gloo", init_method=f"file://{self.directory}/ranks", rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        self.told, self.refused = [], 0
        server = JsonServer(self.answer)
        self.addCleanup(server.stop)
        names = {"experiment_name": "experiment", "trial_name": "trial"}
        self.rollout = RemoteInfEngine(
            InferenceEngineConfig(**names, request_retries=RETRIES, pause_grace_period=0.0), VLLMBackend())
        self.rollout.addresses = [f"127.0.0.1:{server.port}"]
        self.rollout.logger = types.SimpleNamespace(info=lambda *_: None)
        tokenizer_file = self.directory / "tokenizer.json"
        tokenizer_file.write_text(tokenizer_json())
        self.model = transformers.AutoModelForCausalLM.from_config(transformers.Qwen3Config(**{
            name: value for name, value in CONFIG.items() if name not in ("architectures", "model_type", "torch_dtype")}))
        # One rank's, without what __init__ and initialize() do: a device, FSDP, an optimiser.
        self.trainer = FSDPEngine.__new__(FSDPEngine)
        vars(self.trainer).update(
            model=self.model, model_config=self.model.config, processor=None, rollout_engine=self.rollout,
            tokenizer=transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file)),
            config=types.SimpleNamespace(use_lora=False, dtype="float32", **names), _cpu_group=dist.group.WORLD, _version=0, _initialized=True)
        self.meta = WeightUpdateMeta(type="disk", path=str(self.output / "weight_update"))

    def answer(self, path, asked):
        """The routes of a vLLM server of AReaL's, as far as AReaL calls them. It loads from its own host's disk."""
        status = 200
        if path == "/areal_update_weights":
            step = pathlib.Path(asked["model_path"]).name
            try:
                self.told.append((step, transformers.AutoModelForCausalLM.from_pretrained(self.copies / step).state_dict()))
            except (OSError, ValueError):
                self.refused += 1
                status = 400
        else:
            self.told.append(path)
        return status, {"success": status == 200, "message": ""}

    def test_each_update_arrives_where_only_the_bridge_reaches(self):
        self.publish()
        self.follow()
        for step in range(1, STEPS + 1):
            with torch.no_grad():
                for tensor in self.model.parameters():
                    tensor.view(-1)[step::50] += 0.5
            # As AReaL's trainer after a step.
            meta = self.meta.with_version(step)
            self.rollout.set_version(step)
            self.trainer.set_version(step)
            self.trainer._update_weights_from_disk(meta)
            *before, (name, weights), after = self.told
            self.assertEqual((name, before[-1], after), (f"weight_update_v{step}", "/areal_pause_generation", "/areal_continue_generation"))
            for tensor_name, tensor in self.model.state_dict().items():
                self.assertTrue(torch.equal(weights[tensor_name], tensor), tensor_name)
            eventually(lambda: not pathlib.Path(meta.path).exists())  # the trainer deletes what the engines have loaded
        self.assertGreater(self.refused, 0, "it was asked before its host had a step, and asked again")


if __name__ == "__main__":
    unittest.main()
