"""deploy/ray/fleet.py on a Ray of this host: an origin, four workers, and what trains and generates beside them."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import ray_here  # noqa: I001, before what looks at its settings
import ray
from daemons import PROGRAM, eventually

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "deploy" / "ray"))
import fleet  # noqa: E402


class Fleet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="weightcast-ray-", dir=os.environ.get("TMPDIR", "/var/tmp"))
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name)
        (cls.directory / "bin").mkdir()
        (cls.directory / "bin" / "weightcast").symlink_to(pathlib.Path(PROGRAM).resolve())
        (cls.directory / "tmp").mkdir()
        path = os.pathsep.join([str(ROOT / "deploy" / "ray"), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
        ray_here.start(path, num_cpus=6, PATH=f"{cls.directory}/bin:{os.environ['PATH']}", TMPDIR=str(cls.directory / "tmp"))
        cls.addClassCleanup(ray.shutdown)

    def states(self):
        return [one.name for one in (self.directory / "tmp").glob("weightcast-*")]

    def nothing_left(self):
        eventually(lambda: not self.states())
        running = subprocess.run(["pgrep", "-af", f"{self.directory}/tmp/weightcast-"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(running.stdout, "")

    def test_it_learns_and_leaves_nothing(self):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            loss = fleet.main(engines=4, steps=10)
        self.assertLess(loss, 0.01, printed.getvalue())
        self.assertEqual(len(printed.getvalue().splitlines()), 10)
        self.nothing_left()

    def test_another_engine_takes_the_place_of_one_that_is_killed(self):
        trainer = fleet.Trainer.remote()
        origin, token = ray.get(trainer.invite.remote(2))
        first = fleet.Engine.remote("first", origin, token)
        version, gradient, _ = ray.get(first.gradient.remote())
        self.assertEqual(version, 1)
        ray.kill(first)
        eventually(lambda: len(self.states()) == 1)  # the origin's, and no worker's
        second = fleet.Engine.remote("second", origin, token)
        ray.get(second.gradient.remote())
        self.assertEqual(ray.get(trainer.step.remote([gradient])), 2)
        eventually(lambda: ray.get(second.gradient.remote())[0] == 2)
        ray.get([second.close.remote(), trainer.close.remote()])
        self.nothing_left()


if __name__ == "__main__":
    unittest.main()
