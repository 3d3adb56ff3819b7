"""use_train.py WHEEL SITE LIBRARIES: uses the learner's wheel as a new user does, from the interpreter that runs this. SITE is the
directory that holds the torch which the wheel was built against, LIBRARIES the one of those of CUDA's libraries which SITE lacks.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

NO_GPU = "no GPU is to be had"


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


def try_training(directory, wheel, site, libraries):
    programs = new_environment(directory / "with", sees=site)
    started = time.monotonic()
    # Of the registry nothing is to be had, so this checks that the torch which is there is the one that the wheel asks for.
    run([programs / "pip", "install", wheel])
    learner = programs / "weightcast-train"
    release = re.match(r"weightcast_train-([0-9.]+)-", wheel.name).group(1)
    said = run([learner, "--version"], LD_LIBRARY_PATH=libraries).strip()
    assert said == release, said
    print(f"from pip install to --version: {time.monotonic() - started:.1f} s")
    output = directory / "first"
    options = ["preset=arithmetic", f"output_dir={output}", "sft_steps=20", "total_training_steps=2"]
    said = run([learner, "run", *(word for option in options for word in ("--set", option))], LD_LIBRARY_PATH=libraries)
    weights = list(output.glob("checkpoints/checkpoint-00000002/*.safetensors"))
    assert weights and all(file.stat().st_size > 100_000 for file in weights), (weights, said)
    print(f"from pip install to a checkpoint of two training steps: {time.monotonic() - started:.1f} s")
    if not pathlib.Path("/dev/nvidiactl").exists():
        # A LibTorch without CUDA's libraries would say something else.
        said = run([learner, "run", "--set", "preset=arithmetic", "--set", "device=cuda", "--set", f"output_dir={directory / 'gpu'}"],
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
    wheel, site, libraries = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="weightcast-use-train-") as name:
        directory = pathlib.Path(name)
        wheel = pathlib.Path(shutil.copy(wheel, directory))
        try_training(directory, wheel, site, libraries)
        try_refusals(directory, wheel)
    print("passed")


main()
