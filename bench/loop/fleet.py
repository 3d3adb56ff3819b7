"""A whole loop as real processes on this host: an origin, a learner, workers with their daemons. Python's standard
library alone."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time


class Failed(Exception):
    pass


def run(main, *errors):
    """Ends the program with what `main` returns; Failed and `errors` are a message and status 1. A signal ends it as an
    exception does, so that what it started ends with it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(130))
    try:
        sys.exit(main())
    except (Failed, *errors) as failure:
        sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {failure}")


def write_json(path, result):
    if path:
        pathlib.Path(path).write_text(json.dumps(result, indent=2) + "\n")


class Fleet:
    """Owns a directory and all processes that it started, which end with it. Each process has a name: origin, learner,
    NAME of a worker and NAME-daemon."""

    def __init__(self, programs, learner, worker=None, prefix="weightcast-loop-", logs=None, with_keys=False,
                 processors=None):
        """`learner`, `worker`: settings of each, by key. `logs`: a directory, which stays; else they lie in the fleet's.
        `with_keys`: connections are proven and encrypted. `processors`: the one of a process, by its name."""
        self.programs = pathlib.Path(programs).resolve()
        self.settings = {"learner": learner, "worker": worker or {}}
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=os.environ.get("TMPDIR", "/var/tmp")))
        self.memory = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir="/dev/shm"))
        self.logs = logs or self.directory
        self.keys = self.directory / "keys" if with_keys else None
        self.processors = processors or {}
        self.processes = {}
        self.addresses = {}

    # ---- starting. What is started again listens where it did before.

    def start_origin(self, *flags):
        listen = self.addresses.get("origin", "127.0.0.1:0")
        if self.keys and not self.keys.exists():
            self.call("weightcast", "keys", "init", "--dir", self.keys)
        trust = ["--keys", self.keys / "origin.pem"] if self.keys else ["--insecure"]
        self.start("origin", "weightcast", "daemon", "--role", "origin", "--name", "origin", "--state",
                   self.directory / "origin", "--memory-dir", self.memory, "--listen", listen, *trust, *flags)
        self.addresses["origin"] = self.wait("the origin", self.origin_address)

    def reserve(self, name):
        """Where a process will listen: for one that is told of it before it runs."""
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.addresses[name] = f"127.0.0.1:{found.getsockname()[1]}"
        return self.addresses[name]

    def start_learner(self, *flags):
        """One that takes workers' rollouts."""
        settings = dict(rollout_source="http", rollout_listen=self.addresses.get("learner", "127.0.0.1:0"))
        if self.keys:
            settings["rollout_keys"] = self.keys / "origin.pem"
        self.start_lone_learner(*flags, **settings)
        self.addresses["learner"] = self.wait("the learner's port", self.learner_address)

    def start_lone_learner(self, *flags, **settings):
        """One that makes its rollouts itself, unless `settings` say otherwise. It publishes where there is an origin."""
        if "origin" in self.addresses:
            settings["publish_state"] = self.directory / "origin"
        self.start("learner", "weightcast-train", "run", *flags, *self.sets(
            output_dir=self.directory / "run", **settings, **self.settings["learner"]))

    def start_daemon(self, name, *flags):
        trust = ["--keys", self.keys_of(name)] if self.keys else ["--insecure"]
        self.start(f"{name}-daemon", "weightcast", "daemon", "--role", "worker", "--name", name, "--state",
                   self.directory / name, "--memory-dir", self.memory, "--origin", self.addresses["origin"], *trust,
                   *flags)

    def start_worker(self, name):
        trust = {"keys": self.keys_of(name)} if self.keys else {"name": name}
        self.start(name, "weightcast-engine", "run", *self.sets(
            state_dir=self.directory / name, learner=self.addresses["learner"],
            http_dir=self.directory / f"{name}-http", **trust, **self.settings["worker"]))

    def start_workers(self, names, *flags):
        """Each with its daemon, which gets the flags."""
        for name in names:
            self.start_daemon(name, *flags)
            self.start_worker(name)

    def keys_of(self, name):
        path = self.keys / "workers" / f"{name}.pem"
        if not path.exists():
            self.call("weightcast", "keys", "issue", name, "--dir", self.keys)
        return path

    @staticmethod
    def sets(**settings):
        return [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]

    def start(self, name, program, *arguments):
        def pin():
            if name in self.processors and (os.cpu_count() or 1) > 1:
                os.sched_setaffinity(0, {self.processors[name]})
        with open(self.logs / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen([str(self.programs / program), *map(str, arguments)], stdout=log,
                                                    stderr=log, stdin=subprocess.DEVNULL, preexec_fn=pin)

    def call(self, program, *arguments):
        """What the program prints until it has ended."""
        made = subprocess.run([str(self.programs / program), *map(str, arguments)], capture_output=True, text=True)
        if made.returncode != 0:
            raise Failed(f"{program} {arguments[0]}: {made.stderr.strip()}")
        return made.stdout

    def nodes(self):
        """The nodes that the origin knows; none while it does not answer."""
        try:
            status = json.loads(self.call("weightcast", "status", "--state", self.directory / "origin", "--json"))
        except (Failed, ValueError):
            return []
        return status["nodes"] if isinstance(status, dict) else status

    def origin_address(self):
        return next((node["address"] for node in self.nodes() if node.get("role") == "origin" and node.get("address")),
                    None)

    def learner_address(self):
        path = self.directory / "run" / "rollout_address"
        return path.read_text().strip() if path.exists() else None

    # ---- watching and ending

    def steps(self):
        return Steps(self.directory / "run" / "metrics.jsonl")

    def wait(self, what, found, seconds=60, interval=0.1):
        """What `found` gives, once that is true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            value = found()
            if value:
                return value
            time.sleep(interval)
        raise Failed(f"{what} is not there after {seconds:.0f} s; see {self.logs}")

    def check(self):
        """A worker and the learner may have ended well, when all steps are done."""
        for name, process in self.processes.items():
            status = process.poll()
            if status is None or status == 0 and not name.endswith(("origin", "daemon")):
                continue
            raise Failed(f"{name} ended with status {status}: {self.last_line(name)}")

    def has_ended(self, name):
        return self.processes[name].poll() is not None

    def cpu_s(self, name):
        """Processor time of a process until now, in seconds."""
        fields = pathlib.Path(f"/proc/{self.processes[name].pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self, name):
        path = self.logs / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def last_line(self, name):
        lines = self.log(name).strip().splitlines()
        return lines[-1] if lines else "its log is empty"

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
        for directory in (self.directory, self.memory):
            shutil.rmtree(directory, ignore_errors=True)


class Trial:
    """A fleet that goes on after what its run() finds wrong, and says it all in the end."""

    def __init__(self, fleet, options):
        self.fleet, self.options, self.steps = fleet, options, fleet.steps()
        self.failures = []

    def fail(self, text):
        if text not in self.failures:
            self.failures.append(text)
            print(f"   FAILED: {text}", flush=True)

    def report(self, result):
        print(json.dumps(result, indent=2), flush=True)
        write_json(self.options.json, result)

    def status(self):
        """The exit status. The logs stay if anything was wrong."""
        try:
            self.run()
        except Failed as failure:
            self.fail(str(failure))
        finally:
            self.fleet.stop()
            if self.failures:
                print(f"all logs lie in {self.fleet.directory}", file=sys.stderr)
            else:
                self.fleet.remove()
        return 1 if self.failures else 0


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
