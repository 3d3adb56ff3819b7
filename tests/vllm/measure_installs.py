"""How long vLLM takes for a version while it generates, and for how long no token comes: an adapter beside the others,
and a whole model in place of the one before. To be run by the Python that vLLM has:

tests/vllm/run.sh sh -c '"$(dirname "$WEIGHTCAST_VLLM")/python" tests/vllm/measure_installs.py'
"""

import json
import os
import pathlib
import tempfile
import threading
import time
import urllib.request

from measuring import milliseconds, model_config  # first: it says where the others are
import torch
import transformers
from loop_test import Vllm
from safetensors.torch import save_file

RANK, ROUNDS, TOKENS, PAUSE_S = 16, 3, 200, 0.4
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def write_model(folder):
    model = transformers.Qwen3ForCausalLM(model_config(vocab_size=8192, hidden_size=512, layers=8, heads=8))
    model.save_pretrained(folder)
    return model


def write_adapter(folder, model, seed):
    folder.mkdir()
    torch.manual_seed(seed)
    tensors = {}
    for name, matrix in model.named_parameters():
        module = name.removesuffix(".weight")
        if module.endswith(MODULES):
            tensors[f"base_model.model.{module}.lora_A.weight"] = torch.randn(RANK, matrix.shape[1]) * 0.02
            tensors[f"base_model.model.{module}.lora_B.weight"] = torch.randn(matrix.shape[0], RANK) * 0.02
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": RANK, "lora_alpha": 32, "target_modules": list(MODULES), "bias": "none"}))


class Server:
    def __init__(self, address):
        self.address = address

    def post(self, route, body=None, **more):
        request = urllib.request.Request(f"http://{self.address}{route}", json.dumps(body or {}).encode(),
                                         {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=300, **more)

    def timed(self, *calls):
        """Seconds for the calls, one after the other."""
        begin = time.monotonic()
        for call in calls:
            self.post(*call).read()
        return time.monotonic() - begin

    def gaps(self, model, seed):
        """Seconds between the tokens of an answer."""
        body = {"model": model, "token_ids": [5, 6, 7], "stream": True,
                "sampling_params": {"max_tokens": TOKENS, "ignore_eos": True, "seed": seed, "detokenize": False}}
        times = []
        with self.post("/inference/v1/generate", body) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    times.append(time.monotonic())
        return [after - before for before, after in zip(times, times[1:])]


def main():
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        folder = pathlib.Path(name)
        model = write_model(folder / "model")
        vllm = Vllm(folder / "model", folder, "--enable-lora", "--max-lora-rank", str(RANK), "--max-loras", "3",
                    "--skip-tokenizer-init", "--served-model-name", "m", VLLM_ALLOW_RUNTIME_LORA_UPDATING="1")
        try:
            measure(Server(vllm.wait_until_ready()), folder, model)
        finally:
            vllm.stop()


def measure(server, folder, model):
    version = 0

    def next_adapter():
        nonlocal version
        version += 1
        write_adapter(folder / str(version), model, version)
        return version

    def load(number):
        return server.timed(("/v1/load_lora_adapter", {"lora_name": f"v{number}", "lora_path": str(folder / str(number))}))

    def install_adapter():
        number = next_adapter()
        took = load(number)
        server.timed(("/v1/unload_lora_adapter", {"lora_name": f"v{number}"}))
        return took

    def install_model():
        return server.timed(
            ("/pause?mode=keep&clear_cache=true",),
            ("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder / "model")}}),
            ("/update_weight_version", {"new_version": "default"}),
            ("/reset_prefix_cache?reset_running_requests=true",), ("/resume",))

    load(next_adapter())  # the answers', and the first, which is slower
    for kind, install in (("adapter", install_adapter), ("whole model", install_model)):
        quiet, busy, installs = [], [], []
        for round_ in range(ROUNDS):
            quiet += server.gaps("v1", round_)
            done = threading.Event()

            def follow():
                while not done.wait(PAUSE_S):
                    installs.append(install())
            thread = threading.Thread(target=follow)
            thread.start()
            busy += server.gaps("v1", 100 + round_)
            done.set()
            thread.join()

        print(f"{kind}: {len(installs)} installs: {milliseconds(installs)}; between tokens: {milliseconds(busy)}; "
              f"without: {milliseconds(quiet)}", flush=True)


if __name__ == "__main__":
    main()
