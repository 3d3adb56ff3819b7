"""TRL's asynchronous GRPO trainer, whole and unmodified, with `weightcast-worker serve` in place of vLLM: it generates,
trains, and brings each step's weights to the server. What is not TRL's:

- how weights travel. TRL's is NCCL between GPUs; the trainer takes another as `weight_transfer`: here
  weightcast.integrations.trl, with an origin's daemon and a worker's.
- what needs a GPU: the attention kernel, and the GPU's name.
- whether vLLM is installed, which nothing uses.
"""

import json
import os
import types
import unittest
import urllib.request
from unittest import mock

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}  # before what looks at them

import torch  # noqa: E402
import transformers  # noqa: E402
from daemons import DaemonTest  # noqa: E402
from datasets import Dataset  # noqa: E402
from golden import installed  # noqa: E402
from served_model import Served  # noqa: E402
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_rollout_worker, packing  # noqa: E402
from weightcast.integrations.trl import WeightTransfer  # noqa: E402

STEPS = 3
GROUP = 4
MAX_DIFFERENCE = 1e-3  # of log-probabilities, between two programs in FP32


def reward(completion_ids, **_):
    return [float(len(set(ids))) for ids in completion_ids]


def attention(query, key, value, query_offsets, key_offsets, _queries_max, _keys_max, *, softmax_scale, causal, window_size):
    """FlashAttention's flash_attn_varlen_func: sequences laid end to end, [tokens, heads, head_dim] each."""
    assert causal and window_size == (-1, -1)
    outputs = []
    for i in range(len(query_offsets) - 1):
        queries = slice(query_offsets[i], query_offsets[i + 1])
        keys = slice(key_offsets[i], key_offsets[i + 1])
        q, k, v = (part.transpose(0, 1) for part in (query[queries], key[keys], value[keys]))
        # The last query sees all keys.
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=seen, scale=softmax_scale, enable_gqa=True)
        outputs.append(out.transpose(0, 1))
    return torch.cat(outputs)


class Recorded(WeightTransfer):
    """Keeps what was sent, by version."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.sent = {}

    def send_weights(self, iterator):
        weights = {name: tensor.clone() for name, tensor in iterator}
        super().send_weights(weights.items())
        self.sent[self.figures["weightcast/version"]] = weights


class Watched:
    """The trainer's queue of rollouts, which keeps those that were taken."""

    def __init__(self, rollouts):
        self.rollouts = rollouts
        self.taken = []

    def get(self, timeout):
        self.taken.append(self.rollouts.get(timeout=timeout))
        return self.taken[-1]

    def qsize(self):
        return self.rollouts.qsize()


def log_probabilities(model, rollouts):
    """Of each rollout's tokens but the first, [rollouts, tokens - 1]; nonsense beyond its end."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(rollout.input_ids) for rollout in rollouts], batch_first=True)
    with torch.no_grad():
        logits = model(ids).logits.float()
    return logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]


class TrlAsyncGrpoTrainer(DaemonTest):
    def setUp(self):
        super().setUp()
        for holder, name, stand_in in (
                (packing, "_flash_attn", lambda: types.SimpleNamespace(flash_attn_varlen_func=attention)),
                (torch.cuda, "get_device_name", lambda device: "CPU"),
                (async_rollout_worker, "is_vllm_available", lambda: True)):
            self.enterContext(mock.patch.object(holder, name, stand_in))
        template = (installed("trl") / "chat_templates" / "qwen3.jinja").read_text()
        # Answers that a version interrupts get their keys and values anew, so that each token's probability is that of
        # one version.
        self.served = Served("--state", self.start_worker().state, "--in-flight", "recompute", chat_template=template,
                             name_is_path=True)
        self.addCleanup(self.served.stop)
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(self.served.model / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<|endoftext|>")
        tokenizer.chat_template = template
        self.transfer = Recorded(self.origin.state, self.served.url, timeout=300)
        self.trainer = AsyncGRPOTrainer(
            model=str(self.served.model), reward_funcs=reward, processing_class=tokenizer, weight_transfer=self.transfer,
            callbacks=[self.transfer], train_dataset=Dataset.from_list(
                [{"prompt": [{"role": "user", "content": f"question {i}"}]} for i in range(8)]),
            args=AsyncGRPOConfig(
                output_dir=str(self.directory / "run"), max_steps=STEPS, learning_rate=1e-2, num_generations=GROUP,
                max_completion_length=16, max_inflight_tasks=4 * GROUP, queue_maxsize=8 * GROUP, max_staleness=0,
                vllm_server_base_url=self.served.url, request_timeout=300, use_cpu=True, bf16=False,
                activation_checkpointing=False, save_strategy="no", report_to=[], disable_tqdm=True))
        self.rollouts = self.trainer.rollout_queue = Watched(self.trainer.rollout_queue)

    def served_version(self):
        with urllib.request.urlopen(self.served.url + "/get_weight_version", timeout=30) as response:
            return int(json.load(response)["weight_version"])

    def test_trains_on_rollouts_of_the_versions_that_it_publishes(self):
        self.trainer.train()

        self.assertEqual(self.trainer.state.global_step, STEPS)
        self.assertEqual(list(self.transfer.sent), list(range(1, STEPS + 2)), "one before the first step, one after each")
        self.assertEqual(self.served_version(), STEPS + 1)
        steps = [line for line in self.trainer.state.log_history if "ratio" in line]
        self.assertEqual(len(steps), STEPS)
        self.assertAlmostEqual(steps[0]["ratio"], 1, delta=MAX_DIFFERENCE)
        self.assertEqual(sum(step.get("rollout/vllm_retry_total", 0) for step in steps), 0)

        for version, step in enumerate(steps, start=2):
            self.assertEqual((step["weightcast/version"], step["weightcast/workers_installed"]), (version, 1))
            self.assertGreater(step["weightcast/generating_s"], step["weightcast/publish_s"])

        # What the server said of each token is what transformers says under one of the versions since its group began.
        model = transformers.AutoModelForCausalLM.from_pretrained(self.served.model)
        by_version = {}
        for version, weights in self.transfer.sent.items():
            model.load_state_dict(weights)
            by_version[version] = log_probabilities(model, self.rollouts.taken)
        seen = dict.fromkeys(by_version, 0)
        for i, rollout in enumerate(self.rollouts.taken):
            for token in rollout.completion_mask.nonzero()[0]:
                found = [version for version, values in by_version.items() if version >= rollout.model_version
                         and abs(values[i, token - 1] - rollout.old_log_probs[token]) < MAX_DIFFERENCE]
                self.assertTrue(found, f"token {token} of a rollout of version {rollout.model_version}")
                if len(found) == 1:
                    seen[found[0]] += 1
        # The trainer takes rollouts one step ahead.
        self.assertGreater(sum(seen[version] for version in range(STEPS - 1, STEPS + 2)), 0, seen)


if __name__ == "__main__":
    unittest.main()
