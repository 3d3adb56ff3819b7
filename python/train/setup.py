"""Packs the learner's program as `./run wheel train` has built and installed it in $WEIGHTCAST_INSTALLED, with the licences of
what is linked into it. It runs with the torch that it was built against, and no other: $WEIGHTCAST_TORCH_RELEASE.
"""

import os
import pathlib
import re
import shutil

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
try:
    INSTALLED = pathlib.Path(os.environ["WEIGHTCAST_INSTALLED"])
    TORCH = os.environ["WEIGHTCAST_TORCH_RELEASE"]
except KeyError as error:
    raise SystemExit(f"weightcast-train: {error} is not set: build the wheel by './run wheel train' in a checkout")


class BuildWithProgram(build_py):
    def run(self):
        super().run()
        target = pathlib.Path(self.build_lib) / "weightcast_train" / "bin"
        target.mkdir(exist_ok=True)
        shutil.copy(INSTALLED / "bin" / "weightcast-train", target)


class BinaryDistribution(Distribution):
    def has_ext_modules(self):
        return True


class WheelForEveryPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]

    def egg2dist(self, egginfo_path, distinfo_path):
        super().egg2dist(egginfo_path, distinfo_path)
        licences = pathlib.Path(distinfo_path) / "licenses"
        shutil.copytree(INSTALLED / "licenses", licences, dirs_exist_ok=True)
        shutil.copyfile(ROOT / "LICENSE", licences / "LICENSE")


setup(
    version=re.search(r"^project\(weightcast VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE).group(1),
    install_requires=[f"torch=={TORCH}"],
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildWithProgram, "bdist_wheel": WheelForEveryPython},
)
