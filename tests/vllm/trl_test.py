"""TRL's asynchronous GRPO trainer with the real vLLM, which follows a worker's daemon: weightcast.integrations.trl between
them, a whole run and what goes wrong. Run by the Python that vLLM has."""

import os
import pathlib
import sys
import threading
import time
import unittest

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}  # before what looks at them
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "oracles"))

import transformers  # noqa: E402
import weightcast  # noqa: E402
from follow_test import Following, write_site  # noqa: E402
from loop_test import Vllm  # noqa: E402
from served_model import CONFIG, tokenizer_json  # noqa: E402
from trl_without_gpu import Recorded, make_trainer, stand_ins, tokenizer, versions_of_tokens  # noqa: E402
from weightcast.integrations.trl import WeightTransfer  # noqa: E402

STEPS = 12
FAULT_AT = 6  # the publication at which the worker's daemon is killed
MAX_DIFFERENCE = 1e-3  # of log-probabilities, between two programs in FP32


class Faulty(Recorded):
    """Kills a daemon before one publication, and starts it again a second later."""

    def __init__(self, worker, *arguments, **options):
        super().__init__(*arguments, **options)
        self.worker = worker

    def send_weights(self, iterator):
        if len(self.sent) + 1 == FAULT_AT:
            self.worker.kill()
            threading.Timer(1, self.worker.start).start()
        super().send_weights(iterator)


class TrlTest(Following):
    def make_config(self):
        return transformers.Qwen3Config(
            vocab_size=CONFIG["vocab_size"], hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=1024,
            tie_word_embeddings=False, eos_token_id=CONFIG["eos_token_id"])

    def setUp(self):
        super().setUp()
        (self.path / "tokenizer.json").write_text(tokenizer_json())
        tokenizer(self.path / "tokenizer.json").save_pretrained(self.path)
        self.vllm = Vllm(
            self.path, self.directory, "--max-num-seqs", "16", "--weight-transfer-config", '{"backend": "weightcast"}',
            VLLM_PLUGINS="weightcast", WEIGHTCAST_STATE=self.worker.state, WEIGHTCAST_VLLM_UNPACKED="1",
            PYTHONPATH=write_site(self.directory / "site"))
        self.addCleanup(self.vllm.stop)
        self.vllm.wait_until_ready()
        self.url = f"http://{self.vllm.address}"

    def test_a_run_and_what_ends_one(self):
        self.train_while_a_daemon_dies()
        self.see_each_fault()

    def train_while_a_daemon_dies(self):
        for patch in stand_ins():
            self.enterContext(patch)
        transfer = Faulty(self.worker, self.origin.state, self.url, files=self.path, timeout=120)
        trainer, rollouts = make_trainer(self.path, self.url, transfer, STEPS, output_dir=str(self.directory / "run"))
        trainer.train()

        self.assertEqual(list(transfer.sent), list(range(1, STEPS + 2)), "one before the first step, one after each")
        steps = [line for line in trainer.state.log_history if "ratio" in line]
        self.assertEqual([line["weightcast/version"] for line in steps], list(range(2, STEPS + 2)))
        self.assertAlmostEqual(steps[0]["ratio"], 1, delta=MAX_DIFFERENCE)
        self.assertAlmostEqual(steps[0]["kl"], 0, delta=MAX_DIFFERENCE)
        told = self.status()
        self.assertEqual((told["version"], told["why"]), (STEPS + 1, ""))
        model = transformers.AutoModelForCausalLM.from_pretrained(self.path)
        seen = versions_of_tokens(model, transfer.sent, rollouts.taken, MAX_DIFFERENCE)
        self.assertGreater(sum(count > 0 for count in seen.values()), STEPS // 2, seen)
        print({name: [line[name] for line in steps] for name in steps[0] if name.startswith("weightcast/")}, file=sys.stderr)

    def see_each_fault(self):
        patient, hasty = (WeightTransfer(self.origin.state, self.url, timeout=limit_s) for limit_s in (120, 5))
        for transfer in (patient, hasty):
            self.addCleanup(transfer.destroy)
            transfer.init_weight_transfer()
        weights = {name: tensor.clone() for name, tensor in self.weights.items()}

        def send(transfer):
            for tensor in weights.values():
                tensor.view(-1)[0] += 1
            transfer.send_weights(weights.items())
            return transfer.figures["weightcast/version"]

        version = send(patient)
        self.assertEqual(self.status()["version"], version)

        # Somebody has paused the engine, and it cannot get there.
        self.post("/pause?mode=keep", {}).close()
        began = time.monotonic()
        with self.assertRaisesRegex(weightcast.TimedOut, f"{self.url}: .* under version {version + 1} .*somebody else"):
            send(hasty)
        self.assertLess(time.monotonic() - began, 60)
        self.post("/resume", {}).close()
        self.assertEqual(send(patient), version + 2)

        # The engine is gone.
        self.vllm.stop()
        with self.assertRaisesRegex(weightcast.TimedOut, f"{self.url}: .*the last call failed: .*refused"):
            send(hasty)


if __name__ == "__main__":
    unittest.main()
