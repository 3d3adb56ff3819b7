"""A fleet as Ray's actors: the trainer's has the origin beside it, each engine's a worker. Usage: fleet.py [ENGINES [STEPS]]

It trains a small regression: put a trainer in place of Trainer.step(), and an engine in place of Engine.gradient(). Every node of
Ray's cluster needs NumPy and the wheel, with `weightcast` in the PATH.
"""

import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import ray
import weightcast

# Runs a daemon until standard input ends, as it does when the actor ends, however that is; then removes what the daemon leaves.
# Neither a child of the actor nor of its session: Ray kills those at once.
BESIDE = ["sh", "-c", """
exec 3<&0
{
  weightcast daemon "$@" 3<&- &
  cat <&3
  kill $!
  wait
  rm -rf "$(readlink "$WEIGHTCAST_STATE/memory")" "$HERE"
} &
""", "sh"]


class Node:
    """A daemon beside an actor. Its state lies on the actor's host, as long as the actor lives."""

    def __init__(self):
        self.here = tempfile.mkdtemp(prefix="weightcast-")
        self.state = os.path.join(self.here, "state")

    def run(self, *flags):
        self.daemon = subprocess.Popen(
            [*BESIDE, "--listen", f"{ray.util.get_node_ip_address()}:0", *flags],
            env={**os.environ, "WEIGHTCAST_STATE": self.state, "HERE": self.here}, stdin=subprocess.PIPE, start_new_session=True)
        weightcast.wait_until_ready(self.state, timeout=120)

    def close(self):
        self.daemon.stdin.close()
        end = time.monotonic() + 30
        while os.path.exists(self.here) and time.monotonic() < end:
            time.sleep(0.1)


def weightcast_keys(*arguments, **options):
    return subprocess.run(["weightcast", "keys", *arguments], check=True, stdout=subprocess.PIPE, text=True, timeout=120, **options).stdout


@ray.remote
class Trainer(Node):
    def __init__(self):
        super().__init__()
        self.keys = os.path.join(self.here, "keys")
        weightcast_keys("init", "--dir", self.keys)
        self.run("--role", "origin", "--keys", f"{self.keys}/origin.pem", "--enroll", self.keys)
        self.publisher = weightcast.Publisher(self.state)
        self.weights = np.zeros(1024, np.float32)
        self.publisher.publish({"weights": self.weights})

    def invite(self, engines):
        """Where the origin is, and the token by which so many engines may join."""
        origin = next(node for node in weightcast.status(self.state)["nodes"] if node["role"] == "origin")
        return origin["address"], weightcast_keys("token", "--dir", self.keys, "--name", "*", "--uses", str(engines), "--minutes", "10080")

    def step(self, gradients):
        self.weights -= 0.5 * np.mean(gradients, axis=0)
        version = self.publisher.publish({"weights": self.weights})
        self.publisher.wait(version, installed=0.5, timeout=120)  # the others are a step behind
        return version


@ray.remote(scheduling_strategy="SPREAD")
class Engine(Node):
    def __init__(self, name, origin, token):
        super().__init__()
        keys = os.path.join(self.here, "keys.pem")
        weightcast_keys("enroll", "--origin", origin, "--name", name, "-o", keys, input=token)
        self.run("--role", "worker", "--origin", origin, "--keys", keys)
        weightcast.wait_until_ready(self.state, has_version=True, timeout=120)
        self.random = np.random.default_rng(abs(hash(name)))

    def gradient(self):
        """Under the newest version here: its number, the gradient, and the loss."""
        with weightcast.load(self.state) as weights:
            error = weights["weights"].numpy() - np.linspace(-1, 1, 1024, dtype=np.float32) + self.random.normal(0, 0.01, 1024)
            return weights.version, error, float(np.mean(error ** 2))


def main(engines=4, steps=10):
    trainer = Trainer.remote()
    origin, token = ray.get(trainer.invite.remote(engines))
    fleet = [Engine.remote(f"engine-{i}", origin, token) for i in range(engines)]
    try:
        for step in range(steps):
            versions, gradients, losses = zip(*ray.get([one.gradient.remote() for one in fleet]))
            published = ray.get(trainer.step.remote(gradients))
            print(f"step {step}: loss {np.mean(losses):.4f} under versions {sorted(set(versions))}, published {published}", flush=True)
    finally:
        ray.get([one.close.remote() for one in [*fleet, trainer]])
    return float(np.mean(losses))


if __name__ == "__main__":
    ray.init()
    main(*map(int, sys.argv[1:]))
