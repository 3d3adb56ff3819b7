"""use.py WHEEL SOURCE_DIR: uses the wheel as a new user does, from the interpreter that runs this. First README's commands, as
they are typed there; then a tiny model, which the trainer's side publishes and `weightcast-engine` generates with."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

README_S_MAX = 60

PUBLISH = """
import array, importlib.metadata, json, math, sys, weightcast
sys.path.insert(0, sys.argv[1])
from served_model import CONFIG, shapes, tokenizer_json
files = {"config.json": json.dumps(CONFIG), "tokenizer.json": tokenizer_json()}
tensors = {
    name: weightcast.RawTensor("F32", shape, array.array("f", (math.sin(i) for i in range(math.prod(shape)))).tobytes())
    for name, shape in shapes().items()}
with weightcast.Publisher("origin") as publisher:
    version = publisher.publish(tensors, files=files)
weightcast.wait_until_ready("worker", has_version=True)
with weightcast.load("worker") as weights:
    assert weights.version == version, (weights.version, version)
    assert set(weights) == set(tensors), list(weights)
    for name, tensor in tensors.items():
        assert bytes(weights[name].data) == bytes(tensor.data), name
licences = [str(file) for file in importlib.metadata.files("weightcast") if ".dist-info/licenses/" in str(file)]
for package in ("LICENSE", "libssl-dev.txt", "libprotobuf-dev.txt", "libuv1-dev.txt", "libstdc++-12-dev.txt", "Apache-2.0"):
    assert any(file.endswith("/" + package) for file in licences), (package, licences)
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def readme_commands(source, wheel):
    """The block of README under "Install", with a free port in place of the one that it names."""
    text = (source / "README.md").read_text()
    block = re.search(r"^## Install\n.*?^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    if block is None or wheel.name not in block.group(1):
        raise AssertionError(f"README.md has no commands under 'Install' that name {wheel.name}")
    return block.group(1).replace(":7400", f":{free_port()}")


def run(command, **options):
    """Runs it in a process group of its own, which ends with it."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, start_new_session=True,
        **options)
    try:
        said = process.communicate(timeout=300)[0]
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    if process.returncode != 0:
        raise AssertionError(f"{command} ended with {process.returncode}:\n{said}")
    return said


def try_readme(directory, wheel, source):
    commands = readme_commands(source, wheel)
    started = time.monotonic()
    said = run(["/bin/bash", "-euc", commands], cwd=directory)
    took = time.monotonic() - started
    assert "999999.0" in said, said
    print(f"README's commands, from pip install to the first version installed and read: {took:.1f} s")
    assert took <= README_S_MAX, f"README's commands took {took:.1f} s"


def try_model(directory, source):
    environment = {**os.environ, "PATH": f"{directory}/try/bin"}
    port = free_port()
    origin = ["--role", "origin", "--state", "origin", "--listen", f"127.0.0.1:{port}"]
    worker = ["--role", "worker", "--state", "worker", "--origin", f"127.0.0.1:{port}"]
    logs = []
    daemons = []
    try:
        for flags in (origin, worker):
            logs.append(open(directory / f"{flags[1]}.log", "w+"))
            daemons.append(subprocess.Popen(
                ["weightcast", "daemon", "--insecure", *flags], env=environment, cwd=directory, stdout=logs[-1], stderr=logs[-1]))
            run(["weightcast", "ready", "--state", flags[1], "--timeout", "60"], env=environment, cwd=directory)
        run(["python", "-B", "-c", PUBLISH, str(source / "tests" / "oracles")], env=environment, cwd=directory)
        model = run(["weightcast", "path", "--state", "worker"], env=environment, cwd=directory).strip()
        said = run(["weightcast-engine", "generate", model, "--ids", "1,2,3", "--max-tokens", "5", "--json"],
                   env=environment, cwd=directory)
        ids = json.loads(said)["ids"]
        former = [run([name, "--version"], env=environment, cwd=directory) for name in ("weightcast-engine", "weightcast-worker")]
        assert former[0] == former[1], former
        assert 1 <= len(ids) <= 5, said
    except AssertionError:
        for log in logs:
            log.seek(0)
            print(log.read(), file=sys.stderr)
        raise
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            # The daemon took the place of the command: it gets the signal itself, and ends well.
            assert daemon.wait(timeout=30) == 0, daemon.returncode
        for log in logs:
            log.close()


def main():
    wheel, source = (pathlib.Path(path).resolve() for path in sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="weightcast-use-") as name:
        directory = pathlib.Path(name)
        shutil.copy(wheel, directory)
        try_readme(directory, wheel, source)
        for state in ("origin", "worker"):
            shutil.rmtree(directory / state)
        try_model(directory, source)


main()
