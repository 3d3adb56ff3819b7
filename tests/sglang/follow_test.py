"""The real SGLang follows a worker's daemon: after each install it computes what transformers computes over the published files,
and every token of answers under way is of the version that its answer says. Run by `../oracles/run.sh --sglang`."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

import torch
import transformers
import weightcast
from daemons import PublisherTest, eventually
from weightcast.sglang import EXCHANGE, LOADER

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = HERE.parents[1] / "python"
TOLERANCE = 2e-5
READY_S_MAX = 900
INSTALL_S_MAX = 180
PROMPT = [5, 6, 7, 8]


class Server:
    """A server of the model in `path`. Its processes are a session of their own."""

    def __init__(self, path, folder, *flags, **variables):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.log = f"http://127.0.0.1:{port}", folder / "server.log"
        self.command = [
            sys.executable, "-m", "sglang.launch_server", "--model-path", str(path), "--host", "127.0.0.1", "--port", str(port),
            "--device", "cpu", "--attention-backend", "torch_native", "--disable-overlap-schedule", "--skip-tokenizer-init",
            "--dtype", "float32", "--max-total-tokens", "4096", "--mem-fraction-static", "0.1", *flags]  # fmt: skip
        known = os.environ["PYTHONPATH"].split(os.pathsep)
        # Each of its processes would compile thousands of modules anew.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.variables = {**kept, "SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
                          "PYTHONPATH": os.pathsep.join([*known, str(PYTHON), str(HERE / "kernels")]), **variables}  # fmt: skip
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.variables, start_new_session=True)
        end = time.monotonic() + READY_S_MAX
        while time.monotonic() < end and self.process.poll() is None:
            try:
                self.get("/health")
                return
            except OSError:
                time.sleep(0.5)
        raise AssertionError("SGLang is not ready: " + self.log.read_text(errors="replace")[-3000:])

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def get(self, route):
        with urllib.request.urlopen(self.url + route, timeout=60) as answer:
            return answer.read()

    def post(self, route, body):
        request = urllib.request.Request(self.url + route, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=INSTALL_S_MAX) as answer:
            return json.loads(answer.read())

    def label(self):
        try:
            return json.loads(self.get("/model_info"))["weight_version"]
        except OSError:
            return None

    def generate(self, tokens=8):
        wanted = {"max_new_tokens": tokens, "temperature": 1.0, "ignore_eos": True}
        return self.post("/generate", {"input_ids": PROMPT, "sampling_params": wanted, "return_logprob": True})


class FollowTest(PublisherTest):
    worker_flags = ()

    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        config = transformers.Qwen3Config(
            vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
        self.model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        self.path = self.directory / "model"
        self.model.save_pretrained(self.path)
        self.weights = dict(self.model.state_dict())
        self.references = {"default": self.reference(self.path)}
        self.stop = threading.Event()

    def reference(self, directory):
        return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()

    def publish(self, share, **options):
        """That share of the cells of each tensor changes."""
        with torch.no_grad():
            for tensor in self.weights.values():
                count = max(1, int(tensor.numel() * share))
                tensor.view(-1)[torch.randperm(tensor.numel())[:count]] += 0.05 * torch.randn(count)
        version = self.publish_and_wait(self.weights, installed=1.0, **options)
        with weightcast.load(self.worker.state, version) as weights:
            self.references[str(version)] = self.reference(weights.directory)
        return version

    def distance(self, answer):
        """By how much the log-probabilities of an answer of one version differ from those of that."""
        meta = answer["meta_info"]
        ids = [entry[1] for entry in meta["output_token_logprobs"]]
        got = torch.tensor([entry[0] for entry in meta["output_token_logprobs"]])
        with torch.no_grad():
            logits = self.references[meta["weight_version"]](torch.tensor([PROMPT + ids])).logits[0, len(PROMPT) - 1:-1]
        return float((got - logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)]).abs().max())

    def serve(self, mode, *flags):
        self.variables = {"WEIGHTCAST_STATE": self.worker.state, EXCHANGE: str(self.directory / "exchange")}
        self.server = Server(self.path, self.directory, *flags, **self.variables)
        self.addCleanup(self.server.kill)
        self.follow(mode)

    def follow(self, mode):
        environment = os.pathsep.join([os.environ["PYTHONPATH"], str(PYTHON)])
        self.follower = self.start_python(
            "follower", "-m", "weightcast.sglang", "--server", self.server.url, "--state", self.worker.state, "--mode", mode,
            PYTHONPATH=environment, **self.variables)

    def log(self):
        return self.log_of("follower")

    def expect(self, version, kind):
        eventually(lambda: f"version {version} is in ({kind}" in self.log() and self.server.label() == str(version), INSTALL_S_MAX)
        answer = self.server.generate()
        self.assertEqual(answer["meta_info"]["weight_version"], str(version))
        self.assertLess(self.distance(answer), TOLERANCE)

    def begin_requests(self):
        """They run all the time; end() checks those whose tokens are all of one version."""
        answers = []

        def run():
            while not self.stop.is_set():
                try:
                    answers.append(self.server.generate(20))
                except (OSError, ValueError):
                    self.stop.wait(0.1)

        threads = [threading.Thread(target=run, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        self.addCleanup(self.stop.set)

        def end():
            self.stop.set()
            for thread in threads:
                thread.join()
            self.stop.clear()
            whole = [answer for answer in answers if len(answer["meta_info"].get("weight_versions") or [0]) == 1
                     and answer["meta_info"]["finish_reason"]["type"] == "length"]  # fmt: skip
            self.assertGreater(len(whole), 0)
            self.assertLess(max(map(self.distance, whole)), TOLERANCE)

        return end

    def test_versions_by_disk_and_what_goes_wrong(self):
        version = self.publish(0.5, files=self.path)
        self.serve("disk")
        self.expect(version, "disk")
        end = self.begin_requests()
        for share in (0.02, 0.5):
            version = self.publish(share)
            self.expect(version, "disk")
        end()

        # Half of a model is not taken, and the next one is.
        half = {name: tensor for name, tensor in self.weights.items() if "layers.1" not in name}
        refused = self.publish_and_wait(half, installed=1.0, new_model=True, files=self.path)
        eventually(lambda: "of the served model is missing in it" in self.log(), INSTALL_S_MAX)
        self.assertEqual(self.server.label(), str(version))
        self.assertLess(self.distance(self.server.generate()), TOLERANCE)
        version = self.publish(0.02, new_model=True, files=self.path)
        self.expect(version, "disk")
        self.assertNotIn(f"version {refused} is in", self.log())

        # The daemon dies and comes back; the follower dies while it has paused.
        self.worker.kill()
        eventually(lambda: "the daemon ended" in self.log(), INSTALL_S_MAX)
        self.assertLess(self.distance(self.server.generate()), TOLERANCE)
        self.worker.start()
        eventually(lambda: self.worker.node()["version"] == version)
        self.expect(self.publish(0.02), "disk")
        self.follower.kill()
        self.follower.wait()
        self.server.post("/pause_generation", {"mode": "retract"})
        version = self.publish(0.02)
        self.follow("disk")
        self.expect(version, "disk")

        # The server dies, and gets the newest version when it is back.
        self.server.kill()
        self.server.start()
        eventually(lambda: self.server.label() == str(version), INSTALL_S_MAX)
        self.assertLess(self.distance(self.server.generate()), TOLERANCE)
        self.follower.send_signal(signal.SIGTERM)
        self.assertEqual(self.follower.wait(INSTALL_S_MAX), 0)

        # This server has no loader.
        self.follow("changes")
        self.assertEqual(self.follower.wait(60), 2)
        self.assertIn(f"--custom-weight-loader {LOADER}", self.log())

    def test_changes_in_memory(self):
        version = self.publish(0.5, files=self.path)
        self.serve("changes", "--custom-weight-loader", LOADER)
        self.expect(version, "reload")
        end = self.begin_requests()
        for _ in range(3):
            self.expect(self.publish(0.02), "cells")
        end()
        self.assertEqual(os.listdir(self.directory / "exchange"), [])

    def test_the_hook_puts_a_version_where_pull_weights_reads_it(self):
        version = self.publish(0.5, files=self.path)
        source, local = self.directory / "source", self.directory / "local"
        code = ("import sys, weightcast.sglang, shutil; weightcast.sglang.pre_read(sys.argv[1], 1);"
                "shutil.copytree(sys.argv[1] + '/weight_v000001', sys.argv[2])")  # fmt: skip
        done = self.start_python("hook", "-c", code, str(source), str(local), WEIGHTCAST_STATE=self.worker.state)
        self.assertEqual((version, done.wait(60)), (1, 0), self.log_of("hook"))
        for name, tensor in weightcast.Snapshot(local).items():
            self.assertTrue(torch.equal(tensor.torch(), self.weights[name]), name)


if __name__ == "__main__":
    unittest.main()
