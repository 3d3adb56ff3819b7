"""ShardedPublisher with torch as it is: four gloo ranks, a real origin and a real worker."""

import os
import pathlib
import pickle
import subprocess
import sys
import time
import unittest
from unittest import mock

import torch
import torch.distributed as dist
import weightcast
from daemons import DaemonTest, eventually
from ranks import run
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard
from weightcast.integrations.fsdp import Part, RankError, ShardedPublisher

WORLD = 4
# torch 2.11 cannot put such a tensor together again, so there is nothing to compare with.
SEVERAL_PIECES = torch.__version__ >= "2.12"


class Model(nn.Module):
    """Uneven in each dimension, with a tied head, and with a buffer that each rank has."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(37, 6)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 13), nn.Linear(13, 6)) for _ in range(2))
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 37, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.arange(5))


def model():
    torch.manual_seed(7)
    return Model().to(torch.bfloat16)


def bytes_of(tensor):
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy(force=True).tobytes()


def whole(state_dict):
    """The bytes of each tensor; the same on all ranks."""
    return {
        name: bytes_of(value.full_tensor() if isinstance(value, DTensor) else value)
        for name, value in state_dict.items()
    }


class Counted:
    """A publisher of rank 0 that counts in which way it publishes."""

    def __init__(self, publisher):
        self.whole = self.changes = 0
        inner = publisher._publisher
        if inner is None:
            return
        begin, begin_changes = inner.begin, inner.begin_changes

        def counted(*args, **kwargs):
            self.whole += 1
            return begin(*args, **kwargs)

        def counted_changes(*args, **kwargs):
            self.changes += 1
            return begin_changes(*args, **kwargs)

        inner.begin, inner.begin_changes = counted, counted_changes


def step(state_dict, seed):
    """What an optimiser does: other values in some elements. Returns which ones, as masks of the local tensors."""
    masks = {}
    for name, value in state_dict.items():
        local = value.to_local() if isinstance(value, DTensor) else value
        # Replicas change alike; shards may do as they like.
        torch.manual_seed(seed if not isinstance(value, DTensor) else seed * 100 + dist.get_rank())
        if isinstance(value, DTensor) and any(p.is_replicate() for p in value.placements):
            torch.manual_seed(seed * 100)
            full = torch.rand(value.shape) < 0.1
            local_mask = distribute_tensor(full, value.device_mesh, value.placements).to_local()
        else:
            local_mask = torch.rand(local.shape) < 0.1
        if local.is_floating_point():
            with torch.no_grad():
                local[local_mask] += 1
            masks[name] = local_mask
    return masks


# ------------------------------------------------------------------------------------------------ what the ranks do


def publish_a_sharded_model(rank, state_dir):
    sharded = model()
    fully_shard(sharded, mesh=init_device_mesh("cpu", (WORLD,)))
    with ShardedPublisher(state_dir) as publisher:
        counted = Counted(publisher)
        said = []
        for way in ("publish", "publish", "changed", "compare", "compare", "changed", "publish", "compare", "none"):
            state_dict = sharded.state_dict()
            assert isinstance(state_dict["embed.weight"], DTensor)
            masks = step({n: v for n, v in state_dict.items() if n != "head.weight"}, len(said)) if way != "none" else {}
            if way == "publish":
                version = publisher.publish(sharded)
            elif way == "changed":
                masks["head.weight"] = masks.pop("embed.weight")  # tied: under either name
                masks["norm.bias"] = masks["norm.bias"].nonzero().view(-1)
                version = publisher.publish_changed(state_dict, masks)
            else:
                version = publisher.publish_changed(state_dict)
            outcome = publisher.wait(installed=1.0)
            assert outcome.version == version and outcome.installed == 1
            said.append((version, counted.whole, counted.changes, whole(sharded.state_dict()), published(state_dir)))
            dist.barrier()
        if rank == 0:
            # Another program's version is the last one now.
            with weightcast.Publisher(state_dir) as other:
                other.publish_sparse({}, base=version)
                other.wait()
        step(sharded.state_dict(), 99)
        version = publisher.publish_changed(sharded.state_dict())
        publisher.wait(installed=1.0)
        said.append((version, counted.whole, counted.changes, whole(sharded.state_dict()), published(state_dir)))
        dist.barrier()
        return said


def published(state_dir):
    snapshot = weightcast.Snapshot(pathlib.Path(state_dir) / "current")
    return {name: bytes(snapshot[name].data) for name in snapshot}


def meshed(mesh):
    made = {}
    torch.manual_seed(3)

    def add(name, shape, *placements, dtype=torch.bfloat16):
        made[name] = distribute_tensor(torch.randn(shape).to(dtype), mesh, placements)

    add("both", (6, 10), Shard(0), Shard(1))
    add("uneven", (7, 5), Shard(0), Shard(1), dtype=torch.float32)
    add("twice", (9, 3), Shard(0), Shard(0))
    add("strided", (8, 3), _StridedShard(0, split_factor=2), Shard(0))
    if SEVERAL_PIECES:
        add("in pieces", (8, 6), Shard(1), _StridedShard(0, split_factor=2))
    add("hybrid", (5, 4), Replicate(), Shard(0))
    add("columns", (5, 9, 2), Shard(1), Replicate(), dtype=torch.float16)
    add("replicated", (3, 3), Replicate(), Replicate())
    add("few", (1, 4), Shard(0), Shard(0))
    add("scalar", (), Replicate(), Replicate(), dtype=torch.float32)
    made["plain"] = torch.arange(11)
    made["tied"] = made["both"]
    return made


def publish_on_a_mesh(rank, state_dir):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    said = []
    with ShardedPublisher(state_dir, rename={"replicated": "renamed", "few": "few"}) as publisher:
        counted = Counted(publisher)
        state_dict = meshed(mesh)
        for way in ("publish", "compare", "compare", "changed"):
            masks = step({n: v for n, v in state_dict.items() if n != "tied"}, len(said))
            if way == "publish":
                publisher.publish(state_dict)
            else:
                publisher.publish_changed(state_dict, masks if way == "changed" else None)
            publisher.wait(installed=1.0)
            said.append((counted.whole, counted.changes, whole(state_dict), published(state_dir)))
            dist.barrier()
        owned = [len(of_rank) for of_rank in publisher._plan.owned]
        # Another layout of the same tensors, then other tensors.
        with mock.patch.object(publisher, "_rename", None):
            publisher.publish(state_dict, new_model=True)
        publisher.wait()
        publisher.publish_changed({**state_dict, "more": torch.ones(3)})
        refused = message_of(publisher.wait)
        return said, owned, refused


def message_of(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except RankError as error:
        return str(error), error.errors, type(error.__cause__).__name__
    return "none"


def publish_parts(rank, state_dir):
    """As Megatron has them: plain tensors, fused, split by hand; and in stages."""
    stage, at = divmod(rank, 2)
    torch.manual_seed(5)
    fused = torch.randn(2, 3, 4, 8)  # by rank of the tensor parallel group, of q, k and v, rows, columns
    head = torch.randn(10, 8)
    state_dict = {}
    if stage == 0:
        for i, name in enumerate("qkv"):
            state_dict[f"layer.{name}"] = Part(fused[at, i].t(), (8, 8), (0, 4 * at))
        state_dict["local"] = torch.ones(3)
    else:
        # Rows in turn.
        state_dict["head"] = [Part(head[row : row + 1], (10, 8), (row, 0)) for row in range(at, 10, 2)]
    with ShardedPublisher(state_dir, rename=lambda name: None if name == "local" else "model." + name) as publisher:
        publisher.publish(state_dict)
        changed = {}
        if stage == 0:
            fused[at, 0, 1, 2] = 17
            changed["layer.q"] = torch.tensor([9])  # of (8, 4), transposed
        else:
            head[at] = -1
            changed["head"] = [torch.ones(1, 8, dtype=torch.bool)] + [torch.zeros(1, 8, dtype=torch.bool)] * 4
        publisher.publish_changed(state_dict, changed)
        publisher.wait(installed=1.0)
        refused = message_of(publisher.publish, {"x": Part(torch.ones(2), (2,), (rank % 2,))})
        return published(state_dir), bytes_of(fused), bytes_of(head), refused


def fail_in_many_ways(rank, state_dir):
    mesh = init_device_mesh("cpu", (WORLD,))
    good = {"w": distribute_tensor(torch.arange(40.0), mesh, [Shard(0)]), "r": torch.ones(4)}
    said = {}
    with ShardedPublisher(state_dir, timeout=60) as publisher:
        def attempt(name, call, *args, **kwargs):
            said[name] = message_of(call, *args, **kwargs)
            dist.barrier()
            said[name] += (weightcast.versions(state_dir)["versions"][-1:] or [{"version": 0}])[0]["version"],
            dist.barrier()

        attempt("partial", publisher.publish, {**good, "p": DTensor.from_local(torch.ones(3), mesh, [Partial()])})
        attempt("no tensor", publisher.publish, {**good, "p": b"bytes"})
        attempt("incomplete", publisher.publish, {**good, **({} if rank else {"p": Part(torch.ones(1), (2,), (0,))})})
        attempt("differ", publisher.publish, {**good, "p": torch.ones(3 + rank // 3)})
        fill = weightcast.Region.fill

        def broken_fill(self, name, tensor, **kwargs):
            if rank == 2:
                raise MemoryError("of this rank alone")
            fill(self, name, tensor, **kwargs)

        with mock.patch("weightcast._publication._Slots.fill", broken_fill):
            attempt("fill", publisher.publish, good)
        publisher.publish(good)
        publisher.wait()
        publisher.publish_changed(good)
        publisher.wait()
        good["w"].to_local().add_(1)
        with mock.patch("weightcast._publication._Slots.fill", broken_fill):
            attempt("fill changes", publisher.publish_changed, good)
        publisher.publish_changed(good)
        publisher.wait()
        said["after"] = published(state_dir)
        # The origin finds it later; the next one is whole.
        if rank == 1:
            good["w"].to_local()[0] = float("nan")
        publisher.publish_changed(good)
        attempt("nan", publisher.wait)
        if rank == 1:
            good["w"].to_local()[0] = 5
        publisher.publish_changed(good)
        publisher.wait()
        said["at last"] = published(state_dir), whole(good)
        attempt("other calls", publisher.publish if rank else publisher.publish_changed, good)
        for name, changed in (("many", torch.tensor([0, 77])), ("floats", torch.ones(10)),
                              ("mask", torch.ones(3, dtype=torch.bool))):  # fmt: skip
            publisher.publish(good)
            attempt(name, publisher.publish_changed, good, {"w": changed})
        attempt("unknown", publisher.publish_changed, good, {"published.w": torch.tensor([1])})
        attempt("emptied", publisher.publish, {**good, "r": torch.empty(0)})
        publisher.publish(good)
        publisher.publish_changed(good, {"w": torch.tensor([1, 1])})
        attempt("order", publisher.wait)
        publisher.publish_changed(good, {"w": torch.tensor([1])})  # the whole
        publisher.wait()
    said["closed"] = message_of(publisher.publish, good)
    missing = message_of(ShardedPublisher, state_dir + "-absent", timeout=20)
    return said, missing


def lose_a_rank(rank, state_dir, how):
    mesh = init_device_mesh("cpu", (WORLD,))
    state_dict = {"w": distribute_tensor(torch.arange(40.0), mesh, [Shard(0)])}
    publisher = ShardedPublisher(state_dir, timeout=5)
    publisher.publish(state_dict)
    publisher.wait()
    if rank == 3:
        def end(*_, **__):
            if how == "killed":
                os._exit(1)
            time.sleep(60)

        with mock.patch("weightcast._publication._Slots.fill", end):
            publisher.publish(state_dict)
    began = time.monotonic()
    said = message_of(publisher.publish, state_dict)
    took = time.monotonic() - began
    return said, took, message_of(publisher.publish, state_dict)


def drift(rank, state_dir):
    """A replica that one rank has changed by itself, of a plain tensor and of one on a mesh."""
    mesh = init_device_mesh("cpu", (2, 2))
    grid = {"w": distribute_tensor(torch.arange(8.0), mesh, [Replicate(), Shard(0)])}
    said = []
    with ShardedPublisher(state_dir) as publisher:
        publisher.publish({**grid, "norm": torch.ones(4)}, check_replicas=True)
        alike = publisher.publish_changed({**grid, "norm": torch.ones(4)}, check_replicas=True)
        for call in (publisher.publish, publisher.publish_changed):
            said.append(message_of(call, {**grid, "norm": torch.ones(4) + (rank == 2)}, check_replicas=True)[0])
        if rank == 3:
            grid["w"].to_local()[0] = 99
        said.append(message_of(publisher.publish, {**grid, "norm": torch.ones(4)}, check_replicas=True)[0])
        # Unchecked all boxes are of one replica: the first.
        publisher.publish({**grid, "norm": torch.full((4,), float(rank))})
        publisher.wait(installed=1.0)
        return said, alike, published(state_dir)


def give_fsdp1(rank, state_dir):
    """What FSDP1 has in shards, in each of its forms, and then whole."""
    torch.manual_seed(7)
    wrapped = FullyShardedDataParallel(nn.Linear(6, 5), device_id=torch.device("cpu"))
    with ShardedPublisher(state_dir) as publisher:
        said = [message_of(publisher.publish, wrapped.named_parameters())[0]]
        for kind in (StateDictType.SHARDED_STATE_DICT, StateDictType.LOCAL_STATE_DICT):
            with FullyShardedDataParallel.state_dict_type(wrapped, kind):
                said.append(message_of(publisher.publish, wrapped)[0])
        publisher.publish(wrapped)
        publisher.wait(installed=1.0)
        return said, published(state_dir)


def open_and_close(rank, state_dir):
    """How many descriptors and threads this process has after each of twenty publishers: of all ranks, and of some."""
    pair = dist.new_group([0, 1] if rank < 2 else [2, 3], use_local_synchronization=True)
    if rank == 0:
        dist.new_group([0], use_local_synchronization=True)  # so that ranks have different numbers of groups
    found = []
    for number in range(20):
        group = pair if number % 2 else None
        if group is not None and rank >= 2:
            continue  # rank 0 of a group fills the origin's memory: one pair is enough
        with ShardedPublisher(state_dir, group=group) as publisher:
            version = publisher.publish({"w": torch.full((4,), float(number))})
            publisher.wait(version)
        found.append(tuple(len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task")))
    return found


# ------------------------------------------------------------------------------------------------ what comes of it


class Sharded(DaemonTest):
    worker_flags = ()

    def run_ranks(self, function, *arguments, **options):
        return run(self.directory, WORLD, function, self.origin.state, *arguments, **options)

    def installed(self):
        return published(self.worker.state)

    def test_a_sharded_model_arrives_as_it_is(self):
        by_rank = self.run_ranks(publish_a_sharded_model)
        expected = model().state_dict()
        names = set(expected) - {"head.weight"}
        for steps in zip(*by_rank):
            version, wholes, changes, now, seen = steps[0]
            self.assertEqual({said[0] for said in steps}, {version}, "the same on every rank")
            for other in steps[1:]:
                self.assertEqual(other[3], now)
            self.assertEqual(set(seen), names)
            self.assertEqual(seen, {name: now[name] for name in names}, version)
        self.assertEqual([said[0] for said in by_rank[0]], [1, 2, 3, 4, 5, 6, 7, 8, 9, 11])
        # By what: all tensors, or changes.
        self.assertEqual([said[1:3] for said in by_rank[0]],
                         [(1, 0), (2, 0), (2, 1), (3, 1), (3, 2), (3, 3), (4, 3), (4, 4), (4, 5), (5, 6)])  # fmt: skip
        self.assertEqual(self.installed(), by_rank[0][-1][4])

    def test_meshes_of_any_placement(self):
        by_rank = self.run_ranks(publish_on_a_mesh)
        said, owned, refused = by_rank[0]
        self.assertEqual([counts[:2] for counts in said], [(1, 0), (2, 0), (2, 1), (2, 2)])
        for _, _, now, seen in said:
            now = {("renamed" if name == "replicated" else name): data for name, data in now.items() if name != "tied"}
            self.assertEqual(seen, now)
        self.assertTrue(all(owned), "replicas share the work")
        self.assertIn("rank 0: Error:", refused[0])
        self.assertEqual([of[2][1:2] for of in by_rank], [refused[1:2]] * WORLD)

    def test_parts_and_stages(self):
        seen, fused, head, refused = self.run_ranks(publish_parts)[0]
        # Each rank has changed its own.
        by_rank = [torch.frombuffer(bytearray(fused), dtype=torch.float32).view(2, 3, 4, 8)]
        self.assertEqual(set(seen), {"model.layer.q", "model.layer.k", "model.layer.v", "model.head"})
        q = torch.frombuffer(bytearray(seen["model.layer.q"]), dtype=torch.float32).view(8, 8)
        expected = torch.cat([by_rank[0][0, 0].t(), by_rank[0][1, 0].t()], dim=1).contiguous()
        expected[2, 1] = expected[2, 5] = 17
        self.assertTrue(torch.equal(q, expected))
        found = torch.frombuffer(bytearray(seen["model.head"]), dtype=torch.float32).view(10, 8)
        torch.manual_seed(5)
        torch.randn(2, 3, 4, 8)
        expected = torch.randn(10, 8)
        expected[:2] = -1
        self.assertTrue(torch.equal(found, expected))
        self.assertIn("tensor 'x': (2,) elements from (1,) on are not within (2,)", refused[0])
        self.assertEqual(sorted(refused[1]), [1, 3])

    def test_one_ranks_error_is_every_ranks_and_nothing_is_published(self):
        by_rank = self.run_ranks(fail_in_many_ways)
        for said, missing in by_rank:
            for name, error, version in (
                ("partial", "tensor 'p' is .*, a sum that is still to be made", 0),
                ("no tensor", "tensor 'p' is a bytes", 0),
                ("incomplete", "hold 1 of its 2 elements", 0),
                ("differ", "on rank 0, but F32 .4,. on rank 3", 0),
                ("fill", "cannot fill a version: rank 2: MemoryError: of this rank alone", 0),
                ("fill changes", "cannot fill a version: rank 2: MemoryError", 2),
                ("nan", "NaN", 3),
                ("other calls", "make the same calls on all ranks", 4),
                ("many", "none of its 10 local elements", None),
                ("order", "sort them, and give each once", None),
                ("floats", "give a row of integers, or a mask", None),
                ("mask", "a mask of shape .3,. for a local tensor of .10,.", None),
                ("unknown", "changed has 'published.w', but the state dict has no tensor of that name", None),
                ("emptied", "tensor 'r' had cells in the version before and has none now", None),
            ):
                with self.subTest(name):
                    self.assertRegex(said[name][0], error)
                    if version is not None:
                        self.assertEqual(said[name][-1], version)
            self.assertEqual(said["after"]["w"], bytes_of(torch.arange(40.0) + 1))
            self.assertEqual(said["at last"][0], said["at last"][1])
            self.assertIn("this publisher is closed", said["closed"][0])
            self.assertIn("rank 0: Error:", missing[0])
        self.assertEqual([said["fill"][2] for said, _ in by_rank], ["NoneType", "NoneType", "MemoryError", "NoneType"])

    def test_replicas_that_have_drifted_are_named(self):
        for (whole_said, changed_said, mesh_said), alike, seen in self.run_ranks(drift):
            self.assertEqual(alike, 2)
            for said in (whole_said, changed_said):
                self.assertRegex(said, "tensor 'norm': ranks 0 and 2 hold replicas of .4,. elements .* that differ")
            self.assertRegex(mesh_said, "tensor 'w': ranks 1 and 3 hold replicas of .4,. elements from .4,. on that differ")
            self.assertEqual(seen, {"norm": bytes_of(torch.zeros(4)), "w": bytes_of(torch.arange(8.0))})

    def test_what_fsdp1_has_in_shards_is_refused_by_name(self):
        torch.manual_seed(7)
        plain = {name: bytes_of(tensor) for name, tensor in nn.Linear(6, 5).state_dict().items()}
        for said, seen in self.run_ranks(give_fsdp1):
            self.assertEqual(seen, plain)
            for text, name in zip(said, ("_flat_param", "weight", "_flat_param")):
                self.assertRegex(text, f"tensor '{name}': FSDP1 has it in shards .*FULL_STATE_DICT on one rank")

    def test_a_closed_publisher_leaves_nothing_behind(self):
        for found in self.run_ranks(open_and_close):
            for first, last in zip(found[2], found[-1]):
                self.assertLessEqual(last, first, found)

    def test_a_rank_error_goes_through_a_process_pool(self):
        error = pickle.loads(pickle.dumps(RankError("cannot fill a version: rank 2: why", {2: "why"})))
        self.assertEqual((str(error), error.errors), ("weightcast: cannot fill a version: rank 2: why", {2: "why"}))

    def test_the_example_runs_under_torchrun(self):
        example = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "publish_fsdp.py"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        ran = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             str(example), self.origin.state],
            env=environment, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("published version 3, taken over in", ran.stdout)
        eventually(lambda: self.worker.node()["version"] == 3)
        self.assertEqual(set(self.installed()), {"0.weight", "0.bias", "2.weight", "2.bias"})

    def test_a_rank_that_is_gone_is_an_error_within_the_bound(self):
        for how, limit_s in (("killed", 30), ("hangs", 30)):
            with self.subTest(how):
                by_rank = self.run_ranks(lose_a_rank, how, lost=[3])
                for said, took, again in by_rank[:3]:
                    self.assertIn("a rank ended, or did not answer within 5 s", said[0])
                    self.assertLess(took, limit_s)
                    self.assertIn("a rank ended", again[0])
                versions = [entry["version"] for entry in weightcast.versions(self.origin.state)["versions"]]
                self.assertEqual(max(versions), 1 if how == "killed" else 2, "the last one was not published")


if __name__ == "__main__":
    unittest.main()
