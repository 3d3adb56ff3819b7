"""A whole loop as real processes on this host: an origin, a learner, workers with their daemons."""

import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time


class Failed(Exception):
    pass


class Fleet:
    """Owns a directory and all processes that it started, which end with it. Each process has a name: origin, learner,
    NAME of a worker and NAME-daemon."""

    def __init__(self, programs, learner, worker, prefix="weightcast-loop-"):
        """`learner`, `worker`: settings of each, by key."""
        self.programs = programs
        self.settings = {"learner": learner, "worker": worker}
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
        self.processes = {}
        self.addresses = {}

    # ---- starting. What is started again listens where it did before.

    def start_origin(self):
        listen = self.addresses.get("origin", "127.0.0.1:0")
        self.start("origin", "weightcast", "daemon", "--role", "origin", "--name", "origin", "--state",
                   self.directory / "origin", "--listen", listen, "--insecure")
        self.addresses["origin"] = self.wait("the origin", self.origin_address)

    def start_learner(self):
        listen = self.addresses.get("learner", "127.0.0.1:0")
        self.start("learner", "weightcast-train", "run", *self.sets(
            output_dir=self.directory / "run", publish_state=self.directory / "origin", rollout_source="http",
            rollout_listen=listen, **self.settings["learner"]))
        self.addresses["learner"] = self.wait("the learner's port", self.learner_address)

    def start_daemon(self, name):
        self.start(f"{name}-daemon", "weightcast", "daemon", "--role", "worker", "--name", name, "--state",
                   self.directory / name, "--origin", self.addresses["origin"], "--insecure")

    def start_worker(self, name):
        self.start(name, "weightcast-worker", "run", *self.sets(
            state_dir=self.directory / name, learner=self.addresses["learner"], name=name,
            spool_dir=self.directory / f"{name}-spool", **self.settings["worker"]))

    @staticmethod
    def sets(**settings):
        return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]

    def start(self, name, program, *arguments):
        with open(self.directory / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen([str(self.programs / program), *map(str, arguments)], stdout=log,
                                                    stderr=log, stdin=subprocess.DEVNULL)

    def origin_address(self):
        said = subprocess.run([str(self.programs / "weightcast"), "status", "--state", str(self.directory / "origin"),
                               "--json"], capture_output=True, text=True)
        if said.returncode != 0:
            return None
        status = json.loads(said.stdout)
        nodes = status["nodes"] if isinstance(status, dict) else status
        return next((node["address"] for node in nodes if node.get("role") == "origin" and node.get("address")), None)

    def learner_address(self):
        path = self.directory / "run" / "rollout_address"
        return path.read_text().strip() if path.exists() else None

    # ---- watching and ending

    def wait(self, what, found, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            value = found()
            if value:
                return value
            time.sleep(0.1)
        raise Failed(f"{what} is not there after {seconds} s; see {self.directory}")

    def check(self):
        """A worker and the learner may have ended well, when all steps are done."""
        for name, process in self.processes.items():
            status = process.poll()
            if status is None or status == 0 and not name.endswith(("origin", "daemon")):
                continue
            raise Failed(f"{name} ended with status {status}: {self.last_line(name)}")

    def log(self, name):
        path = self.directory / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def last_line(self, name):
        lines = self.log(name).strip().splitlines()
        return lines[-1] if lines else ""

    def kill(self, name, number=signal.SIGKILL, seconds=30):
        """Its exit status."""
        process = self.processes.pop(name)
        process.send_signal(number)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failed(f"{name} did not end within {seconds} s: {self.last_line(name)}") from None

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + 5
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes = {}

    def remove(self):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class Steps:
    """The training steps of a metrics.jsonl that grows, and that a learner which was killed cuts shorter."""

    def __init__(self, path):
        self.path = path
        self.position = 0
        self.last = 0.0  # the step that was done last

    def begin_again(self):
        """The learner was started again: its checkpoint said how much of the file stays."""
        self.position = 0
        self.read()

    def read(self):
        """The rows of steps since the last call."""
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self.position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.position += len(whole)
        rows = [json.loads(line) for line in whole.splitlines() if b"training/global_step" in line]
        if rows:
            self.last = rows[-1]["training/global_step"]
        return rows
