"""A decoding step of our engine beside one of transformers' generate(), on the same weights and LibTorch.

Usage: tests/oracles/run.sh bench/decode/beside_transformers.py PROGRAM [--layers N] [--vocabulary N] [--batches 1,32]

PROGRAM is weightcast-engine. Makes a model of Qwen3-0.6B's shapes with random weights in BF16, and continues the same
prompt greedily in both, on one thread. A step's time is that of --tokens tokens less that of two, so that loading and
the prompt do not count. Processor time, because the host may be busy.
"""

import argparse
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "oracles"))
import torch_shims  # noqa: F401  before transformers
import torch
import transformers

transformers.generation.utils.is_fsdp_managed_module = lambda model: False
PROMPT = [1, 2, 3, 5, 8, 13, 21, 34]
FIRST = 2


def children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def made_model(layers, vocabulary):
    """Of Qwen3-0.6B's shapes, with random weights."""
    torch.manual_seed(1)
    config = transformers.Qwen3Config(
        vocab_size=vocabulary, hidden_size=1024, intermediate_size=3072, num_hidden_layers=layers,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=4096, rope_theta=1e6,
        tie_word_embeddings=True, use_sliding_window=False, sliding_window=None, attn_implementation="eager")
    return transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).eval()


def transformers_s(model, batch, tokens):
    prompts = torch.tensor([PROMPT] * batch)
    begin = time.process_time()
    with torch.no_grad():
        out = model.generate(
            prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=tokens, min_new_tokens=tokens,
            do_sample=False, eos_token_id=None, pad_token_id=0, temperature=None, top_p=None, top_k=None)
    assert out.shape[1] == len(PROMPT) + tokens
    return time.process_time() - begin


def ours_s(program, directory, batch, tokens):
    begin = children_s()
    subprocess.run([program, "generate", directory, "--ids", ",".join(map(str, PROMPT)), "--samples", str(batch),
                    "--max-tokens", str(tokens), "--temperature", "0", "--ignore-eos", "--json"],
                   check=True, stdout=subprocess.DEVNULL)
    return children_s() - begin


def step_s(measure, tokens):
    """Of the medians of three."""
    times = [sorted(measure(count) for _ in range(3))[1] for count in (FIRST, tokens)]
    return (times[1] - times[0]) / (tokens - FIRST)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--tokens", type=int, default=10)
    parser.add_argument("--batches", default="1,32")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = made_model(options.layers, options.vocabulary)
    with tempfile.TemporaryDirectory(prefix="weightcast-beside-") as directory:
        model.save_pretrained(directory)
        for batch in map(int, options.batches.split(",")):
            theirs = step_s(lambda count: transformers_s(model, batch, count), options.tokens)
            ours = step_s(lambda count: ours_s(options.program, directory, batch, count), options.tokens)
            print(f"batch {batch}: a step takes {1e3 * ours:.1f} ms of processor time, transformers "
                  f"{transformers.__version__} on torch {torch.__version__} {1e3 * theirs:.1f} ms: "
                  f"{theirs / ours:.2f} times as long", flush=True)


if __name__ == "__main__":
    main()
