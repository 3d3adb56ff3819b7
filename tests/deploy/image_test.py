"""The image, in containers as docs/DEPLOY.md starts them: an origin and two workers, with keys by enrolment."""

import json
import unittest

from containers import Container, ImageTest, bind, eventually, run
from weights import write_weights

MIB = 2**20


class Fleet(ImageTest):
    def container(self, host, command, name=None, stdin=None, **options):
        """As `docker run` with volumes for state and keys, which have the owners that the image's directories have."""
        mounts = []
        for path in ("/var/lib/weightcast", "/etc/weightcast"):
            volume = self.directory / f"{host}{path.replace('/', '-')}"
            if not volume.exists():
                run("cp", "-a", f"{self.image.root}{path}", volume)
            mounts.append(bind(path, volume))
        mounts.append(bind("/models", self.directory / "models", ["ro"]))
        return Container(self.image, self.network, host, name or host, [*self.image.config["Entrypoint"], *command],
                         mounts=mounts, stdin=stdin, **options)

    def start(self, host, *flags, name=None):
        one = self.container(host, ["daemon", "--listen", "0.0.0.0:7400", *flags], name=name)
        eventually(lambda: one.process.poll() is not None or one.runs())
        one.exec("weightcast", "ready", "--timeout", "30")
        return one

    def test_a_fleet(self):
        (self.directory / "models").mkdir()
        self.assertEqual(self.image.config["User"], "7400:7400")
        self.assertIn("/var/lib/weightcast", self.image.config["Volumes"])
        self.assertEqual(self.image.config["StopSignal"], "SIGTERM")

        self.container("origin", ["keys", "init", "--dir", "/etc/weightcast"], name="init").done()
        origin = self.start("origin", "--role", "origin", "--keys", "/etc/weightcast/origin.pem", "--enroll", "/etc/weightcast")
        token = origin.exec("weightcast", "keys", "token", "--dir", "/etc/weightcast", "--name", "gpu-*", "--uses", "2")
        workers = []
        for host in ("gpu-1", "gpu-2"):
            self.container(host, ["keys", "enroll", "--origin", "origin:7400", "--name", host, "-o", "/etc/weightcast/keys.pem"],
                           name=f"enroll-{host}", stdin=token).done()
            workers.append(self.start(host, "--role", "worker", "--origin", "origin:7400", "--keys", "/etc/weightcast/keys.pem"))

        # 48 MiB do not fit into the 64 MB of a plain container twice and more.
        for version in (1, 2):
            write_weights(self.directory / "models" / f"{version}.safetensors", 48 * MIB, version)
            origin.exec("weightcast", "publish", f"/models/{version}.safetensors", "--version", str(version),
                        "--wait", "1", "--timeout", "60", timeout=90)
        for one in workers:
            path = one.exec("weightcast", "path").strip()
            one.exec("cmp", f"{path}/model.safetensors", "/models/2.safetensors")
            node = self.node(one)
            self.assertEqual(node["versions_in"], "disk")
            self.assertIn("the file system in memory has 64.0 MiB", node["versions_in_why"])
            self.assertIn(node["versions_in_why"], one.log.read_text())
            self.assertEqual(one.exec("id", "-u").strip(), "7400")

        # A new container with the same volumes goes on where the old one was.
        self.assertEqual(workers[0].end(), 0, workers[0].log.read_text())
        again = self.start("gpu-1", "--role", "worker", "--origin", "origin:7400", "--keys", "/etc/weightcast/keys.pem", name="again")
        self.assertIn("2", again.exec("weightcast", "versions"))
        for one in (again, workers[1], origin):
            self.assertEqual(one.end(), 0, one.log.read_text())

    def node(self, container):
        nodes = json.loads(container.exec("weightcast", "status", "--json"))["nodes"]
        return next(one for one in nodes if one["versions_in_why"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
