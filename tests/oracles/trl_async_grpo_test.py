"""`weightcast-engine serve` as TRL's asynchronous GRPO trainer uses it: trl_parts.py."""

import contextlib
import json
import queue
import threading
import time
import types
import unittest
import urllib.request

import trl_parts
from golden import installed
from served_model import CONTEXT, NAME, Served

TEMPLATES = installed("trl") / "chat_templates"
GROUP = 4
TOKENS = 24


class Tokenizer(trl_parts.transformers.PreTrainedTokenizerFast):
    """With the method of newer releases that TRL calls."""

    response_schema = {}

    def parse_response(self, ids):
        return {"role": "assistant", "content": self.decode(ids, skip_special_tokens=True)}


def reward(completion_ids, **_):
    return [float(len(set(ids))) for ids in completion_ids]


class TrlAsyncGrpo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.template = (TEMPLATES / "qwen3.jinja").read_text()
        cls.served = Served(chat_template=cls.template)
        cls.client = trl_parts.VLLMClient(cls.served.url, server_timeout=30)
        cls.tokenizer = Tokenizer(
            tokenizer_file=str(cls.served.model / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<|endoftext|>")
        cls.tokenizer.chat_template = cls.template

    @classmethod
    def tearDownClass(cls):
        cls.served.stop()

    def setUp(self):
        self.samples, self.failed, self.failures = queue.Queue(), threading.Event(), queue.Queue()
        self.metrics = queue.Queue()
        self.loop = trl_parts.RolloutLoop(
            model_name=NAME, dataset=[{"prompt": [{"role": "user", "content": f"question {i}"}]} for i in range(3)],
            reward_funcs=[reward], processing_class=self.tokenizer, eos_token_ids=[self.tokenizer.eos_token_id],
            rollout_buffer=self.samples, model_version_value=types.SimpleNamespace(value=0),
            heartbeat_value=types.SimpleNamespace(value=0.0), failed_event=self.failed,
            exception_info_queue=self.failures, metrics_queue=self.metrics, num_generations=GROUP, max_inflight_tasks=8,
            vllm_server_url=self.served.url, max_tokens=TOKENS, request_timeout=30)
        self.thread = threading.Thread(target=self.loop.run)

    def stop_loop(self):
        self.loop._loop.call_soon_threadsafe(self.loop._stop_event.set)
        self.thread.join(timeout=30)
        self.assertFalse(self.thread.is_alive())
        self.assertFalse(self.failed.is_set(), list(self.failures.queue))

    def take(self, count):
        samples = []
        deadline = time.monotonic() + 60
        while len(samples) < count:
            self.assertFalse(self.failed.is_set(), list(self.failures.queue))
            self.assertLess(time.monotonic(), deadline, f"{len(samples)} of {count} rollouts came in a minute")
            with contextlib.suppress(queue.Empty):
                samples.append(self.samples.get(timeout=0.1))
        return samples

    def ask(self, path, body):
        request = urllib.request.Request(self.served.url + path, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def test_server_is_ready_and_says_its_context(self):
        self.client.wait_for_server_ready()
        self.assertEqual(self.client.get_max_model_len(), CONTEXT)

    def test_rollouts_have_the_log_probabilities_of_their_tokens(self):
        self.thread.start()
        samples = self.take(3 * GROUP)
        self.stop_loop()
        answers = set()
        for sample in samples:
            prompt = self.tokenizer.apply_chat_template(list(sample.prompt), add_generation_prompt=True)
            self.assertEqual(self.ask("/tokenize", {"messages": list(sample.prompt)})["tokens"], prompt)
            ids = sample.input_ids.tolist()
            self.assertEqual(ids[:len(prompt)], prompt)
            self.assertEqual(sample.completion_mask.tolist(), [0] * len(prompt) + [1] * (len(ids) - len(prompt)))
            self.assertTrue(len(ids) == len(prompt) + TOKENS or ids[-1] == self.tokenizer.eos_token_id)
            answers.add(tuple(ids))
            scored = self.ask("/v1/completions", {"prompt": ids, "echo": True, "logprobs": 0, "max_tokens": 1})
            expected = scored["choices"][0]["logprobs"]["token_logprobs"][len(prompt):len(ids)]
            for ours, sampled in zip(expected, sample.old_log_probs[len(prompt):]):
                self.assertAlmostEqual(ours, sampled, delta=1e-4)
        self.assertEqual(len(answers), 3 * GROUP)

    def test_rollouts_go_on_after_a_pause_for_weights(self):
        self.thread.start()
        self.take(GROUP)
        self.client.pause()
        time.sleep(0.5)  # what was scored by now, and nothing after it
        self.samples.queue.clear()
        time.sleep(0.5)
        paused = self.samples.qsize()
        self.client.resume()
        self.take(2 * GROUP)
        self.stop_loop()
        self.assertEqual(paused, 0)
        retries = sum(metrics.get("rollout/vllm_retry_total", 0) for metrics in self.metrics.queue)
        self.assertEqual(retries, 0, "calls wait while the worker is paused, as they do at vLLM")


if __name__ == "__main__":
    unittest.main()
