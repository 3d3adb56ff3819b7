"""The chart's pods, with their commands, users, volumes and probes, as containers: an origin and two workers with engines."""

import hashlib
import json
import pathlib
import subprocess
import unittest

from chart import find, render
from containers import ImageTest, eventually
from pods import Pod
from weights import write_weights

MIB = 2**20
SMALL = {"memory": "512Mi"}
ENGINE = {"image": "localhost/weightcast:latest",
          "command": ["sh", "-ec", "weightcast ready --with-version --timeout 120; cat $(weightcast path)/model.safetensors | sha256sum;"
                                   "exec weightcast exec --pin -- sleep 300"]}


class Kubernetes(ImageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(lambda: subprocess.run(["umount", *map(str, cls.directory.glob("node-*/memory*"))], check=False))

    def pod(self, values, kind, name, host, secrets, tries=""):
        template = find(render(values), kind, name)
        spec = template["spec"]["template"]["spec"]
        for claim in template["spec"].get("volumeClaimTemplates", []):
            spec["volumes"].append({"name": claim["metadata"]["name"], "persistentVolumeClaim": {}})
        one = Pod(self.image, self.network, spec, host, self.directory / f"node-{host}", secrets, tries)
        one.start()
        return one

    def keys(self):
        """What is made outside of the cluster: the files of the Secret, and a token."""
        directory = f"/tmp/keys-{self.id()}"

        def weightcast(*args):
            return subprocess.run(["chroot", self.image.root, "weightcast", "keys", *args, "--dir", directory], stdout=subprocess.PIPE,
                                  text=True, check=True).stdout

        weightcast("init")
        token = weightcast("token", "--name", "*", "--uses", "8").strip()
        made = pathlib.Path(str(self.image.root) + directory)
        return {file: (made / file).read_text() for file in ("origin.pem", "enrolment.pem", "tokens.json", "issued.json")}, token

    def test_a_fleet(self):
        values = {"origin": SMALL, "workers": {**SMALL, "engine": ENGINE}}
        # The Service's name leads to the only pod there.
        keys, token = self.keys()
        origin = self.pod(values, "StatefulSet", "fleet-origin", "fleet-origin", {"fleet-keys": keys})
        daemon = origin.containers["daemon"]
        join = {"fleet-join": {"token": token}}
        workers = [self.pod(values, "DaemonSet", "fleet-workers", host, join) for host in ("gpu-1", "gpu-2")]

        model = self.directory / "node-fleet-origin" / "data" / "state" / "model.safetensors"
        write_weights(model, 16 * MIB, 1)
        daemon.exec("weightcast", "publish", "/var/lib/weightcast/model.safetensors", "--version", "1", "--wait", "1", "--timeout", "60")
        digest = hashlib.sha256(model.read_bytes()).hexdigest()
        for worker in workers:
            engine = worker.containers["engine"]
            eventually(lambda log=engine.log: digest in log.read_text())
            node = next(one for one in json.loads(worker.containers["daemon"].exec("weightcast", "status", "--json"))["nodes"]
                        if one["versions_in_why"])
            self.assertEqual(node["versions_in"], "memory", node["versions_in_why"])

        # A pod in the place of one that is deleted has its keys and its versions, without the token.
        statuses = workers[0].end()
        self.assertEqual(statuses["daemon"], 0, workers[0].containers["daemon"].log.read_text())
        again = self.pod(values, "DaemonSet", "fleet-workers", "gpu-1", {}, tries="-again")
        eventually(lambda: digest in again.containers["engine"].log.read_text())
        for pod in (again, workers[1], origin):
            self.assertEqual(pod.end()["daemon"], 0)

    def test_metrics(self):
        if "--http" not in subprocess.run(
                ["chroot", self.image.root, "weightcast", "daemon", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout:
            self.skipTest("this daemon has no --http")
        values = {"origin": SMALL, "metrics": {"enabled": True}}
        secrets = {"fleet-http": {"token": "0123456789abcdef0123456789abcdef"}, "fleet-keys": self.keys()[0]}
        origin = self.pod(values, "StatefulSet", "fleet-origin", "metrics-origin", secrets)
        endpoint = find(render(values), "ServiceMonitor", "fleet")["spec"]["endpoints"][0]
        asked = subprocess.run(
            ["curl", "-sf", "-H", f"Authorization: Bearer {secrets['fleet-http']['token']}",
             f"http://{self.network.addresses['metrics-origin']}:7401{endpoint['path']}"], stdout=subprocess.PIPE, text=True, check=True)
        self.assertIn("weightcast_", asked.stdout)
        self.assertEqual(origin.end()["daemon"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
