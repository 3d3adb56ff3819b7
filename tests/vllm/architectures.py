"""architectures.py NAME DIRECTORY: one architecture in the real vLLM, in this process. A tiny model of it is stored, vLLM starts
with that, and two versions come: another model whole, and one with a few cells of each tensor changed. The last line is JSON: which
path each took, why, and by how much answers differ from transformers' over the same files; or why vLLM refused."""

import json
import os
import pathlib
import sys

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", VLLM_PLUGINS="weightcast", VLLM_CPU_KVCACHE_SPACE="1")

import torch  # noqa: E402
import transformers  # noqa: E402
import weightcast  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

PROMPT = [5, 6, 7, 8, 40, 41, 42]
SIZES = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 256, "tie_word_embeddings": False,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
LATENT = {"q_lora_rank": 64, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
          "num_key_value_heads": 4, "head_dim": 64, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
          "moe_intermediate_size": 64, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}  # fmt: skip
MAMBA = {"num_heads": 4, "head_dim": 32, "state_size": 16, "n_groups": 1, "expand": 2, "chunk_size": 32, "num_key_value_heads": None,
         "intermediate_size": None}  # fmt: skip
#: Heads of 32, where a model takes no head_dim: vLLM computes no smaller ones on a CPU.
TWO_HEADS = {"num_attention_heads": 2}
#: By name: the class of its configuration, and what that has besides SIZES.
ARCHITECTURES = {
    "llama-tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", {}),
    "qwen3-moe": ("Qwen3MoeConfig", EXPERTS),
    "deepseek-v2": ("DeepseekV2Config", {**LATENT, "topk_method": "greedy"}),
    "deepseek-v3": ("DeepseekV3Config", {**LATENT, "topk_method": "noaux_tc"}),
    "falcon": ("FalconConfig", {**TWO_HEADS, "multi_query": True, "new_decoder_architecture": False, "parallel_attn": True,
                                "alibi": False, "head_dim": None}),
    "bloom": ("BloomConfig", {**TWO_HEADS, "tie_word_embeddings": True}),
    "mamba-2": ("Mamba2Config", MAMBA),
    "granite-moe": ("GraniteMoeConfig", {**TWO_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "gemma": ("GemmaConfig", {"tie_word_embeddings": True}),
    "gemma-2": ("Gemma2Config", {"tie_word_embeddings": True}),
    "gemma-3": ("Gemma3TextConfig", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2Config", TWO_HEADS),
    "qwen2-moe": ("Qwen2MoeConfig", {**TWO_HEADS, **EXPERTS, "shared_expert_intermediate_size": 64}),
    "olmoe": ("OlmoeConfig", {**TWO_HEADS, "num_experts": 4, "num_experts_per_tok": 2}),
    "phi-3": ("Phi3Config", {}),
    "gpt-2": ("GPT2Config", {**TWO_HEADS, "tie_word_embeddings": True}),
    "opt": ("OPTConfig", {**TWO_HEADS, "ffn_dim": 96, "word_embed_proj_dim": 64, "tie_word_embeddings": True}),
    "glm-4": ("Glm4Config", {}),
    "cohere": ("CohereConfig", {**TWO_HEADS, "tie_word_embeddings": True}),
    "stablelm": ("StableLmConfig", TWO_HEADS),
    "granite": ("GraniteConfig", TWO_HEADS),
    "gpt-oss": ("GptOssConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 64}),
}
#: Of a Qwen3, by channel, as compressed-tensors stores it: type, dtype, the largest value, and the format's name.
QUANTISED = {
    "qwen3-int8": ("int", torch.int8, 127.0, "int-quantized"),
    "qwen3-fp8": ("float", torch.float8_e4m3fn, 448.0, "float-quantized"),
}


def make(name, seed):
    """A model, each of whose tensors has values of its own: norms are not all one, and biases not all zero."""
    kind, more = ARCHITECTURES["qwen3" if name in QUANTISED else name]
    known = {key: value for key, value in {**SIZES, **more}.items() if value is not None}
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**known), dtype=torch.float32).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.05)
    return model


def change_cells(directory, target):
    """The same files, with a few cells of each tensor changed."""
    tensors = {name: tensor.torch().clone() for name, tensor in weightcast.Snapshot(directory).items()}
    for tensor in tensors.values():
        if tensor.is_floating_point():
            tensor.view(-1)[::50] += 0.1
    target.mkdir()
    for file in pathlib.Path(directory).iterdir():
        if file.suffix == ".json" and "index" not in file.name:
            (target / file.name).write_bytes(file.read_bytes())
    save_file(tensors, target / "model.safetensors", {"format": "pt"})
    return target


def quantise(name, directory):
    """What the engine gets of a model's files: the same, or quantised ones, whose values the model's own files then have, too."""
    if name not in QUANTISED:
        return directory
    kind, dtype, most, layout = QUANTISED[name]
    target = directory.with_name(directory.name + "-quantised")
    target.mkdir()
    plain, stored = {}, {}
    for tensor_name, tensor in weightcast.Snapshot(directory).items():
        plain[tensor_name] = stored[tensor_name] = tensor.torch().clone()
        if not tensor_name.endswith("_proj.weight"):
            continue
        scale = plain[tensor_name].abs().amax(1, keepdim=True) / most
        values = plain[tensor_name] / scale
        stored[tensor_name] = (values.round() if kind == "int" else values).to(dtype)
        stored[tensor_name.replace(".weight", ".weight_scale")] = scale
        plain[tensor_name] = stored[tensor_name].float() * scale
    config = json.loads((directory / "config.json").read_text())
    group = {"num_bits": 8, "type": kind, "symmetric": True}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": layout, "ignore": ["lm_head"], "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {**group, "strategy": "channel", "dynamic": False},
                                      "input_activations": {**group, "strategy": "token", "dynamic": True}}}}  # fmt: skip
    (target / "config.json").write_text(json.dumps(config))
    save_file(stored, target / "model.safetensors", {"format": "pt"})
    save_file(plain, directory / "model.safetensors", {"format": "pt"})
    return target


def changes_between(before, after):
    """As a daemon gives them."""
    found = {}
    after = weightcast.Snapshot(after)
    for name, tensor in weightcast.Snapshot(before).items():
        old, new = tensor.torch().reshape(-1), after[name].torch().reshape(-1)
        indices = (old.float() != new.float()).nonzero().reshape(-1).to(torch.int32)
        if len(indices):
            raw = weightcast.RawTensor("U32", (len(indices),), bytearray(indices.numpy().tobytes()))
            changed = bytearray(new[indices.long()].view(torch.uint8).numpy().tobytes())
            values = weightcast.RawTensor(tensor.dtype, (len(indices),), changed)
            found[name] = weightcast.Change(raw, values)
    return found


def distance(llm, directory):
    from vllm import SamplingParams

    llm.reset_prefix_cache()
    wanted = SamplingParams(max_tokens=8, ignore_eos=True, temperature=1.0, seed=3, logprobs=0, detokenize=False)
    answer = llm.generate({"prompt_token_ids": PROMPT}, wanted, use_tqdm=False)[0].outputs[0]
    ids = list(answer.token_ids)
    got = torch.tensor([at[token].logprob for at, token in zip(answer.logprobs, ids)])
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + ids])).logits[0, len(PROMPT) - 1:-1]
    found = float((got - logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)]).abs().max())
    return found if found == found else float("inf")


def main(name, folder):
    folder = pathlib.Path(folder)
    first, second = folder / "first", folder / "second"
    make(name, 1).save_pretrained(first)
    make(name, 2).save_pretrained(second)
    third = change_cells(second, folder / "third")
    given = {directory: quantise(name, directory) for directory in (first, second, third)}
    from vllm import LLM

    try:
        llm = LLM(str(given[first]), skip_tokenizer_init=True, enforce_eager=True, max_model_len=128, dtype="float32",
                  weight_transfer_config={"backend": "weightcast"})
    except RuntimeError as error:
        print(json.dumps({"refused": str(error)}))
        return
    worker = llm.llm_engine.model_executor.driver_worker
    model = getattr(worker, "worker", worker).weight_transfer_engine.rank._model
    told = {"start": distance(llm, first)}
    for label, directory in (("whole", second), ("changed", third)):
        before = second if label == "changed" else None
        changes = changes_between(given[before], given[directory]) if before else None
        staged = stage(model, weightcast.Snapshot(given[directory]), changes)
        staged.write()
        model.settle()
        told[label] = {"kind": staged.kind, "why": staged.why, "distance": distance(llm, directory)}
    print(json.dumps(told))


def stage(model, snapshot, changes):
    from weightcast.engines._rank import NotInPlace

    model.check(snapshot)
    if changes is None:
        return model.stage_whole(snapshot, "it is the first one here")
    try:
        return model.stage_cells(changes)
    except NotInPlace as error:
        return model.stage_whole(snapshot, str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
