"""Logits and gradients of Hugging Face's transformers, for small models of random shapes. Weights are made of a seed by
fill(), which the test repeats."""

import json
import pathlib
import random

import golden
import numpy
import torch_shims  # noqa: F401
import torch
import transformers
from transformers.utils import logging

logging.set_verbosity_error()
torch.set_num_threads(1)

DATA = pathlib.Path(__file__).resolve().parent.parent / "trainer" / "model" / "data"
FAMILIES = {
    "Qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "Qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "Qwen3Moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM),
    "Llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "Mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
}
ROPE_KINDS = (None, None, "linear", "yarn", "yarn", "llama3")
# The frequencies of a sequence that is longer than max_position_embeddings depend on its length.
LENGTH_DEPENDENT = ("dynamic", "longrope")


def uniform(seed, count):
    """The first numbers of base/random.h, Random(seed).unit()."""
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed) + (numpy.arange(count, dtype=numpy.uint64) + 1) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    return (z >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53


def fill(model, seed):
    """Norms in [0.5, 1.5), all else in [-0.5, 0.5); parameter i, by name, has seed + i."""
    with torch.no_grad():
        for i, (name, parameter) in enumerate(sorted(model.named_parameters())):
            numbers = uniform(seed + i, parameter.numel()) + (0.5 if "norm" in name else -0.5)
            parameter.copy_(torch.from_numpy(numbers.astype(numpy.float32)).view(parameter.shape))


def rope_scaling(source, kinds, positions, head_dim):
    kind = source.choice(kinds)
    if kind is None:
        return None
    factor = source.choice([2.0, 4.0])
    if kind == "longrope":
        factors = {f"{name}_factor": [round(source.uniform(1, 4), 3) for _ in range(head_dim // 2)] for name in ("short", "long")}
        return {"rope_type": kind, "factor": factor} | factors
    scaling = {"rope_type": kind, "factor": factor}
    if kind != "linear":
        scaling["original_max_position_embeddings"] = int(positions / factor)
    if kind == "yarn" and source.random() < 0.5:
        scaling |= {"beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.25}
    if kind == "llama3":
        scaling |= {"low_freq_factor": 1.0, "high_freq_factor": source.choice([2.0, 4.0])}
    return scaling


def config(source, i, rope_kinds=ROPE_KINDS + 2 * LENGTH_DEPENDENT):
    family, turn = list(FAMILIES)[i % len(FAMILIES)], i // len(FAMILIES)
    heads = source.choice([2, 4])
    head_dim = source.choice([4, 8])
    positions = source.choice([16, 64, 256])
    options = dict(
        vocab_size=source.randint(12, 20), hidden_size=heads * source.choice([4, 6]), intermediate_size=source.randint(8, 24),
        num_hidden_layers=source.randint(1, 3), num_attention_heads=heads,
        num_key_value_heads=source.choice([n for n in (1, 2, 4) if heads % n == 0]), max_position_embeddings=positions,
        rms_norm_eps=source.choice([1e-6, 1e-5]), rope_theta=source.choice([1e2, 1e4, 1e6]))
    if family == "Qwen2" or family in ("Llama", "Mistral") and source.random() < 0.5:
        head_dim = options["hidden_size"] // heads
    else:
        options["head_dim"] = head_dim
    if family == "Llama":  # those that published models have come first
        rope_kinds = ((None,), ("llama3",), ("linear",), rope_kinds)[turn % 4]
    scaling = rope_scaling(source, rope_kinds, positions, head_dim)
    if scaling and scaling["rope_type"] in LENGTH_DEPENDENT:
        options["max_position_embeddings"] = 4  # so that there are sequences beyond it
    options |= dict(rope_scaling=scaling, tie_word_embeddings=source.random() < 0.3)
    if family in ("Qwen3", "Qwen3Moe"):
        options["attention_bias"] = source.random() < 0.3
    if family == "Llama":
        options |= dict(attention_bias=turn % 3 == 1, mlp_bias=turn % 4 in (1, 2))
    if family == "Mistral":
        options["sliding_window"] = (2, None, 5, 16, 21, 1)[turn % 6]
    if family == "Qwen3Moe":
        experts = source.randint(2, 5)
        options |= dict(
            num_experts=experts, num_experts_per_tok=source.randint(1, experts), moe_intermediate_size=source.randint(4, 12),
            norm_topk_prob=source.random() < 0.5, decoder_sparse_step=source.choice([1, 1, 2]),
            mlp_only_layers=[0] if source.random() < 0.3 and options["num_hidden_layers"] > 1 else [])
    return family, options


def make(family, options):
    config_class, model_class = FAMILIES[family]
    return model_class(config_class(**options, attn_implementation="eager")).train()


def saved_config(model):
    """config.json as save_pretrained() writes it."""
    model.config.architectures = [type(model).__name__]
    return json.loads(model.config.to_json_string())


def rounded(numbers):
    return [float(f"{number:.6g}") for number in numbers]


def logits(model, sequences):
    rotary = next(module for module in model.modules() if hasattr(module, "original_inv_freq"))  # an adapter may be around
    rows = []
    for ids in sequences:
        # Otherwise the frequencies of a long sequence stay for the next one.
        rotary.register_buffer("inv_freq", rotary.original_inv_freq, persistent=False)
        rotary.max_seq_len_cached = rotary.original_max_seq_len
        rows.append(model(torch.tensor([ids]), use_cache=False).logits[0].float())
    return torch.cat(rows)


def router_margin(model, sequences):
    """How far, in probability, the last chosen expert of any token lies before the first one that was not."""
    margins = [1.0]

    def hook(module, inputs, output):
        ordered = output.float().softmax(-1).sort(descending=True).values
        k = model.config.num_experts_per_tok
        if k < ordered.shape[-1]:
            margins.append((ordered[:, k - 1] - ordered[:, k]).min().item())

    routers = [module for name, module in model.named_modules() if name.endswith("mlp.gate")]
    handles = [router.register_forward_hook(hook) for router in routers]
    with torch.no_grad():
        logits(model, sequences)
    for handle in handles:
        handle.remove()
    return min(margins)


def some(gradient):
    """The norm, and a few elements spread over the tensor."""
    flat = gradient.flatten()
    return rounded([flat.norm().item()] + flat[:: max(1, len(flat) // 4)].tolist())


def lines(count):
    source = random.Random(21)
    made = 0
    while made < count:
        family, options = config(source, made)
        model = make(family, options)
        seed = source.randint(0, 2**32)
        fill(model, seed)
        sequences = [[source.randrange(options["vocab_size"]) for _ in range(source.choice([1, 3, 4, 7]))]
                     for _ in range(source.randint(2, 4))]
        if router_margin(model, sequences) < 0.02:
            continue  # rounding to BF16 may choose another expert
        made += 1
        line = {"config": saved_config(model), "seed": seed, "sequences": sequences}
        found = logits(model, sequences)
        targets = torch.tensor([token for ids in sequences for token in reversed(ids)])
        torch.nn.functional.cross_entropy(found, targets).backward()
        line["gradients"] = {name: some(p.grad) for name, p in model.named_parameters() if p.grad is not None}
        with torch.no_grad():
            narrow = logits(model.to(torch.bfloat16), sequences)
        line["logits"] = rounded(found.flatten().tolist())
        line["logits_bf16"] = rounded(narrow.flatten().tolist())
        yield line


def same(a, b):
    """Processors round BF16 products each in its own way."""
    wide = [{key: value for key, value in line.items() if key != "logits_bf16"} for line in (a, b)]
    return golden.near(*wide, 2e-5)


def write_directories():
    """Models as transformers stores them, for tests of files: tied in one file, and untied in shards."""
    for name, family, tied, shard in (("tied_qwen2", "Qwen2", True, "1MB"), ("sharded_qwen3", "Qwen3", False, "4KB"),
                                      ("tied_llama", "Llama", True, "1MB"), ("sharded_mistral", "Mistral", False, "4KB")):
        options = dict(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=tied)
        if family in ("Qwen3", "Mistral"):
            options["head_dim"] = 8
        if family == "Llama":
            options |= dict(attention_bias=True, mlp_bias=True)
        if family == "Mistral":
            options["sliding_window"] = 16
        model = make(family, options)
        fill(model, 5)
        model.to(torch.bfloat16).save_pretrained(DATA / name, max_shard_size=shard)


if __name__ == "__main__":
    write_directories()
