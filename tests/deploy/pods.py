"""A kubelet for the parts of a pod that the chart uses. It refuses what it does not know."""

import os
import pathlib
import re

from containers import Container, bind, eventually, run

UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def quantity_bytes(text):
    number, unit = re.fullmatch(r"(\d+)([KMG]i)?", str(text)).groups(default="")
    return int(number) * UNITS[unit]


def known(mapping, *keys):
    if unknown := set(mapping) - set(keys):
        raise AssertionError(f"this kubelet does not know {unknown}")


class Pod:
    """One pod on a node, whose host paths and claims are directories below `node`. `secrets`: name to key to text."""

    def __init__(self, image, network, spec, host, node, secrets, tries=""):
        self.image, self.network, self.spec, self.host, self.node, self.secrets = image, network, spec, host, pathlib.Path(node), secrets
        self.tries = tries
        known(spec, "securityContext", "automountServiceAccountToken", "terminationGracePeriodSeconds", "nodeSelector", "tolerations",
              "initContainers", "containers", "volumes")
        known(spec["securityContext"], "runAsUser", "runAsGroup", "fsGroup", "runAsNonRoot")
        self.node.mkdir(exist_ok=True)
        self.volumes = {volume["name"]: self._volume(volume) for volume in spec["volumes"]}
        self.containers = {}

    def _volume(self, volume):
        """What to bind or mount: a directory."""
        known(volume, "name", "hostPath", "emptyDir", "secret", "persistentVolumeClaim")
        name = volume["name"]
        path = self.node / f"{name}{self.tries if 'emptyDir' in volume else ''}"
        path.mkdir(exist_ok=True)
        if "secret" in volume:
            given = self.secrets.get(volume["secret"]["secretName"])
            if given is None and not volume["secret"].get("optional"):
                raise AssertionError(f"there is no secret {volume['secret']['secretName']}")
            for key, text in (given or {}).items():
                file = path / key
                file.write_text(text)
                os.chown(file, 0, self.spec["securityContext"]["fsGroup"])
                file.chmod(0o640)
        elif "emptyDir" in volume:
            if volume["emptyDir"].get("medium") == "Memory":
                size = quantity_bytes(volume["emptyDir"]["sizeLimit"])
                run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path)
            path.chmod(0o777)
        return path

    def _start(self, container):
        known(container, "name", "image", "imagePullPolicy", "command", "args", "env", "securityContext", "volumeMounts", "ports",
              "readinessProbe", "resources")
        security = {**self.spec["securityContext"], **container.get("securityContext", {})}
        known(security, "runAsUser", "runAsGroup", "fsGroup", "runAsNonRoot", "allowPrivilegeEscalation", "readOnlyRootFilesystem",
              "capabilities")
        if security["runAsNonRoot"] == (security["runAsUser"] == 0):
            raise AssertionError("runAsNonRoot is not what runAsUser says")
        mounts = []
        for mount in container["volumeMounts"]:
            known(mount, "name", "mountPath", "subPath", "readOnly")
            source = self.volumes[mount["name"]] / mount.get("subPath", "")
            source.mkdir(exist_ok=True)
            mounts.append(bind(mount["mountPath"], source, ["ro"] if mount.get("readOnly") else []))
        env = []
        for one in container.get("env", []):
            value = one["value"] if "value" in one else {"spec.nodeName": self.host}[one["valueFrom"]["fieldRef"]["fieldPath"]]
            env.append(f"{one['name']}={value}")
        command = container.get("command", self.image.config["Entrypoint"])
        return Container(
            self.image, self.network, self.host, f"{self.host}-{container['name']}{self.tries}", [*command, *container.get("args", [])],
            env=env, mounts=mounts, user=(security["runAsUser"], security["runAsGroup"]), groups=[security["fsGroup"]],
            capabilities=[f"CAP_{name}" for name in security.get("capabilities", {}).get("add", [])])

    def start(self):
        for container in self.spec["initContainers"]:
            self._start(container).done()
        for container in self.spec["containers"]:
            self.containers[container["name"]] = self._start(container)
        for container in self.spec["containers"]:
            if probe := container.get("readinessProbe"):
                self._wait_ready(self.containers[container["name"]], probe)

    def _wait_ready(self, container, probe):
        def ready():
            if container.process.poll() is not None:
                raise AssertionError(f"{container.name} has ended: {container.log.read_text()}")
            if not container.runs():
                return False
            try:
                container.exec(*probe["exec"]["command"], timeout=probe["timeoutSeconds"])
            except AssertionError:
                return False
            return True

        eventually(ready)

    def end(self):
        """SIGTERM to each, as when the pod is deleted. Exit statuses by name."""
        running = {name: one for name, one in self.containers.items() if one.process.poll() is None}
        for one in running.values():
            one.signal("TERM")
        return {name: one.wait(self.spec["terminationGracePeriodSeconds"]) for name, one in running.items()}
