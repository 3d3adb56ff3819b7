"""Puts libweightcast.so beside the package's Python files, built by the project's CMake: from a checkout, or from an sdist,
which has the sources of that library.

With $WEIGHTCAST_INSTALLED the wheel holds what lies there instead, as `cmake --install` left it: the library, the programs
as commands, and the licences of what is linked into them. `./run wheel` sets it.

The wheel is for every Python 3 on this platform: nothing in it is compiled against an interpreter.
"""

import os
import pathlib
import re
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
# In an sdist the sources lie below this file, in a checkout beside its folder.
ROOT = HERE / "source" if (HERE / "source").is_dir() else HERE.parent
SOURCES = ["CMakeLists.txt", "LICENSE", "base", "client", "cmake", "patch", "proto"]
INSTALLED = os.environ.get("WEIGHTCAST_INSTALLED")
COMMANDS = ["weightcast", "weightcast-engine"]
# What a command was called in the release before.
FORMER = {"weightcast-worker": "weightcast-engine"}
SONAME = "libweightcast.so.0"


def version():
    """The project's, which CMakeLists.txt holds."""
    lists = ROOT / "CMakeLists.txt"
    if not lists.exists():
        raise SystemExit(f"weightcast: {lists} is missing: build from a checkout, by 'pip install ./python' in it")
    return re.search(r"^project\(weightcast VERSION ([0-9.]+)", lists.read_text(), re.MULTILINE).group(1)


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if self.editable_mode:
            raise SystemExit("weightcast: pip install -e is not supported; set PYTHONPATH and WEIGHTCAST_LIBRARY instead")
        package = pathlib.Path(self.build_lib) / "weightcast"
        if INSTALLED:
            (package / "bin").mkdir(exist_ok=True)
            for command in COMMANDS:
                shutil.copy(pathlib.Path(INSTALLED) / "bin" / command, package / "bin" / command)
            shutil.copyfile(pathlib.Path(INSTALLED) / "lib" / SONAME, package / SONAME)
        else:
            shutil.copyfile(self.build_library() / SONAME, package / SONAME)

    def build_library(self):
        """The directory where CMake has built the client library."""
        build = pathlib.Path(self.get_finalized_command("build").build_temp).resolve() / "cmake"
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        configure = [
            "cmake", "-S", str(ROOT), "-B", str(build), *generator,
            "-DCMAKE_BUILD_TYPE=Release", "-DWEIGHTCAST_CLIENT_ONLY=ON",
        ]  # fmt: skip
        for command in (configure, ["cmake", "--build", str(build), "--target", "weightcast_shared", "--parallel"]):
            try:
                subprocess.run(command, check=True)
            except FileNotFoundError:
                raise SystemExit("weightcast: cmake was not found; './run packages' installs what building takes")
            except subprocess.CalledProcessError as error:
                raise SystemExit(
                    f"weightcast: {error}; './run packages' in the checkout installs the libraries that building takes"
                )
        return build / "client"


class SdistWithSources(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for name in SOURCES:
            target = pathlib.Path(base_dir) / "source" / name
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, target)


class BinaryDistribution(Distribution):
    def has_ext_modules(self):
        return True

    def parse_config_files(self, *args, **options):
        super().parse_config_files(*args, **options)
        # Only where the programs are: elsewhere the commands would hide those that CMake has installed.
        if INSTALLED:
            names = {**{command: command for command in COMMANDS}, **FORMER}
            scripts = [f"{name} = weightcast._commands:{command.replace('-', '_')}" for name, command in names.items()]
            self.entry_points = {**(self.entry_points or {}), "console_scripts": scripts}


class WheelForEveryPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]

    def egg2dist(self, egginfo_path, distinfo_path):
        super().egg2dist(egginfo_path, distinfo_path)
        licences = pathlib.Path(distinfo_path) / "licenses"
        licences.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / "LICENSE", licences / "LICENSE")
        if INSTALLED:
            shutil.copytree(pathlib.Path(INSTALLED) / "licenses", licences, dirs_exist_ok=True)


setup(
    version=version(),
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelForEveryPython, "sdist": SdistWithSources},
)
