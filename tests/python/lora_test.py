"""What follows a daemon's adapters, without vLLM: which directory is one, what is loaded when, and what becomes of the last one."""

import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import types
import unittest
from unittest import mock

from fixtures import make_directory
from vllm_test import Events, Following, installed
from weightcast import Code, Error
from weightcast.engines._adapters import Adapters
from weightcast.engines._copies import Copies
from weightcast.engines._installs import Limits, Version
from weightcast.engines._peft import check, find, refuse_adapter
from weightcast.vllm._adapters import AdapterFollower
from weightcast.vllm._plugin import _follow_adapters, adapters


def write_safetensors(path, shapes):
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 4
        for length in shape:
            size *= length
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))


Q = "base_model.model.model.layers.0.self_attn.q_proj"


def write_adapter(path, shapes=None, **config):
    path.mkdir(parents=True, exist_ok=True)
    (path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8, **config}))
    write_safetensors(path / "adapter_model.safetensors",
                      shapes or {f"{Q}.lora_A.weight": (4, 6), f"{Q}.lora_B.weight": (8, 4)})
    return str(path)


class WithDirectory(unittest.TestCase):
    def setUp(self):
        self.directory = make_directory(self)


class PeftTest(WithDirectory):
    def test_an_adapter_and_a_set_of_them(self):
        lone = write_adapter(self.directory / "lone")
        self.assertEqual(find(lone, "math"), lone)
        inner = write_adapter(self.directory / "set" / "math")
        self.assertEqual(find(str(self.directory / "set"), "math"), inner)
        with self.assertRaisesRegex(ValueError, "neither adapter_config.json nor code/adapter_config.json"):
            find(str(self.directory / "set"), "code")
        with self.assertRaisesRegex(ValueError, "an adapter, and no model"):
            refuse_adapter(lone)

    def test_a_model_is_no_adapter_even_with_one_beside_it(self):
        path = write_adapter(self.directory / "model")
        write_safetensors(self.directory / "model" / "model.safetensors", {"w": (1,)})
        refuse_adapter(path)
        with self.assertRaisesRegex(ValueError, "it is a model"):
            find(path, "math")

    def test_what_an_engine_could_load(self):
        check(write_adapter(self.directory / "a"), 4)
        patterned = {f"{Q}.lora_A.weight": (4, 6), f"{Q}.lora_B.weight": (8, 4),
                     "up.lora_A.weight": (7, 6), "up.lora_B.weight": (8, 7),
                     "embed.lora_embedding_A": (4, 50), "embed.lora_embedding_B": (6, 4),
                     "mlp.experts.lora_A.weight": (32, 6), "mlp.experts.lora_B.weight": (8, 32)}
        check(write_adapter(self.directory / "b", patterned, rank_pattern={"up": 7}), 7)

    def test_what_none_could(self):
        a, b = f"{Q}.lora_A.weight", f"{Q}.lora_B.weight"
        for number, (shapes, config, why) in enumerate((
            (None, {"r": 16}, "rank is 16.*takes 8: start it with --max-lora-rank 16"),
            (None, {"rank_pattern": {"q_proj": 9}}, "rank is 9"),
            (None, {"peft_type": "IA3"}, "peft_type is 'IA3'"),
            (None, {"r": None}, "whole numbers above 0"),
            (None, {"r": True}, "whole numbers above 0"),
            (None, {"r": 2}, "is of rank 4"),
            (None, {"rank_pattern": [1]}, "is not an object"),
            ({a: (4, 6)}, {}, "has .*lora_A.weight, but no .*lora_B.weight"),
            ({b: (8, 4)}, {}, "has .*lora_B.weight, but no .*lora_A.weight"),
            ({a: (4, 6), b: (8, 3)}, {}, "no product"),
            ({a: (24,), b: (8, 4)}, {}, "no product"),
            ({"w": (1,)}, {}, "no matrices"),
        )):
            with self.subTest(why), self.assertRaisesRegex(ValueError, why):
                check(write_adapter(self.directory / str(number), shapes, **config), 8)

    def test_an_adapter_of_another_base(self):
        served = ["/models/Qwen3-0.6B/", "m"]
        for base in (None, "", "Qwen/Qwen3-0.6B", "/other/host/Qwen3-0.6B", "m",
                     "/cache/hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de289a0"):
            with self.subTest(base):
                check(write_adapter(self.directory / "a", base_model_name_or_path=base), 4, served)
        for base in ("Qwen/Qwen3-0.6B-Base", "/models/Qwen3-0.6B/checkpoint-7", ["m"]):
            path = write_adapter(self.directory / "a", base_model_name_or_path=base)
            with self.subTest(base), self.assertRaisesRegex(ValueError, "base_model_name_or_path"):
                check(path, 4, served)
            check(path, 4)  # what is served is not known

    def test_files_that_are_none(self):
        path = write_adapter(self.directory / "a")
        for text, why in ((b"{", "not JSON"), (b"[]", "not an object"), (b"\xff", "not JSON"), (b" " * (1 << 20) + b"{}", "exceeds"),
                          (b"[" * 100000, "not JSON")):
            (self.directory / "a" / "adapter_config.json").write_bytes(text)
            with self.subTest(why), self.assertRaisesRegex(ValueError, why):
                check(path, 8)
        write_adapter(self.directory / "a")
        weights = self.directory / "a" / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
        with self.assertRaises(Error):
            check(path, 8)
        weights.unlink()
        (self.directory / "a" / "adapter_model.bin").touch()
        with self.assertRaisesRegex(ValueError, "no adapter_model.safetensors; save it with safe_serialization"):
            check(path, 8)


class AdaptersTest(unittest.TestCase):
    def test_the_newest_at_once_and_failures_ever_more_rarely(self):
        adapters = Adapters()
        one, two = Version(1, "a"), Version(2, "b")
        self.assertEqual((adapters.poll(0), adapters.poll_deadline()), (None, None))
        adapters.handle_installed(10, one)
        self.assertEqual(adapters.poll(10), one)
        now, waits = 10.0, []
        for _ in range(9):
            self.assertEqual(adapters.handle_failed(now, one, "why"), now == 10)
            waits.append(adapters.poll_deadline() - now)
            self.assertIsNone(adapters.poll(adapters.poll_deadline() - 0.01))
            now = adapters.poll_deadline()
            self.assertEqual(adapters.poll(now), one)
        self.assertEqual(waits, [0.5, 1, 2, 4, 8, 16, 30, 30, 30])
        adapters.handle_installed(now, one)  # told again, which is no news
        adapters.handle_failed(now, one, "why")
        adapters.handle_installed(now, two)
        self.assertEqual(adapters.poll(now), two)
        adapters.handle_loaded(two)
        self.assertEqual((adapters.poll_deadline(), adapters.why, adapters.served), (None, "", two))
        adapters.handle_installed(now, Version(2, "of another run"))
        self.assertIsNotNone(adapters.poll(now))

    def test_a_newer_one_that_comes_meanwhile_is_not_held_back(self):
        adapters = Adapters()
        adapters.handle_installed(0, Version(1, "a"))
        adapters.handle_installed(5, Version(2, "b"))
        adapters.handle_failed(6, Version(1, "a"), "why")
        self.assertEqual(adapters.poll(6), Version(2, "b"))


class CopiesTest(WithDirectory):
    def test_what_an_engine_reads_and_nothing_else(self):
        source = write_adapter(self.directory / "a")
        (self.directory / "a" / "README.md").touch()
        copies = Copies(str(self.directory))
        path = copies.make(source, "math@1-a")
        self.assertEqual(sorted(os.listdir(path)), ["adapter_config.json", "adapter_model.safetensors"])
        for name in os.listdir(path):
            self.assertEqual(pathlib.Path(path, name).read_bytes(), pathlib.Path(source, name).read_bytes())
        with self.assertRaises(FileExistsError):
            copies.make(source, "math@1-a")
        self.assertEqual(len(os.listdir(path)), 2)
        os.remove(os.path.join(source, "adapter_model.safetensors"))
        with self.assertRaises(FileNotFoundError):
            copies.make(source, "math@2-b")
        self.assertFalse(os.path.exists(copies.path("math@2-b")))
        copies.remove("math@1-a")
        copies.remove("math@1-a")
        copies.close()
        self.assertEqual(os.listdir(self.directory), ["a"])

    def test_a_disk_without_locks(self):
        with mock.patch("fcntl.flock", side_effect=OSError(37, "No locks available")), self.assertRaisesRegex(OSError, "set TMPDIR"):
            Copies(str(self.directory))

    def test_those_of_a_killed_process_go_and_those_of_others_stay(self):
        program = ("import sys, time; from weightcast.engines._copies import Copies; "
                   f"copies = Copies({str(self.directory)!r}); print(copies.path('x'), flush=True); time.sleep(600)")
        python_path = str(pathlib.Path(__file__).resolve().parents[2] / "python")
        running = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                                   env=dict(os.environ, PYTHONPATH=python_path))
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        other = os.path.dirname(running.stdout.readline().strip())
        mine = Copies(str(self.directory))
        self.assertTrue(os.path.isdir(other))
        running.kill()
        running.wait()
        another = Copies(str(self.directory))
        self.assertFalse(os.path.exists(other))
        self.assertTrue(os.path.isdir(os.path.dirname(mine.path("x"))))
        mine.close()
        another.close()


class Request:
    def __init__(self, number):
        self.lora_int_id = number


class Served:
    """vLLM's side: what stands under which name, and what is in the engine."""

    def __init__(self):
        self.has_ended, self.names, self.engine, self.faults = False, {}, {}, []
        self.model_names = ["m"]
        self.numbers = itertools.count(1)
        self.hangs = None

    async def load(self, label, path):
        if self.hangs is not None:
            await self.hangs.wait()
        if self.faults:
            raise RuntimeError(self.faults.pop(0))
        assert sorted(os.listdir(path)) == ["adapter_config.json", "adapter_model.safetensors"]
        request = Request(next(self.numbers))
        self.engine[request.lora_int_id] = label
        return request

    async def drop(self, number):
        del self.engine[number]

    def show(self, name, request):
        self.names[name] = request


class FollowerTest(WithDirectory, Following):
    def follow(self, *subscriptions, limit_s=5.0):
        self.served, self.log = Served(), mock.Mock()
        self.copies = Copies(str(self.directory))
        self.addCleanup(self.copies.close)
        left = list(subscriptions)
        self.digests = {}  # of versions that the daemon has; without an entry as they were told
        self.missing = None

        @contextlib.contextmanager
        def acquire(version, timeout):
            if self.missing:
                raise self.missing
            yield types.SimpleNamespace(digest=self.digests.get(version, str(version) * 2), directory=str(self.directory / f"v{version}"))

        def subscribe():
            one = left.pop(0) if left else Events()
            one.acquire, one.__class__.__enter__, one.__class__.__exit__ = acquire, lambda one: one, lambda *_: None
            return one

        self.task = self.start_follower(AdapterFollower("math", self.served, self.copies, 8, limit_s, self.log, subscribe))

    def tell(self, *versions):
        self.events.events.extend(map(installed, versions))
        self.follower._daemon.wake()

    def is_served(self, version):
        return self.follower.status()["version"] == version and not self.follower.status()["why"]

    def start(self, *versions, **options):
        for version in range(1, 5):
            write_adapter(self.directory / f"v{version}")
        self.events = Events(*map(installed, versions))
        self.follow(self.events, **options)

    async def test_requests_under_way_keep_their_version(self):
        self.start(1)
        await self.follower.first(5)
        self.assertTrue(self.is_served(1))
        told = self.follower.status()
        self.assertEqual((told["model"], told["loaded"], told["follows"]), ("math@1-11", 1, True))
        under_way = self.served.names["math"]
        self.tell(2)
        await self.until(lambda: self.is_served(2))
        self.tell(3)
        await self.until(lambda: self.is_served(3))
        # Nobody has the second one; the first has a request yet, and its files are there.
        await self.until(lambda: sorted(self.served.engine.values()) == ["math@1-11", "math@3-33"])
        self.assertTrue(os.path.isdir(self.copies.path("math@1-11")))
        self.assertEqual(self.follower.status()["loaded"], 2)
        with mock.patch("weightcast.vllm._adapters._FILES_S", 0.01):
            self.assertEqual(under_way.lora_int_id, 1)
            del under_way
            await self.until(lambda: list(self.served.engine.values()) == ["math@3-33"])
            await self.until(lambda: not os.path.exists(self.copies.path("math@1-11")))
        self.assertTrue(os.path.isdir(self.copies.path("math@3-33")))

    async def test_what_fails_leaves_the_one_before(self):
        self.start(1)
        await self.until(lambda: self.is_served(1))
        write_adapter(self.directory / "v2", r=99)
        self.tell(2)
        await self.until(lambda: "version 2: its rank is 99" in self.follower.status()["why"])
        self.assertEqual(list(self.served.engine.values()), ["math@1-11"])
        self.served.faults = ["the engine's words"]
        self.tell(3)
        await self.until(lambda: self.is_served(3))
        self.assertIn("the engine's words", str(self.log.error.call_args_list[-1]))
        self.assertFalse(os.path.exists(self.copies.path("math@2-22")))

    async def test_a_version_that_the_daemon_has_no_more(self):
        self.start(1)
        self.missing = Error(Code.NOT_FOUND, "acquire", "version 1 is not here")
        await self.until(lambda: "version 1 is not here" in self.follower.status()["why"])
        self.missing, self.digests[1] = None, "another"
        await self.until(lambda: "has another version 1 now: another, not 11" in self.follower.status()["why"])
        self.assertEqual(self.served.names, {})
        self.digests.clear()
        await self.until(lambda: self.is_served(1))

    async def test_a_version_that_stands_there_yet_waits_for_its_answers(self):
        self.start(1)
        await self.until(lambda: self.is_served(1))
        under_way = self.served.names["math"]
        self.tell(2)
        await self.until(lambda: self.is_served(2))
        self.tell(1)
        await self.until(lambda: "answers under way have the same version" in self.follower.status()["why"])
        self.assertEqual(under_way.lora_int_id, 1)
        del under_way
        with mock.patch("weightcast.vllm._adapters._FILES_S", 0.01):
            await self.until(lambda: self.is_served(1))
        self.assertEqual(self.served.names["math"].lora_int_id, 3)

    async def test_an_engine_that_does_not_answer_is_named_and_waited_for(self):
        self.start(1)
        await self.until(lambda: self.is_served(1))
        self.follower._limit_s = 0.05
        self.served.hangs = asyncio.Event()
        self.tell(2)
        await self.until(lambda: "loading takes longer than 0.05 s" in self.follower.status()["why"])
        self.assertEqual(self.follower.status()["version"], 1)
        self.served.hangs.set()
        await self.until(lambda: self.is_served(2))

    async def test_it_ends_with_the_engine(self):
        self.start()
        await self.follower.first(5)
        self.assertEqual(self.follower.status()["version"], None)
        self.served.has_ended = True
        await asyncio.wait_for(self.task, 5)
        self.assertTrue(self.events.is_closed)


class SettingsTest(unittest.TestCase):
    def test_servers_that_cannot_follow(self):
        for lora, nodes, name, why in ((None, 1, "math", "start the server with --enable-lora"), (mock.Mock(), 2, "math", "on one host"),
                                       (mock.Mock(), 1, "m", "has the name m, which is the served model's")):
            config = types.SimpleNamespace(lora_config=lora, parallel_config=types.SimpleNamespace(nnodes=nodes))
            engine = types.SimpleNamespace(vllm_config=config)
            models = types.SimpleNamespace(is_base_model=lambda name: name == "m")
            with self.subTest(why), self.assertRaisesRegex(ValueError, f"WEIGHTCAST_LORA.*{why}"):
                _follow_adapters({name: "/a"}, engine, models, Limits(), mock.Mock())

    def test_names_and_state_directories(self):
        self.assertEqual(adapters({}), {})
        self.assertEqual(adapters({"WEIGHTCAST_LORA": "math=/a, code.v2=/b=c,"}), {"math": "/a", "code.v2": "/b=c"})
        for text in ("math", "math=", "=/a", "a/b=/a", "..=/a", ".=/a", "a@1=/a", "math=/a,math=/b"):
            with self.subTest(text), self.assertRaisesRegex(ValueError, "WEIGHTCAST_LORA has .*NAME=STATE_DIR"):
                adapters({"WEIGHTCAST_LORA": text})


if __name__ == "__main__":
    unittest.main()
