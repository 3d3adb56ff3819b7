"""A fleet that is not there, told as a daemon tells one: for tests of the page with more workers than a host has.

GET /, /events, /learner and /publications/N over HTTP on loopback. Versions travel along chains; each worker is a
little behind its parent. What the page shows of real daemons web_daemon_test.py has.
"""

import http.server
import json
import threading
import time

CHUNKS = 400
CHUNK_BYTES = 1 << 20
RATE = 12.5e6  # bytes per second of each link


class Fleet:
    """Pure: state(now) and change(before, now) by a time in seconds after its start."""

    def __init__(self, workers, chains=10, publications=0, standby=3):
        self.names = [f"gpu-{number:04}" for number in range(workers)]
        self.chains = chains
        self.standby = set(self.names[-standby:]) if standby else set()
        self.lost = {}  # name -> why
        self.unreachable = {}  # name -> (other, address, why)
        self.past = publications
        self.period_s = CHUNKS * CHUNK_BYTES / RATE + 8

    def fed(self):
        return [name for name in self.names if name not in self.standby and name not in self.lost]

    def state(self, now):
        done = int(now / self.period_s)
        version = self.past + done + 1
        begun = now - done * self.period_s
        fed = self.fed()
        total_s = CHUNKS * CHUNK_BYTES / RATE
        nodes = [self.node("origin", "origin", "127.0.0.1:7400", version, "idle", "", fed[: self.chains])]
        installed = 0
        for i, name in enumerate(self.names):
            address = f"10.0.{i // 250}.{i % 250 + 1}:7400"
            if name in self.lost:
                nodes.append(
                    self.node("worker", name, address, version - 1, "lost", "", [], last_error=self.lost[name])
                )
                continue
            if name in self.standby:
                nodes.append(self.node("worker", name, address, 0, "standby", "", []))
                continue
            place = fed.index(name) if self.lost else i
            depth = place // self.chains
            share = min(1.0, max(0.0, (begun - depth * 0.05) / total_s))
            parent = "origin" if depth == 0 else fed[place - self.chains]
            children = fed[place + self.chains : place + self.chains + 1]
            if share >= 1.0:
                installed += 1
                node = self.node("worker", name, address, version, "idle", parent, children)
            else:
                node = self.node(
                    "worker", name, address, version - 1, "receiving" if share > 0 else "stale", parent, children
                )
                if share > 0:
                    node.update(
                        receiving_version=version,
                        chunks_total=CHUNKS,
                        chunks_verified=int(CHUNKS * share),
                        receive_bytes_per_s=RATE,
                    )
            if name in self.unreachable:
                other, where, why = self.unreachable[name]
                node["cannot_reach"] = [{"name": other, "address": where, "why": why}]
            nodes.append(node)
        publications = [
            self.publication(number, len(fed), len(fed), None) for number in range(max(1, version - 999), version)
        ]
        publications.append(self.publication(version, len(fed), installed, begun))
        return {
            "run": "simulated",
            "latest_version": version,
            "model": "simulated",
            "topology": "chain",
            "predicted_s": total_s,
            "unix_ms": int(1.8e12 + now * 1000),
            "nodes": nodes,
            "versions": [],
            "publications": publications,
        }

    def node(self, role, name, address, version, state, parent, children, **more):
        return {
            "name": name,
            "role": role,
            "address": address,
            "version": version,
            "state": state,
            "parent": parent,
            "children": children,
            "score": 0.9,
            "standing": "seed",
            "receiving_version": 0,
            "chunks_verified": 0,
            "chunks_total": 0,
            "receive_bytes_per_s": 0,
            "uplink_bytes_per_s": RATE,
            "downlink_bytes_per_s": RATE,
            "bytes_received": version * CHUNKS * CHUNK_BYTES,
            "bytes_sent": 0,
            "payload": "full",
            "payload_bytes": CHUNKS * CHUNK_BYTES,
            "transfer_s": 0,
            "keys_expire_unix_s": 0,
            "earlier_run": False,
            "manifests_refused": 0,
            "offence": "",
            "complaints": 0,
            "complains": 0,
            "versions_in": "",
            "versions_in_why": "",
            "disk_bytes_written": 0,
            "cannot_reach": [],
            "last_error": "",
            **more,
        }

    def publication(self, version, workers, installed, elapsed):
        size = CHUNKS * CHUNK_BYTES
        took = size / RATE * (1 + 0.1 * (version * 7 % 5))
        whole = installed == workers
        return {
            "version": version,
            "published_unix_ms": int(1.8e12 + (version - self.past - 1) * self.period_s * 1000),
            "state": "complete" if whole else "under way",
            "kind": "full",
            "snapshot_bytes": size,
            "payload_bytes": size,
            "sent_bytes": self.chains * size,
            "t50_s": took * 0.9 if whole else None,
            "t90_s": took * 0.97 if whole else None,
            "t100_s": took if whole else None,
            "predicted_s": size / RATE,
            "topology": "chain",
            "workers": workers,
            "installed": installed,
            "take_over_s": 0.3,
            "encode_s": 0,
            "pack_s": 0,
            "elapsed_s": elapsed if elapsed is not None else took,
            "slowest": self.names[version % len(self.names)] if whole else "",
            "cause": "link" if whole else "",
            "why": "its link brought 11.9 MiB/s" if whole else "",
        }

    def workers_of(self, version):
        rows = [
            {
                "name": name,
                "payload": "full",
                "joined_s": None,
                "told_s": 0.3,
                "installed_s": 34 + i % 100 * 0.05,
                "failure": "",
                "phases": {
                    "waiting_s": 0,
                    "asking_s": 0.05,
                    "receiving_s": 33 + i % 100 * 0.05,
                    "storing_s": 0.2,
                    "applying_s": 0.1,
                    "switching_s": 0.001,
                    "engine_s": 0.4,
                    "disk_behind_s": 0,
                    "interrupted_s": 0,
                    "parents_left": 0,
                    "bytes": CHUNKS * CHUNK_BYTES,
                    "fed_by": "origin",
                    "fed_bytes": CHUNKS * CHUNK_BYTES,
                    "given_up_s": 0,
                },
            }
            for i, name in enumerate(self.names[:500])
        ]
        return {"publications": [], "workers": rows, "workers_total": len(self.names)}


def change(before, after):
    """As event "change" has it."""
    changed = {
        key: after[key] for key in ("run", "latest_version", "topology", "predicted_s") if before[key] != after[key]
    }
    known = {(node["role"], node["name"]): node for node in before["nodes"]}
    nodes = []
    for node in after["nodes"]:
        old = known.pop((node["role"], node["name"]), {})
        differs = {key: value for key, value in node.items() if old.get(key) != value}
        if differs:
            nodes.append({**differs, "name": node["name"], "role": node["role"]})
    if nodes:
        changed["nodes"] = nodes
    if known:
        changed["nodes_gone"] = [{"role": role, "name": name} for role, name in known]
    entries = {entry["version"]: entry for entry in before["publications"]}
    publications = [entry for entry in after["publications"] if entries.pop(entry["version"], None) != entry]
    if publications:
        changed["publications"] = publications
    if entries:
        changed["publications_gone"] = list(entries)
    return {**changed, "unix_ms": after["unix_ms"]}


class Server:
    """Tells of a fleet every `every_s`. `pace`: how much faster its time goes."""

    def __init__(self, page, fleet, pace=1.0, every_s=0.25):
        self.every_s = every_s
        self.fleet = fleet
        self.pace = pace
        self.learner = None  # what its GET /v1/status says, if there is one
        self.begin = time.monotonic()
        self.stopping = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                if self.path == "/":
                    self.answer(200, "text/html; charset=utf-8", page)
                elif self.path == "/events":
                    outer.follow(self)
                elif self.path.startswith("/publications/"):
                    self.answer(
                        200,
                        "application/json",
                        json.dumps(outer.fleet.workers_of(int(self.path.rsplit("/", 1)[1]))).encode(),
                    )
                elif self.path == "/learner" and outer.learner:
                    self.answer(200, "application/json", json.dumps(outer.learner).encode())
                else:
                    self.answer(404, "application/json", b'{"error": {"message": "there is nothing at this path"}}')

            def answer(self, status, kind, body):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        class Http(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # a page that has gone

        self.http = Http(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def now(self):
        return (time.monotonic() - self.begin) * self.pace

    def follow(self, handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        told = self.fleet.state(self.now())
        try:
            handler.wfile.write(f"retry: 500\n\nevent: state\ndata: {json.dumps(told)}\n\n".encode())
            while not self.stopping.wait(self.every_s):
                after = self.fleet.state(self.now())
                handler.wfile.write(f"event: change\ndata: {json.dumps(change(told, after))}\n\n".encode())
                told = after
        except OSError:
            pass  # the page has gone
        handler.close_connection = True

    def close(self):
        self.stopping.set()
        self.http.shutdown()
        self.http.server_close()
