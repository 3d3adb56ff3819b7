"""The real vLLM follows a worker's daemon by itself: after each install it computes what transformers computes over the
published files. Run by the Python that vLLM has."""

import json
import os
import pathlib
import signal
import threading
import time
import unittest
import urllib.error
import urllib.request

import tokenizers
import torch
import transformers
import weightcast
from daemons import PublisherTest, eventually
from loop_test import Vllm, write_site

TOLERANCE = 1e-5
INSTALL_S_MAX = 120
PROMPT = [5, 6, 7, 8]


def distance_from(reference, choice, prompt=PROMPT, begin=0):
    """By how much the log-probabilities of an answer differ from those of a model, from its token `begin` on."""
    ids = choice["token_ids"]
    with torch.no_grad():
        logits = reference(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1:-1]
    wanted = logits.float().log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)]
    got = torch.tensor([entry["logprob"] for entry in choice["logprobs"]["content"]])
    return float((got - wanted)[begin:].abs().max())


class Following(PublisherTest):
    worker_flags = ()
    TIED = False
    TOKENIZER = ("--skip-tokenizer-init",)

    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        self.model = self.make_model(self.make_config())
        self.weights = {name: tensor for name, tensor in self.model.state_dict().items()
                        if not (self.TIED and name == "lm_head.weight")}
        self.path = self.directory / "model"
        self.model.save_pretrained(self.path)
        self.faults = self.directory / "faults"
        self.faults.touch()

    def make_config(self):
        return transformers.Qwen3Config(
            vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, tie_word_embeddings=self.TIED)

    def make_model(self, config):
        return transformers.AutoModelForCausalLM.from_config(config).eval()

    def serve(self, *flags, **variables):
        self.start_vllm("--weight-transfer-config", '{"backend": "weightcast"}', *flags, **variables)

    def start_vllm(self, *flags, **variables):
        self.vllm = Vllm(
            self.path, self.directory, *self.TOKENIZER, "--served-model-name", "m", "--max-num-seqs", "8", *flags, **{
                "VLLM_PLUGINS": "weightcast,faults", "WEIGHTCAST_STATE": self.worker.state,
                "PYTHONPATH": write_site(self.directory / "site", faults="faults:register"),
                "WEIGHTCAST_TEST_FAULTS": str(self.faults), **variables})
        self.addCleanup(self.vllm.stop)
        self.vllm.wait_until_ready()

    def get(self, route):
        with urllib.request.urlopen(f"http://{self.vllm.address}{route}", timeout=60) as answer:
            return json.loads(answer.read())

    def status(self):
        return self.get("/weightcast/status")

    def generate(self, **options):
        return self.answer(**options)["choices"][0]

    def answer(self, tokens=8, seed=0, model="m", prompt=PROMPT, limit_s=INSTALL_S_MAX):
        body = {"model": model, "token_ids": prompt, "sampling_params": {
            "max_tokens": tokens, "ignore_eos": True, "seed": seed, "detokenize": False, "logprobs": 0, "temperature": 1.0}}
        with self.post("/inference/v1/generate", body, limit_s) as answer:
            return json.loads(answer.read())

    def post(self, route, body, limit_s=INSTALL_S_MAX):
        request = urllib.request.Request(f"http://{self.vllm.address}{route}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=limit_s)

    def distance(self, choice, begin=0):
        """By how much its log-probabilities differ from those of transformers, over the version that the daemon has."""
        with weightcast.load(self.worker.state) as weights:
            reference = transformers.AutoModelForCausalLM.from_pretrained(weights.directory, dtype=torch.float32)
        return distance_from(reference, choice, begin=begin)

    def expect(self, version, kind):
        """The server says the version and computes with it."""
        eventually(lambda: self.status()["version"] == version, INSTALL_S_MAX)
        told = self.status()
        self.assertEqual((told["kind"], told["refuses"], told["why"]), (kind, False, ""), told)
        self.assertEqual(self.get("/weight_info")["weight_version"], str(version))
        choice = self.generate(seed=version)
        self.assertEqual([part["version"] for part in choice["weight_versions"]], [str(version)])
        self.assertLess(self.distance(choice), TOLERANCE)
        return told

    def engine_process(self):
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            text = status.read_text()
            if f"\nPPid:\t{self.vllm.process.pid}\n" in text and "EngineCore" in status.with_name("cmdline").read_text():
                return int(status.parent.name)
        raise AssertionError("no process is the engine's")

    def publish(self, **options):
        """All tensors, with other values."""
        with torch.no_grad():
            for tensor in self.weights.values():
                tensor.add_(torch.randn_like(tensor) * 0.02)
        return self.publisher.publish(self.weights, **options)

    def publish_cells(self, share=0.02, names=None):
        """A few cells of each tensor, or of those."""
        changes = {}
        for name in names or self.weights:
            flat = self.weights[name].view(-1)
            indices = torch.sort(torch.randperm(len(flat))[:max(1, int(len(flat) * share))]).values
            flat[indices] += 0.05
            changes[name] = (indices, flat[indices])
        return self.publisher.publish_sparse(changes, base=self.publisher.next_version() - 1)


class FollowTest(Following):
    def test_versions_in_place_and_what_goes_wrong(self):
        self.serve(WEIGHTCAST_VLLM_UNPACKED="1")
        # Before the first version: what it was started with.
        self.assertEqual(self.status()["version"], None)
        self.assertEqual(self.generate()["weight_versions"][0]["version"], "default")
        self.expect(self.publish(files=self.path), "reload")
        self.assertIn("the probe found each of their bits", self.vllm.log.read_text())
        for _ in range(3):
            self.expect(self.publish_cells(), "cells")
        self.expect(self.publish(), "copies")  # so many changes that the daemon gives no list

        # An answer under way goes on under the next version, with keys and values that are computed anew.
        answer = []
        thread = threading.Thread(target=lambda: answer.append(self.generate(tokens=700)))
        thread.start()
        time.sleep(1)
        version = self.publish_cells()
        self.expect(version, "cells")
        thread.join()
        parts = answer[0]["weight_versions"]
        self.assertEqual([part["version"] for part in parts], [str(version - 1), str(version)])
        self.assertLess(self.distance(answer[0], begin=parts[1]["start"]), TOLERANCE)

        # A version without a tensor is not taken, and the next one is.
        missing = dict(self.weights)
        missing.pop("model.layers.1.mlp.up_proj.weight")
        refused = self.publisher.publish(missing, new_model=True, files=self.path)
        eventually(lambda: "up_proj" in self.status()["why"], INSTALL_S_MAX)
        told = self.status()
        self.assertEqual((told["version"], told["newest"], told["refuses"]), (version, refused, False))
        self.assertEqual([part["version"] for part in self.generate()["weight_versions"]], [str(version)])
        self.expect(self.publish(new_model=True, files=self.path), "copies")
        self.expect(self.publish_cells(), "cells")

        # Writing fails in the middle: all is loaded again before an answer is given.
        self.faults.write_text("a fault in the middle\n")
        version = self.publish_cells()
        self.assertEqual(self.expect(version, "copies")["why"], "")
        self.assertIn("a fault in the middle", self.vllm.log.read_text())
        # And that fails, too: requests are refused, until it succeeds.
        self.faults.write_text("a first fault\na second fault\na third fault\n")
        version = self.publish_cells()
        refusals = []

        def is_refused():
            try:
                self.generate(tokens=1)
            except urllib.error.HTTPError as error:
                refusals.append(error.read().decode())
                return error.code == 503
            return False

        eventually(is_refused, INSTALL_S_MAX)
        self.assertIn("fault", refusals[-1])
        self.expect(version, "copies")

        # The daemon dies: what was in stays in. It comes back: so does what it brings.
        self.worker.kill()
        eventually(lambda: self.generate()["weight_versions"][0]["version"] == str(version))
        self.worker.start()
        self.expect(self.publish_cells(), "cells")

        # The engine dies: the server ends, and nothing stays pinned at the daemon.
        os.kill(self.engine_process(), signal.SIGKILL)
        eventually(lambda: self.vllm.process.poll() is not None, INSTALL_S_MAX)
        version = self.publish_cells()
        eventually(lambda: self.worker.node()["version"] == version)

    def test_a_version_that_is_there_at_the_start_is_in_before_the_first_answer(self):
        version = self.publish(files=self.path)
        eventually(lambda: self.worker.node()["version"] == version)
        self.serve(WEIGHTCAST_VLLM_UNPACKED="1", WEIGHTCAST_VLLM_IN_FLIGHT="drain")
        self.assertEqual(self.status()["version"], version)
        self.expect(version, "reload")
        answer = []
        thread = threading.Thread(target=lambda: answer.append(self.generate(tokens=300)))
        thread.start()
        time.sleep(1)
        # Requests that come while answers end wait, and none is turned away.
        came, ended = [], threading.Event()

        def ask():
            while not ended.is_set():
                came.append(self.generate(tokens=1)["weight_versions"][0]["version"])

        asking = threading.Thread(target=ask)
        asking.start()
        self.expect(self.publish_cells(), "cells")
        thread.join()
        self.assertTrue(asking.is_alive())
        ended.set()
        asking.join()
        self.assertLessEqual(set(came), {str(version), str(version + 1)})
        self.assertIn(str(version + 1), came)
        self.assertEqual([part["version"] for part in answer[0]["weight_versions"]], [str(version)])


class PackedTest(Following):
    """As vLLM is on a CPU by itself, where it packs weights: each version is reloaded, the tied head, too."""

    TIED = True

    def test_versions_are_reloaded(self):
        self.serve()
        self.expect(self.publish(files=self.path), "reload")
        self.assertIn("vLLM packs weights for the CPU", self.vllm.log.read_text())
        for _ in range(2):
            told = self.expect(self.publish_cells(), "reload")
            self.assertIn("packs weights", told["kind_because"])


class TiedTest(Following):
    TIED = True

    def test_tied_tensors_are_written_once(self):
        self.serve(WEIGHTCAST_VLLM_UNPACKED="1")
        self.expect(self.publish(files=self.path), "reload")
        self.expect(self.publish_cells(), "cells")
        self.expect(self.publish(), "copies")


class PoolingTest(Following):
    """A server that embeds, and generates nothing. vLLM starts none without a tokenizer."""

    TOKENIZER = ()

    def setUp(self):
        super().setUp()
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({str(number): number for number in range(256)}, unk_token="0"))
        transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="0", pad_token="0").save_pretrained(self.path)

    def embedding(self):
        with self.post("/v1/embeddings", {"model": "m", "input": [PROMPT]}) as answer:
            return torch.tensor(json.loads(answer.read())["data"][0]["embedding"])

    def expect_embedding(self):
        with weightcast.load(self.worker.state) as weights:
            model = transformers.AutoModel.from_pretrained(weights.directory, dtype=torch.float32).eval()
        with torch.no_grad():
            last = model(torch.tensor([PROMPT])).last_hidden_state[0, -1]
        torch.testing.assert_close(self.embedding(), last / last.norm(), rtol=0, atol=TOLERANCE)

    def test_versions_are_followed(self):
        self.serve("--runner", "pooling", WEIGHTCAST_VLLM_UNPACKED="1")
        # vLLM's loader copies the first tensors, to look at their names.
        layers = [name for name in self.weights if ".layers." in name]
        for publish, kind in ((lambda: self.publish(files=self.path), "reload"), (self.publish_cells, "reload"),
                              (lambda: self.publish_cells(names=layers), "cells")):
            version = publish()
            eventually(lambda: self.status()["version"] == version, INSTALL_S_MAX)
            told = self.status()
            self.assertEqual((told["kind"], told["refuses"], told["why"]), (kind, False, ""), told)
            self.expect_embedding()


class NewerSource:
    """As vLLM 0.33 describes a source. `others`: how many of the last tensors other ranks have."""

    def __init__(self, model, others=0):
        self.model, self.others = model, others

    @property
    def metadata(self):
        from vllm.distributed.weight_transfer.base import ParamMeta

        return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self.model.named_parameters()]

    def iter_full(self):
        named = list(self.model.named_parameters())
        return iter(named[:len(named) - self.others])


class DrivenTest(Following):
    """A trainer drives vLLM's own routes, by vLLM's own trainer interface, and no follower is loaded."""

    def test_the_trainers_half(self):
        from vllm.distributed.weight_transfer.base import ModuleSource
        from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        import weightcast.vllm

        weightcast.vllm.register()
        self.serve(VLLM_PLUGINS=None, WEIGHTCAST_VLLM_UNPACKED="1")
        trainer = WeightTransferTrainerFactory.trainer_init(
            weightcast.vllm.WeightcastTrainerInit(state_dir=self.origin.state, files=str(self.path), rank=0),
            client=HTTPVLLMWeightSyncClient(f"http://{self.vllm.address}"), source=ModuleSource(self.model))
        self.addCleanup(trainer.shutdown)
        trainer.source, given = NewerSource(self.model, 1), trainer.source
        with self.assertRaisesRegex(ValueError, "rank 0's source has nothing of 1 of [0-9]+ tensors, such as 'lm_head.weight'"):
            trainer.send_weights()
        for version, source in ((1, given), (2, NewerSource(self.model))):
            trainer.source = source
            with torch.no_grad():
                for tensor in self.model.parameters():
                    tensor.view(-1)[version::50] += 0.05
            self.post("/pause?mode=keep&clear_cache=true", {}).close()
            trainer.send_weights()
            self.post("/resume", {}).close()
            choice = self.generate(seed=version)
            self.assertEqual([part["version"] for part in choice["weight_versions"]], [str(version)])
            self.assertLess(self.distance(choice), TOLERANCE)
        with self.assertRaises(urllib.error.HTTPError):
            self.post("/start_weight_update", {}).close()
            self.post("/update_weights", {"update_info": {"version": 9}})
        self.assertLess(self.distance(self.generate()), TOLERANCE)


class ExpertsTest(Following):
    """Two ranks, and experts, which vLLM packs for a CPU."""

    def make_config(self):
        return transformers.Qwen3MoeConfig(
            vocab_size=256, hidden_size=64, intermediate_size=96, moe_intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_experts=4, num_experts_per_tok=2,
            norm_topk_prob=True, decoder_sparse_step=1, max_position_embeddings=1024, tie_word_embeddings=False)

    def setUp(self):
        super().setUp()
        # By the names that they have in a checkpoint, each expert by itself.
        self.weights = {name: tensor.torch().clone() for name, tensor in weightcast.Snapshot(self.path).items()}

    def test_experts_are_reloaded_and_all_else_is_written_in_place_on_both_ranks(self):
        self.serve("--tensor-parallel-size", "2", WEIGHTCAST_VLLM_UNPACKED="1")
        self.expect(self.publish(files=self.path), "reload")
        told = self.expect(self.publish_cells(), "reload")
        self.assertIn("experts", told["kind_because"])
        dense = [name for name in self.weights if ".experts." not in name]
        for _ in range(2):
            self.expect(self.publish_cells(names=dense), "cells")


if __name__ == "__main__":
    unittest.main()
