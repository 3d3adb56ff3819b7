"""A publication of real daemons as OpenTelemetry's spans, at a small collector that checks what it gets."""

import http.server
import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import time
import unittest

WAIT_S = 120  # for what never comes, not for a host that is slow


class Collector:
    """Takes POST /v1/traces below a path of its own."""

    def __init__(self, path="", status=200):
        self.bodies = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                right = self.path == path + "/v1/traces" and self.headers["Content-Type"] == "application/json"
                if right:
                    outer.bodies.append(json.loads(body))
                answer = b"{}" if right and status == 200 else b'{"message": "no room"}'
                self.send_response(status if right else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}{path}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def check_shape(test, body):
    """That it is an ExportTraceServiceRequest in JSON. Returns its spans by name."""
    (resource,) = body["resourceSpans"]
    test.assertIn({"key": "service.name", "value": {"stringValue": "weightcast"}}, resource["resource"]["attributes"])
    (scope,) = resource["scopeSpans"]
    test.assertTrue(scope["scope"]["name"])
    spans = {}
    for span in scope["spans"]:
        test.assertRegex(span["traceId"], r"^[0-9a-f]{32}$")
        test.assertRegex(span["spanId"], r"^[0-9a-f]{16}$")
        test.assertEqual(span["kind"], 1)
        for key in ("startTimeUnixNano", "endTimeUnixNano"):
            test.assertRegex(span[key], r"^[0-9]{19}$")
        test.assertLessEqual(int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
        for attribute in span["attributes"]:
            ((kind, value),) = attribute["value"].items()
            test.assertIn(kind, ("stringValue", "intValue", "doubleValue"))
            test.assertIsInstance(value, (int, float) if kind == "doubleValue" else str)
        for event in span["events"]:
            test.assertRegex(event["timeUnixNano"], r"^[0-9]{19}$")
        spans[span["name"]] = span
    test.assertEqual(len({span["traceId"] for span in scope["spans"]}), 1)
    test.assertEqual(len({span["spanId"] for span in scope["spans"]}), len(scope["spans"]))
    return spans


class Otlp(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="weightcast-otlp-")
        self.addCleanup(temp.cleanup)
        self.directory = pathlib.Path(temp.name)
        (self.directory / "memory").mkdir()
        self.program = os.environ["WEIGHTCAST_PROGRAM"]
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}

    def start(self, name, *flags):
        with open(self.directory / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [self.program, "daemon", "--state", self.directory / name, "--memory-dir", self.directory / "memory",
                 "--listen", "127.0.0.1:0", *flags], stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # fmt: skip
        self.addCleanup(process.wait, 20)
        self.addCleanup(process.terminate)
        self.ask("ready", "--state", self.directory / name, "--timeout", str(WAIT_S))

    def ask(self, *arguments, check=True, **environment):
        return subprocess.run([self.program, *arguments], check=check, capture_output=True, text=True,
                              env={**self.environment, **environment}, timeout=2 * WAIT_S)  # fmt: skip

    def trace(self, *arguments, **more):
        return self.ask("trace", "1", "--state", self.directory / "origin", *arguments, **more)

    def publish(self):
        self.start("origin", "--role", "origin")
        status = json.loads(self.ask("status", "--state", self.directory / "origin", "--json").stdout)
        for name in ("a", "b"):
            self.start(name, "--role", "worker", "--name", name, "--origin", status["nodes"][0]["address"])
        header = json.dumps({"w": {"dtype": "U8", "shape": [1 << 20], "data_offsets": [0, 1 << 20]}}).encode()
        snapshot = self.directory / "model.safetensors"
        snapshot.write_bytes(len(header).to_bytes(8, "little") + header + os.urandom(1 << 20))
        self.ask("publish", snapshot, "--version", "1", "--state", self.directory / "origin", "--wait", "1")

    def test_a_publication_arrives_as_spans(self):
        self.publish()
        collector = Collector("/otlp")
        self.addCleanup(collector.close)
        self.assertEqual(self.trace("--otlp-endpoint", collector.url).stdout, "")
        spans = check_shape(self, collector.bodies[0])
        root = spans["weightcast publication"]
        self.assertNotIn("parentSpanId", root)
        published_ns = int(root["startTimeUnixNano"])
        self.assertLess(abs(published_ns / 1e9 - time.time()), 3600)
        self.assertIn({"key": "weightcast.version", "value": {"intValue": "1"}}, root["attributes"])
        self.assertIn("T_bcast(1.0)", [event["name"] for event in root["events"]])
        for name in ("take", "a", "b"):
            self.assertEqual(spans[name]["parentSpanId"], root["spanId"])
        parents = {spans["a"]["spanId"], spans["b"]["spanId"]}
        self.assertIn(spans["transfer"]["parentSpanId"], parents)
        self.assertIn("told", [event["name"] for event in spans["a"]["events"]])
        # The environment names it as well; the same spans again.
        quiet = self.trace(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url + "/")
        self.assertEqual(quiet.stdout, "")
        self.assertEqual(check_shape(self, collector.bodies[1]).keys(), spans.keys())
        again = check_shape(self, collector.bodies[1])["weightcast publication"]
        self.assertEqual((again["traceId"], again["spanId"]), (root["traceId"], root["spanId"]))

    def test_a_collector_that_does_not_take_it_is_named(self):
        self.publish()
        collector = Collector(status=503)
        self.addCleanup(collector.close)
        refused = self.trace("--otlp-endpoint", collector.url, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"--otlp-endpoint {collector.url}: status 503: ", refused.stderr)
        self.assertIn("no room", refused.stderr)
        encrypted = self.trace("--otlp-endpoint", "https://collector:4318", check=False)
        self.assertEqual(encrypted.returncode, 2)
        self.assertTrue(re.search("http://HOST", encrypted.stderr), encrypted.stderr)


if __name__ == "__main__":
    unittest.main()
