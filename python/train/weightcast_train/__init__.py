"""The command `weightcast-train`. It becomes the program that lies in bin/ beside this file, with the shared libraries of the
torch that is installed: the same process, so that signals and the exit status are the program's.

C++ programs run with the release of torch that they were built against alone: others have other functions. The wheel's
requirement names that release.
"""

import importlib.metadata
import os
import pathlib
import re
import sys
from typing import NoReturn

NAME = "weightcast-train"


def built_against() -> str:
    """The release of torch that this wheel requires."""
    for requirement in importlib.metadata.requires(NAME) or []:
        found = re.fullmatch(r"torch\s*\(?==\s*([0-9][0-9.]*)\)?", requirement.strip())
        if found:
            return found.group(1)
    raise SystemExit(f"{NAME}: its metadata names no release of torch; install the wheel again")


def torch_libraries() -> pathlib.Path:
    """The directory of the installed torch's shared libraries. Ends the program with one sentence where that is no such torch."""
    wanted = built_against()
    remedy = f"in an environment of its own, type: pip install torch=={wanted}"
    try:
        torch = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(f"{NAME}: it was built against torch {wanted}, and {sys.executable} has no torch; {remedy}")
    # What follows + says for which device it was built, such as 2.13.0+cu130.
    if torch.version.partition("+")[0] != wanted:
        raise SystemExit(
            f"{NAME}: it was built against torch {wanted} and runs with no other, and {sys.executable} has torch {torch.version}; "
            f"{remedy}, or install a wheel of {NAME} that was built against yours"
        )
    directory = pathlib.Path(str(torch.locate_file("torch/lib")))
    if not (directory / "libtorch.so").exists():
        raise SystemExit(f"{NAME}: torch {torch.version} has no {directory / 'libtorch.so'}; install it again")
    return directory


def main() -> NoReturn:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", NAME)
    others = os.environ.get("LD_LIBRARY_PATH")
    # CUDA's libraries are found by torch's own, which know where they lie beside it.
    path = f"{torch_libraries()}:{others}" if others else str(torch_libraries())
    try:
        os.execve(program, [program, *sys.argv[1:]], {**os.environ, "LD_LIBRARY_PATH": path})
    except OSError as error:
        sys.exit(f"{NAME}: cannot run {program}: {error.strerror}; install the wheel again, where programs may be executed")
