"""Containers of the image, by runc, each in a network namespace of its own with an address on one bridge.

Whatever is made here ends with the namespaces that deploy_test.sh has made around the test.
"""

import json
import os
import pathlib
import subprocess
import time

from scratch import ScratchTest

# As the profiles that container runtimes use by default.
NO_IO_URING = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "architectures": ["SCMP_ARCH_X86_64"],
    "syscalls": [{"names": ["io_uring_setup", "io_uring_enter", "io_uring_register"], "action": "SCMP_ACT_ERRNO"}],
}


def run(*command, timeout=60, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout, **options)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def eventually(condition, limit_s=60.0):
    end = time.monotonic() + limit_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s} s")
        time.sleep(0.1)
    return value


def tmpfs(destination, size_bytes, options=()):
    return {"destination": destination, "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "nodev", f"size={size_bytes}", *options]}


def bind(destination, source, options=()):
    return {"destination": destination, "type": "bind", "source": str(source), "options": ["rbind", *options]}


class Image:
    """What the OCI archive says, and its files, once."""

    def __init__(self, archive, directory):
        self.directory = pathlib.Path(directory)
        layout = self.directory / "layout"
        layout.mkdir()
        run("tar", "-C", layout, "-xf", archive, timeout=600)
        run("umoci", "unpack", "--image", f"{layout}:weightcast", self.directory / "bundle", timeout=600)
        self.root = self.directory / "bundle" / "rootfs"
        self.base = json.loads((self.directory / "bundle" / "config.json").read_text())

        def blob(of):
            return json.loads((layout / "blobs" / of["digest"].replace(":", "/")).read_text())

        manifest = blob(json.loads((layout / "index.json").read_text())["manifests"][0])
        self.config = blob(manifest["config"])["config"]


class Network:
    """A bridge, and an address for each name; every container sees all names in /etc/hosts."""

    def __init__(self, directory):
        self.hosts = pathlib.Path(directory) / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n")
        self.addresses = {}
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge", "type", "bridge")
        run("ip", "address", "add", "10.74.0.1/24", "dev", "bridge")
        run("ip", "link", "set", "bridge", "up")

    def attach(self, name):
        """Makes a namespace, and returns its file."""
        if name not in self.addresses:
            number = len(self.addresses) + 2
            self.addresses[name] = f"10.74.0.{number}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", f"veth{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", f"veth{number}", "master", "bridge", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            with self.hosts.open("a") as hosts:
                hosts.write(f"{self.addresses[name]} {name}\n")
        return f"/run/netns/{name}"


class Container:
    """One container. Its files are the image's, which it can only read, and what `mounts` has."""

    def __init__(self, image, network, host, name, command, env=(), mounts=(), user=None, groups=(), capabilities=(), stdin=None):
        self.name = name
        self.bundle = image.directory / name
        self.bundle.mkdir()
        self.log = self.bundle / "log"
        spec = json.loads(json.dumps(image.base))
        uid, gid = user or map(int, image.config["User"].split(":"))
        given = {kind: list(capabilities) for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")}
        if uid:
            given["ambient"] = []
        spec["process"] |= {
            "terminal": False, "args": list(command), "noNewPrivileges": True, "capabilities": given,
            "user": {"uid": uid, "gid": gid, "additionalGids": list(groups)},
            "env": [*image.config["Env"], *env], "rlimits": []}
        spec["root"] = {"path": str(image.root), "readonly": True}
        replaced = {mount["destination"] for mount in mounts} | {"/sys/fs/cgroup", *image.config.get("Volumes", {})}
        spec["mounts"] = [mount for mount in spec["mounts"] if mount["destination"] not in replaced]
        spec["mounts"] += [*mounts, bind("/etc/hosts", network.hosts, ["ro"])]
        spec["linux"]["namespaces"] = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
        spec["linux"]["namespaces"].append({"type": "network", "path": network.attach(host)})
        spec["linux"]["seccomp"] = NO_IO_URING
        spec["hostname"] = host
        (self.bundle / "config.json").write_text(json.dumps(spec))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["runc", "--root", "/run/runc-test", "run", "--bundle", self.bundle, name],
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL, stdout=log, stderr=log)
        if stdin:
            self.process.stdin.write(stdin.encode())
            self.process.stdin.close()

    def wait(self, limit_s=60):
        """Its exit status."""
        return self.process.wait(limit_s)

    def done(self):
        """Waits for one that ends by itself, and well."""
        if status := self.wait():
            raise AssertionError(f"{self.name}: {status}: {self.log.read_text()}")
        return self.log.read_text()

    def runs(self):
        asked = subprocess.run(["runc", "--root", "/run/runc-test", "state", self.name], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, timeout=60)
        return asked.returncode == 0 and json.loads(asked.stdout)["status"] == "running"

    def exec(self, *command, timeout=60):
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} has ended: {self.log.read_text()}")
        return run("runc", "--root", "/run/runc-test", "exec", self.name, *command, timeout=timeout)

    def signal(self, name):
        run("runc", "--root", "/run/runc-test", "kill", self.name, name)

    def end(self):
        """As an orchestrator ends it: SIGTERM, and ten seconds. Its exit status."""
        self.signal("TERM")
        return self.wait(10)


class ImageTest(ScratchTest):
    """Tests of a class share the image and a network, too."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.image = Image(os.environ["WEIGHTCAST_IMAGE"], cls.directory)
        cls.network = Network(cls.directory)
