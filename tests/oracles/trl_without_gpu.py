"""What TRL's asynchronous GRPO trainer has a GPU for, without one; and what its tests share."""

import types
from unittest import mock

import torch
from datasets import Dataset
from golden import installed
from transformers import PreTrainedTokenizerFast
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, packing
from weightcast.integrations.trl import WeightTransfer

GROUP = 4


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


def stand_ins():
    """Patches, to be entered while the trainer is made and trains."""
    flash_attention = types.SimpleNamespace(flash_attn_varlen_func=attention)
    return (mock.patch.object(packing, "_flash_attn", lambda: flash_attention),
            mock.patch.object(torch.cuda, "get_device_name", lambda device: "CPU"))


def template():
    return (installed("trl") / "chat_templates" / "qwen3.jinja").read_text()


def tokenizer(path):
    """Of a tokenizer.json as served_model.py writes it, with Qwen3's chat template."""
    found = PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token="<|im_end|>", pad_token="<|endoftext|>")
    found.chat_template = template()
    return found


def reward(completion_ids, **_):
    return [float(len(set(ids))) for ids in completion_ids]


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


class Recorded(WeightTransfer):
    """Keeps what was sent, by version."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.sent = {}

    def send_weights(self, iterator):
        weights = {name: tensor.clone() for name, tensor in iterator}
        super().send_weights(weights.items())
        self.sent[self.figures["weightcast/version"]] = weights


def make_trainer(model, url, transfer, steps, **options):
    """The trainer of a model's directory, and its rollouts."""
    trainer = AsyncGRPOTrainer(
        model=str(model), reward_funcs=reward, processing_class=tokenizer(model / "tokenizer.json"),
        weight_transfer=transfer, callbacks=[transfer], train_dataset=Dataset.from_list(
            [{"prompt": [{"role": "user", "content": f"question {i}"}]} for i in range(8)]),
        args=AsyncGRPOConfig(
            max_steps=steps, learning_rate=1e-2, num_generations=GROUP, max_completion_length=16,
            max_inflight_tasks=4 * GROUP, queue_maxsize=8 * GROUP, max_staleness=0, vllm_server_base_url=url,
            request_timeout=300, use_cpu=True, bf16=False, save_strategy="no",
            report_to=[], disable_tqdm=True, **options))
    trainer.rollout_queue = Watched(trainer.rollout_queue)
    return trainer, trainer.rollout_queue


def log_probabilities(model, rollouts):
    """Of each rollout's tokens but the first, [rollouts, tokens - 1]; nonsense beyond its end."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(rollout.input_ids) for rollout in rollouts], batch_first=True)
    with torch.no_grad():
        logits = model(ids).logits.float()
    return logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]


def versions_of_tokens(model, sent, rollouts, difference_max):
    """How many tokens have the log-probability that transformers gives under one version alone, by version. `sent`: weights
    by version. Errors: AssertionError, for a token that none of the versions since its group began explains."""
    by_version = {}
    for version, weights in sent.items():
        model.load_state_dict(weights)
        by_version[version] = log_probabilities(model, rollouts)
    seen = dict.fromkeys(by_version, 0)
    for i, rollout in enumerate(rollouts):
        for token in rollout.completion_mask.nonzero()[0]:
            found = [version for version, values in by_version.items() if version >= rollout.model_version
                     and abs(values[i, token - 1] - rollout.old_log_probs[token]) < difference_max]
            assert found, f"token {token} of a rollout of version {rollout.model_version}"
            if len(found) == 1:
                seen[found[0]] += 1
    return seen
