"""The whole loop: a learner, an origin, a worker with its daemon, and the real vLLM that generates for it."""

import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import tomllib
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "loop"))
from fleet import Failed, Fleet  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE.parents[1] / "python"
READY_S_MAX = 600
STEPS = 14
GAIN_MIN = 0.15  # of the rewards' sum, from the first quarter of the steps to the last
ADAPTER_STEPS = 24  # it learns more slowly


def untie(source, target):
    """A copy of a model's directory whose head is a tensor of its own, equal to the embedding: vLLM on a processor keeps
    the old head of a tied one."""
    target.mkdir()
    shutil.copy(source / "tokenizer.json", target)
    config = json.loads((source / "config.json").read_text())
    config["tie_word_embeddings"] = False
    (target / "config.json").write_text(json.dumps(config))
    data = (source / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    embedding = header["model.embed_tokens.weight"]
    begin, end = embedding["data_offsets"]
    header["lm_head.weight"] = {**embedding, "data_offsets": [len(body), len(body) + end - begin]}
    text = json.dumps(header).encode()
    (target / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body + body[begin:end])


def write_site(folder, **more):
    """What pip leaves of a package: its entry points, here over the sources."""
    project = tomllib.loads((PYTHON / "pyproject.toml").read_text())["project"]
    points = {group: dict(found) for group, found in project["entry-points"].items()}
    points["vllm.general_plugins"].update(more)
    information = folder / "weightcast-0.dist-info"
    information.mkdir(parents=True, exist_ok=True)  # a test may start its vLLM again
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: weightcast\nVersion: 0\n")
    lines = [line for group, found in points.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in found.items()))]
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return os.pathsep.join(map(str, (folder, PYTHON, HERE)))


class Vllm:
    def __init__(self, model, folder, *flags, **more_variables):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % free.getsockname()[1]
        self.log = folder / "vllm.log"
        variables = dict(os.environ, VLLM_SERVER_DEV_MODE="1", VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1",
                         VLLM_NO_USAGE_STATS="1", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1",
                         VLLM_CONFIG_ROOT=str(folder / "vllm"), VLLM_CACHE_ROOT=str(folder / "vllm"), **more_variables)
        variables = {name: value for name, value in variables.items() if value is not None}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [os.environ["WEIGHTCAST_VLLM"], "serve", str(model), "--host", "127.0.0.1", "--port", self.address.split(":")[1],
                 "--enforce-eager", "--dtype", "float32", "--max-model-len", "1024", "--logprobs-mode", "processed_logprobs",
                 "--enable-scale-out", *flags], stdout=log, stderr=log, env=variables, start_new_session=True)

    def wait_until_ready(self):
        """Its address, once it answers."""
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"http://{self.address}/health", timeout=5).close()
                return self.address
            except OSError:
                pass
            time.sleep(0.2)
        raise Failed("vLLM is not ready: " + self.log.read_text(errors="replace")[-2000:])

    def stop(self):
        # The session is its own: its processes of all kinds.
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(30)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass


class LoopTest(unittest.TestCase):
    SMALL = dict(preset="arithmetic", init_num_attention_heads=2, init_num_key_value_heads=1)

    def fleet_and_model(self, **worker):
        """A fleet, and a model that has seen sums: the state in which a run begins."""
        fleet = Fleet(os.environ["WEIGHTCAST_PROGRAMS"], learner={**self.SMALL, "total_training_steps": 1},
                      worker=dict(backend="vllm", **worker))
        self.addCleanup(fleet.remove)
        fleet.start_lone_learner()
        fleet.wait("the first checkpoint", lambda: fleet.has_ended("learner"), seconds=READY_S_MAX)
        fleet.processes.pop("learner")
        model = fleet.directory / "model"
        untie(fleet.directory / "run" / "checkpoints" / "checkpoint-00000000", model)
        shutil.rmtree(fleet.directory / "run")
        return fleet, model

    def plugin(self, fleet):
        return dict(VLLM_PLUGINS="weightcast", PYTHONPATH=write_site(fleet.directory / "site"))

    def learn(self, fleet, vllm, model, steps, **settings):
        self.addCleanup(vllm.stop)
        fleet.settings["worker"]["backend_server"] = vllm.wait_until_ready()
        fleet.settings["learner"] = {**self.SMALL, "model": model, "sft_steps": 0, "total_training_steps": steps,
                                     "max_staleness": 1, "async_generation_ratio": 1, **settings}
        fleet.start_origin()
        fleet.start_learner()
        fleet.start_daemon("w1")
        fleet.start_worker("w1")
        fleet.wait("the last step", lambda: fleet.has_ended("learner"), seconds=READY_S_MAX)
        rows = fleet.steps().read()
        self.assertEqual(len(rows), steps, fleet.log("w1"))
        rewards = [row["critic/score/mean"] for row in rows]
        print("rewards of the steps:", " ".join(f"{reward:.2f}" for reward in rewards), file=sys.stderr)
        quarter = steps // 4
        self.assertGreater(sum(rewards[-quarter:]), sum(rewards[:quarter]) + GAIN_MIN, rewards)
        self.assertEqual(rows[-1]["rollouts/malformed"], 0)

    def test_learns(self):
        fleet, model = self.fleet_and_model()
        vllm = Vllm(model, fleet.directory, "--weight-transfer-config", '{"backend": "weightcast"}',
                    WEIGHTCAST_STATE=str(fleet.directory / "w1"), **self.plugin(fleet))
        self.learn(fleet, vllm, model, STEPS)

    def test_learns_an_adapter(self):
        fleet, model = self.fleet_and_model(backend_model="math")
        vllm = Vllm(model, fleet.directory, "--enable-lora", "--max-lora-rank", "16", "--max-loras", "4",
                    WEIGHTCAST_LORA=f"math={fleet.directory / 'w1'}", **self.plugin(fleet))
        self.learn(fleet, vllm, model, ADAPTER_STEPS, lora_rank=16, lora_alpha=32, lora_publish="adapter",
                   learning_rate=2e-3)
        self.assertNotIn("POST /pause", vllm.log.read_text(errors="replace"))


if __name__ == "__main__":
    unittest.main()
