"""Models that the newest transformers makes and stores: our learner's and our engine's numbers are its own, and what the
learner publishes and a worker's daemon installs it loads, bit for bit. By the real torch and transformers."""

import json
import os
import pathlib
import subprocess

os.environ |= {"HF_HUB_OFFLINE": "1"}  # before what looks at it

import torch  # noqa: E402
import transformers  # noqa: E402
import weightcast  # noqa: E402
from daemons import DaemonTest  # noqa: E402
from served_model import tokenizer_json  # noqa: E402

SIZES = dict(
    vocab_size=259, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128, eos_token_id=258, bos_token_id=None)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
MODELS = {
    "llama": transformers.LlamaConfig(**SIZES, tie_word_embeddings=False),
    "llama with biases": transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
    "llama, tied": transformers.LlamaConfig(**SIZES, head_dim=16, rope_parameters=LLAMA3, tie_word_embeddings=True),
    "llama, linear": transformers.LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}, tie_word_embeddings=False),
    "mistral with a window": transformers.MistralConfig(**SIZES, sliding_window=9, tie_word_embeddings=False),
    "mistral without": transformers.MistralConfig(**SIZES, head_dim=16, sliding_window=None, tie_word_embeddings=False),
}
IDS = torch.randint(0, 256, (45,), generator=torch.Generator().manual_seed(3)).tolist()
SETTINGS = (
    "task=arithmetic", "chat_template=none", "rollout_batch_size=8", "group_size=4", "total_training_steps=2",
    "max_new_tokens=4", "learning_rate=0.01")


def output_of(variable, *arguments):
    ran = subprocess.run([os.environ[variable], *map(str, arguments)], capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def bytes_of(tensors):
    return {name: tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for name, tensor in tensors.items()}


class ModelFamiliesTest(DaemonTest):
    worker_flags = ()

    def stored(self, name, config):
        """The directory of a model, in shards, and the model."""
        torch.manual_seed(5)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape) * 0.2 + (0.9 if parameter.dim() == 1 else 0))
        directory = self.directory / name
        model.save_pretrained(directory, max_shard_size="30KB")
        (directory / "tokenizer.json").write_text(tokenizer_json())
        assert len(list(directory.glob("*.safetensors"))) > 1
        return directory, model

    def test_learner_and_engine_compute_what_transformers_does(self):
        for name, config in MODELS.items():
            with self.subTest(name):
                directory, model = self.stored(name, config)
                with torch.no_grad():
                    logits = model(torch.tensor([IDS])).logits[0].double()
                listed = ",".join(map(str, IDS))
                found = json.loads(output_of("WEIGHTCAST_TRAIN", "check", "logits", directory, "--ids", listed))["logits"]
                tolerance = 1e-5 * (1 + logits[-1].abs().max().item())
                self.assertLess((torch.tensor(found).double() - logits[-1]).abs().max().item(), tolerance)
                answer = json.loads(output_of(
                    "WEIGHTCAST_WORKER", "generate", directory, "--ids", listed, "--json", "--prompt-log-probs",
                    "--temperature", 0, "--max-tokens", 30, "--ignore-eos"))
                ids = IDS + answer["ids"]
                with torch.no_grad():
                    logits = model(torch.tensor([ids])).logits[0].double()
                expected = logits[:-1].log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
                found = torch.tensor(answer["prompt_log_probs"][1:] + answer["log_probs"]).double()
                tolerance = 1e-5 * (1 + logits.abs().max().item())
                self.assertLess((found - expected).abs().max().item(), tolerance)
                self.assertEqual(answer["ids"], logits[len(IDS) - 1:-1].argmax(-1).tolist())

    def test_transformers_loads_what_the_learner_publishes(self):
        for name, config in MODELS.items():
            with self.subTest(name):
                directory, model = self.stored(name, config)
                words = (*SETTINGS, f"model={directory}", f"publish_state={self.origin.state}", "publish_new_model=true",
                         f"output_dir={self.directory / 'run'} {name}")
                output_of("WEIGHTCAST_TRAIN", "run", *("--" + "=".join([word.split("=", 1)[0].replace("_", "-"), *word.split("=", 1)[1:]]) for word in words))
                version = self.origin.node()["version"]
                with weightcast.Publisher(self.origin.state) as publisher:
                    publisher.wait(version)
                with weightcast.load(self.worker.state) as weights:
                    self.assertEqual(weights.version, version)
                    published = bytes_of(weights.torch())
                    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(
                        weights.directory, dtype="auto", output_loading_info=True)
                    stored = json.loads(pathlib.Path(weights.directory, "config.json").read_text())
                self.assertEqual([list(info[kind]) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")], [[], [], []])
                parameters = bytes_of(dict(loaded.named_parameters()))
                self.assertEqual(parameters, {key: published[key] for key in parameters})
                self.assertEqual(set(published), set(parameters))
                self.assertNotEqual(parameters, bytes_of(dict(model.named_parameters())), "it was trained")
                self.assertEqual(stored, json.loads((directory / "config.json").read_text()))
