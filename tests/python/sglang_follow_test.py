"""A double of SGLang's server follows real daemons: every token is of one version, whatever fails and whoever restarts."""

import array
import json
import os
import pathlib
import shutil
import signal
import threading
import urllib.request

import sglang_double
from daemons import PublisherTest, eventually
from weightcast import RawTensor, Snapshot
from weightcast.sglang import EXCHANGE, LOADER

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 2


def weights(number, tensors):
    """Of one version; the next one differs in a few elements."""
    made = {}
    for index in range(tensors):
        values = array.array("f", [index + cell / 1000 for cell in range(600)])
        for step in range(number):
            values[(step * 37 + index) % 600] = step + 0.5
        made[f"layer.{index}"] = RawTensor("F32", (30, 20), bytearray(values.tobytes()))
    return made


class FollowTest(PublisherTest):
    worker_flags = ()

    def setUp(self):
        super().setUp()
        self.server_directory = self.directory / "server"
        self.server_directory.mkdir()
        self.versions = {}  # what a token of each is
        self.version = self.publish(1)
        start = self.directory / "start"
        shutil.copytree(pathlib.Path(self.worker.state) / "current", start)
        self.start_token = self.versions[self.version]
        self.settings = {"model_path": str(start), "tp_size": RANKS, "custom_weight_loader": [LOADER]}
        self.environment = {"WEIGHTCAST_STATE": self.worker.state, EXCHANGE: str(self.directory / "exchange")}
        self.tokens = []  # of the requests under way: label and token
        self.aborted = 0

    def publish(self, number, tensors=3, **arguments):
        found = weights(number, tensors)
        version = self.publish_and_wait(found, installed=1.0, **arguments)
        self.versions[version] = sglang_double.token_of(found, RANKS)
        return version

    def start_server(self):
        (self.server_directory / "settings.json").write_text(json.dumps(self.settings))
        up = self.server_directory / "up"
        up.unlink(missing_ok=True)
        self.server = self.start_python("server", str(HERE / "sglang_double.py"), str(self.server_directory), **self.environment)
        eventually(up.exists)
        self.url = "http://127.0.0.1:" + (self.server_directory / "port").read_text()

    def start_follower(self, *flags):
        command = ("-m", "weightcast.sglang", "--server", self.url, "--state", self.worker.state)
        self.follower = self.start_python("follower", *command, *flags, **self.environment)

    def follow(self, *flags):
        """A server and its follower, with the version that is there."""
        self.start_server()
        self.start_follower(*flags)
        self.expect(self.version)

    def log(self):
        return self.log_of("follower")

    def call(self, route, body=None):
        request = urllib.request.Request(self.url + route, json.dumps(body or {}).encode())
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def calls(self):
        return [one.rpartition("/")[2] for one in self.call("/told")["calls"]]

    def label(self):
        try:
            return self.call("/model_info")["weight_version"]
        except OSError:
            return None

    def generate(self, count=1):
        return self.call("/generate", {"sampling_params": {"max_new_tokens": count}})

    def expect(self, version, limit_s=60.0):
        """It comes in, and generation goes on with it."""
        eventually(lambda: self.label() == str(version) and f"version {version} is in" in self.log(), limit_s)
        answer = self.generate()
        self.assertEqual(answer["output_ids"], [self.versions[version]])

    def expect_failure(self, text):
        eventually(lambda: text in self.log())

    def fail(self, *faults):
        (self.server_directory / "faults").write_text("".join(fault + "\n" for fault in faults))

    def begin_load(self):
        """Requests that run all the time. What they are given is checked at the end."""
        stop = threading.Event()

        def run():
            while not stop.is_set():
                try:
                    answer = self.generate(20)
                except (OSError, ValueError):
                    stop.wait(0.05)
                    continue
                meta = answer["meta_info"]
                self.tokens += zip(meta["labels"], answer["output_ids"])
                self.aborted += meta["finish_reason"]["type"] == "abort"

        threads = [threading.Thread(target=run, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        self.addCleanup(stop.set)

        def end():
            stop.set()
            for thread in threads:
                thread.join()
            known = {str(version): token for version, token in self.versions.items()}
            known["default"] = self.start_token
            for label, token in self.tokens:
                self.assertEqual(known.get(label), token, f"a mixture, labelled {label}")
            self.assertGreater(len(self.tokens), 0)

        return end

    # What happens to a version.

    def test_versions_come_in_by_disk_while_requests_run(self):
        self.follow()
        end = self.begin_load()
        for number in (2, 3, 4):
            self.expect_later(self.publish(number))
        end()
        self.assertEqual(self.aborted, 0)
        calls = self.calls()
        self.assertEqual(calls[:4], ["pause_generation", "flush_cache", "update_weights_from_disk", "continue_generation"])
        self.follower.send_signal(signal.SIGTERM)
        self.assertEqual(self.follower.wait(10), 0)

    def expect_later(self, version):
        eventually(lambda: f"version {version} is in" in self.log(), 60)

    def test_changes_are_written_by_each_process(self):
        self.follow("--mode", "changes")
        end = self.begin_load()
        for number in (2, 3, 4):
            version = self.publish(number)
            self.expect_later(version)
            self.assertIn(f"version {version} is in (cells, ", self.log())
        end()
        self.expect(version)
        self.assertNotIn("update_weights_from_disk", self.calls())
        self.assertEqual(os.listdir(self.directory / "exchange"), [])

    def test_abort_ends_answers(self):
        self.follow("--pause", "abort")
        end = self.begin_load()
        eventually(lambda: len(self.tokens) > 40)
        self.expect_later(self.publish(2))
        end()
        self.assertGreater(self.aborted, 0)

    # Faults.

    def test_a_load_whose_way_back_fails_ends_the_server_and_a_new_one_gets_the_version(self):
        self.follow()
        end = self.begin_load()
        self.fail("load", "load")
        version = self.publish(2)
        self.assertEqual(self.server.wait(30), 3)
        self.start_server()
        self.expect_later(version)
        end()
        self.expect(version)

    def test_a_write_that_fails_in_one_process_is_followed_by_a_whole_load(self):
        self.follow("--mode", "changes")
        self.expect_written(2)
        end = self.begin_load()
        self.fail("write")
        version = self.publish(3)
        self.expect_later(version)
        self.assertIn(f"version {version} is in (disk, ", self.log())
        self.assertIn("stays paused until all weights are of one version", self.log())
        for number in (4, 5):  # and back to changes
            version = self.publish(number)
            self.expect_later(version)
        self.assertIn(f"version {version} is in (cells, ", self.log())
        end()

    def expect_written(self, number):
        version = self.publish(number)
        self.expect(version)

    def test_whatever_fails_in_memory_and_by_disk_no_mixture_is_served(self):
        self.follow("--mode", "changes")
        self.expect_written(2)
        end = self.begin_load()
        self.fail("write", "load")
        version = self.publish(3)
        self.expect_failure("was loaded again; what the server had is served")
        self.expect_later(version)
        self.expect_written(4)
        end()

    def test_a_server_that_dies_in_the_middle_gets_the_version_when_it_is_back(self):
        for mode, route in (("disk", "/update_weights_from_disk"), ("changes", "/update_weights_from_tensor")):
            with self.subTest(mode=mode):
                self.start_server()
                self.start_follower("--mode", mode)
                self.expect_later(self.version)
                end = self.begin_load()
                self.fail(f"die {route}")
                version = self.publish(self.version + 1)
                self.assertEqual(self.server.wait(30), 4)
                self.start_server()
                self.expect_later(version)
                self.expect(version)
                end()
                self.version = version
                self.follower.kill()
                self.follower.wait()
                self.server.kill()
                self.server.wait()
                (self.directory / "follower.log").write_text("")

    def test_a_server_that_is_started_again_between_versions_gets_the_newest(self):
        self.follow()
        version = self.publish(2)
        self.expect(version)
        self.server.kill()
        self.server.wait()
        self.start_server()
        eventually(lambda: self.label() == str(version), 30)
        self.assertEqual(self.generate()["output_ids"], [self.versions[version]])

    def test_a_follower_that_dies_while_it_has_paused_leaves_a_server_that_the_next_one_resumes(self):
        self.follow("--mode", "changes")
        self.follower.kill()
        self.follower.wait()
        self.call("/pause_generation", {"mode": "retract"})
        self.call("/begin_weight_update")
        version = self.publish(2)
        self.start_follower("--mode", "changes")
        self.expect(version)

    def test_the_daemon_dies_and_comes_back(self):
        self.follow()
        end = self.begin_load()
        self.worker.kill()
        self.expect_failure("the daemon ended")
        self.worker.start()
        eventually(lambda: self.worker.node()["version"] == self.version)
        self.expect_later(self.publish(2))
        self.fail("load")
        self.expect_later(self.publish(3))
        end()

    def test_a_version_without_some_of_the_tensors_and_an_adapter_are_not_loaded(self):
        self.follow()
        fewer = self.publish(2, tensors=2, new_model=True)
        self.expect_failure("tensor layer.2 of the served model is missing in it")
        self.assertEqual(self.generate()["output_ids"], [self.versions[self.version]])
        self.publish(3, new_model=True, files={"adapter_config.json": b"{}"})
        self.expect_failure("it is an adapter, and no model")
        self.assertEqual(self.calls().count("pause_generation"), 1)
        whole = self.publish(4, new_model=True, files={"config.json": b"{}"})
        self.expect(whole)
        self.assertNotIn(f"version {fewer} is in", self.log())

    def test_a_withdrawn_version_is_not_waited_for(self):
        self.follow()
        self.follower.send_signal(signal.SIGSTOP)
        for number in (2, 3, 4, 5, 6, 7):
            version = self.publish(number)
        self.follower.send_signal(signal.SIGCONT)
        self.expect(version)

    def test_a_server_without_the_loader_is_refused(self):
        self.settings["custom_weight_loader"] = []
        self.start_server()
        self.start_follower("--mode", "changes")
        self.assertEqual(self.follower.wait(30), 2)
        self.assertIn(f"--custom-weight-loader {LOADER}", self.log())
        self.assertEqual(self.calls(), [])

    def test_the_hook_puts_a_version_where_pull_weights_reads_it(self):
        source = self.directory / "source"
        code = (
            "import sys, weightcast.sglang, shutil; weightcast.sglang.pre_read(sys.argv[1], 1);"
            "shutil.copytree(sys.argv[1] + '/weight_v000001', sys.argv[2])"
        )
        local = self.directory / "local"
        done = self.start_python("hook", "-c", code, str(source), str(local), **self.environment)
        self.assertEqual(done.wait(30), 0, self.log_of("hook"))
        found = Snapshot(local)
        self.assertEqual(sglang_double.token_of(found, RANKS), self.versions[1])


if __name__ == "__main__":
    import unittest

    unittest.main()
