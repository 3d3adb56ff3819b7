"""What a version of an adapter costs a vLLM that follows its daemon, while it generates: from the call that publishes to the first
token under it. To be run by the Python that vLLM has:

WEIGHTCAST_LIBRARY=build/release/client/libweightcast.so.0 WEIGHTCAST_PROGRAM=build/release/tools/weightcast \\
  tests/vllm/run.sh sh -c '"$(dirname "$WEIGHTCAST_VLLM")/python" tests/vllm/measure_adapters.py'
"""

import threading
import time

from measuring import milliseconds, model_config, run  # first: it says where the others are
from adapters_test import Adapters

VERSIONS, PAUSE_S, RANK = 20, 1.0, 16


class Measure(Adapters):
    def make_config(self):
        return model_config(vocab_size=8192, hidden_size=512, layers=8, heads=8)

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
                print(f"{'an answer under way' if is_busy else 'nothing under way'}: {name}: "
                      f"{milliseconds(one[name] for one in told)}", flush=True)

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
    run(Measure())
