"""TRL's asynchronous GRPO trainer, whole and unmodified, with `weightcast-engine serve` in place of vLLM: it generates,
trains, and brings each step's weights to the server. What is not TRL's:

- how weights travel. TRL's is NCCL between GPUs; the trainer takes another as `weight_transfer`: here
  weightcast.integrations.trl, with an origin's daemon and a worker's.
- what needs a GPU: the attention kernel, and the GPU's name.
- whether vLLM is installed, which nothing uses.
"""

import json
import os
import unittest
import urllib.request
from unittest import mock

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}  # before what looks at them

import transformers  # noqa: E402
from daemons import DaemonTest  # noqa: E402
from served_model import Served  # noqa: E402
from trl.experimental.async_grpo import async_rollout_worker  # noqa: E402
from trl_without_gpu import Recorded, make_trainer, stand_ins, template, versions_of_tokens  # noqa: E402

STEPS = 3
MAX_DIFFERENCE = 1e-3  # of log-probabilities, between two programs in FP32


class TrlAsyncGrpoTrainer(DaemonTest):
    def setUp(self):
        super().setUp()
        for patch in (*stand_ins(), mock.patch.object(async_rollout_worker, "is_vllm_available", lambda: True)):
            self.enterContext(patch)
        # Answers that a version interrupts get their keys and values anew, so that each token's probability is that of
        # one version.
        self.served = Served("--state", self.start_worker().state, "--in-flight", "recompute", chat_template=template(),
                             name_is_path=True)
        self.addCleanup(self.served.stop)
        self.transfer = Recorded(self.origin.state, self.served.url, timeout=300)
        self.trainer, self.rollouts = make_trainer(
            self.served.model, self.served.url, self.transfer, STEPS, output_dir=str(self.directory / "run"),
            activation_checkpointing=False)

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
        seen = versions_of_tokens(model, self.transfer.sent, self.rollouts.taken, MAX_DIFFERENCE)
        # The trainer takes rollouts one step ahead.
        self.assertGreater(sum(seen[version] for version in range(STEPS - 1, STEPS + 2)), 0, seen)


if __name__ == "__main__":
    unittest.main()
