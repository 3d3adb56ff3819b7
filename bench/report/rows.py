"""The claims of docs/PERFORMANCE.md: what is run for each, and what is taken from its result.

A row is one command of `weightcast-bench` and what its JSON says. Where a figure is a time, a floor or a rival that the same
command measured stands beside it, because absolute times on another machine mean little.
"""

import dataclasses
import statistics
from typing import Any, Callable, Optional, Sequence

Json = Any


@dataclasses.dataclass(frozen=True)
class Measure:
    """One figure of a row."""
    claim: str
    unit: str  # "" for a ratio
    value: Callable[[Json], float]
    goal: Optional[float] = None  # None: reported alone
    more_is_better: bool = False
    beside: str = ""  # what was measured in the same run
    beside_value: Optional[Callable[[Json], float]] = None

    def misses(self, figure: float) -> bool:
        if self.goal is None:
            return False
        return figure < self.goal if self.more_is_better else figure > self.goal


@dataclasses.dataclass(frozen=True)
class Row:
    """A command, and its figures. `runs` of one command are asked for; one whose result holds several repetitions is
    split by `each`."""
    name: str  # as `./run report NAME` has it
    section: str
    command: str  # of weightcast-bench, without --json
    measures: Sequence[Measure]
    each: Optional[Callable[[Json], list]] = None
    needs_root: bool = False

    def repetitions(self, result: Json) -> list:
        return self.each(result) if self.each else [result]


def last_case(result: Json) -> Json:
    return result["cases"][-1]


def of_last(name: str, scale: float = 1) -> Callable[[Json], float]:
    return lambda result: scale * last_case(result)[name]


def of(name: str, scale: float = 1) -> Callable[[Json], float]:
    return lambda result: scale * result[name]


def of_case(scale: float, name: str, **wanted) -> Callable[[Json], float]:
    """The figure of the first case whose members are those that are wanted."""
    def find(result):
        for case in result["cases"]:
            if all(case[key] == value for key, value in wanted.items()):
                return scale * case[name]
        raise LookupError(f"no case with {wanted}")
    return find


def of_scenario(name: str) -> Callable[[Json], float]:
    return lambda result: next(one["delay_s"] for one in result["scenarios"] if one["scenario"] == name)


def mean_lag(result: Json) -> float:
    return statistics.mean(case["staleness_mean"] for suite in result["suites"] for case in suite["cases"])


BROADCAST = "--size 64MiB --topology chain --netns --warm-memory"
CHAIN = f"broadcast --workers 24 --uplink 300mbit --peer 100mbit {BROADCAST}"


def chain_measures(ratio_goal, cpu_goal):
    return [
        Measure("T_bcast(1.0) over the line time", "", of_last("ratio"), ratio_goal),
        Measure("processor time of a delivered GiB, all nodes", "s", of_last("cpu_s_per_delivered_gib"), cpu_goal,
                beside="a plain stream, neither hashed nor stored", beside_value=of_last("line_cpu_s_per_gib")),
        Measure("payloads that leave the origin", "",
                lambda result: last_case(result)["origin_egress_bytes"] / last_case(result)["payload_bytes"], 3.02),
    ]


def delta(share, floor_goal, cpu_goal):
    return [
        Measure(f"{100 * share:g} % changed: publish to installed, over the floor", "",
                of_case(1, "installed_to_floor", changed_share=share), floor_goal,
                beside="the floor, one thread that writes the cells, ms",
                beside_value=of_case(1e3, "floor_s", changed_share=share)),
        Measure(f"{100 * share:g} %: processor time of the origin", "s",
                lambda result: next(case["origin"]["cpu_s"] for case in result["cases"] if case["changed_share"] == share),
                cpu_goal, beside="of the worker",
                beside_value=lambda result: next(case["worker"]["cpu_s"] for case in result["cases"]
                                                 if case["changed_share"] == share)),
    ]


ROWS = [
    Row("chain", "Broadcast", CHAIN, chain_measures(1.02, 1.0), needs_root=True),
    Row("chain-tls", "Broadcast", f"{CHAIN} --tls", chain_measures(1.03, 2.0), needs_root=True),
    Row("star", "Broadcast", f"broadcast --workers 24 --uplink 300mbit --peer 100mbit {BROADCAST.replace('chain', 'star')}",
        [Measure("T_bcast(1.0) of a star over the line time", "", of_last("ratio"))], needs_root=True),
    Row("uncapped-1", "Broadcast", "broadcast --workers 1 --uplink unlimited --peer unlimited --size 1GiB --topology chain --warm-memory",
        [Measure("1 GiB to one worker, no limit", "s", of_last("t100_s"), 0.9, beside="a plain stream",
                 beside_value=of_last("line_s"))]),
    Row("uncapped-4", "Broadcast", "broadcast --workers 4 --uplink unlimited --peer unlimited --size 1GiB --topology chain --warm-memory",
        [Measure("1 GiB to four workers, no limit, all on this host", "s", of_last("t100_s"), 2.2, beside="a plain stream",
                 beside_value=of_last("line_s"))]),
    Row("rates", "Broadcast",
        "broadcast --netns --rates unknown --topology auto --uplink 300mbit --peer 100mbit --workers 24 --size 32MiB --versions 2 "
        "--pause 15",
        [Measure("rates that nobody configured: the second publication over one with them", "", of_last("ratio"), 1.1)],
        needs_root=True),
    Row("packed", "Broadcast",
        "broadcast --workers 12 --uplink 300mbit --peer 100mbit --size 64MiB --topology auto --netns --warm-memory --content weights "
        "--daemon-flags=--pack=auto",
        [Measure("whole BF16 weights, packed: T_bcast(1.0) over the line time of the weights as they are", "",
                 of_last("ratio"), 0.70)], needs_root=True),
    Row("relay", "Relay and node", "relay --tls --size 256MiB --warm-memory --repeat 5",
        [Measure("store and forward, one hop: throughput over a plain copy's that verifies and stores", "", of("stored_ratio"),
                 0.6, more_is_better=True),
         Measure("processor time of a relayed GiB, three nodes", "s", of("cpu_s_per_relayed_gib"), 2.5,
                 beside="the plain copy", beside_value=of("stored_cpu_s_per_relayed_gib")),
         Measure("encrypted, over the plain relay and the cipher's floor", "", of("encrypted_cpu_ratio"), 1.15)],
        each=lambda result: result["cases"]),
    Row("joins", "Relay and node", "joins --workers 500",
        [Measure("500 workers join at once, encrypted", "s", of("first_s"), 3),
         Measure("the origin's memory for each", "KiB", of("origin_bytes_per_worker", 1 / 1024), 64)]),
    Row("idle", "Relay and node", "idle --workers 200 --seconds 5",
        [Measure("200 idle workers: of a core of the origin", "%", of("origin_cpu_share", 100), 2),
         Measure("join to the first version installed", "ms", of("join_to_installed_s", 1e3), 50)]),
    Row("publish", "Publish", "publish --size 256MiB --warm-memory",
        [Measure("publish() from memory, over one copy of the tensors", "", of("ratio"), 1.5)]),
    Row("fill", "Publish", "publish --size 1GiB --tensors 1000",
        [Measure("begin and commit of 1,000 tensors that are filled in place", "ms",
                 lambda result: 1e3 * (result["begin_s"] + result["commit_s"]), 1,
                 beside="one copy of them", beside_value=of("copy_s", 1e3))]),
    Row("delta", "Patches",
        "delta --size 1GiB --changed 0.001,0.01,0.05 --steps 7 --interval 0.5 --daemon-flags=--versions-in=memory",
        delta(0.001, 2.5, 0.12) + delta(0.01, 2.5, 0.12) + delta(0.05, 4, 0.6)),
    Row("packers", "Codecs", "packed --size 256MiB --content bf16 --repetitions 3",
        [Measure(f"BF16 weights, {packer}: share of the bytes", "",
                 lambda result, packer=packer: next(case["packed_bytes"] / case["bytes"] for case in result["cases"]
                                                    if case["packer"] == packer),
                 0.665 if packer == "weightcast-avx2" else None, beside="GB a processor second packs",
                 beside_value=of_case(1e-9, "pack_bytes_per_cpu_s", packer=packer))
         for packer in ("weightcast-avx2", "zstd-1", "lz4")]),
    Row("faults", "Faults",
        "faults --netns --scenario forwarder-killed,half-of-forwarders-killed,forwarder-stopped,forwarder-slows,forwarder-lies",
        [Measure("a forwarder killed: added", "s", of_scenario("forwarder-killed"), 1),
         Measure("half of them killed", "s", of_scenario("half-of-forwarders-killed"), 3),
         Measure("a forwarder stopped", "s", of_scenario("forwarder-stopped"), 3),
         Measure("a forwarder slow", "s", of_scenario("forwarder-slows"), 3),
         Measure("a forwarder that flips a bit", "s", of_scenario("forwarder-lies"), 3)], needs_root=True),
    Row("decode", "Engine", "decode --weights 2GiB --steps 3",
        [Measure("decoding, batch 1: share of the bandwidth bound", "", of_case(1, "bandwidth_share", batch=1), 0.5,
                 more_is_better=True),
         Measure("batch 32: share of LibTorch's products' speed", "", of_case(1, "products_share", batch=32), 0.6,
                 more_is_better=True)]),
    Row("install", "Engine", "install",
        [Measure("the engine's pause for a version, mapped", "ms", of("switch_s", 1e3), 1)]),
    Row("optimiser", "Learner", "optimiser",
        [Measure("the optimiser over a plain loop on the same arrays", "", of("ratio"), 2)]),
    Row("scheduler", "Learner", "rollout --suite staleness --t-bcast 2 --steps 10 --seed 1",
        [Measure("rollouts' mean lag in simulated time, whose floor is 1.68", "steps", mean_lag, 2.25)]),
    Row("http", "Learner", "http",
        [Measure("/health beside 1,000 idle connections and 64 streams, 99 %", "ms", of("p99_ms"), 10)]),
]
