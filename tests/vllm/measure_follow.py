"""What a version costs a vLLM that follows its daemon, while it generates: 1 % of the cells changed, beside a reload by
vLLM's routes. To be run by the Python that vLLM has:

WEIGHTCAST_LIBRARY=build/release/client/libweightcast.so.0 WEIGHTCAST_PROGRAM=build/release/tools/weightcast \\
  tests/vllm/run.sh sh -c '"$(dirname "$WEIGHTCAST_VLLM")/python" tests/vllm/measure_follow.py'
"""

import pathlib
import statistics
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python"), str(HERE.parent / "python"), str(HERE)]

import torch  # noqa: E402
import transformers  # noqa: E402
import weightcast  # noqa: E402
from daemons import eventually  # noqa: E402
from follow_test import Following  # noqa: E402

VERSIONS, SHARE, PAUSE_S = 5, 0.01, 2.0


class Measure(Following):
    def make_config(self):
        return transformers.Qwen3Config(
            vocab_size=32768, hidden_size=768, intermediate_size=2304, num_hidden_layers=15, num_attention_heads=12,
            num_key_value_heads=4, head_dim=64, max_position_embeddings=1024, tie_word_embeddings=False)

    def make_model(self, config):
        return super().make_model(config).to(torch.bfloat16)

    def runTest(self):
        cells = sum(tensor.numel() for tensor in self.weights.values())
        print(f"{cells * 2 / 1e6:.0f} MB of BF16; {SHARE:.0%} of {cells / 1e6:.0f} million cells change", flush=True)
        self.serve("--dtype", "bfloat16", WEIGHTCAST_VLLM_UNPACKED="1")
        version = self.publish(files=self.path)
        eventually(lambda: self.status()["version"] == version, 120)
        self.done = threading.Event()
        thread = threading.Thread(target=self.keep_generating)
        thread.start()
        try:
            told = [self.follow() for _ in range(VERSIONS)]
            self.assertEqual({one["kind"] for one in told}, {"cells"})
            for name in ("prepare_s", "pausing_s", "write_s", "paused_s", "install_s"):
                self.print_ms(name, [one[name] for one in told])
            dense = [self.follow(dense=True) for _ in range(VERSIONS)]
            self.assertEqual({one["kind"] for one in dense}, {"copies"})
            for name in ("write_s", "paused_s"):
                self.print_ms(f"all cells changed: {name}", [one[name] for one in dense])
            self.print_ms("vLLM's reload_weights: paused", [self.reload() for _ in range(VERSIONS)])
        finally:
            self.done.set()
            thread.join()

    def print_ms(self, what, seconds):
        print(f"{what}: median {1e3 * statistics.median(seconds):.1f} ms of {' '.join(f'{1e3 * s:.1f}' for s in seconds)}", flush=True)

    def keep_generating(self):
        while not self.done.is_set():
            self.generate(tokens=200)

    def follow(self, dense=False):
        time.sleep(PAUSE_S)
        version = self.publish() if dense else self.publish_cells(SHARE)
        eventually(lambda: self.status()["version"] == version, 120)
        return self.status()

    def reload(self):
        time.sleep(PAUSE_S)
        with weightcast.load(self.worker.state) as weights:
            begin = time.monotonic()
            for route, body in (("/pause?mode=keep&clear_cache=true", {}),
                                ("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": weights.directory}}),
                                ("/resume", {})):
                with self.post(route, body) as answer:
                    answer.read()
            return time.monotonic() - begin


if __name__ == "__main__":
    measure = Measure()
    measure.setUp()
    try:
        measure.runTest()
    finally:
        measure.doCleanups()
