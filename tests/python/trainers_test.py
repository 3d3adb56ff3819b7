"""What the integrations of Hugging Face's trainers decide: when to publish, what to wait for, what ends it. Trainer, torch, daemon
and engine are stand-ins; tests/oracles and tests/vllm have the real ones."""

import importlib
import os
import sys
import types
import unittest
from unittest import mock

from fixtures import enter
from json_server import JsonServer
from weightcast import Code, Error, Outcome, Payload, RawTensor, TimedOut

STAND_INS = {
    "transformers": types.SimpleNamespace(TrainerCallback=object, PreTrainedModel=()),
    "transformers.utils": types.SimpleNamespace(is_peft_available=lambda: False),
    "transformers.core_model_loading": None,
    "accelerate": types.SimpleNamespace(),
    "accelerate.utils": types.SimpleNamespace(extract_model_from_parallel=lambda model: model),
    "torch": types.SimpleNamespace(Tensor=()),
}
MODULES = ("_step_log", "trl", "transformers")


def integration(name):
    return importlib.import_module(f"weightcast.integrations.{name}")


class Tensor(RawTensor):
    """A torch tensor, as far as the transfer looks at it."""

    def __init__(self, *values):
        super().__init__("F32", (len(values),), memoryview(bytes(4 * len(values))))
        self.is_on_host = False

    def cpu(self):
        self.is_on_host = True
        return self


class Publication:
    def __init__(self, publisher, infos):
        self.publisher, self.infos, self.filled = publisher, infos, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def fill(self, name, tensor):
        if name not in [info.name for info in self.infos]:
            raise KeyError(f"tensor {name!r} was not begun")
        self.filled.append(name)

    def commit(self, timeout):
        self.publisher.committed.append(self.filled)
        return len(self.publisher.committed)


class Publisher:
    """The origin, whose workers install at once."""

    def __init__(self, state_dir):
        self.state_dir, self.committed, self.options, self.is_closed, self.waited = state_dir, [], [], False, []

    def begin(self, infos, timeout, **options):
        self.options.append(options)
        return Publication(self, infos)

    def wait(self, version, installed, timeout):
        self.waited.append((version, installed))
        return outcome(version)

    def close(self):
        self.is_closed = True


def outcome(version, payload=Payload.PATCH):
    return Outcome(version, payload, 10, 2, 2, 0.1, 0.1, 0.1, 0.1, 0.1, 10, "", ())


class Trainers(unittest.TestCase):
    def setUp(self):
        super().setUp()
        enter(self, mock.patch.dict(sys.modules, STAND_INS))
        for name in MODULES:
            sys.modules.pop(f"weightcast.integrations.{name}", None)


class TransferTest(Trainers):
    def setUp(self):
        super().setUp()
        self.trl = integration("trl")
        self.publishers = []
        self.tensors = {"a": Tensor(1, 2), "b": Tensor(3)}

        def connect(state_dir):
            self.publishers.append(Publisher(state_dir))
            return self.publishers[-1]

        def versions(state_dir):
            newest = len(self.publishers[-1].committed)
            return {"versions": [{"version": version, "digest": f"digest {version}"} for version in (newest - 1, newest)]}

        enter(self, mock.patch.multiple(self.trl, Publisher=connect, versions=versions))

    def serve(self, answers):
        server = JsonServer(lambda path, _: answers(path))
        self.addCleanup(server.stop)
        return server.url

    def transfer(self, *engines, **options):
        transfer = self.trl.WeightTransfer("state", engines, **{"timeout": 10, **options})
        self.addCleanup(transfer.destroy)
        return transfer

    def begin(self, *engines, **options):
        transfer = self.transfer(*engines, **options)
        transfer.init_weight_transfer()
        return transfer

    def send(self, transfer):
        transfer.pause()
        transfer.send_weights(iter(self.tensors.items()))
        transfer.resume()

    def test_publishes_and_waits_for_workers_and_engines(self):
        asked = []

        def vllm(path):
            asked.append(path)
            # As long as it writes, and before anything came.
            old = {"version": 1, "digest": "of an earlier run", "why": ""}
            steps = [{}, {"version": None, "digest": None, "why": ""}, old, {**old, "digest": "digest 1"}]
            return (200, steps[min(len(asked) - 1, 3)]) if path == "/weightcast/status" else (404, {})

        def worker(path):
            version = len(self.publishers[0].committed)
            found = {"weight_version": str(version), "digest": f"digest {version}", "versions_refused": 0, "last_version_error": None}
            return (200, found) if path == "/get_weight_version" else (404, {})

        transfer = self.transfer(self.serve(vllm), self.serve(worker) + "/", installed=0.5, files="model", new_model=True)
        self.assertEqual(self.publishers, [], "other ranks make one, too")
        transfer.init_weight_transfer()
        self.send(transfer)
        publisher = self.publishers[0]
        self.assertEqual(publisher.committed, [["a", "b"]])
        self.assertEqual(publisher.options, [{"files": "model", "new_model": True, "allow_nonfinite": False}])
        self.assertEqual(publisher.waited, [(1, 0.5)])
        self.assertEqual(len(asked), 4)
        figures = transfer.figures
        self.assertEqual((figures["weightcast/version"], figures["weightcast/payload_bytes"]), (1, 10))
        self.assertEqual(figures["weightcast/weights_bytes"], 12)
        self.assertLessEqual(figures["weightcast/publish_s"], figures["weightcast/installed_s"])
        self.assertLessEqual(figures["weightcast/installed_s"], figures["weightcast/generating_s"])
        transfer.destroy()
        self.assertTrue(publisher.is_closed)
        with self.assertRaisesRegex(RuntimeError, "after destroy"):
            self.send(transfer)

    def test_only_the_first_publication_copies_to_the_host_and_has_options(self):
        transfer = self.begin(files="model")
        self.send(transfer)
        self.assertTrue(self.tensors["a"].is_on_host)
        self.tensors["a"].is_on_host = False
        self.send(transfer)
        self.assertFalse(self.tensors["a"].is_on_host)
        self.assertEqual(self.publishers[0].options[1], {"allow_nonfinite": False})

    def test_other_tensors_than_the_first_time_are_refused(self):
        transfer = self.begin()
        self.send(transfer)
        kept = dict(self.tensors)
        self.tensors.pop("b")
        with self.assertRaisesRegex(RuntimeError, "1 of 2 tensors.*'b'.*nothing was published"):
            self.send(transfer)
        self.tensors = {**kept, "c": Tensor(4)}
        with self.assertRaisesRegex(KeyError, "'c'"):
            self.send(transfer)
        self.assertEqual(len(self.publishers[0].committed), 1)

    def test_engine_that_never_gets_there_ends_it_in_time_and_says_why(self):
        url = self.serve(lambda path: (200, {"version": 0, "why": "tensor up_proj is missing"}))
        transfer = self.begin(url, timeout=2)
        with self.assertRaisesRegex(TimedOut, f"{url}: .*version 1 .*started with, because: tensor up_proj is missing"):
            self.send(transfer)

    def test_engine_that_refuses_the_version_ends_it_at_once(self):
        def worker(path):
            refused = len(self.publishers[0].committed)
            found = {"weight_version": "0", "digest": None, "versions_refused": 3 + refused, "last_version_error": "another model"}
            return (200, found) if path == "/get_weight_version" else (404, {})

        transfer = self.begin(self.serve(worker), timeout=20)
        with self.assertRaisesRegex(Error, "refused version 1: another model") as caught:
            self.send(transfer)
        self.assertEqual(caught.exception.code, Code.CORRUPT)

    def test_engine_that_follows_no_daemon_is_refused_at_the_begin(self):
        for answers in (lambda path: (404, {}), lambda path: (200, []), lambda path: (200, {"weight_version": "default"})):
            with self.subTest(answers=answers("/get_weight_version")):
                url = self.serve(lambda path, answers=answers: answers(path) if path != "/weightcast/status" else (404, {}))
                with self.assertRaisesRegex(Error, "VLLM_PLUGINS=weightcast") as caught:
                    self.transfer(url).init_weight_transfer()
                self.assertEqual(caught.exception.code, Code.UNSUPPORTED)

    def test_http_error_ends_it(self):
        answers = [(200, {"version": 0})]
        url = self.serve(lambda path: answers[-1])
        transfer = self.begin(url)
        answers.append((500, {"error": "the engine is dead"}))
        with self.assertRaisesRegex(Error, "/weightcast/status answers 500: .*the engine is dead"):
            self.send(transfer)

    def test_engine_that_breaks_connections_is_asked_again(self):
        answers = [(200, {"version": 1, "digest": "digest 1"}), None, None, (200, {"version": 0})]
        url = self.serve(lambda path: answers.pop() if len(answers) > 1 else answers[0])
        transfer = self.begin(url)
        self.send(transfer)
        self.assertEqual(len(answers), 1)

    def test_an_engine_on_this_host_is_asked_without_a_proxy(self):
        proxied = []

        def proxy(path):
            proxied.append(path)
            return 200, {"version": 1, "digest": "digest 1"}

        url = self.serve(lambda path: (200, {"version": 1, "digest": "digest 1"}))
        enter(self, mock.patch.dict(os.environ, http_proxy=self.serve(proxy), no_proxy=""))
        for host in ("127.0.0.1", "localhost"):
            self.begin(url.replace("127.0.0.1", host))
        self.assertEqual(proxied, [])
        self.begin("http://engine.example:8000")
        self.assertEqual(len(proxied), 1)

    def test_engine_that_is_away_ends_it_in_time(self):
        server = JsonServer(lambda *_: (200, {"version": 0}))
        server.stop()
        with self.assertRaisesRegex(TimedOut, "does not answer in time; the last call failed: .*refused"):
            self.transfer(server.url, timeout=1).init_weight_transfer()

    def test_arguments_that_mean_nothing_are_refused(self):
        for arguments in ({"engines": "localhost:8000"}, {"installed": 0}, {"installed": 2}, {"timeout": 0}):
            with self.subTest(arguments), self.assertRaises(ValueError):
                self.trl.WeightTransfer("state", **{"engines": (), **arguments})


class ModelPublisher:
    def __init__(self, *_):
        self.published, self.is_closed = [], False

    def publish(self, model, options):
        self.published.append(options)
        return len(self.published), 12

    def wait(self, version, installed):
        return outcome(version, Payload.UNDECIDED)

    def close(self):
        self.is_closed = True


class CallbackTest(Trainers):
    def setUp(self):
        super().setUp()
        self.module = integration("transformers")
        self.made = []

        def make(*arguments):
            self.made.append(ModelPublisher(*arguments))
            return self.made[-1]

        stand_ins = {"_WholePublisher": make, "_check": lambda model: None, "_files_of": lambda *_: {"config.json": b"{}"}}
        enter(self, mock.patch.multiple(self.module, **stand_ins))

    def train(self, callback, steps, is_main=True):
        state = types.SimpleNamespace(global_step=0, is_world_process_zero=is_main, log_history=[])
        model = types.SimpleNamespace(parameters=lambda: [])
        lines = []
        callback.on_train_begin(None, state, None, model=model, processing_class=None)
        for _ in range(steps):
            state.global_step += 1
            callback.on_step_end(None, state, None, model=model)
            logs = {"loss": 1.0}
            state.log_history.append(dict(logs))
            callback.on_log(None, state, None, logs=logs)
            lines.append(logs)
        callback.on_train_end(None, state, None, model=model)
        self.assertEqual(state.log_history, lines)
        return lines

    def test_publishes_at_the_begin_when_due_and_at_the_end(self):
        for steps, every_steps, expected in ((3, 1, 4), (5, 2, 4), (4, 2, 3), (1, 10, 2), (0, 1, 1)):
            with self.subTest(steps=steps, every_steps=every_steps):
                self.made.clear()
                self.train(self.module.PublishCallback("state", every_steps), steps)
                self.assertEqual(len(self.made[0].published), expected)
                self.assertTrue(self.made[0].is_closed)

    def test_first_publication_brings_files_and_says_that_the_model_is_new(self):
        self.train(self.module.PublishCallback("state", new_model=True), 1)
        self.assertEqual(self.made[0].published, [{"files": {"config.json": b"{}"}, "new_model": True}, {}])
        self.train(self.module.PublishCallback("state", files="model"), 0)
        self.assertEqual(self.made[1].published, [{"files": "model", "new_model": False}])

    def test_other_processes_publish_nothing(self):
        self.train(self.module.PublishCallback("state"), 2, is_main=False)
        self.assertEqual(self.made, [])

    def test_figures_are_in_the_next_log_line_once(self):
        lines = self.train(self.module.PublishCallback("state", 2), 3)
        self.assertEqual([line.get("weightcast/version") for line in lines], [1, 2, None])
        self.assertEqual(lines[0]["weightcast/weights_bytes"], 12)
        self.assertNotIn("weightcast/payload_bytes", lines[0], "what travels was not decided yet")

    def test_arguments_that_mean_nothing_are_refused(self):
        for arguments in ({"every_steps": 0}, {"installed": 0}, {"timeout": 0}):
            with self.subTest(arguments), self.assertRaises(ValueError):
                self.module.PublishCallback("state", **arguments)


if __name__ == "__main__":
    unittest.main()
