"""What the chart renders, by the schemas that Kubernetes publishes."""

import unittest

import kubernetes_validate
from chart import find, render

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
