#!/usr/bin/env python3
"""sglang_double.py DIRECTORY: a server with the control routes of SGLang, for tests, on a port that DIRECTORY/port gets.

Written from the source of sglang 0.5.23: entrypoints/http_server.py, managers/tokenizer_manager.py, tokenizer_control_mixin.py,
scheduler.py, scheduler_components/weight_updater.py and model_executor/model_runner_components/weight_updater.py.

Its tokens are a hash of the weights of all of its processes, and of the weights by which what lies in its cache was computed. So
each mixture shows: of versions, of processes, of a cache that was not flushed, of weights and label. DIRECTORY/settings.json
names the model_path; each process has a part of each tensor. DIRECTORY/faults has a line for each fault that is to come:
  load       the next whole load fails in the middle      write   the next write of our loader does
  die ROUTE  the server ends in the middle of this route
"""

import hashlib
import importlib
import json
import multiprocessing
import os
import pathlib
import sys
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "python"))

from json_server import JsonServer  # noqa: E402
from weightcast import Snapshot  # noqa: E402
from weightcast.engines._rank import Staged, check_tensors, tensors_of  # noqa: E402
from weightcast.sglang import _loader  # noqa: E402

TOKEN_S = 0.005


def digest_of(parts):
    """Of the weights of all processes, each a mapping of names to bytes."""
    found = hashlib.sha256()
    for part in parts:
        for name in sorted(part):
            found.update(name.encode() + bytes(part[name]))
    return found.hexdigest()[:16]


def part_of(data, rank, ranks):
    elements = len(data) // 4
    return slice(elements * rank // ranks * 4, elements * (rank + 1) // ranks * 4)


def token_of(snapshot, ranks):
    """What a server with this version alone generates."""
    parts = [{name: bytes(tensor.data)[part_of(tensor.data, rank, ranks)] for name, tensor in snapshot.items()}
             for rank in range(ranks)]  # fmt: skip
    whole = digest_of(parts)
    return hashlib.sha256((whole + whole).encode()).hexdigest()[:8]


class Faults:
    def __init__(self, directory):
        self.path = pathlib.Path(directory) / "faults"

    def take(self, what):
        """Whether the first of them is this one; it is gone then."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        if not lines or lines[0] != what:
            return False
        making = self.path.with_suffix(".new")
        making.write_text("".join(line + "\n" for line in lines[1:]))
        making.rename(self.path)
        return True


class Model:
    """The part of one process. Elements have four bytes. To weightcast.sglang it is what _model.SglangModel is."""

    def __init__(self, rank, ranks, faults):
        self.rank, self.ranks, self.faults = rank, ranks, faults
        self.part, self.tensors = {}, None

    def load_weights(self, tensors, fault):
        """As many of SGLang's models: what is missing stays as it was."""
        for count, (name, tensor) in enumerate(tensors):
            if count and self.rank == self.ranks - 1 and self.faults.take(fault):
                raise RuntimeError(f"a fault at {name}")
            self.part[name] = bytearray(bytes(tensor.data)[part_of(tensor.data, self.rank, self.ranks)])

    def check(self, snapshot):
        if self.tensors is not None:
            check_tensors(self.tensors, snapshot)

    def stage_cells(self, changes):
        def write():
            for name, change in changes.items():
                part = self.part[name]
                first = part_of(bytes(4 * self.sizes[name]), self.rank, self.ranks).start // 4
                indices = memoryview(change.indices.data).cast("B").cast("I")
                values = memoryview(change.values.data).cast("B")
                for number, index in enumerate(indices):
                    if self.rank == self.ranks - 1 and self.faults.take("write"):
                        raise RuntimeError(f"a fault at {name}")
                    if 0 <= index - first < len(part) // 4:
                        part[4 * (index - first):4 * (index - first) + 4] = values[4 * number:4 * number + 4]

        return Staged("cells", write, sum(len(change.indices.data) // 4 for change in changes.values()), "")

    def stage_whole(self, snapshot, why):
        def write():
            self.load_weights(snapshot.items(), "write")
            self.tensors = tensors_of(snapshot)
            self.sizes = {name: tensor.data.nbytes // 4 for name, tensor in snapshot.items()}

        return Staged("reload", write, 0, why)

    def settle(self):
        pass

    def probe(self, snapshot):
        for name, tensor in snapshot.items():
            assert bytes(self.part[name]) == bytes(tensor.data)[part_of(tensor.data, self.rank, self.ranks)]


def run_rank(rank, ranks, directory, pipe):
    """A scheduler's process. An exception of a custom loader ends it, as in SGLang."""
    model = Model(rank, ranks, Faults(directory))
    _loader.loaders[model] = _loader.Loader(model)
    path = ""
    parent = os.getppid()
    while True:
        while not pipe.poll(0.5):  # its siblings have copies of the other end
            if os.getppid() != parent:
                os._exit(0)
        operation, argument = pipe.recv()
        try:
            if operation == "load":
                path = argument  # before it is loaded
                try:
                    snapshot = Snapshot(path)
                except Exception as error:
                    pipe.send((False, f"Failed to get weights iterator: {error}."))
                    continue
                try:
                    model.load_weights(snapshot.items(), "load")
                    pipe.send((True, "Succeeded to update model weights."))
                except Exception as error:
                    model.load_weights(Snapshot(path).items(), "load")  # "Rolling back to original weights": of the new path
                    pipe.send((False, f"Failed to update weights: {error}.\nRolling back to original weights."))
            elif operation == "custom":
                module, _, name = argument.rpartition(".")
                getattr(importlib.import_module(module), name)(model, [])
                pipe.send((True, "Success"))
            elif operation == "part":
                pipe.send((True, {name: bytes(data) for name, data in model.part.items()}))
        except BaseException:
            traceback.print_exc()
            os._exit(3)


class Server:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        settings = json.loads((self.directory / "settings.json").read_text())
        self.faults = Faults(directory)
        self.ranks = settings.get("tp_size", 1)
        self.loaders = settings.get("custom_weight_loader", [])
        self.model_path, self.label = settings["model_path"], "default"
        self.pipes = []
        for rank in range(self.ranks):
            ours, theirs = multiprocessing.Pipe()
            multiprocessing.Process(target=run_rank, args=(rank, self.ranks, directory, theirs), daemon=True).start()
            theirs.close()
            self.pipes.append(ours)
        self.scheduler = threading.Lock()  # a scheduler does one thing at a time
        self.changed = threading.Condition()
        self.is_pause = False  # the tokenizer's: new requests wait
        self.is_engine_paused = False  # the scheduler's
        self.is_session = False
        self.running, self.waiting, self.generation = 0, 0, 0
        self.cache = None
        self.calls = []
        assert self.ask("load", self.model_path)[0]

    def ask(self, operation, argument=None):
        """Of all processes: success of all, and what each says."""
        with self.scheduler:
            try:
                for pipe in self.pipes:
                    pipe.send((operation, argument))
                answers = [pipe.recv() for pipe in self.pipes]
            except (EOFError, OSError):
                print("a scheduler ended, and so the server does", flush=True)
                os._exit(3)
        return all(success for success, _ in answers), [message for _, message in answers]

    def generate(self, body):
        with self.changed:
            self.changed.wait_for(lambda: not self.is_pause)
            self.waiting += 1
            generation = self.generation
        tokens, spans, is_running, was_aborted = [], [], False, False
        while len(tokens) < body["sampling_params"]["max_new_tokens"]:
            with self.changed:
                if is_running and self.is_retracted:
                    is_running, self.running, self.waiting = False, self.running - 1, self.waiting + 1
                    self.changed.notify_all()
                if self.generation != generation and not (self.is_engine_paused and is_running):
                    was_aborted = True
                    break
                if self.is_engine_paused:
                    self.changed.wait(0.01)
                    continue
                if not is_running:
                    is_running, self.running, self.waiting = True, self.running + 1, self.waiting - 1
                weights = digest_of(self.ask("part")[1])
                cached = self.cache or weights
                tokens.append(hashlib.sha256((weights + cached).encode()).hexdigest()[:8])
                spans.append(self.label)
                self.cache = cached
            time.sleep(TOKEN_S)
        with self.changed:
            if is_running:
                self.running -= 1
            else:
                self.waiting -= 1
            self.changed.notify_all()
        reason = {"type": "abort" if was_aborted else "length"}
        return 200, {"output_ids": tokens, "meta_info": {"weight_version": self.label, "labels": spans, "finish_reason": reason}}

    @property
    def is_retracted(self):
        return self.is_engine_paused and self.pause_mode == "retract"

    def pause(self, body):
        mode = body.get("mode", "abort")
        with self.changed:
            self.is_pause = True
            if mode == "abort":
                while self.running or self.waiting:
                    self.generation += 1
                    self.changed.wait(0.05)
                    if self.is_engine_paused and self.running:
                        self.changed.wait(1.0)  # SGLang waits on; so would this
            else:
                self.is_engine_paused, self.pause_mode = True, mode
                if mode == "retract":  # each request's own thread moves it to the queue
                    self.changed.wait_for(lambda: self.running == 0)
        return 200, {"message": "Generation paused successfully.", "status": "ok"}

    def resume(self, body):
        with self.changed:
            self.is_pause = self.is_engine_paused = False
            self.changed.notify_all()
        return 200, {"message": "Generation continued successfully.", "status": "ok"}

    def flush(self, body):
        with self.changed:
            if self.running or (self.waiting and not self.is_engine_paused):
                return 400, "Flush cache failed.\n"
            self.cache = None
        return 200, "Cache flushed.\n"

    def updating(self):
        """An update that nobody has paused for waits until no request is there."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_pause or not (self.running or self.waiting))

    def from_disk(self, body):
        self.updating()
        success, messages = self.ask("load", body["model_path"])
        if self.faults.take("die /update_weights_from_disk"):
            os._exit(4)
        message = " | ".join(messages)
        if success:
            self.model_path = body["model_path"]
            if body.get("flush_cache", True) and self.flush({})[0] != 200:
                success, message = False, "Weights were updated, but the cache was not flushed"
            elif body.get("weight_version") is not None:
                self.label = body["weight_version"]
        return 200 if success else 400, {"success": success, "message": message, "num_paused_requests": 0}

    def from_tensor(self, body):
        assert len(body["serialized_named_tensors"]) == self.ranks
        if not self.is_session:
            return self.refuse("update_weights_from_tensor must run between begin_weight_update() and end_weight_update()")
        if body.get("load_format") not in self.loaders:
            print(f"Unknown load_format={body.get('load_format')}", flush=True)
            os._exit(3)  # NotImplementedError ends the scheduler
        if self.faults.take("die /update_weights_from_tensor"):
            os._exit(4)
        self.updating()
        self.ask("custom", body["load_format"])
        return 200, {"success": True, "message": "Success"}

    def begin(self, body):
        if self.is_session:
            return self.refuse("a weight-update session is already open; call end_weight_update() first")
        self.is_session = True
        return 200, {"success": True, "message": "Success"}

    def end(self, body):
        if not self.is_session:
            return self.refuse("no weight-update session is open; call begin_weight_update() first")
        self.is_session = False
        return 200, {"success": True, "message": "Success"}

    def set_label(self, body):
        if body.get("abort_all_requests", True):
            self.abort({"abort_all": True})
        self.label = body["new_version"]
        return 200, {"success": True, "message": "", "new_version": self.label}

    def abort(self, body):
        with self.changed:
            self.generation += 1
        return 200, ""

    def refuse(self, message):
        return 400, {"success": False, "message": message}

    def model_info(self, body):
        return 200, {"model_path": self.model_path, "weight_version": self.label}

    def server_info(self, body):
        return 200, {"tp_size": self.ranks, "pp_size": 1, "dp_size": 1, "nnodes": 1, "custom_weight_loader": self.loaders,
                     "version": "0.5.23"}  # fmt: skip

    def told(self, body):
        return 200, {"calls": self.calls}

    ROUTES = {
        "/generate": generate, "/pause_generation": pause, "/continue_generation": resume, "/flush_cache": flush,
        "/update_weights_from_disk": from_disk, "/update_weights_from_tensor": from_tensor, "/begin_weight_update": begin,
        "/end_weight_update": end, "/update_weight_version": set_label, "/abort_request": abort, "/model_info": model_info,
        "/server_info": server_info, "/told": told,
    }  # fmt: skip
    QUIET = ("/generate", "/model_info", "/server_info", "/told")

    def answer(self, path, body):
        if path not in self.QUIET:
            self.calls.append(path)
        route = self.ROUTES.get(path)
        return route(self, body) if route else (404, "no such route")


def main():
    server = Server(sys.argv[1])
    path = server.directory / "port"
    found = JsonServer(server.answer, int(path.read_text()) if path.exists() else 0)
    making = path.with_suffix(".new")
    making.write_text(str(found.port))
    making.rename(path)
    (server.directory / "up").touch()
    found.thread.join()


if __name__ == "__main__":
    main()
