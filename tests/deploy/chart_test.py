"""What the chart renders, by the schemas that Kubernetes publishes."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import kubernetes_validate
import yaml
from chart import DIRECTORY, find, notes, render

RELEASES = ("1.28", "1.34", "1.37")
ENGINE = {"image": "engine:1", "command": ["serve"], "env": [{"name": "A", "value": "b"}],
          "resources": {"limits": {"nvidia.com/gpu": 8}}, "volumeMounts": [{"name": "memory", "mountPath": "/more"}]}
VARIANTS = {
    "as it is": {},
    "an engine, a trainer, a class": {
        "origin": {"trainer": ENGINE, "storageClass": "fast", "args": ["--uplink=1gbit"], "nodeSelector": {"a": "b"}},
        "workers": {"engine": ENGINE, "args": ["--single-copy"], "resources": {"limits": {"memory": "1Gi"}}}},
    "no host path": {"workers": {"hostPath": None}},
    "metrics": {"metrics": {"enabled": True}},
}


class Chart(unittest.TestCase):
    def test_kubernetes_takes_it(self):
        for variant, values in VARIANTS.items():
            objects = render(values)
            kinds = {one["kind"] for one in objects}
            self.assertLessEqual({"StatefulSet", "DaemonSet", "Service"}, kinds)
            for one in objects:
                if one["kind"] == "ServiceMonitor":  # of Prometheus' operator, which has no schema there
                    continue
                for release in RELEASES:
                    with self.subTest(variant=variant, kind=one["kind"], release=release):
                        kubernetes_validate.validate(one, release, strict=True)

    def test_the_schemas_find_mistakes(self):
        wrong = find(render(), "DaemonSet", "fleet-workers")
        wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, RELEASES[-1], strict=True)

    def test_what_stands_beside_a_daemon_shares_its_socket_and_versions(self):
        pod = find(render(VARIANTS["an engine, a trainer, a class"]), "DaemonSet", "fleet-workers")["spec"]["template"]["spec"]
        daemon, engine = pod["containers"]
        self.assertEqual(engine["env"], [{"name": "WEIGHTCAST_STATE", "value": "/var/lib/weightcast"}, *ENGINE["env"]])
        self.assertEqual(engine["volumeMounts"][:2], daemon["volumeMounts"][:2])
        self.assertEqual(engine["volumeMounts"][2:], ENGINE["volumeMounts"])
        self.assertIn("--single-copy", daemon["args"])

    def test_services_find_their_pods_and_the_monitor_finds_the_services(self):
        objects = render({"metrics": {"enabled": True}})
        monitor = find(objects, "ServiceMonitor", "fleet")["spec"]
        watched = monitor["selector"]["matchLabels"].items()
        for of, kind in (("fleet-origin", "StatefulSet"), ("fleet-workers", "DaemonSet")):
            service, pod = find(objects, "Service", of), find(objects, kind, of)["spec"]["template"]
            self.assertLessEqual(service["spec"]["selector"].items(), pod["metadata"]["labels"].items())
            self.assertLessEqual(watched, service["metadata"]["labels"].items())
            self.assertIn(monitor["endpoints"][0]["port"], {port["name"] for port in service["spec"]["ports"]})
            daemon = pod["spec"]["containers"][0]
            for port in service["spec"]["ports"]:
                self.assertIn({"name": port["name"], "containerPort": port["port"]}, daemon["ports"])

    def test_values_that_the_chart_does_not_know_are_refused_by_name(self):
        for wrong, said in (
            ({"workers": {"engin": ENGINE}}, "engin"),
            ({"worker": {}}, "worker"),
            ({"origin": {"storage": "500 GB"}}, "storage"),
            ({"workers": {"args": "--single-copy"}}, "args"),
            ({"workers": {"hostPath": "var/lib"}}, "hostPath"),
            ({"workers": {"engine": {"command": ["serve"]}}}, "image"),
            ({"metrics": {"enabled": "yes"}}, "enabled"),
        ):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(Exception, said):
                render(wrong)

    def test_the_schema_knows_each_value(self):
        schema = json.loads((DIRECTORY / "values.schema.json").read_text())
        for part in ("origin", "workers", "metrics"):
            values = yaml.safe_load((DIRECTORY / "values.yaml").read_text())[part]
            self.assertEqual(set(values), set(schema["properties"][part]["properties"]), part)

    def test_no_pod_has_the_authority(self):
        for variant, values in VARIANTS.items():
            for one in render(values):
                if one["kind"] in ("StatefulSet", "DaemonSet"):
                    for container in one["spec"]["template"]["spec"]["initContainers"]:
                        self.assertNotIn("keys init", " ".join(container["command"]), variant)

    def test_the_origin_begins_with_the_keys_of_the_secret_and_goes_on_with_its_own(self):
        pod = find(render(), "StatefulSet", "fleet-origin")["spec"]["template"]["spec"]
        self.assertIn({"name": "given", "secret": {"secretName": "fleet-keys", "optional": True}}, pod["volumes"])
        keys = next(one for one in pod["initContainers"] if one["name"] == "keys")
        mounts = {mount["mountPath"]: mount["name"] for mount in keys["volumeMounts"]}
        self.assertEqual((mounts["/run/keys"], mounts["/etc/weightcast"]), ("given", "data"))
        with tempfile.TemporaryDirectory() as name:
            given, own = pathlib.Path(name, "given"), pathlib.Path(name, "own")
            given.mkdir(), own.mkdir()

            def start():
                script = keys["command"][2].replace("/run/keys", str(given)).replace("/etc/weightcast", str(own))
                return subprocess.run(["sh", "-ec", script], stderr=subprocess.PIPE, text=True, check=False)

            none = start()
            self.assertEqual(none.returncode, 1)
            self.assertIn("make the Secret fleet-keys", none.stderr)
            for file in ("origin.pem", "enrolment.pem", "tokens.json", "issued.json"):
                (given / file).write_text(f"{file} 1")
            self.assertEqual((start().returncode, start().stderr), (0, ""))
            self.assertEqual({file.name: file.stat().st_mode & 0o777 for file in own.iterdir()},
                             {file.name: 0o600 for file in given.iterdir()})
            # It has counted a use; later files of the Secret are not its own.
            (own / "tokens.json").write_text("2")
            (given / "tokens.json").write_text("3")
            self.assertEqual(start().returncode, 0)
            self.assertEqual((own / "tokens.json").read_text(), "2")
            # A volume of an earlier release.
            (own / "authority.pem").write_text("key")
            self.assertIn("keep it elsewhere", start().stderr)

    def test_notes_tell_what_the_pods_wait_for(self):
        said = notes({"metrics": {"enabled": True}})
        secrets = {volume["secret"]["secretName"].removeprefix("fleet-") for one in render({"metrics": {"enabled": True}})
                   if one["kind"] in ("StatefulSet", "DaemonSet")
                   for volume in one["spec"]["template"]["spec"]["volumes"] if "secret" in volume}
        self.assertEqual(secrets, {"keys", "join", "http"})
        for secret in secrets:
            self.assertIn(f"kubectl -n rl create secret generic fleet-{secret} ", said)
        self.assertIn("set workers.engine", said)
        self.assertNotIn("set workers.engine", notes({"workers": {"engine": ENGINE}}))


if __name__ == "__main__":
    unittest.main(verbosity=2)
