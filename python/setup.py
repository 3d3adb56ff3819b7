"""Builds libweightcast.so by the repository's CMake, and puts it beside the package's Python files.

The wheel is for every Python 3 on this platform: nothing in it is compiled against an interpreter.
"""

import pathlib
import re
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

ROOT = pathlib.Path(__file__).resolve().parent.parent
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
        shutil.copyfile(build / "client" / SONAME, pathlib.Path(self.build_lib) / "weightcast" / SONAME)


class BinaryDistribution(Distribution):
    def has_ext_modules(self):
        return True


class WheelForEveryPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    version=version(),
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelForEveryPython},
)
