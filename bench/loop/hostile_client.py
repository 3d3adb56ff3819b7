"""One worker's stolen keys against a learner's port: started by hostile_posts.py, once for each time of attack.

Usage: hostile_client.py HOST:PORT KEYS --seed N [--connections N] [--kinds KIND ...]

Each kind of attack is a thread that repeats it. At SIGTERM it gives back what it has leased, and prints what was
answered, and how often, as one JSON object: {kind: {answer: count}}."""

import argparse
import collections
import http.client
import json
import os
import random
import resource
import signal
import socket
import ssl
import sys
import threading
import time

MIB = 1 << 20
stopping = threading.Event()
answers = collections.defaultdict(collections.Counter)


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def member(number, body):
    return varint(number << 3 | 2) + varint(len(body)) + body


class Client:
    """A worker as the learner sees it. Reads enough of the run to send what only its numbers are wrong of."""

    def __init__(self, address, keys, seed):
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)
        self.random = random.Random(seed)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.tls.check_hostname = False
        self.tls.verify_mode = ssl.CERT_NONE
        self.tls.load_cert_chain(keys)
        self.connection = None
        self.run = None
        self.version = 0

    def call(self, method, path, body=b"", headers=None):
        """(status, JSON or None); the connection is opened again where it was lost."""
        for attempt in (1, 2):
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPSConnection(self.host, self.port, timeout=30, context=self.tls)
                self.connection.request(method, path, body, headers or {})
                response = self.connection.getresponse()
                text = response.read()
                break
            except (OSError, http.client.HTTPException) as error:
                self.connection = None
                if attempt == 2:
                    return 0, {"error": type(error).__name__}
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if isinstance(answer, dict):
            self.version = answer.get("version", self.version)
        return response.status, answer

    def post(self, path, value, headers=None):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.call("POST", path, body, {"Content-Type": "application/json"} | (headers or {}))

    def learn(self):
        while self.run is None and not stopping.is_set():
            status, self.run = self.call("GET", "/v1/run")
            if status != 200:
                self.run = None
                stopping.wait(0.2)

    def rollout(self, sequence, group, **changed):
        length = self.random.randrange(1, 9)
        return {"task": self.run["task"], "worker": "", "sequence": sequence, "group": group,
                "model_digest": self.run["model_digest"], "tokenizer_digest": self.run["tokenizer_digest"],
                "tokens": [1] * 4 + [2] * length, "response_mask": [0] * 4 + [1] * length, "logprobs": [-0.5] * length,
                "version_runs": [[self.version, length]], "oldest_version": self.version,
                "reward": self.random.random(), **changed}


def count(kind, status, answer):
    """By each rollout's verdict, where there are any."""
    verdicts = answer.get("verdicts") if isinstance(answer, dict) else None
    if not verdicts:
        answers[kind][str(status)] += 1
    for verdict in verdicts or []:
        answers[kind][verdict.get("reason") or verdict["verdict"]] += 1


class Attack:
    """A kind of attack, which is called again and again."""

    def __init__(self, client, options):
        self.client, self.options = client, options
        self.sequence = client.random.randrange(1 << 40)
        self.open = collections.deque()  # sockets


class Numbers(Attack):
    """Poison under leases of its own, so that nothing but a number is wrong; and rollouts of what nobody leased."""
    pause_s = 0.01

    def __call__(self):
        client, size = self.client, self.client.run["group_size"]
        first, self.sequence = self.sequence, self.sequence + size
        status, answer = client.post("/v1/starts", {"groups": 1, "first_sequence": first})
        groups = (answer or {}).get("groups") or []
        kind, changed = client.random.choice([
            ("reward 1e300", {"reward": 1e300}), ("reward -1e300", {"reward": -1e300}), ("reward null", {"reward": None}),
            ("reward of a turn", {"turns": [[4, 5, 1e308]]}), ("logprob -1e30", {"logprobs": [-1e30]}),
            ("logprob -1e38", {"logprobs": [-1e38]}), ("version", {"oldest_version": 1 << 60}),
            ("tokens", {"tokens": [1 << 30]}), ("other worker", {"worker": "w0"}), ("group not leased", None)])
        tag = f"{client.run['task']}/{groups[0]}#{groups[0]}" if groups else "nobody#1"
        if changed is None:
            tag, changed = f"hostile#{client.random.randrange(1 << 40)}", {}
        rollouts = []
        for i in range(size):
            one = client.rollout(first + i, tag, **changed)
            if "logprobs" in changed:
                one["logprobs"] = changed["logprobs"] * one["version_runs"][0][1]
            rollouts.append(one)
        count(kind, *client.post("/v1/rollouts", {"rollouts": rollouts}))


class Others(Attack):
    """Sequence numbers, groups and names of other workers."""
    pause_s = 0.01

    def __call__(self):
        number = self.client.random.randrange(2000)
        tag = self.client.random.choice([f"{self.client.run['task']}/{number}", f"{self.client.run['task']}#{number}"])
        rollouts = [self.client.rollout(self.client.random.randrange(4096), tag,
                                        worker=self.client.random.choice(["", "w0", "w1"])) for _ in range(64)]
        count("others' groups", *self.client.post("/v1/rollouts", {"rollouts": rollouts}))
        count("another's heartbeat", *self.client.post("/v1/heartbeats", {"worker": "w0", "version": 1 << 61}))


class Leases(Attack):
    """Asks for as much as there is, and brings nothing."""
    pause_s = 0.02

    def __call__(self):
        groups = self.client.random.choice([1, 64, 100_000 // self.client.run["group_size"]])
        status, answer = self.client.post("/v1/starts", {"groups": groups, "first_sequence": self.sequence})
        got = len((answer or {}).get("groups") or [])
        self.sequence += groups * self.client.run["group_size"]
        answers["hoarded groups"]["leased"] += got
        count("leases", status, answer)


class Floods(Attack):
    """Heartbeats with long lists, and numbers that no worker has."""
    pause_s = 0.02

    def __call__(self):
        rng = self.client.random
        what = rng.choice(["abandoned", "too long", "rates"])
        body = {"version": rng.randrange(1 << 61)}
        if what == "abandoned":
            body |= {"abandoned": [rng.randrange(1 << 20) for _ in range(50_000)]}
        elif what == "too long":
            body = ("{\"abandoned\": [" + "0," * MIB + "0]}").encode()
        else:
            body |= {"rollouts_per_s": 9e17, "tokens_per_s": 9e17, "full_load_s": 9e17, "under_way": 1 << 61,
                     "price_per_hour": 0, "promised_rollouts_per_s": 9e17}
        count("heartbeat: " + what, *self.client.post("/v1/heartbeats", body))


class Bodies(Attack):
    """Large bodies whose parts are small, and random ones."""
    pause_s = 0.2

    def __call__(self):
        rng, run = self.client.random, self.client.run
        size = rng.choice([1, 8, 40, 63]) * MIB
        kind, body, content_type = rng.choice([
            ("empty rollouts", lambda: b"\x12\x00" * (size // 2), "x-protobuf"),
            ("empty turns", lambda: member(2, b"\x6a\x00" * (size // 2)), "x-protobuf"),
            ("tokens", lambda: member(2, member(7, bytes(size))), "x-protobuf"),
            ("random bytes", lambda: rng.randbytes(size), "x-protobuf"),
            ("numbers", lambda: b'{"rollouts": [' + b"0," * (size // 2) + b"0]}", "json"),
            ("empty arrays", lambda: b'{"rollouts": [{"turns": [' + b"[]," * (size // 3) + b"[]]}]}", "json"),
            ("deep", lambda: b'{"rollouts": ' + b"[" * size, "json"),
            ("a text", lambda: b'{"run": "' + b"x" * size + b'", "rollouts": []}', "json")])
        count(f"body: {kind}", *self.client.call("POST", "/v1/rollouts", body(),
                                                 {"Content-Type": f"application/{content_type}"}))
        # Answers that are long.
        for _ in range(20):
            rollouts = [self.client.rollout(i, "g" * 400, task="\x7f" * 100, model_digest="m") for i in range(400)]
            count("long answers", *self.client.post("/v1/rollouts", {"rollouts": rollouts, "run": run["run_id"]}))
            if stopping.is_set():
                return


class Mutations(Attack):
    """Good rollouts with a few bytes changed."""
    pause_s = 0.005

    def __call__(self):
        rng = self.client.random
        group = f"{self.client.run['task']}/{rng.randrange(100)}"
        body = bytearray(json.dumps({"rollouts": [self.client.rollout(rng.randrange(1 << 30), group)]}).encode())
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(body))
            body[at:at + rng.randrange(3)] = rng.choice([b"", b"9", b"-", b"1e999", b"[", b"}", b'"', rng.randbytes(2)])
        path = rng.choice(["/v1/rollouts", "/v1/rollouts", "/v1/starts", "/v1/heartbeats"])
        count("mutated", *self.client.post(path, bytes(body)))


class SlowBodies(Attack):
    """Begins many large bodies, and sends a byte of one now and then."""
    pause_s = 0.05

    def __call__(self):
        try:
            plain = socket.create_connection((self.client.host, self.client.port), 5)
            slow = self.client.tls.wrap_socket(plain)
            slow.sendall(b"POST /v1/rollouts HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                         % (63 * MIB) + b" " * self.client.random.choice([1, 1, 1, MIB]))
            self.open.append(slow)
            answers["slow bodies"]["begun"] += 1
        except OSError as error:
            answers["slow bodies"][type(error).__name__] += 1
        if len(self.open) > 60:  # beyond it they would take the share that Bodies needs
            self.open.popleft().close()
        for slow in list(self.open)[:5]:
            try:
                slow.sendall(b" ")
            except OSError:
                self.open.remove(slow)
                answers["slow bodies"]["ended by the learner"] += 1


class Silent(Attack):
    """Connections without keys that say nothing."""
    pause_s = 0.002

    def __call__(self):
        try:
            self.open.append(socket.create_connection((self.client.host, self.client.port), 5))
            answers["silent connections"]["dialled"] += 1
        except OSError as error:
            answers["silent connections"][type(error).__name__] += 1
        if len(self.open) > self.options.connections:
            self.open.popleft().close()


KINDS = [Numbers, Others, Leases, Floods, Bodies, Mutations, SlowBodies, Silent]
NAMES = [kind.__name__ for kind in KINDS]


def repeat(attack):
    attack.client.learn()
    while not stopping.is_set():
        try:
            attack()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            answers[type(attack).__name__][f"this client failed: {error!r}"] += 1
        stopping.wait(attack.pause_s)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("keys")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--connections", type=int, default=3000, help="silent ones at a time")
    parser.add_argument("--kinds", nargs="+", default=NAMES, choices=NAMES)
    options = parser.parse_args()
    os.nice(19)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())

    def client(number):
        return Client(options.address, options.keys, options.seed * 1000 + number)

    attacks = [kind(client(number), options) for number, kind in enumerate(KINDS) if kind.__name__ in options.kinds]
    threads = [threading.Thread(target=repeat, args=(attack,), daemon=True) for attack in attacks]
    for thread in threads:
        thread.start()
    while not stopping.is_set():
        stopping.wait(0.5)
    for thread in threads:
        thread.join(10)
    # Another start of the same worker: what it had under way never comes.
    last = Client(options.address, options.keys, options.seed)
    last.post("/v1/heartbeats", {"incarnation": f"{options.seed}-{time.monotonic_ns()}"})
    print(json.dumps(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
