"""A tiny model of Qwen3's kind over bytes, behind `weightcast-engine serve`, for others' clients."""

import json
import os
import pathlib
import subprocess
import tempfile

NAME = "tiny"
CONTEXT = 512
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "float32", "hidden_act": "silu",
    "vocab_size": 259, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": False, "eos_token_id": 258}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_characters():
    """GPT-2's printable character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def tokenizer_json():
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    added = [{"id": 256 + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, content in enumerate(SPECIAL)]
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {character: byte for byte, character in enumerate(byte_characters())}, "merges": []}})


def shapes(config=CONFIG):
    """Of a model of Qwen3's, Llama's or Mistral's kind without biases, as its files name the tensors."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    embedding = (config["vocab_size"], hidden)
    heads = {} if config["tie_word_embeddings"] else {"lm_head.weight": embedding}
    of = {"model.embed_tokens.weight": embedding, **heads, "model.norm.weight": (hidden,)}
    norms = {"self_attn.q_norm": (head,), "self_attn.k_norm": (head,)} if config["model_type"] == "qwen3" else {}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {
                "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), **norms,
                "self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden),
                "self_attn.v_proj": (keys, hidden), "self_attn.o_proj": (hidden, queries), "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}.items():
            of[f"model.layers.{layer}.{name}.weight"] = shape
    return of


def tensors():
    import numpy

    source = numpy.random.default_rng(7)
    return {name: (source.normal(0, 0.3, shape) + (len(shape) == 1)).astype(numpy.float32) for name, shape in shapes().items()}


class Served:
    """The worker as a process, from start to stop(). `url` is where it listens. Clients call the model NAME, or by its
    path with `name_is_path`."""

    def __init__(self, *flags, chat_template=None, name_is_path=False):
        import safetensors.numpy

        self.folder = tempfile.TemporaryDirectory()
        self.model = pathlib.Path(self.folder.name) / NAME
        self.model.mkdir()
        (self.model / "config.json").write_text(json.dumps(CONFIG))
        (self.model / "tokenizer.json").write_text(tokenizer_json())
        if chat_template is not None:
            (self.model / "chat_template.jinja").write_text(chat_template)
        safetensors.numpy.save_file(tensors(), self.model / "model.safetensors")
        self.process = subprocess.Popen(
            [os.environ["WEIGHTCAST_WORKER"], "serve", self.model, "--listen", "127.0.0.1:0",
             "--name", self.model if name_is_path else NAME, *flags], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("serving "):
            self.stop()
            raise RuntimeError("the worker does not serve: it says what failed on stderr")
        self.url = "http://" + line.split()[-1]

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)
        self.process.stdout.close()
        self.folder.cleanup()
