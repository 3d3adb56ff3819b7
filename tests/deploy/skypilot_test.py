"""The commands of deploy/skypilot/fleet.yaml on three nodes, each a network namespace with a home of its own."""

import os
import pathlib
import signal
import subprocess
import unittest

import yaml
from containers import Network, eventually, run
from scratch import ScratchTest
from weights import write_weights

FILE = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy" / "skypilot" / "fleet.yaml"
MIB = 2**20


class Task(ScratchTest):
    def test_its_nodes_exchange_a_version(self):
        task = yaml.safe_load(FILE.read_text())
        self.run_task(task, self.directory)

    def run_task(self, task, directory):
        program, network = os.environ["WEIGHTCAST_PROGRAM"], Network(directory)
        run(program, "keys", "init", cwd=directory)
        nodes = range(task["num_nodes"])
        for rank in nodes[1:]:
            run(program, "keys", "issue", f"worker-{rank}", cwd=directory)
        write_weights(directory / "model.safetensors", 8 * MIB, 1)
        namespaces = [network.attach(f"node-{rank}") for rank in nodes]
        engine = f'weightcast ready --with-version --timeout 60; cmp "$(weightcast path)/model.safetensors" {directory}/model.safetensors'
        started = []
        for rank in nodes:
            home = directory / f"home-{rank}"
            (home / "weightcast" / "bin").mkdir(parents=True)
            (home / "weightcast" / "bin" / "activate").write_text(f"PATH={pathlib.Path(program).parent}:$PATH\n")
            for to, source in task["file_mounts"].items():
                if (directory / source).exists():
                    (home / to[2:]).parent.mkdir(exist_ok=True)
                    run("cp", "-r", directory / source, home / to[2:])
            env = {**os.environ, "HOME": str(home), "SKYPILOT_NODE_RANK": str(rank),
                   "SKYPILOT_NODE_IPS": "\n".join(network.addresses[f"node-{one}"] for one in nodes),
                   "TRAIN": f"weightcast publish {directory}/model.safetensors --version 1; sleep 300", "ENGINE": engine}
            with (home / "log").open("w") as log:
                started.append(subprocess.Popen(["nsenter", f"--net={namespaces[rank]}", "bash", "-c", task["run"]], env=env,
                                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))
            self.addCleanup(os.killpg, started[-1].pid, signal.SIGKILL)
        for rank in nodes[1:]:
            self.assertEqual(eventually(lambda one=started[rank]: (one.poll() is not None) and (one.returncode,), 120), (0,),
                             "".join(log.read_text() for log in directory.glob("home-*/log")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
