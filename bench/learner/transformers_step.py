#!/usr/bin/env python3
"""An update of a decoder by transformers and torch.optim.AdamW, in turn with one by weightcast.

Usage: tests/oracles/run.sh bench/learner/transformers_step.py BENCH [--rounds 5] [--sequences 4] [--tokens 256] [--device cpu]

BENCH is weightcast-bench-learner. Both compute on one thread with the same sizes and, where BENCH was built against the
same LibTorch as the torch here, with the same matrix products: forward pass, PPO's loss and the entropy over all tokens,
backward pass, clipping, AdamW. Times are processor times, because others may use the machine, or on a GPU seconds; a round is one process of
ours and then as many updates here. The entropy is of the metrics alone, as ours is: it needs no gradient.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "oracles"))
import torch_shims  # noqa: E402,F401
import torch  # noqa: E402
import transformers  # noqa: E402

# As weightcast-bench-learner's own.
SIZES = {"init_hidden_size": 256, "init_intermediate_size": 1024, "init_num_hidden_layers": 10,
         "init_num_attention_heads": 4, "init_num_key_value_heads": 2}


def ours(bench, arguments):
    said = subprocess.run([bench, f"sequences={arguments.sequences}", f"tokens={arguments.tokens}",
                           f"repeat={arguments.updates}", f"device={arguments.device}", f"dtype={arguments.dtype}",
                           *arguments.set], stdout=subprocess.PIPE, text=True)
    if said.returncode != 0:
        sys.exit(f"{bench} failed with status {said.returncode}")
    return json.loads(said.stdout)


def sizes_of(arguments):
    given = dict(setting.split("=", 1) for setting in arguments.set)
    return {name: int(given.get(name, default)) for name, default in SIZES.items()}


class Theirs:
    def __init__(self, arguments, vocabulary):
        sizes = sizes_of(arguments)
        config = transformers.Qwen3Config(
            vocab_size=vocabulary, hidden_size=sizes["init_hidden_size"], intermediate_size=sizes["init_intermediate_size"],
            num_hidden_layers=sizes["init_num_hidden_layers"], num_attention_heads=sizes["init_num_attention_heads"],
            num_key_value_heads=sizes["init_num_key_value_heads"],
            head_dim=sizes["init_hidden_size"] // sizes["init_num_attention_heads"], max_position_embeddings=4096,
            tie_word_embeddings=True, attn_implementation="eager")
        self.device = torch.device(arguments.device)
        self.model = transformers.Qwen3ForCausalLM(config).train().to(self.device, getattr(torch, arguments.dtype))
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-6, weight_decay=0.01)
        torch.manual_seed(1)
        self.ids = torch.randint(vocabulary, (arguments.sequences, arguments.tokens)).to(self.device)
        self.advantages = torch.tensor([1.0, -1.0]).repeat(arguments.sequences)[:arguments.sequences, None].to(self.device)

    def parameters(self):
        return sum(parameter.numel() for parameter in self.model.parameters())

    def update(self):
        logits = self.model(self.ids, use_cache=False).logits[:, :-1].float()
        all_log_probs = logits.log_softmax(-1)
        log_probs = all_log_probs.gather(-1, self.ids[:, 1:, None]).squeeze(-1)
        with torch.no_grad():
            entropy = -(all_log_probs.exp() * all_log_probs).sum(-1).mean()
        ratio = (log_probs - log_probs.detach()).exp()
        loss = torch.maximum(-self.advantages * ratio, -self.advantages * ratio.clamp(0.8, 1.2)).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        return loss.item() + entropy.item()  # waits for a GPU

    def seconds(self):
        """Of an update: processor time, or on a GPU the time until it is done."""
        clock = time.process_time if self.device.type == "cpu" else time.perf_counter
        begin = clock()
        self.update()
        if self.device.type != "cpu":
            torch.cuda.synchronize(self.device)
        return clock() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bench")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--set", action="append", default=[], help="a key of BENCH, such as init_hidden_size=512")
    for name, default in ("rounds", 5), ("updates", 3), ("sequences", 4), ("tokens", 256):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    mine, theirs, parameters = [], [], []
    other = None
    for _ in range(arguments.rounds):
        said = ours(arguments.bench, arguments)
        mine.append(said["update_cpu_s" if arguments.device == "cpu" else "update_s"])
        if other is None:
            vocabulary = 259  # of the tokenizer of bytes
            other = Theirs(arguments, vocabulary)
            parameters = [said["parameters"], other.parameters()]
            other.update()  # memory is touched for the first time
        theirs.append(statistics.median(other.seconds() for _ in range(arguments.updates)))
    print(json.dumps({
        "torch": torch.__version__, "parameters": parameters, "tokens": arguments.sequences * arguments.tokens,
        "device": arguments.device, "dtype": arguments.dtype, "ours_s": mine, "theirs_s": theirs,
        "speed_ratio": statistics.median(b / a for a, b in zip(mine, theirs)), "load": os.getloadavg()}))


if __name__ == "__main__":
    main()
