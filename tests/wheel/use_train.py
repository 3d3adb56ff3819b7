"""use_train.py WHEEL SITE LIBRARIES LOGITS: uses the learner's wheel as a new user does, from the interpreter that runs this. SITE
is the directory that holds the torch which the wheel was built against, LIBRARIES the one of those of CUDA's libraries which SITE
lacks. LOGITS are lines of `oracles/hf_models.py`: what transformers computes for small models.
"""

import array
import collections
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from served_model import shapes

FAMILIES = {"qwen3", "llama", "mistral"}  # whose logits are compared
NO_GPU = "no GPU is to be had"
# What the wheel asks pip for, and the release of torch that is there.
REQUIREMENTS = """
from importlib.metadata import requires, version
print("".join(requires("weightcast-train")).replace(" ", ""), version("torch").partition("+")[0])
"""


def run(command, expected=0, **environment):
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        timeout=600, env={**os.environ, **environment})
    if done.returncode != expected:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def new_environment(directory, sees=None):
    """A virtual environment that sees the packages below `sees`, too."""
    run([sys.executable, "-m", "venv", directory])
    if sees is not None:
        (site,) = directory.glob("lib/python3*/site-packages")
        (site / "others.pth").write_text(f"{sees}\n")
    return directory / "bin"


def uniform(seed, count):
    """uniform() of hf_models.py, without NumPy."""
    mask = (1 << 64) - 1
    for i in range(1, count + 1):
        z = (seed + i * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield ((z ^ (z >> 31)) >> 11) * 2.0**-53


def write_model(directory, line):
    """The model of a line, whose weights are those of fill() in hf_models.py."""
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(line["config"]))
    header, data = {}, b""
    for i, (name, shape) in enumerate(sorted(shapes(line["config"]).items())):
        shift = 0.5 if "norm" in name else -0.5
        tensor = array.array("f", (number + shift for number in uniform(line["seed"] + i, math.prod(shape)))).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(tensor)]}
        data += tensor
    encoded = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)


def try_logits(directory, learner, lines, libraries):
    compared = collections.Counter()
    for number, line in enumerate(map(json.loads, lines.read_text().splitlines())):
        config = line["config"]
        if config["model_type"] not in FAMILIES or config.get("attention_bias") or config.get("mlp_bias"):
            continue
        model = directory / f"model_{number}"
        write_model(model, line)
        size, first = config["vocab_size"], line["sequences"][0]
        said = run([learner, "check", "logits", model, "--ids", ",".join(map(str, first))], LD_LIBRARY_PATH=libraries)
        ours, theirs = json.loads(said)["logits"], line["logits"][(len(first) - 1) * size : len(first) * size]
        assert len(ours) == size and all(abs(a - b) < 1e-4 for a, b in zip(ours, theirs)), (config, ours, theirs)
        compared[config["model_type"]] += 1
    assert set(compared) == FAMILIES, compared
    print(f"the logits of {sum(compared.values())} models are those of transformers")


def try_training(directory, wheel, site, libraries, lines):
    programs = new_environment(directory / "with", sees=site)
    started = time.monotonic()
    # Of the registry nothing is to be had, so what torch itself requires stays out.
    run([programs / "pip", "install", "--no-deps", wheel])
    said = run([programs / "python", "-c", REQUIREMENTS])
    required, had = said.split()
    assert re.sub("[() ]", "", required) == f"torch=={had}", said
    learner = programs / "weightcast-train"
    release = re.match(r"weightcast_train-([0-9.]+)-", wheel.name).group(1)
    said = run([learner, "--version"], LD_LIBRARY_PATH=libraries).strip()
    assert said == release, said
    print(f"from pip install to --version: {time.monotonic() - started:.1f} s")
    try_logits(directory, learner, lines, libraries)
    output = directory / "first"
    options = ["--preset=arithmetic", f"--output-dir={output}", "--sft-steps=20", "--total-training-steps=2"]
    said = run([learner, "run", *options], LD_LIBRARY_PATH=libraries)
    weights = list(output.glob("checkpoints/checkpoint-00000002/*.safetensors"))
    assert weights and all(file.stat().st_size > 100_000 for file in weights), (weights, said)
    model = json.loads(run([learner, "model", weights[0].parent], LD_LIBRARY_PATH=libraries))
    assert model["weights"]["tensors"] > 0, model
    print(f"from pip install to a checkpoint of two training steps: {time.monotonic() - started:.1f} s")
    if not pathlib.Path("/dev/nvidiactl").exists():
        # A LibTorch without CUDA's libraries would say something else.
        said = run([learner, "run", "--preset=arithmetic", "--device=cuda", f"--output-dir={directory / 'gpu'}"],
                   expected=2, LD_LIBRARY_PATH=libraries)
        assert NO_GPU in said, said


def try_refusals(directory, wheel):
    programs = new_environment(directory / "without")
    run([programs / "pip", "install", "--no-deps", wheel])
    said = run([programs / "weightcast-train", "--version"], expected=1)
    assert re.fullmatch(r"weightcast-train: it was built against torch [0-9.]+, and \S+ has no torch; .*pip install torch==[0-9.]+\n", said), said
    (site,) = (directory / "without").glob("lib/python3*/site-packages")
    (site / "torch-2.0.1.dist-info").mkdir()
    (site / "torch-2.0.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.0.1\n")
    said = run([programs / "weightcast-train", "--version"], expected=1)
    assert "runs with no other" in said and "torch 2.0.1" in said and said.count("\n") == 1, said
    # pip refuses it by itself, since the registry is out of reach here.
    said = run([programs / "pip", "install", "--force-reinstall", wheel], expected=1)
    assert "torch==" in said, said


def main():
    wheel, site, libraries, lines = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="weightcast-use-train-") as name:
        directory = pathlib.Path(name)
        wheel = pathlib.Path(shutil.copy(wheel, directory))
        try_training(directory, wheel, site, libraries, pathlib.Path(lines))
        try_refusals(directory, wheel)
    print("passed")


main()
