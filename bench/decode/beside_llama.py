"""A decoding step of our engine beside one of llama.cpp, over random weights of the same shapes.

Usage: PYTHON bench/decode/beside_llama.py PROGRAM [--dtype float32] [--weights MIB] [--batches 1,32]

PROGRAM is weightcast-bench. PYTHON is an interpreter with llama.cpp, which pip builds from its source:

    python3 -m venv DIR && DIR/bin/pip install gguf==0.19.0 llama-cpp-python==0.3.36

Both take turns for --rounds rounds, after prompts of the same length. A step is one token for each sequence. Its time
is the median of a round's steps; printed are the median and the range over the rounds. Our step draws the tokens too,
llama.cpp's ends with the logits. Keys and values are what each has by default: FP32 here, F16 there. With several
threads llama.cpp's processor time contains their waiting for each other.
"""

import argparse
import ctypes
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

import gguf
import llama_cpp
import numpy

# As decode_bench.cpp has them.
VOCABULARY, HIDDEN, INTERMEDIATE, HEADS, KEY_VALUE_HEADS, HEAD_DIM = 151936, 1024, 3072, 16, 8, 128
LAYER_MATRICES = {
    "attn_q": (HEADS * HEAD_DIM, HIDDEN), "attn_k": (KEY_VALUE_HEADS * HEAD_DIM, HIDDEN),
    "attn_v": (KEY_VALUE_HEADS * HEAD_DIM, HIDDEN), "attn_output": (HIDDEN, HEADS * HEAD_DIM),
    "ffn_gate": (INTERMEDIATE, HIDDEN), "ffn_up": (INTERMEDIATE, HIDDEN), "ffn_down": (HIDDEN, INTERMEDIATE)}
LAYER_NORMS = {"attn_norm": HIDDEN, "ffn_norm": HIDDEN, "attn_q_norm": HEAD_DIM, "attn_k_norm": HEAD_DIM}


def cells(layers):
    """Of matrices, of norms."""
    return (VOCABULARY * HIDDEN + layers * sum(rows * columns for rows, columns in LAYER_MATRICES.values()),
            HIDDEN + layers * sum(LAYER_NORMS.values()))


def weight_bytes(layers, cell_bytes):
    """As both have them in memory: norms in FP32, whatever the matrices are."""
    matrices, norms = cells(layers)
    return matrices * cell_bytes + norms * 4


def write_model(path, layers, bfloat16):
    """With matrices in BF16 or FP32."""
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_VALUE_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(VOCABULARY)
    pattern = numpy.random.default_rng(1).uniform(-0.02, 0.02, 1 << 20).astype(numpy.float32)

    def add_matrix(name, shape):
        values = numpy.resize(pattern, shape)
        if bfloat16:
            high = (values.view(numpy.uint32) >> 16).astype(numpy.uint16)
            writer.add_tensor(name, high.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, values)

    def add_norm(name, size):
        writer.add_tensor(name, numpy.resize(pattern, size))

    add_matrix("token_embd.weight", (VOCABULARY, HIDDEN))
    add_norm("output_norm.weight", HIDDEN)
    for layer in range(layers):
        for name, shape in LAYER_MATRICES.items():
            add_matrix(f"blk.{layer}.{name}.weight", shape)
        for name, size in LAYER_NORMS.items():
            add_norm(f"blk.{layer}.{name}.weight", size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Sequences:
    """llama.cpp's context with `batch` sequences that have computed their prompts."""

    def __init__(self, model, batch, prompt_tokens, steps, threads):
        self.batch, self.position, self.steps = batch, prompt_tokens, steps
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = batch * (prompt_tokens + steps + 2)
        params.n_batch = params.n_ubatch = max(512, batch)
        params.n_seq_max = batch
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(model, params)
        assert self.context, f"llama.cpp has no context for {batch} sequences"
        self.tokens = llama_cpp.llama_batch_init(max(batch, prompt_tokens), 0, 1)
        for sequence in range(batch):
            self._decode([(sequence, position) for position in range(prompt_tokens)])

    def _decode(self, places):
        tokens = self.tokens
        tokens.n_tokens = len(places)
        for i, (sequence, position) in enumerate(places):
            tokens.token[i], tokens.pos[i] = random.randrange(VOCABULARY), position
            tokens.n_seq_id[i], tokens.seq_id[i][0], tokens.logits[i] = 1, sequence, 1
        begin, cpu_begin = time.perf_counter(), time.process_time()
        status = llama_cpp.llama_decode(self.context, tokens)
        llama_cpp.llama_synchronize(self.context)
        assert status == 0, f"llama_decode: {status}"
        return time.perf_counter() - begin, time.process_time() - cpu_begin

    def step_s(self):
        """By the clock, of processor time. The sequences are what they were afterwards."""
        times = [self._decode([(sequence, self.position + i) for sequence in range(self.batch)])
                 for i in range(self.steps + 1)][1:]
        memory = llama_cpp.llama_get_memory(self.context)
        for sequence in range(self.batch):
            assert llama_cpp.llama_memory_seq_rm(memory, sequence, self.position, -1)
        return tuple(map(statistics.median, zip(*times)))


def ours_s(options, scratch):
    """The bench's cases, as many as batches."""
    result = pathlib.Path(scratch) / "result.json"
    subprocess.run([options.program, "decode", "--weights", f"{options.weights}MiB", "--dtype", options.dtype,
                    "--batch", options.batches, "--prompt", str(options.prompt), "--steps", str(options.steps),
                    "--threads", str(options.threads), "--json", str(result)], check=True, stdout=subprocess.DEVNULL)
    return json.loads(result.read_text())


@llama_cpp.llama_log_callback
def quiet(_level, _text, _data):
    pass


def text(times_s):
    ms = sorted(1e3 * time_s for time_s in times_s)
    return f"{statistics.median(ms):.1f} ms ({ms[0]:.1f} to {ms[-1]:.1f})"


def report(batches, times):
    for batch, of_batch in zip(batches, times):
        for i, clock in enumerate(("by the clock", "of processor time")):
            ours, theirs, read = ([pair[i] for pair in of_batch[key]] for key in ("ours", "theirs", "read"))
            print(f"batch {batch}: a step takes {text(ours)} {clock}, llama.cpp's {text(theirs)}: "
                  f"{statistics.median(theirs) / statistics.median(ours):.2f} times as long; reading the weights "
                  f"once {text(read)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--weights", type=int, default=2048, metavar="MIB",
                        help="about; at least 1190, or 2380 of float32")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    bfloat16 = options.dtype == "bfloat16"
    cell_bytes = 2 if bfloat16 else 4
    layers = 1
    while sum(cells(layers)) * cell_bytes < options.weights << 20:
        layers += 1
    batches = list(map(int, options.batches.split(",")))
    with tempfile.TemporaryDirectory(prefix="weightcast-beside-", dir=os.environ.get("TMPDIR", "/var/tmp")) as scratch:
        path = f"{scratch}/model.gguf"
        write_model(path, layers, bfloat16)
        llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        assert model, "llama.cpp does not take the model"
        theirs = [Sequences(model, batch, options.prompt, options.steps, options.threads) for batch in batches]
        times = [{"ours": [], "theirs": [], "read": []} for _ in batches]
        for _ in range(options.rounds):
            result = ours_s(options, scratch)
            assert result["weight_bytes"] == weight_bytes(layers, cell_bytes), "the models differ"
            for case, sequences, of_batch in zip(result["cases"], theirs, times):
                of_batch["ours"].append((case["step_s"], case["step_cpu_s"]))
                of_batch["read"].append((case["read_s"], case["read_cpu_s"]))
                of_batch["theirs"].append(sequences.step_s())
    print(f"{layers} layers, {options.dtype}, {options.threads} threads, kernels {result['kernels']}; llama.cpp of "
          f"llama-cpp-python {llama_cpp.__version__}: {llama_cpp.llama_print_system_info().decode()}")
    report(batches, times)


if __name__ == "__main__":
    main()
