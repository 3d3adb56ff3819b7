"""A real Prometheus looks at real daemons, a learner and engines, by the files under deploy/: it takes what they tell,
promtool finds no fault in it, and every expression of the dashboard and of the alerts has an answer.

    prometheus_test.py WEIGHTCAST WEIGHTCAST_WORKER WEIGHTCAST_TRAIN DEPLOY_DIRECTORY

Status 77 where prometheus is not installed (apt-get install prometheus).
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

WAIT_S = 120  # for what never comes, not for a host that is slow
TOKEN = "a token for a test, and long enough"


class Failed(Exception):
    pass


def eventually(what, condition):
    deadline = time.monotonic() + WAIT_S
    while True:
        last = None
        try:
            result = condition()
            if result:
                return result
        except OSError as error:
            last = error
        if time.monotonic() > deadline:
            raise Failed(f"{what} did not come in {WAIT_S} s: {last}")
        time.sleep(0.1)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Programs:
    """Started ones. All of them, and no others, are ended."""

    def __init__(self, directory):
        self.directory = directory
        self.started = []

    def start(self, name, *arguments):
        with open(self.directory / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [str(one) for one in arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.directory
            )
        self.started.append(process)
        return process

    def end(self):
        for process in self.started:
            process.send_signal(signal.SIGTERM)
        for process in self.started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def names_in(expression):
    return set(re.findall(r"\b(?:weightcast|process)_[a-z_]+\b", expression)) | set(re.findall(r"\bup\b", expression))


def main(*arguments):
    with tempfile.TemporaryDirectory(prefix="weightcast-prometheus-") as directory:
        directory = pathlib.Path(directory)
        programs = Programs(directory)
        try:
            check(*arguments, directory, programs)
        except BaseException:
            for log in sorted(directory.glob("*.log")):
                print(f"== {log.name}", log.read_text(errors="replace")[-3000:], sep="\n", file=sys.stderr)
            raise
        finally:
            programs.end()


# A step takes a fraction of a second: a model of some 30,000 parameters, sums of one digit.
LEARNER = {
    "init_hidden_size": 32, "init_intermediate_size": 64, "init_num_hidden_layers": 2, "init_num_attention_heads": 2,
    "init_num_key_value_heads": 1, "task_options": "digits_max=1", "max_new_tokens": 4, "rollout_batch_size": 16,
    "group_size": 4, "learning_rate": "1e-3", "sft_steps": 3, "sft_batch_size": 8, "entropy_coeff": 0.01,
    "total_training_steps": 1_000_000, "checkpoint_interval": 1_000_000, "rollout_source": "http",
    "rollout_listen": "127.0.0.1:0", "learner_price_per_hour": 3600,
}  # fmt: skip


def check(weightcast, worker, train, deploy, directory, programs):
    (directory / "memory").mkdir()
    token = directory / "weightcast-token"
    token.touch(0o600)
    token.write_text(TOKEN + "\n")

    def start(name, *flags):
        programs.start(name, weightcast, "daemon", "--state", directory / name, "--memory-dir", directory / "memory",
                       "--http", "127.0.0.1:0", "--http-token", token, *flags)  # fmt: skip
        return eventually(f"the HTTP port of {name}", lambda: (directory / name / "http_address").read_text().strip())

    def ask(*arguments):
        return subprocess.run([str(one) for one in (weightcast, *arguments)], check=True, capture_output=True, text=True)

    def scrape(address):
        request = urllib.request.Request(f"http://{address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def run(name, program, settings):
        sets = ["--{}={}".format(key.replace("_", "-"), value) for key, value in settings.items()]
        programs.start(name, program, "run", *sets, "--http", "127.0.0.1:0", "--http-token", token)

    def first_line(*path):
        return eventually("/".join(path), lambda: directory.joinpath(*path).read_text().strip())

    targets = [start("origin", "--role", "origin", "--listen", "127.0.0.1:0")]
    listens = json.loads(ask("status", "--state", directory / "origin", "--json").stdout)["nodes"][0]["address"]
    for name in ("a", "b"):
        targets.append(start(name, "--role", "worker", "--name", name, "--origin", listens))
    eventually(
        "both workers",
        lambda: len(json.loads(ask("status", "--state", directory / "origin", "--json").stdout)["nodes"]) == 3,
    )
    for version in (1, 2):
        header = json.dumps({"w": {"dtype": "U8", "shape": [1 << 20], "data_offsets": [0, 1 << 20]}}).encode()
        snapshot = directory / "model.safetensors"
        snapshot.write_bytes(len(header).to_bytes(8, "little") + header + os.urandom(1 << 20))
        ask("publish", snapshot, "--version", version, "--state", directory / "origin", "--wait", "1")

    # A learner with a fleet of its own.
    start("trainer", "--role", "origin", "--listen", "127.0.0.1:0")
    listens = json.loads(ask("status", "--state", directory / "trainer", "--json").stdout)["nodes"][0]["address"]
    start("gpu", "--role", "worker", "--name", "gpu", "--origin", listens)
    run("learner", train, {**LEARNER, "output_dir": directory / "run", "publish_state": directory / "trainer"})
    run("engine", worker, {"learner": first_line("run", "rollout_address"), "name": "gpu",
                           "state_dir": directory / "gpu", "http_dir": directory / "http",
                           "price_per_hour": 7200})  # fmt: skip
    others = [first_line("run", "http_address"), first_line("http", "http_address")]
    checkpoint = eventually("a checkpoint", lambda: sorted((directory / "run" / "checkpoints").glob("checkpoint-*")))[0]
    programs.start("serve", worker, "serve", checkpoint, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                   "--http-token", token)  # fmt: skip
    others.append(eventually("the port of serve", lambda: re.search(
        r"operators look at http://(\S+)", (directory / "serve.log").read_text())).group(1))  # fmt: skip
    eventually("T_bcast, which the learner knows of workers that say their version",
               lambda: b"weightcast_learner_broadcast_seconds " in scrape(others[0]))  # fmt: skip

    # What promtool says of each one's text.
    needles = [(b"weightcast_version 2\n", b"weightcast_phase_seconds_count{")] * len(targets)
    needles.append((b'role="learner"', b"\nweightcast_learner_cost_per_step ", b'{reason="malformed"} 0\n'))
    needles.append((b'role="engine"', b'\nweightcast_worker_rollouts_total{outcome="sent"} '))
    needles.append((b'role="engine"', b"\nweightcast_worker_http_connections 0\n"))
    for target, said in zip(targets + others, needles):
        text = scrape(target)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
        if checked.returncode != 0 or checked.stderr:
            raise Failed(f"promtool of {target}: {checked.stderr.decode()}\n{text.decode()}")
        for needle in said:
            if needle not in text:
                raise Failed(f"{target} does not tell {needle}:\n{text.decode()}")

    # The files of deploy/, with other addresses and a scrape a second.
    port = free_port()
    config = (deploy / "prometheus.yml").read_text()
    if [config.count(f"trainer.example.net:{one}") for one in (7401, 7402)] != [1, 1]:
        raise Failed("deploy/prometheus.yml has other targets than this test knows")
    for listed in (targets, others):
        config = re.sub(r"- targets: .*example.*", f"- targets: {json.dumps(listed)}", config, count=1)
    config = config.replace("15s", "1s")
    (directory / "prometheus.yml").write_text(config)
    shutil.copy(deploy / "weightcast-alerts.yml", directory)
    shutil.copy(pathlib.Path(__file__).parent / "alerts_test.yml", directory)
    for arguments in (("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")):
        checked = subprocess.run(["promtool", *arguments], cwd=directory, capture_output=True, text=True)
        if checked.returncode != 0:
            raise Failed(f"promtool {' '.join(arguments)}: {checked.stdout}{checked.stderr}")
    programs.start("prometheus", "prometheus", "--config.file", "prometheus.yml", "--storage.tsdb.path", "tsdb",
                   "--web.listen-address", f"127.0.0.1:{port}")  # fmt: skip

    def api(path, **parameters):
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            reply = json.load(answer)
        if reply["status"] != "success":
            raise Failed(f"{path} {parameters}: {reply}")
        return reply["data"]

    def is_scraped():
        seen = api("targets", state="active")["activeTargets"]
        return len(seen) == len(targets + others) and all(one["health"] == "up" for one in seen)

    eventually("a scrape of each", is_scraped)
    rules = api("rules")["groups"][0]["rules"]
    unhealthy = [rule for rule in rules if rule["health"] == "err"]
    if unhealthy:
        raise Failed(f"rules with errors: {unhealthy}")
    dashboard = json.loads((deploy / "weightcast-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    known = set()

    def asks_for_known_names():
        known.update(api("label/__name__/values"))
        wanted = set().union(*(names_in(text) for text in expressions + [rule["query"] for rule in rules]))
        # Only a node with keys tells when they end.
        return wanted - known <= {"weightcast_keys_expire_timestamp_seconds"}

    eventually("every metric of the dashboard and the alerts", asks_for_known_names)
    for expression in expressions + [rule["query"] for rule in rules]:
        api("query", query=expression.replace("$__rate_interval", "1m").replace("$fleet", ".*"))
    for expression, wanted in (("weightcast_version", 3), ("weightcast_ready == 1", 3), ("process_open_fds", 6),
                               ("weightcast_worker_weight_version", 2), ("weightcast_learner_step > 0", 1)):  # fmt: skip
        answers = len(api("query", query=expression)["result"])
        if answers != wanted:
            raise Failed(f"{expression}: {answers} answers, not {wanted}")
    by_fraction = {one["metric"]["fraction"] for one in api("query", query="weightcast_broadcast_seconds")["result"]}
    if by_fraction != {"0.5", "0.9", "1"}:
        raise Failed(f"weightcast_broadcast_seconds of {by_fraction}")
    sent = api("query", query='weightcast_bytes_total{direction="received", kind="full"} > 1e6')["result"]
    if len(sent) != 2:
        raise Failed(f"two workers have received a whole snapshot, and {len(sent)} say so")

    # One worker dies: Prometheus sees it, and so does the origin.
    dead = programs.started[2]
    dead.kill()
    dead.wait()
    eventually("that a worker is down", lambda: api("query", query="up == 0")["result"])
    eventually("that a worker is lost", lambda: api("query", query='weightcast_peers{state="lost"} == 1')["result"])
    eventually(
        "the alert of it",
        lambda: any(rule["name"] == "WeightcastWorkersLost" and rule["state"] != "inactive"
                    for rule in api("rules")["groups"][0]["rules"]),
    )  # fmt: skip
    print(f"{len(known)} names, {len(expressions)} expressions, {len(rules)} alerts")


if __name__ == "__main__":
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if missing:
        print(f"skipped: {' and '.join(missing)} not installed (apt-get install prometheus)")
        sys.exit(77)
    os.environ.pop("WEIGHTCAST_STATE", None)
    try:
        main(*(pathlib.Path(one).resolve() for one in sys.argv[1:]))
    except Failed as failure:
        print(failure, file=sys.stderr)
        sys.exit(1)
