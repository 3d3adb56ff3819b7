"""Hugging Face's Trainer and TRL's SFTTrainer publish by weightcast.integrations.transformers: what a worker's daemon has
after each run is what save_pretrained() writes, bit for bit. By the real torch, transformers, PEFT and TRL."""

import json
import os
import pathlib
import sys
import unittest

os.environ |= {"HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "1"}  # before what looks at them

import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402
import weightcast  # noqa: E402
from daemons import DaemonTest  # noqa: E402
from datasets import Dataset  # noqa: E402
from served_model import CONFIG, tokenizer_json  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from weightcast.integrations.transformers import PublishCallback  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fsdp"))
from ranks import run  # noqa: E402

STEPS = 3


def make_model(**changes):
    torch.manual_seed(3)
    known = {name: value for name, value in CONFIG.items() if name not in ("architectures", "model_type", "torch_dtype")}
    return transformers.AutoModelForCausalLM.from_config(transformers.Qwen3Config(**{**known, **changes}))


def make_experts():
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(transformers.Qwen3MoeConfig(
        vocab_size=259, hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_experts=4, num_experts_per_tok=2,
        decoder_sparse_step=1, tie_word_embeddings=False))


def bytes_of(tensors):
    return {name: tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for name, tensor in tensors.items()}


def publish_shards(rank, state_dir, dtype):
    """On a rank, as the Trainer calls the callback."""
    model = make_model(tie_word_embeddings=True)
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    callback = PublishCallback(state_dir, dtype=dtype, new_model=True, installed=1.0, timeout=60)
    state = transformers.TrainerState(is_world_process_zero=rank == 0)
    callback.on_train_begin(None, state, None, model=model)
    with torch.no_grad():
        model.model.norm.weight.to_local().add_(1)
    state.global_step = 1
    callback.on_step_end(None, state, None, model=model)
    figures = callback.figures
    callback.on_train_end(None, state, None, model=model)
    return figures, bytes_of({name: tensor.full_tensor().to(dtype or tensor.dtype) for name, tensor in model.state_dict().items()})


def publish_experts(rank, state_dir, directory):
    """Sharded experts that transformers has fused: what the callback says, and the way by files, which its text names."""
    model = make_experts()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    try:
        PublishCallback(state_dir).on_train_begin(None, transformers.TrainerState(), None, model=model)
        said = "nothing"
    except ValueError as error:
        said = str(error)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        model.save_pretrained(directory, state_dict=whole)
        with weightcast.Publisher(state_dir) as publisher:
            publisher.publish_path(directory, new_model=True)
            publisher.wait(installed=1.0)
    return said


class Flat(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        change(self)


def adapter_config(path):
    """PEFT keeps the targets as a set, whose order may be another one in a copy."""
    config = json.loads(path.read_text())
    return {**config, "target_modules": sorted(config["target_modules"])}


class PublishCallbackTest(DaemonTest):
    worker_flags = ()

    def setUp(self):
        super().setUp()
        (self.directory / "tokenizer.json").write_text(tokenizer_json())
        self.tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(self.directory / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<|endoftext|>")

    def arguments(self, kind=transformers.TrainingArguments, **more):
        return kind(**{
            "output_dir": str(self.directory / "run"), "max_steps": STEPS, "learning_rate": 1e-3, "use_cpu": True,
            "per_device_train_batch_size": 2, "logging_steps": 1, "save_strategy": "no", "report_to": [],
            "disable_tqdm": True, **more})

    def train(self, model, **options):
        ids = torch.randint(0, 256, (8, 12)).tolist()
        callback = PublishCallback(self.origin.state, **{"installed": 1.0, "timeout": 60, **options})
        trainer = transformers.Trainer(
            model=model, args=self.arguments(), processing_class=self.tokenizer, callbacks=[callback],
            train_dataset=Dataset.from_list([{"input_ids": row, "labels": row} for row in ids]))
        trainer.train()
        return trainer

    def published(self):
        with weightcast.load(self.worker.state) as weights:
            return weights.version, bytes_of({name: tensor.clone() for name, tensor in weights.torch().items()})

    def saved(self, model):
        """What save_pretrained() writes of it."""
        directory = self.directory / "saved"
        model.save_pretrained(directory)
        return bytes_of({name: tensor.torch() for name, tensor in weightcast.Snapshot(directory).items()})

    def test_worker_has_what_save_pretrained_writes(self):
        for model in (make_model(tie_word_embeddings=True), make_model(), make_experts()):
            with self.subTest(type(model).__name__, tied=model.config.tie_word_embeddings):
                trainer = self.train(model, new_model=True)
                version, found = self.published()
                self.assertEqual(found, self.saved(model))
                lines = [line for line in trainer.state.log_history if "loss" in line]
                self.assertEqual([line["weightcast/version"] for line in lines], list(range(version - STEPS + 1, version + 1)))
                self.assertEqual(lines[-1]["weightcast/weights_bytes"], sum(map(len, found.values())))
                self.assertGreater(lines[-1]["weightcast/payload_bytes"], 0)
                # Its directory is a model.
                with weightcast.load(self.worker.state) as weights:
                    loaded = transformers.AutoModelForCausalLM.from_pretrained(weights.directory)
                    ids = transformers.AutoTokenizer.from_pretrained(weights.directory)("abc")["input_ids"]
                self.assertEqual(self.saved(loaded), found)
                self.assertEqual(ids, self.tokenizer("abc")["input_ids"])

    def test_values_in_the_engines_dtype_change_little(self):
        self.train(make_model(), dtype=torch.bfloat16)
        with weightcast.load(self.worker.state) as weights:
            self.assertEqual({tensor.dtype for tensor in weights.torch().values()}, {torch.bfloat16})
            config = transformers.AutoConfig.from_pretrained(weights.directory)
        self.assertEqual(config.dtype, torch.bfloat16)

    def test_adapters_are_published_merged_and_training_is_not_touched(self):
        for change in ({}, {"use_dora": True}, {"modules_to_save": ["lm_head"]}, {"target_modules": ["q_proj", "embed_tokens"]}):
            with self.subTest(change):
                config = peft.LoraConfig(**{"r": 4, "target_modules": ["q_proj", "down_proj"], "init_lora_weights": False, **change})
                model = peft.get_peft_model(make_model().to(torch.bfloat16), config)
                before = {name: tensor.clone() for name, tensor in model.get_base_model().named_parameters() if "base_layer" in name}
                trainer = self.train(model, new_model=True)
                for name, tensor in model.get_base_model().named_parameters():
                    if name in before:
                        self.assertTrue(torch.equal(tensor, before[name]), name)
                version, found = self.published()
                self.assertEqual(len([line for line in trainer.state.log_history if "loss" in line]), STEPS)
                self.assertEqual(found, self.saved(model.merge_and_unload()))

    def test_adapters_of_other_kinds_are_published_merged(self):
        layers = {"target_modules": ["q_proj"]}
        for config in (
            peft.LNTuningConfig(task_type="CAUSAL_LM", target_modules=["input_layernorm", "norm"]),
            peft.VeraConfig(r=4, init_weights=False, **layers), peft.VBLoRAConfig(r=4, vector_length=8, num_vectors=16, **layers),
            peft.RandLoraConfig(r=4, init_weights=False, **layers), peft.IA3Config(feedforward_modules=[], **layers),
        ):
            with self.subTest(type(config).__name__):
                model = peft.get_peft_model(make_model(), config)
                self.train(model, new_model=True)
                self.assertEqual(self.published()[1], self.saved(model.merge_and_unload()))

    def test_one_adapter_of_several_is_published(self):
        config = {"r": 4, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"], "init_lora_weights": False}
        model = peft.get_peft_model(make_model(), peft.LoraConfig(**config))
        model.add_adapter("other", peft.LoraConfig(**config))
        self.train(model, new_model=True)
        self.assertEqual(self.published()[1], self.saved(model.merge_and_unload()))

    def test_adapters_on_one_of_two_tied_tensors_are_refused(self):
        for change in ({"target_modules": ["lm_head"]}, {"target_modules": ["embed_tokens"]},
                       {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}):
            with self.subTest(change), self.assertRaisesRegex(ValueError, "lm_head.weight .*(and .* are tied|trained apart)"):
                self.train(peft.get_peft_model(make_model(tie_word_embeddings=True), peft.LoraConfig(**change)))

    def test_an_adapter_alone_is_what_peft_saves(self):
        for change in ({}, {"task_type": None}, {"use_dora": True}, {"modules_to_save": ["lm_head"]}, {"target_modules": ["q_proj", "embed_tokens"]}):
            with self.subTest(change):
                config = peft.LoraConfig(**{"r": 4, "target_modules": ["q_proj", "down_proj"], "init_lora_weights": False,
                                            "task_type": "CAUSAL_LM", **change})
                model = peft.get_peft_model(make_model().to(torch.bfloat16), config)
                trainer = self.train(model, adapter=True, new_model=True)
                version, found = self.published()
                lines = [line for line in trainer.state.log_history if "loss" in line]
                self.assertEqual([line["weightcast/version"] for line in lines], list(range(version - STEPS + 1, version + 1)))
                saved = self.directory / "adapter"
                model.save_pretrained(saved, save_embedding_layers=False)
                self.assertEqual(found, bytes_of({name: tensor.torch() for name, tensor in weightcast.Snapshot(saved).items()}))
                self.assertEqual(lines[-1]["weightcast/weights_bytes"], sum(map(len, found.values())))
                with weightcast.load(self.worker.state) as weights:
                    files = sorted(os.listdir(weights.directory))
                    self.assertEqual(files, ["adapter_config.json", "adapter_model.safetensors"])
                    self.assertEqual(adapter_config(pathlib.Path(weights.directory) / files[0]), adapter_config(saved / files[0]))
                    loaded = peft.PeftModel.from_pretrained(make_model().to(torch.bfloat16), weights.directory)
                ids = torch.arange(12)[None]
                self.assertTrue(torch.equal(loaded.eval()(ids).logits, model.eval()(ids).logits))

    def test_what_has_no_adapter_to_publish_is_refused(self):
        learned = peft.get_peft_model(make_model(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
        for model, why in ((make_model(), "it is no PEFT model"), (learned, "prompts that are learned")):
            with self.subTest(why), self.assertRaisesRegex(ValueError, f"has no adapter to publish: {why}"):
                self.train(model, adapter=True)

    def test_trl_trains_with_it(self):
        callback = PublishCallback(self.origin.state, every_steps=2, installed=1.0, timeout=60)
        model = make_model(tie_word_embeddings=True)
        trainer = trl.SFTTrainer(
            model=model, args=self.arguments(trl.SFTConfig, bf16=False, gradient_checkpointing=True), callbacks=[callback],
            processing_class=self.tokenizer, train_dataset=Dataset.from_list([{"text": f"line {i}"} for i in range(8)]))
        trainer.train()
        self.assertEqual(self.published(), (3, self.saved(model)), "at the begin, after step 2, at the end")

    def test_wrong_names_end_the_training_before_it_begins(self):
        self.train(make_model())
        with self.assertRaisesRegex(weightcast.Error, "new_model=True"):
            self.train(make_model(num_hidden_layers=1))
        self.assertEqual(self.published()[0], 1 + STEPS)

    def test_training_ends_with_the_origin(self):
        callback = PublishCallback(self.origin.state, timeout=5)
        state = transformers.TrainerState()
        model = make_model()
        callback.on_train_begin(None, state, None, model=model)
        self.origin.kill()
        with self.assertRaises(weightcast.Error):
            callback.on_step_end(None, state, None, model=model)
        self.origin.start()
        callback.on_step_end(None, state, None, model=model)

    def test_what_cannot_be_published_is_refused(self):
        def mark(model):
            model.weight.ds_id = 0

        def pack(model):
            model.packed = nn.Parameter(torch.zeros(2, dtype=torch.uint8), requires_grad=False)

        def offload(model):
            model.far = nn.Parameter(torch.zeros(2, device="meta"))

        def flatten(model):
            model.inner = type("FullyShardedDataParallel", (nn.Module,), {})()

        for change, why in ((mark, "ZeRO-3"), (pack, "packed is quantised"), (offload, "offloaded"), (flatten, "fsdp_version")):
            with self.subTest(change.__name__), self.assertRaisesRegex(ValueError, why):
                PublishCallback(self.origin.state).on_train_begin(None, transformers.TrainerState(), None, model=Flat(change))
        prompts = peft.get_peft_model(make_model(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
        tokens = peft.get_peft_model(make_model(), peft.LoraConfig(target_modules=["q_proj"], trainable_token_indices=[1]))
        experts = peft.get_peft_model(make_experts(), peft.LoraConfig(target_modules=["q_proj"]))
        for model, why in ((prompts, "prompts"), (tokens, "modules_to_save"),
                           (experts, r"experts.gate_up_proj is in memory what files have .*experts.0.[a-z]+_proj.*adapter=True")):
            with self.subTest(why), self.assertRaisesRegex(ValueError, why):
                PublishCallback(self.origin.state).on_train_begin(None, transformers.TrainerState(), None, model=model)

    def test_each_rank_publishes_its_shards(self):
        for dtype in (None, torch.bfloat16):
            with self.subTest(dtype):
                found = run(self.directory, 2, publish_shards, self.origin.state, dtype)
                version, weights = self.published()
                figures, expected = found[0]
                expected.pop("lm_head.weight")
                self.assertEqual(weights, expected)
                self.assertEqual((found[1][0]["weightcast/version"], version), (figures["weightcast/version"],) * 2)
                self.assertEqual(figures["weightcast/weights_bytes"], sum(map(len, weights.values())))

    def test_sharded_experts_that_are_fused_go_by_files(self):
        for said in run(self.directory, 2, publish_experts, self.origin.state, str(self.directory / "gathered")):
            self.assertRegex(said, "experts.gate_up_proj is in memory what files have .*experts.0.[a-z]+_proj.*Parts by Sharded")
        self.assertEqual(self.published()[1], self.saved(make_experts()))


if __name__ == "__main__":
    unittest.main()
