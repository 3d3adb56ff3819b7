"""Logits, gradients and files of PEFT's LoRA on transformers' models."""

import base64
import json
import pathlib
import random
import tempfile
import warnings

import golden
import torch_shims  # noqa: F401
import hf_models
import peft
import torch

warnings.filterwarnings("ignore", module="peft")
ADAPTER = hf_models.DATA / "adapter_config"  # what lora_config_json() writes; its test compares
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def lines(count):
    source = random.Random(17)
    for i in range(count):
        family, options = hf_models.config(source, i)
        model = hf_models.make(family, options)
        seed = source.randint(0, 2**32)
        hf_models.fill(model, seed)
        line = {"config": hf_models.saved_config(model), "seed": seed}
        if i == 0:
            lora = peft.LoraConfig.from_pretrained(ADAPTER)
        else:
            lora = peft.LoraConfig(
                r=source.randint(1, 4), lora_alpha=source.choice([1, 4, 16]), use_rslora=source.random() < 0.3,
                target_modules=sorted(source.sample(MODULES, source.randint(1, 7))), task_type="CAUSAL_LM")
        lora.inference_mode = False
        model = peft.get_peft_model(model, lora).eval()  # without dropout, whose random numbers are its own
        adapters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        with torch.no_grad():
            for j, (name, parameter) in enumerate(sorted(adapters.items())):
                numbers = hf_models.uniform(seed + 1000 + j, parameter.numel()) - 0.5
                parameter.copy_(torch.tensor(numbers).view(parameter.shape))
        sequences = [[source.randrange(options["vocab_size"]) for _ in range(source.choice([1, 3, 4]))]
                     for _ in range(2)]
        line["sequences"] = sequences
        found = hf_models.logits(model, sequences)
        targets = torch.tensor([token for ids in sequences for token in reversed(ids)])
        torch.nn.functional.cross_entropy(found, targets).backward()
        line["logits"] = hf_models.rounded(found.flatten().tolist())
        line["gradients"] = {name.replace(".default", ""): hf_models.some(p.grad) for name, p in adapters.items()
                             if p.grad is not None}
        with tempfile.TemporaryDirectory() as directory:
            model.save_pretrained(directory)
            directory = pathlib.Path(directory)
            line["adapter_config"] = json.loads((directory / "adapter_config.json").read_text())
            line["adapter_config"]["target_modules"].sort()  # a set of PEFT's
            line["adapter_model"] = base64.b64encode((directory / "adapter_model.safetensors").read_bytes()).decode()
        yield line


def same(a, b):
    return golden.near(a, b, 2e-5)
