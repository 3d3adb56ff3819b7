"""What a version of an adapter costs a vLLM that follows its daemon, while it generates: from the call that publishes to the first
token under it. To be run by the Python that vLLM has:

WEIGHTCAST_LIBRARY=build/release/client/libweightcast.so.0 WEIGHTCAST_PROGRAM=build/release/tools/weightcast \\
  tests/vllm/run.sh sh -c '"$(dirname "$WEIGHTCAST_VLLM")/python" tests/vllm/measure_adapters.py'
"""

import pathlib
import statistics
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python"), str(HERE.parent / "python"), str(HERE)]

import transformers  # noqa: E402
from adapters_test import Adapters  # noqa: E402

VERSIONS, PAUSE_S, RANK = 20, 1.0, 16


class Measure(Adapters):
    def make_config(self):
        return transformers.Qwen3Config(
            vocab_size=8192, hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8,
            num_key_value_heads=4, head_dim=64, max_position_embeddings=1024, tie_word_embeddings=False)

    def runTest(self):
        self.serve_adapters(rank=RANK)
        paths = [self.write(r=RANK) for _ in range(VERSIONS + 1)]
        size = (paths[0] / "adapter_model.safetensors").stat().st_size
        print(f"an adapter of {size / 1e6:.1f} MB on a model of {sum(t.nbytes for t in self.weights.values()) / 1e6:.0f} MB", flush=True)
        self.wait(self.publish_adapter(paths.pop(0))[0])  # the first, which is slower
        for is_busy in (False, True):
            done = threading.Event()
            thread = threading.Thread(target=self.keep_generating, args=[done]) if is_busy else None
            if thread is not None:
                thread.start()
            told = [self.follow(path) for path in paths[: VERSIONS // 2]]
            del paths[: VERSIONS // 2]
            done.set()
            if thread is not None:
                thread.join()
            for name in told[0]:
                values = [1e3 * one[name] for one in told]
                print(f"{'an answer under way' if is_busy else 'nothing under way'}: {name}: median {statistics.median(values):.1f} ms, "
                      f"{min(values):.1f} to {max(values):.1f}", flush=True)

    def keep_generating(self, done):
        while not done.is_set():
            self.answer(tokens=100, model="math")

    def follow(self, path):
        """Seconds from the call to publish on, and of what."""
        time.sleep(PAUSE_S)
        begin = time.monotonic()
        version, _ = self.publish_adapter(path)
        published = time.monotonic()
        while not self.answer(tokens=1, model="math")["model"].startswith(f"math@{version}-"):
            pass
        token = time.monotonic()
        told = self.told()
        return {"publish": published - begin, "copy": told["copy_s"], "load": told["load_s"],
                "daemon's install to served": told["install_s"], "publish to the first token": token - begin}


if __name__ == "__main__":
    measure = Measure()
    measure.setUp()
    try:
        measure.runTest()
    finally:
        measure.doCleanups()
