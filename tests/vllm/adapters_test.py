"""The real vLLM follows daemons whose versions are adapters: under each it computes what transformers with PEFT computes over
the published files. Run by the Python that vLLM has."""

import json
import os
import shutil
import signal
import threading
import unittest
import urllib.error
import urllib.request

os.environ["HF_HUB_OFFLINE"] = "1"  # before what looks at it

import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import weightcast  # noqa: E402
from daemons import eventually  # noqa: E402
from datasets import Dataset  # noqa: E402
from follow_test import INSTALL_S_MAX, PROMPT, TOLERANCE, Following, distance_from  # noqa: E402
from weightcast.integrations.transformers import PublishCallback  # noqa: E402

RANK = 8  # the server's
DIFFERENT = 1e-2  # of log-probabilities of two versions
LONG = [5 + (7 * i) % 200 for i in range(300)]  # more than one block of vLLM's prefix cache
LONGEST = 3000  # tokens of an answer during which versions come, also on a busy machine
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Stream:
    """An origin and a worker of their own."""

    def __init__(self, test, name, *flags):
        self.origin = test.start(f"{name}-origin", "--role", "origin", "--listen", "127.0.0.1:0")
        self.worker = test.start(f"{name}-worker", "--role", "worker", "--listen", "127.0.0.1:0",
                                 "--origin", self.origin.node()["address"], *flags)
        eventually(lambda: self.worker.node()["state"] != "dialling")
        self.publisher = weightcast.Publisher(self.origin.state)
        test.addCleanup(self.publisher.close)


class Adapters(Following):
    def make_config(self):
        config = super().make_config()
        config.max_position_embeddings = LONGEST + 1000
        return config

    def setUp(self):
        super().setUp()
        self.math, self.set = Stream(self, "math"), Stream(self, "set", "--files")
        self.kept = {}  # what was published, by the names that answers have
        self.count = 0

    def serve_adapters(self, *flags, rank=RANK):
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        self.start_vllm("--enable-lora", "--max-lora-rank", str(rank), "--max-loras", "2", "--max-model-len",
                        str(LONGEST + 1000), *flags, TMPDIR=str(temporary),
                        WEIGHTCAST_LORA=f"math={self.math.worker.state},code={self.set.worker.state}")

    def other_config(self, **changes):
        known = self.make_config().to_dict()
        known.pop("layer_types")
        return transformers.Qwen3Config(**{**known, **changes})

    def told(self, name="math"):
        return self.status()["adapters"][name]

    def write(self, model=None, **changes):
        """An adapter by PEFT, of other values each time."""
        self.count += 1
        torch.manual_seed(self.count)
        base = model or transformers.AutoModelForCausalLM.from_pretrained(self.path, dtype=torch.float32)
        config = peft.LoraConfig(**{"r": 4, "lora_alpha": 16, "target_modules": ALL, "init_lora_weights": False,
                                    "task_type": "CAUSAL_LM", **changes})
        path = self.directory / f"adapter-{self.count}"
        peft.get_peft_model(base, config).save_pretrained(path)
        return path

    def write_for(self, base):
        """Of the same shapes, by PEFT, for a model of that name."""
        path = self.write()
        config = json.loads((path / "adapter_config.json").read_text())
        (path / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": base}))
        return path

    def publish_adapter(self, path=None, **options):
        """Returns the version, and what was published."""
        path = path or self.write()
        return self.math.publisher.publish_path(path, **options), path

    def reference(self, path, base=None):
        model = transformers.AutoModelForCausalLM.from_pretrained(base or self.path, dtype=torch.float32)
        return peft.PeftModel.from_pretrained(model, str(path)).eval()

    def wait(self, version, name="math"):
        eventually(lambda: self.told(name)["version"] == version, INSTALL_S_MAX)
        told = self.told(name)
        self.assertEqual((told["why"], told["newest"]), ("", version), told)
        self.assertTrue(told["model"].startswith(f"{name}@{version}-"), told)
        return told["model"]

    def expect_adapter(self, version, path, name="math", prompt=PROMPT, base=None):
        label = self.wait(version, name)
        answer = self.answer(model=name, prompt=prompt, seed=version)
        self.assertEqual(answer["model"], label)
        choice = answer["choices"][0]
        self.assertLess(distance_from(self.reference(path, base), choice, prompt), TOLERANCE)
        plain = transformers.AutoModelForCausalLM.from_pretrained(base or self.path, dtype=torch.float32)
        self.assertGreater(distance_from(plain, choice, prompt), DIFFERENT)

    def expect_refused(self, version, why, name="math"):
        """The one before is served, and the status says why."""
        before = self.told(name)
        eventually(lambda: self.told(name)["why"].startswith(f"version {version}: "), INSTALL_S_MAX)
        told = self.told(name)
        self.assertRegex(told["why"], why)
        self.assertEqual((told["version"], told["newest"]), (before["version"], version))
        self.assertEqual(self.answer(model=name)["model"], before["model"])
        self.assertEqual(self.get("/weightcast/status")["adapters"][name]["follows"], True)

    def copies(self):
        return sorted(path.name for path in (self.directory / "tmp").glob("weightcast-adapters-*/*"))


class AdaptersTest(Adapters):
    def test_versions_and_what_goes_wrong(self):
        self.serve_adapters("--weight-transfer-config", '{"backend": "weightcast"}')
        self.see_versions()
        self.see_a_set()
        self.see_answers_under_way()
        self.see_refusals()
        self.see_a_trainer()
        self.see_daemons_end()
        self.see_the_model_beneath_change()
        self.see_the_engine_end()

    def see_versions(self):
        self.assertEqual(self.told()["version"], None)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.answer(model="math")
        self.assertEqual(refused.exception.code, 404)
        for change in ({}, {}, {"r": 8, "target_modules": ["q_proj", "down_proj"]}, {"use_rslora": True}):
            version, path = self.publish_adapter(self.write(**change), new_model=bool(change))
            # The same prompt each time: its cached blocks are of the version before.
            self.expect_adapter(version, path, prompt=LONG)
        self.assertEqual(self.answer()["model"], "m")
        self.assertLess(distance_from(self.model, self.generate()), TOLERANCE)
        models = {card["id"]: card["root"] for card in self.get("/v1/models")["data"]}
        self.assertEqual(models, {"m": str(self.path), "math": self.told()["model"]})

    def see_a_set(self):
        """One daemon, whose versions have several adapters."""
        for _ in range(2):
            self.expect_adapter(*self.publish_set(), "code")
        folder = self.directory / "nothing"
        folder.mkdir()
        (folder / "README").write_text("nothing here")
        self.expect_refused(self.set.publisher.publish_files(folder), "it is no adapter: .*code/adapter_config.json", "code")

    def publish_set(self):
        path, folder = self.write(), self.directory / "adapters"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(path, folder / "code")
        return self.set.publisher.publish_files(folder), path

    def see_answers_under_way(self):
        version, first = self.publish_adapter(new_model=True)
        label = self.wait(version)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.answer(tokens=LONGEST, model="math", seed=1, limit_s=600)))
        thread.start()
        eventually(self.is_generating, 60)
        # Of vLLM's two places for adapters one is left for these, and the daemon keeps two versions.
        for _ in range(4):
            version, path = self.publish_adapter()
            self.expect_adapter(version, path)
        self.assertTrue(thread.is_alive(), "the answer ended before the versions came")
        self.assertIn(label, self.copies())
        self.assertEqual(self.told()["loaded"], 2)
        thread.join()
        self.assertEqual(answers[0]["model"], label)
        self.assertLess(distance_from(self.reference(first), answers[0]["choices"][0]), TOLERANCE)
        eventually(lambda: self.told()["loaded"] == 1, 60)
        eventually(lambda: label not in self.copies(), 60)

        # A client that leaves in the middle of its answer lets its version go, too.
        label = self.told()["model"]
        body = {"model": "math", "token_ids": PROMPT, "stream": True,
                "sampling_params": {"max_tokens": LONGEST, "ignore_eos": True, "detokenize": False}}
        with self.post("/inference/v1/generate", body) as answer:
            answer.readline()
            self.expect_adapter(*self.publish_adapter())
            self.assertEqual(self.told()["loaded"], 2)
        eventually(lambda: self.told()["loaded"] == 1, 60)
        self.assertNotEqual(self.told()["model"], label)

    def is_generating(self):
        with urllib.request.urlopen(f"http://{self.vllm.address}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return any(line.startswith("vllm:num_requests_running{") and float(line.split()[-1]) > 0 for line in lines)

    def see_refusals(self):
        narrower, deeper = self.other_config(hidden_size=32), self.other_config(num_hidden_layers=4)
        for path, why in (
            (self.write(self.make_model(narrower)), "have 32 inputs, and the served model's layer has 64: is it of another model"),
            (self.write(self.make_model(deeper)), r"takes no adapter for 14 of its modules, such as model.layers.2.mlp"),
            (self.write(use_dora=True), "does not yet support DoRA"),
            (self.write_for("org/another-base"), "trained on 'org/another-base'.*--served-model-name"),
        ):
            with self.subTest(why):
                self.expect_refused(self.publish_adapter(path, new_model=True)[0], why)
        self.expect_adapter(*self.publish_adapter(new_model=True))
        # And the other way round.
        version = self.publisher.publish_path(self.write())
        eventually(lambda: self.status()["why"], INSTALL_S_MAX)
        told = self.status()
        self.assertEqual((told["version"], told["newest"], told["refuses"]), (None, version, False))
        self.assertIn("it is an adapter, and no model", told["why"])
        self.assertLess(distance_from(self.model, self.generate()), TOLERANCE)

    def see_a_trainer(self):
        """Hugging Face's Trainer publishes the adapter that it trains."""
        model = transformers.AutoModelForCausalLM.from_pretrained(self.path, dtype=torch.float32)
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=ALL, init_lora_weights=False, task_type="CAUSAL_LM"))
        rows = torch.randint(0, 256, (8, 12)).tolist()
        seen = {}

        class Look(transformers.TrainerCallback):
            """After PublishCallback: does the server compute what the trainer has?"""

            def on_step_end(_, args, state, control, **more):
                version = callback.figures["weightcast/version"]
                self.wait(version)
                seen[version] = distance_from(model.eval(), self.generate(model="math", seed=version))
                model.train()

        callback = PublishCallback(self.math.origin.state, adapter=True, installed=1.0, timeout=60)
        trainer = transformers.Trainer(
            model=model, callbacks=[callback, Look()],
            train_dataset=Dataset.from_list([{"input_ids": row, "labels": row} for row in rows]),
            args=transformers.TrainingArguments(
                output_dir=str(self.directory / "run"), max_steps=3, learning_rate=1e-2, use_cpu=True, save_strategy="no",
                per_device_train_batch_size=2, logging_steps=1, report_to=[], disable_tqdm=True))
        trainer.train()
        self.assertEqual(len(seen), 3)
        self.assertLess(max(seen.values()), TOLERANCE, seen)

    def see_daemons_end(self):
        label = self.told()["model"]
        self.math.worker.kill()
        # What is in the engine gives way to others, and is read again without a daemon.
        self.expect_adapter(*self.publish_set(), "code")
        self.assertEqual(self.answer(model="math")["model"], label)
        self.math.worker.start()
        self.expect_adapter(*self.publish_adapter(new_model=True))

    def see_the_model_beneath_change(self):
        """Its write takes all adapters out of the engine, which reads them again."""
        version, path = self.publish_adapter()
        self.wait(version)
        base = self.publish(files=self.path, new_model=True)
        eventually(lambda: self.status()["version"] == base, INSTALL_S_MAX)
        with weightcast.load(self.worker.state) as weights:
            self.expect_adapter(version, path, base=weights.directory, prompt=LONG)
            self.assertEqual(self.generate(model="math")["weight_versions"][0]["version"], str(base))
            version, path = self.publish_adapter()
            self.expect_adapter(version, path, base=weights.directory)

    def see_the_engine_end(self):
        version, path = self.publish_adapter()
        self.wait(version)
        os.kill(self.engine_process(), signal.SIGKILL)
        eventually(lambda: self.vllm.process.poll() is not None, INSTALL_S_MAX)
        self.vllm.stop()
        left = self.directory / "tmp" / "weightcast-adapters-of-one-that-was-killed"
        (left / "math@1-0").mkdir(parents=True)
        self.serve_adapters()
        # In before the first answer; without --weight-transfer-config the model stays that of the start.
        told = self.told()
        self.assertEqual(told["version"], version)
        self.expect_adapter(version, path)
        eventually(lambda: self.told("code")["version"] is not None, INSTALL_S_MAX)
        self.assertEqual(self.copies(), [self.told("code")["model"], told["model"]])
        self.assertFalse(left.exists())
        self.assertNotIn("version", self.status())


class RanksTest(Adapters):
    """Two ranks, each with its part of the matrices."""

    def test_versions_and_refusals(self):
        self.serve_adapters("--tensor-parallel-size", "2")
        for _ in range(2):
            self.expect_adapter(*self.publish_adapter())
        other = self.other_config(intermediate_size=48)
        self.expect_refused(self.publish_adapter(self.write(self.make_model(other)), new_model=True)[0], "another model")
        self.expect_adapter(*self.publish_adapter(new_model=True))


if __name__ == "__main__":
    unittest.main()
