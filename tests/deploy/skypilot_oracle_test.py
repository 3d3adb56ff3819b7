"""SkyPilot reads deploy/skypilot/fleet.yaml."""

import os
import pathlib
import unittest

from scratch import scratch_directory

HOME = scratch_directory("sky")  # not the user's own settings
os.environ |= {"HOME": HOME.name, "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}

import sky  # noqa: E402
import yaml  # noqa: E402

FILE = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy" / "skypilot" / "fleet.yaml"


class Task(unittest.TestCase):
    def setUp(self):
        self.config = yaml.safe_load(FILE.read_text())
        # Which files are there is not looked at here.
        del self.config["file_mounts"]

    def test_it_is_a_task(self):
        task = sky.Task.from_yaml_config(self.config)
        self.assertEqual(task.num_nodes, 3)
        self.assertIn("H100", str(task.resources))

    def test_a_mistake_would_be_found(self):
        with self.assertRaises(ValueError):
            sky.Task.from_yaml_config({**self.config, "nodes": 3})


if __name__ == "__main__":
    unittest.main(verbosity=2)
