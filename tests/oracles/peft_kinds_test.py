"""Each kind of adapter that PEFT registers, through PublishCallback: the origin has what save_pretrained() writes of the merged
model, bit for bit, or the kind is refused by its name; and the trainer's model computes on as before. By adapter=True the origin
has what PEFT saves of the adapter. By the real torch, transformers and PEFT."""

import copy
import importlib.util
import os
import pathlib
import unittest

os.environ |= {"HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "1"}  # before what looks at them

import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import weightcast  # noqa: E402
from daemons import DaemonTest  # noqa: E402
from hf_trainer_test import adapter_config, bytes_of, make_experts, make_model  # noqa: E402
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING as CONFIGS  # noqa: E402
from weightcast.integrations.transformers import PublishCallback  # noqa: E402

LAYERS = {"target_modules": ["q_proj", "down_proj"]}
LEARNED = {"task_type": "CAUSAL_LM", "num_virtual_tokens": 2}
#: What a kind needs besides LAYERS, or in its place (None: without).
NEEDS = {
    "ADALORA": {"total_step": 10},
    "ADAMSS": {"r": 4, "num_subspaces": 2},
    "ADAPTION_PROMPT": {"target_modules": None, "task_type": "CAUSAL_LM", "adapter_len": 2, "adapter_layers": 1},
    "BOFT": {"boft_block_size": 4},
    "C3A": {"block_size": 8},
    "CARTRIDGE": {"target_modules": None, **LEARNED},
    "CPT": {"target_modules": None, "task_type": "CAUSAL_LM", "cpt_token_ids": [1, 2], "cpt_mask": [1, 1],
            "cpt_tokens_type_mask": [1, 1]},
    "DEFT": {"r": 4},
    "DELORA": {"r": 4},
    "FOURIERFT": {"n_frequency": 16},
    "GRALORA": {"r": 4, "gralora_k": 2},
    "IA3": {"feedforward_modules": ["down_proj"]},
    "LN_TUNING": {"target_modules": ["input_layernorm", "norm"]},
    "MISS": {"r": 4},
    "MULTITASK_PROMPT_TUNING": {"target_modules": None, **LEARNED, "num_tasks": 1},
    "OFT": {"oft_block_size": 4},
    "P_TUNING": {"target_modules": None, **LEARNED},
    "PREFIX_TUNING": {"target_modules": None, **LEARNED},
    "PROMPT_TUNING": {"target_modules": None, **LEARNED},
    "ROAD": {"group_size": 8},
    "SHIRA": {"r": 2},
    "TRAINABLE_TOKENS": {"target_modules": ["embed_tokens"], "token_indices": [1, 2]},
    "UNILORA": {"r": 4, "theta_d_length": 64},
    "VBLORA": {"r": 4, "vector_length": 8, "num_vectors": 16},
    "WAVEFT": {"n_frequency": 16},
    "XLORA": {"target_modules": None, "hidden_size": 32, "adapters": {}},
}  # fmt: skip
#: What PEFT merges into no weights, with words of the refusal.
LEARNED_KINDS = {"CARTRIDGE", "CPT", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "PROMPT_TUNING"}
REFUSED = {
    **{kind: f"with {kind} cannot be published: prompts that are learned" for kind in LEARNED_KINDS},
    "ADAPTION_PROMPT": "with ADAPTION_PROMPT cannot be published: PEFT merges no adapter of this kind",
    "BEFT": r"beft.layer.Linear, cannot be merged .*has no bias",  # on layers without one
    "LILY": r"lily.layer.Linear, cannot be merged",
    "POLY": r"poly.layer.Linear, cannot be merged",
    "SHADOW": r"ShadowLayer, cannot be merged",
    "XLORA": "with LORA, XLORA cannot be published",
}
#: What is no adapter of its own, or not one that engines add to a model's layers.
REFUSED_ALONE = {**{kind: "prompts that are learned" for kind in LEARNED_KINDS}, "XLORA": "no tensors of it by themselves .*XLORA"}


def make_llama(**more):
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(
        vocab_size=259, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, use_cache=False, **more))


def make_two(model, active):
    model = peft.get_peft_model(model, lora(target_modules=["q_proj"]))
    model.add_adapter("other", lora(r=2, target_modules=["q_proj", "v_proj"]))
    model.base_model.set_adapter(active)
    return model


def make_mixed(model):
    model = peft.get_peft_model(model, lora(target_modules=["q_proj"]), mixed=True)
    model.add_adapter("other", peft.LoHaConfig(r=2, target_modules=["v_proj"]))
    model.set_adapter(["default", "other"])
    return model


def lora(**more):
    return peft.LoraConfig(**{"r": 4, "init_lora_weights": False, **LAYERS, **more})


class KindsTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.state = transformers.TrainerState(is_world_process_zero=True)

    def adapted(self, kind):
        """A model with an adapter of the kind; None: PEFT wants a package that is not here."""
        name = kind.value
        settings = {key: value for key, value in {**LAYERS, **NEEDS.get(name, {})}.items() if value is not None}
        if name == "XLORA":
            lone = self.directory / "lone"
            peft.get_peft_model(make_llama(), lora(task_type="CAUSAL_LM")).save_pretrained(lone)
            settings["adapters"] = {"0": str(lone)}
        elif name == "ADAMSS" and importlib.util.find_spec("sklearn") is None:
            return None
        model = make_llama() if name in ("ADAPTION_PROMPT", "XLORA") else make_model()
        return self.stirred(peft.get_peft_model(model, CONFIGS[kind](**settings)))

    def stirred(self, model):
        """With other values in all that is trained."""
        with torch.no_grad():
            for tensor in model.parameters():
                if tensor.requires_grad:
                    tensor.add_(torch.randn_like(tensor) * 0.05)
        return model

    def published(self):
        with weightcast.load(self.origin.state) as weights:
            return bytes_of({name: tensor.clone() for name, tensor in weights.torch().items()})

    def saved(self, model, **more):
        directory = self.directory / "saved"
        model.save_pretrained(directory, **more)
        found = bytes_of({name: tensor.torch() for name, tensor in weightcast.Snapshot(directory).items()})
        for file in directory.glob("*.safetensors"):
            file.unlink()
        return found

    def answers(self, model):
        torch.manual_seed(9)  # a kind may sample
        with torch.no_grad():
            return model.eval()(input_ids=torch.arange(12)[None]).logits

    def expect_merged(self, model):
        """Two steps of a trainer."""
        callback = PublishCallback(self.origin.state, new_model=True, timeout=60)
        for step in range(2):
            before, weights = self.answers(model), bytes_of(model.state_dict())
            merged = self.saved(copy.deepcopy(model).merge_and_unload())
            self.state.global_step = step
            (callback.on_step_end if step else callback.on_train_begin)(None, self.state, None, model=model)
            self.assertEqual(self.published(), merged)
            self.assertEqual(bytes_of(model.state_dict()), weights)
            self.assertTrue(torch.equal(self.answers(model), before))
            self.stirred(model)

    def expect_refused(self, model, why, **options):
        callback, weights = PublishCallback(self.origin.state, timeout=60, **options), bytes_of(model.state_dict())
        with self.assertRaisesRegex(ValueError, why):
            callback.on_train_begin(None, self.state, None, model=model)
        self.assertEqual(bytes_of(model.state_dict()), weights)

    def test_each_kind_is_published_merged_or_refused(self):
        for kind in CONFIGS:
            with self.subTest(kind.value):
                model = self.adapted(kind)
                if model is None:
                    continue
                if kind.value in REFUSED:
                    self.expect_refused(model, REFUSED[kind.value])
                else:
                    self.expect_merged(model)

    def test_each_kind_is_published_by_itself_or_refused(self):
        for kind in CONFIGS:
            with self.subTest(kind.value):
                model = self.adapted(kind)
                if model is None:
                    continue
                if kind.value in REFUSED_ALONE:
                    self.expect_refused(model, REFUSED_ALONE[kind.value], adapter=True)
                    continue
                callback = PublishCallback(self.origin.state, adapter=True, new_model=True, timeout=60)
                callback.on_train_begin(None, self.state, None, model=model)
                self.assertEqual(self.published(), self.saved(model, save_embedding_layers=False))
                with weightcast.load(self.origin.state) as weights:
                    found = adapter_config(pathlib.Path(weights.directory) / "adapter_config.json")
                self.assertEqual(found, adapter_config(self.directory / "saved" / "adapter_config.json"))

    def test_forms_of_adapters_are_published_merged(self):
        biased = {"attention_bias": True, "mlp_bias": True}
        for name, model in {
            "several": make_two(make_model(), ["default", "other"]), "one of two": make_two(make_model(), "other"),
            "mixed": make_mixed(make_model()), "embeddings": peft.get_peft_model(make_model(), lora(target_modules=["embed_tokens"])),
            "all layers": peft.get_peft_model(make_model(), lora(target_modules="all-linear", use_dora=True)),
            "biases": peft.get_peft_model(make_llama(**biased), lora(bias="all")),
            "biases of an adapter": peft.get_peft_model(make_llama(**biased), lora(lora_bias=True)),
            "BEFT": peft.get_peft_model(make_llama(**biased), peft.BeftConfig(target_modules=["v_proj"])),
            "PiSSA": peft.get_peft_model(make_model(), lora(init_lora_weights="pissa")),
            "norms": peft.get_peft_model(make_model(), lora(modules_to_save=["norm"])),
        }.items():
            with self.subTest(name):
                self.expect_merged(self.stirred(model))

    def test_forms_of_adapters_that_cannot_be_merged_are_refused(self):
        tied = {"tie_word_embeddings": True}
        for model, why in (
            (peft.get_peft_model(make_model(), lora(alora_invocation_tokens=[1], task_type="CAUSAL_LM")), "aLoRA does not"),
            (peft.get_peft_model(make_experts(), lora(target_modules=[], target_parameters=["mlp.experts.gate_up_proj"])),
             "with LORA cannot be published: .*adapter=True"),
            (peft.get_peft_model(make_model(**tied), lora(modules_to_save=["embed_tokens"])), "is trained apart from"),
        ):  # fmt: skip
            with self.subTest(why):
                self.expect_refused(model, why)


if __name__ == "__main__":
    unittest.main()
