"""fsdp_bench.py [--mib N] [--rounds N] [--percent P]: what a sharded publication costs beside what it cannot do without.

`fsdp_bench.sh` finds the environment and the release build. Four gloo ranks hold N MiB of BF16 in layers, split over rows.
Wall and processor times are of the rank that takes most, medians over the rounds. The last lines are ratios of these, each
with its target, by the clock and by processor time. What Python does for each tensor is half of it in 336 MiB, so take more,
where there is room: it takes five times N.

    copy       each rank copies its shards to memory that it has touched before
    publish    publish(), after the first
    compare    each rank compares its shards with an equal copy, by update_shadow()
    changed    publish_changed(), P percent of the elements changed: found by comparing, and with `changed` given
    memory     how much a rank's own memory grows with the first publication beside its share of the region
"""

import argparse
import statistics
import sys
import tempfile
import pathlib
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(ROOT / "tests" / "python"), str(ROOT / "python")]

import torch  # noqa: E402
import weightcast  # noqa: E402
import torch.distributed as dist  # noqa: E402
from daemons import Daemon  # noqa: E402
from ranks import run  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Shard  # noqa: E402
from weightcast.integrations.fsdp import ShardedPublisher  # noqa: E402

WORLD = 4
COLUMNS = 2048
LAYERS = 56
TARGETS = [("publish", "copy", 1.6), ("changed, known", "publish", 1.0), ("changed, found", "compare", 1.5)]


def resident(kind):
    with open("/proc/self/status") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(kind)) / 1024


def measure(rank, state_dir, options):
    mesh = init_device_mesh("cpu", (WORLD,))
    rows = options.mib * 2**20 // 2 // COLUMNS // LAYERS // WORLD
    torch.manual_seed(rank)
    shards = [torch.randn(rows, COLUMNS).to(torch.bfloat16) for _ in range(LAYERS)]
    state_dict = {f"layers.{i}.weight": DTensor.from_local(shard, mesh, [Shard(0)]) for i, shard in enumerate(shards)}
    share = rows * COLUMNS * LAYERS * 2
    times = {}

    def timed(name, call, *args):
        dist.barrier()
        began, used = time.monotonic(), time.process_time()
        call(*args)
        times.setdefault(name, []).append((1000 * (time.monotonic() - began), 1000 * (time.process_time() - used)))
        dist.barrier()

    copies = [torch.empty_like(shard).copy_(shard) for shard in shards]

    def copy():
        for to, shard in zip(copies, shards):
            to.copy_(shard)

    nowhere = torch.empty(0, dtype=torch.int32), torch.empty(0, dtype=torch.bfloat16)

    def compare():
        for to, shard in zip(copies, shards):
            assert weightcast.update_shadow(to, shard, *nowhere) == 0

    def change(percent):
        masks = {}
        for name, shard in zip(state_dict, shards):
            at = torch.randint(0, shard.numel(), (int(shard.numel() * percent / 100),)).unique()
            shard.view(-1)[at] += 1
            masks[name] = at
        return masks

    memory = {}
    with ShardedPublisher(state_dir) as publisher:
        own, all_pages = resident("RssAnon"), resident("VmRSS")
        timed("first publish", publisher.publish, state_dict)
        publisher.wait()
        memory["own"], memory["all"] = resident("RssAnon") - own, resident("VmRSS") - all_pages
        for _ in range(options.rounds):
            timed("copy", copy)
            timed("publish", publisher.publish, state_dict)
            publisher.wait()
        publisher.publish_changed(state_dict)
        publisher.wait()
        for _ in range(options.rounds):
            copy()
            timed("compare", compare)
            masks = change(options.percent)
            timed("changed, found", publisher.publish_changed, state_dict)
            publisher.wait()
        publisher._shadow = None  # a trainer that always knows has none
        for _ in range(options.rounds):
            masks = change(options.percent)
            timed("changed, known", publisher.publish_changed, state_dict, masks)
            publisher.wait()
            copy()
    return times, memory, share


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=336)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--percent", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weightcast-fsdp-", dir="/dev/shm") as directory:
        origin = Daemon(directory, "origin", "--role", "origin", "--listen", "127.0.0.1:0", "--versions-in", "memory",
                        "--memory-dir", directory)  # fmt: skip
        try:
            by_rank = run(directory, WORLD, measure, origin.state, options)
        finally:
            origin.close()
    print(f"{by_rank[0][2] * WORLD / 2**20:.0f} MiB on {WORLD} ranks, {options.percent:g} % changed")
    medians = {}
    for name in by_rank[0][0]:
        wall, used = ([max(of[i] for of in times) for times in zip(*(times[name] for times, _, _ in by_rank))] for i in (0, 1))
        medians[name] = statistics.median(wall), statistics.median(used)
        print(f"{name:16} {statistics.median(wall):8.1f} ms  (best {min(wall):.1f}, worst {max(wall):.1f}), "
              f"processor {statistics.median(used):.1f} ms (best {min(used):.1f})")
    for rank, (_, memory, share) in enumerate(by_rank):
        print(f"rank {rank}: {memory['own']:+.0f} MiB of its own, {memory['all']:+.0f} MiB with its {share / 2**20:.0f} MiB of the region")
    for name, beside, target in TARGETS:
        wall, used = (of / than for of, than in zip(medians[name], medians[beside]))
        print(f"{name} / {beside}: {wall:.2f}, by processor time {used:.2f} (at most {target})")
    extra = max(memory["all"] - share / 2**20 for _, memory, share in by_rank)
    print(f"memory beyond its share of the region: {extra:+.1f} MiB (none)")


if __name__ == "__main__":
    main()
