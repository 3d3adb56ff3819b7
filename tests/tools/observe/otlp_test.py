"""A publication of real daemons as OpenTelemetry's spans, at a small collector that checks what it gets."""

import http.server
import json
import os
import pathlib
import re
import subprocess
import threading
import time
import unittest
import urllib.request

import weightcast
from daemons import DaemonTest, PROGRAM, eventually

WAIT_S = 120  # for what never comes, not for a host that is slow


class Collector:
    """Takes POST /v1/traces below a path of its own, and answers `status`; of None it never answers."""

    def __init__(self, path="", status=200):
        self.bodies = []
        self.status = status
        self.asked = threading.Semaphore(0)  # once for each request
        self.ended = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                right = self.path == path + "/v1/traces" and self.headers["Content-Type"] == "application/json"
                status = outer.status
                outer.asked.release()
                if status is None:
                    outer.ended.wait()
                    return
                if right and status == 200:
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
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()

    def versions(self):
        """Of the publications that it has taken."""
        return [attribute_of(check_shape(body)["weightcast publication"], "weightcast.version") for body in self.bodies]


# The fields of OTLP 1.x, by message, as its proto files name them (opentelemetry/proto/trace, common, resource,
# collector/trace) and its JSON encoding writes them. A list: of messages. `id`: hexadecimal; `text`: a string;
# `int`: a 64-bit number, as a string; `number`: of 32 bits, as an enum.
COUNT = {"droppedAttributesCount": "number"}
FIELDS = {
    "ExportTraceServiceRequest": {"resourceSpans": ["ResourceSpans"]},
    "ResourceSpans": {"resource": "Resource", "scopeSpans": ["ScopeSpans"], "schemaUrl": "text"},
    "Resource": {"attributes": ["KeyValue"], **COUNT},
    "ScopeSpans": {"scope": "InstrumentationScope", "spans": ["Span"], "schemaUrl": "text"},
    "InstrumentationScope": {"name": "text", "version": "text", "attributes": ["KeyValue"], **COUNT},
    "Span": {"traceId": "id", "spanId": "id", "traceState": "text", "parentSpanId": "id", "flags": "number",
             "name": "text", "kind": "number", "startTimeUnixNano": "int", "endTimeUnixNano": "int",
             "attributes": ["KeyValue"], **COUNT, "events": ["Event"], "droppedEventsCount": "number",
             "links": ["Link"], "droppedLinksCount": "number", "status": "Status"},
    "Event": {"timeUnixNano": "int", "name": "text", "attributes": ["KeyValue"], **COUNT},
    "Link": {"traceId": "id", "spanId": "id", "traceState": "text", "attributes": ["KeyValue"], **COUNT,
             "flags": "number"},
    "Status": {"message": "text", "code": "number"},
    "KeyValue": {"key": "text", "value": "AnyValue"},
    "AnyValue": {"stringValue": "text", "boolValue": "bool", "intValue": "int", "doubleValue": "double",
                 "bytesValue": "text"},
}  # fmt: skip
VALUES = {
    "id": lambda value: isinstance(value, str) and re.fullmatch("([0-9a-f]{32}|[0-9a-f]{16})", value),
    "text": lambda value: isinstance(value, str),
    "int": lambda value: isinstance(value, str) and re.fullmatch("-?[0-9]{1,20}", value),
    "number": lambda value: type(value) is int and 0 <= value < 1 << 32,
    "bool": lambda value: type(value) is bool,
    "double": lambda value: isinstance(value, (int, float)) and type(value) is not bool,
}


def check_message(kind, message, place):
    """That each field is one of that message's, and of its type."""
    assert isinstance(message, dict), f"{place}: no {kind}: {message!r}"
    for name, value in message.items():
        of = FIELDS[kind].get(name)
        assert of is not None, f"{place}: {kind} has no field {name}"
        if isinstance(of, list):
            assert isinstance(value, list), f"{place}.{name}: no list"
            for one in value:
                check_message(of[0], one, f"{place}.{name}")
        elif of in FIELDS:
            check_message(of, value, f"{place}.{name}")
        else:
            assert VALUES[of](value), f"{place}.{name}: {value!r} is no {of}"
    if kind == "AnyValue":
        assert len(message) == 1, f"{place}: one value"


def check_shape(body):
    """That it is an ExportTraceServiceRequest of one trace. Returns its spans by name."""
    check_message("ExportTraceServiceRequest", body, "request")
    (resource,) = body["resourceSpans"]
    assert {"key": "service.name", "value": {"stringValue": "weightcast"}} in resource["resource"]["attributes"]
    (scope,) = resource["scopeSpans"]
    spans = scope["spans"]
    assert len({span["traceId"] for span in spans}) == 1 and len(spans[0]["traceId"]) == 32
    ids = {span["spanId"] for span in spans}
    assert len(ids) == len(spans) and all(len(one) == 16 for one in ids)
    for span in spans:
        assert span["name"] and span.get("parentSpanId", spans[0]["spanId"]) in ids
        assert 0 < int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert span["kind"] == 1 and span["status"].get("code", 0) in (0, 1, 2)
    return {span["name"]: span for span in spans}


def attribute_of(span, key):
    """As text or number; None if it is not there."""
    for attribute in span["attributes"]:
        if attribute["key"] == key:
            return next(iter(attribute["value"].values()))
    return None


class Otlp(DaemonTest):
    def setUp(self):
        pass  # each test says what its origin is told

    def start_fleet(self, *flags, workers=("a", "b")):
        self.origin_flags = flags
        super().setUp()
        for name in workers:
            self.start_worker(name)

    def collector(self, *arguments, **more):
        collector = Collector(*arguments, **more)
        self.addCleanup(collector.close)
        return collector

    def ask(self, *arguments, check=True):
        return subprocess.run([PROGRAM, *arguments], check=check, capture_output=True, text=True, timeout=2 * WAIT_S)

    def trace(self, *arguments, **more):
        return self.ask("trace", "1", "--state", self.origin.state, *arguments, **more)

    def publish(self, version=1):
        with weightcast.Publisher(self.origin.state) as publisher:
            publisher.publish({"w": os.urandom(1 << 20)}, version=version)
            publisher.wait(version, installed=1.0, timeout=WAIT_S)

    def origin_log(self):
        return pathlib.Path(self.origin.state + ".log").read_text()

    def wait_until(self, condition):
        try:
            eventually(condition, WAIT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.origin_log()}") from None

    def counts(self):
        address = pathlib.Path(self.origin.state, "http_address").read_text().strip()
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as answer:
            text = answer.read().decode()
        return {outcome: int(count) for outcome, count in
                re.findall(r'weightcast_otlp_publications_total\{outcome="(\w+)"\} (\d+)', text)}  # fmt: skip

    def test_a_publication_arrives_as_spans(self):
        self.start_fleet()
        self.publish()
        collector = self.collector("/otlp")
        self.assertEqual(self.trace("--otlp-endpoint", collector.url).stdout, "")
        spans = check_shape(collector.bodies[0])
        root = spans["weightcast publication"]
        self.assertNotIn("parentSpanId", root)
        published_ns = int(root["startTimeUnixNano"])
        self.assertLess(abs(published_ns / 1e9 - time.time()), 3600)
        self.assertEqual(attribute_of(root, "weightcast.version"), "1")
        self.assertIn("T_bcast(1.0)", [event["name"] for event in root["events"]])
        for name in ("take", "a", "b"):
            self.assertEqual(spans[name]["parentSpanId"], root["spanId"])
        parents = {spans["a"]["spanId"], spans["b"]["spanId"]}
        self.assertIn(spans["transfer"]["parentSpanId"], parents)
        self.assertIn("told", [event["name"] for event in spans["a"]["events"]])
        # The same spans again, whatever ends the URL.
        self.assertEqual(self.trace("--otlp-endpoint", collector.url + "/").stdout, "")
        again = check_shape(collector.bodies[1])
        self.assertEqual(again.keys(), spans.keys())
        self.assertEqual({name: span["spanId"] for name, span in again.items()},
                         {name: span["spanId"] for name, span in spans.items()})  # fmt: skip

    def test_a_collector_that_does_not_take_it_is_named(self):
        self.start_fleet()
        self.publish()
        collector = self.collector(status=503)
        refused = self.trace("--otlp-endpoint", collector.url, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"--otlp-endpoint: {collector.url}: status 503: ", refused.stderr)
        self.assertIn("no room", refused.stderr)
        for wrong in ("https://collector:4318", "http://", "http://a b:4318", "http://host:4318/a b"):
            encrypted = self.trace("--otlp-endpoint", wrong, check=False)
            self.assertEqual(encrypted.returncode, 2, encrypted.stderr)
            self.assertIn(f"--otlp-endpoint: {wrong}: ", encrypted.stderr)

    def test_a_daemon_sends_each_publication_by_itself(self):
        collector = self.collector()
        self.start_fleet("--otlp-endpoint", collector.url, "--http", "127.0.0.1:0")
        for version in (1, 2, 3):
            self.publish(version)
        self.wait_until(lambda: len(collector.bodies) == 3)
        self.assertEqual(collector.versions(), ["1", "2", "3"])
        for body in collector.bodies:
            self.assertLessEqual({"a", "b", "transfer", "switch"}, check_shape(body).keys())
        self.wait_until(lambda: self.counts() == {"sent": 3, "dropped": 0})

    def test_a_collector_that_hangs_or_refuses_holds_nothing_up(self):
        collector = self.collector(status=None)
        self.start_fleet("--otlp-endpoint", collector.url, "--http", "127.0.0.1:0", workers=("a",))
        self.publish(1)
        self.assertTrue(collector.asked.acquire(timeout=WAIT_S))
        self.publish(2)  # while it hangs
        self.assertEqual(self.counts(), {"sent": 0, "dropped": 0})
        collector.status = 400
        self.wait_until(lambda: self.counts() == {"sent": 0, "dropped": 2})
        log = self.origin_log()
        self.assertIn(f"OTLP: spans of version 1 are not sent: cannot receive: {collector.url}: ", log)
        self.assertEqual(log.count("are not sent"), 1, "one line while it fails")
        collector.status = 200
        self.publish(3)
        self.wait_until(lambda: self.counts() == {"sent": 1, "dropped": 2})
        self.assertEqual(collector.versions(), ["3"])
        self.assertIn("takes spans again; those of 2 publications were dropped", self.origin_log())

    def test_a_daemon_ends_at_once_while_its_collector_hangs(self):
        collector = self.collector(status=None)
        self.start_fleet("--otlp-endpoint", collector.url, workers=("a",))
        self.publish(1)
        self.assertTrue(collector.asked.acquire(timeout=WAIT_S))
        self.origin.stop(8)
        self.assertEqual(self.origin.process.returncode, 0, "before it has waited 10 s for an answer")

    def test_a_worker_has_no_spans_to_send(self):
        refused = self.ask("daemon", "--role", "worker", "--origin", "127.0.0.1:1", "--state", "/nowhere",
                           "--otlp-endpoint", "http://127.0.0.1:4318", check=False)  # fmt: skip
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--otlp-endpoint: for the origin", refused.stderr)


if __name__ == "__main__":
    unittest.main()
