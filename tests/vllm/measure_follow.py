"""What a version costs a vLLM that follows its daemon, while it generates: 1 % of the cells changed, beside a reload by
vLLM's routes. $VERSIONS, 5 without it, is how many of each. To be run by the Python that vLLM has:

WEIGHTCAST_LIBRARY=build/release/client/libweightcast.so.0 WEIGHTCAST_PROGRAM=build/release/tools/weightcast \\
  tests/vllm/run.sh sh -c '"$(dirname "$WEIGHTCAST_VLLM")/python" tests/vllm/measure_follow.py'
"""

import os
import threading
import time

from measuring import milliseconds, model_config, run  # first: it says where the others are
import torch
import weightcast
from daemons import eventually
from follow_test import Following

VERSIONS, SHARE, PAUSE_S = int(os.environ.get("VERSIONS", "5")), 0.01, 2.0
TOKENS, STEPS = 200, 50  # of an answer while versions come; without them
ANSWER_S_MAX = 1800


class Measure(Following):
    def make_config(self):
        return model_config(vocab_size=32768, hidden_size=768, layers=15, heads=12)

    def make_model(self, config):
        return super().make_model(config).to(torch.bfloat16)

    def runTest(self):
        cells = sum(tensor.numel() for tensor in self.weights.values())
        print(f"{cells * 2 / 1e6:.0f} MB of BF16; {SHARE:.0%} of {cells / 1e6:.0f} million cells change", flush=True)
        self.serve("--dtype", "bfloat16", WEIGHTCAST_VLLM_UNPACKED="1")
        version = self.publish(files=self.path)
        eventually(lambda: self.status()["version"] == version, 600)
        begin = time.monotonic()
        self.generate(tokens=STEPS, limit_s=ANSWER_S_MAX)
        print(f"a step without installs: {1e3 * (time.monotonic() - begin) / STEPS:.1f} ms", flush=True)
        self.done = threading.Event()
        thread = threading.Thread(target=self.keep_generating)
        thread.start()
        try:
            told = [self.follow() for _ in range(VERSIONS)]
            self.assertEqual({one["kind"] for one in told}, {"cells"})
            for name in ("prepare_s", "pausing_s", "write_s", "paused_s", "install_s"):
                self.tell(name, [one[name] for one in told])
            dense = [self.follow(dense=True) for _ in range(VERSIONS)]
            self.assertEqual({one["kind"] for one in dense}, {"copies"})
            for name in ("write_s", "paused_s"):
                self.tell(f"all cells changed: {name}", [one[name] for one in dense])
            self.tell("vLLM's reload_weights: paused", [self.reload() for _ in range(VERSIONS)])
        finally:
            self.done.set()
            thread.join()

    def tell(self, what, seconds):
        print(f"{what}: {milliseconds(seconds)}", flush=True)

    def keep_generating(self):
        while not self.done.is_set():
            self.generate(tokens=TOKENS, limit_s=ANSWER_S_MAX)

    def follow(self, dense=False):
        time.sleep(PAUSE_S)
        version = self.publish() if dense else self.publish_cells(SHARE)
        eventually(lambda: self.status()["version"] == version, 600)
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
    run(Measure())
