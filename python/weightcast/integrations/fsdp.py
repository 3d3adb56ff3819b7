"""Publishing from a sharded torch trainer: each rank writes its own shards into the memory that the origin reads.

    publisher = ShardedPublisher("/var/lib/weightcast")      # on every rank, after init_process_group()
    version = publisher.publish(model.state_dict())          # FSDP2: DTensors, as they are
    version = publisher.publish_changed(model.state_dict())  # the changed elements alone

No rank gathers anything. Every call is collective: all ranks make it, with the same arguments, and all return the same or
raise. Rank 0 of the group runs on the origin's host, and so do the ranks that own something: of replicas one that does.
They have one user, and see each other's processes.
"""

from __future__ import annotations

import ctypes
import datetime
import hashlib
import pickle
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional, Union

import torch
import torch.distributed as dist

from .._arguments import Files, check_names, items, unwrapped
from .._changes import Piece, update_shadow
from .._errors import Code, Error, TimedOut
from .._library import PathLike
from .._publication import Publication, Region, attach
from .._publisher import Outcome, Publisher
from .._tensors import DTYPE_BITS, Box, Source, source_of, tensor_bytes
from ._shards import Held, Plan, Shard, Split, local_shards, make_plan

Rename = Union[Callable[[str], Optional[str]], Mapping[str, Optional[str]]]

# So that rank 0 can say that the origin did not answer before the others give rank 0 up.
_ORIGINS_SHARE = 0.5
# Above this share of the weights, lists of changes cost more than the weights.
_LISTED_SHARE_MAX = 0.5
# Changed elements that there is always room for.
_ROOM_MIN = 1 << 16
_INDEX_BYTES = 4
# What ranks say to each other mostly takes less.
_SHORT_BYTES = 4096
# By ranks: how many publishers of them were made here, which is the same on each of them.
_made: dict[tuple[int, ...], int] = {}


class RankError(RuntimeError):
    """What one rank's error is to every rank. Nothing was published, unless the message says so.

    `errors` has what each failing rank said, by its number in the group; none where ranks could not be reached. On a rank
    that failed itself, `__cause__` is its own exception.
    """

    def __init__(self, message: str, errors: Mapping[int, str]) -> None:
        super().__init__(f"weightcast: {message}")
        self.errors = dict(errors)

    def __reduce__(self) -> tuple:
        return type(self), (str(self).removeprefix("weightcast: "), self.errors)


class Part(NamedTuple):
    """A box of a tensor, for trainers whose shards are plain tensors: Megatron's, for example.

    `tensor` holds the elements of a tensor of `shape` from `offset` on. It may be a view: one of a fused tensor's rows.
    """

    tensor: Any
    shape: tuple[int, ...]
    offset: tuple[int, ...]


class _Local(NamedTuple):
    """Where this rank has the elements of a box."""

    tensor: Any  # the local tensor
    start: tuple[int, ...]  # of the box, in it
    part: int  # which of the tensor's parts it is

    def view(self, box: Box) -> Any:
        if box.shape == self.tensor.shape:
            return self.tensor
        return self.tensor[tuple(slice(at, at + length) for at, length in zip(self.start, box.shape))]


class _Described(NamedTuple):
    held: dict[str, Held]
    local: dict[tuple[str, Box], _Local]
    given_as: dict[str, str]  # by the name that is published: the state dict's


class _Lists(NamedTuple):
    """The changes of one box: numbers of its elements, as int32 with the bits of uint32, and their new values."""

    indices: Any
    values: Any


class ShardedPublisher:
    """A sharded trainer's connection to the origin on its host. Every rank of the group makes one, and the same calls."""

    def __init__(
        self,
        state_dir: Optional[PathLike] = None,
        group: Any = None,
        rename: Optional[Rename] = None,
        *,
        timeout: float = 300.0,
    ) -> None:
        """`group`: the ranks that hold the weights, of any backend; None: all. `rename`: the name under which a tensor is
        published, by the state dict's name: a function or a mapping, where None leaves the tensor out; a name that a
        mapping lacks stays. `timeout`: how long ranks wait for each other in a call, in seconds, and for the origin half
        as long.

        Errors: RankError (no daemon runs there, ...).
        """
        self._rename = {unwrapped(k): to for k, to in rename.items()} if isinstance(rename, Mapping) else rename
        self._timeout = timeout
        ranks = dist.get_process_group_ranks(group if group is not None else dist.group.WORLD)
        self._rank, self._ranks = ranks.index(dist.get_rank()), len(ranks)
        self._group: Any = _connect_ranks(ranks, self._rank, timeout)
        self._lost: Optional[str] = None
        self._publisher: Optional[Publisher] = None
        self._begun: Optional[Publication] = None
        self._regions: dict[str, Region] = {}
        self._key: Optional[bytes] = None  # of what this rank holds, which the plan was made for
        self._plan = Plan()
        self._base: Optional[int] = None  # the last version, if changes can be published against it
        self._shadow: Optional[dict[tuple[str, Box], Any]] = None
        # Of publish_changed() without `changed`: the lists by dtype, how much of each is used, and what was found.
        self._room: dict[Any, _Lists] = {}
        self._used: dict[Any, int] = {}
        self._found: dict[int, _Lists] = {}

        def connect() -> str:
            if self._rank == 0:
                self._publisher = Publisher(state_dir, timeout=self._origin_timeout)
            with open("/proc/sys/kernel/random/boot_id") as file:
                return file.read()

        try:
            hosts = self._agree("connect to the origin", connect)
        except RankError:
            self.close()
            raise
        self._fills = [rank for rank, host in enumerate(hosts) if host == hosts[0]]

    # ---------------------------------------------------------------------------------------------------- the calls

    def publish(
        self,
        state_dict: Any,
        *,
        version: Optional[int] = None,
        allow_nonfinite: bool = False,
        new_model: bool = False,
        files: Optional[Files] = None,
        check_replicas: bool = False,
    ) -> int:
        """Publishes all tensors; returns the version's number, the same on every rank, when the origin has accepted it.

        `state_dict`: a Module, a state dict or pairs. A value is a DTensor (FSDP2, tensor parallel, any mesh), a plain
        tensor, which then is whole on every rank that has it, a Part, or a list of Parts. Ranks may have other names than
        each other, as in pipelines, as long as all of them together have all of each tensor. Tied tensors are published
        once, under the first name. Names are those of the model without torch.compile() and other wrappers.
        Of replicas the lowest rank's are published. `check_replicas`: compare them all first, by digests, which reads each
        element once. Replicas drift apart where gradients are not summed, as those of norms under a tensor-parallel plan.
        Other arguments: as for Publisher.publish(); rank 0's count.
        Afterwards the tensors may change. Whether the origin took them over, wait() tells.

        Errors: RankError: a rank's own error (a Partial placement or another tensor that cannot be taken, a tensor that is
        not there in full, replicas that differ, the origin's refusal), or a rank that is gone.
        """
        self._base = None
        options = {"version": version, "allow_nonfinite": allow_nonfinite, "new_model": new_model, "files": files}
        try:
            call = ("publish", check_replicas)
            described, where = self._describe(state_dict, call, lambda _: self._begin_whole(options))
            if check_replicas:
                self._compare_replicas(described)
            published = self._publish_whole(described, where, options)
            if self._shadow is not None:
                self._remember(described)
        finally:
            self._abort()
        self._base = published
        return published

    def publish_changed(
        self,
        state_dict: Any,
        changed: Optional[Mapping[str, Any]] = None,
        *,
        version: Optional[int] = None,
        allow_nonfinite: bool = False,
        check_replicas: bool = False,
    ) -> int:
        """Publishes the last version with the elements that have changed since; returns as publish() does.

        `changed`: which ones, by the state dict's names: a row of integers, ascending, numbers of elements of the
        flattened local tensor (to_local()); or a mask, of booleans and the local tensor's shape; for a list of Parts a
        list of these. A tensor that is not named has not changed. Of replicas one rank's word counts.
        Without it each rank compares what it owns with a copy, which it keeps in host memory from the first such call on.
        Waits until the origin has taken over the version before. `check_replicas` is that of publish().

        All tensors are published instead where there is nothing to change: the first time, after an error, after another
        program has published, where the tensors are others than before, and where half of the weights would be listed.
        Errors: those of publish(); also a name in `changed` that the state dict has not.
        """
        base, self._base = self._base, None
        is_known = changed is not None
        lists = base is not None and (is_known or self._shadow is not None)
        changed = None if changed is None else {unwrapped(name): given for name, given in changed.items()}
        call = ("publish_changed", is_known, base, self._shadow is not None, check_replicas)
        options = {"version": version, "allow_nonfinite": allow_nonfinite}
        try:
            described, counts = self._describe(
                state_dict, call, lambda described: self._find(described, changed) if lists else None, changed
            )
            if check_replicas:
                self._compare_replicas(described)
            published = None
            if lists and counts is not None:
                published = self._publish_lists(base, counts, options)
            if published is None:
                self._abort()
                published = self._publish_whole(described, None, options)
                if self._shadow is not None or not is_known:
                    self._remember(described)
        finally:
            self._abort()
        self._base = published
        return published

    def wait(self, version: int = 0, *, installed: Optional[float] = None, timeout: float = 60.0) -> Outcome:
        """As Publisher.wait(), on all ranks: until the origin has its own copy or, with `installed`, until that fraction
        of the active workers has installed it. `version` 0 is the last one that was published.

        Errors: RankError; the cause on rank 0 is what Publisher.wait() raises.
        """
        end = time.monotonic() + timeout
        while True:
            outcome = self._agree("wait for the version", self._wait_a_while, version, installed, end)[0]
            if outcome is not None:
                return outcome

    def close(self) -> None:
        """Ends the connections, to the origin and to the other ranks. Not collective; repeating it is harmless."""
        self._lost = self._lost or "this publisher is closed; make a new one"
        self._group = None
        for region in self._regions.values():
            region.close()
        self._regions.clear()
        if self._publisher is not None:
            self._publisher.close()

    def __enter__(self) -> ShardedPublisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------------- agreement

    @property
    def _origin_timeout(self) -> float:
        return self._timeout * _ORIGINS_SHARE

    def _agree(self, what: str, call: Callable[..., Any], *args: Any) -> list[Any]:
        """call(*args) on all ranks; all results, by rank. Where it raised on one, all raise."""
        if self._lost is not None:
            raise RankError(self._lost, {})
        mine: Optional[Exception] = None
        try:
            said = (True, call(*args))
        except Exception as error:  # noqa: BLE001: whatever it is, the others must know
            mine, said = error, (False, f"{type(error).__name__}: {error}")
        try:
            said_by_rank = self._gather(said)
        except Exception as error:
            self._lost = f"a rank ended, or did not answer within {self._timeout:g} s; start the trainer again"
            raise RankError(f"cannot {what}: {self._lost} ({error})", {}) from mine or error
        errors = {rank: text for rank, (is_well, text) in enumerate(said_by_rank) if not is_well}
        if errors:
            named = "; ".join(f"rank {rank}: {text}" for rank, text in errors.items())
            raise RankError(f"cannot {what}: {named}", errors) from mine
        return [value for _, value in said_by_rank]

    def _gather(self, mine: Any) -> list[Any]:
        """Every rank's object, by rank; in one exchange where all are short, as they are but for the first time."""
        data = pickle.dumps(mine)
        room = _SHORT_BYTES
        while True:
            sent = torch.zeros(8 + room, dtype=torch.uint8)
            sent[:8] = torch.tensor([len(data)]).view(torch.uint8)
            if len(data) <= room:
                sent[8 : 8 + len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            received = [torch.empty_like(sent) for _ in range(self._ranks)]
            self._group.allgather([received], [sent]).wait()
            lengths = [int(of_rank[:8].view(torch.int64)) for of_rank in received]
            if max(lengths) <= room:
                return [pickle.loads(of_rank[8 : 8 + n].numpy(force=True).tobytes()) for of_rank, n in zip(received, lengths)]
            room = max(lengths)

    # ---------------------------------------------------------------------------------------------------- what is where

    def _describe(
        self,
        state_dict: Any,
        call: tuple[Any, ...],
        ahead: Callable[[_Described], Any],
        changed: Optional[Mapping[str, Any]] = None,
    ) -> tuple[_Described, Optional[list[Any]]]:
        """What this rank holds, for which there is a plan then. What comes next, `ahead`, is done meanwhile where the plan
        of the last time stands; then its results are given, too, by rank. Ranks that make another `call` are told so."""
        found: list[tuple[_Described, bytes]] = []

        def describe() -> tuple[Any, bool, Any]:
            described = self._described(state_dict, changed)
            key = hashlib.sha256(pickle.dumps(described.held)).digest()
            found.append((described, key))
            return (call, True, None) if key != self._key else (call, False, ahead(described))

        def compare() -> None:
            for rank, (other, _, _) in enumerate(said):
                if other != call:
                    raise ValueError(f"here it is {call}, on rank {rank} {other}; make the same calls on all ranks")

        said = self._agree("begin a version", describe)
        described, key = found[0]
        if any(other != call for other, _, _ in said):
            self._agree("begin a version", compare)
        if not any(is_new for _, is_new, _ in said):
            return described, [result for _, _, result in said]
        self._abort()
        self._key, self._shadow = None, None
        self._room.clear()
        held = self._agree("describe the tensors", lambda: described.held)
        self._plan = self._agree("plan who publishes what", make_plan, held, self._fills)[self._rank]
        self._key = key
        return described, None

    @torch.no_grad()  # a DTensor's to_local() costs fifteen microseconds where it is to be differentiated, and else none
    def _described(self, state_dict: Any, changed: Optional[Mapping[str, Any]]) -> _Described:
        held: dict[str, Held] = {}
        local: dict[tuple[str, Box], _Local] = {}
        given_as: dict[str, str] = {}
        first: dict[Any, str] = {}
        known = set()
        for given, value in items(state_dict):
            name = self._renamed(given)
            known.add(given)
            if name is None:
                continue
            if name in held:
                raise ValueError(f"tensors {given_as[name]!r} and {given!r} would both be published as {name!r}")
            dtype, shape, parts = _parts_of(given, value)
            memory = []
            for number, (tensor, source, shards) in enumerate(parts):
                if shards:
                    memory.append(source.memory())
                for box, start in shards:
                    local[name, box] = _Local(tensor, start, number)
            boxes = tuple(box for *_, shards in parts for box, _ in shards)
            is_known = boxes and None not in memory
            root = first.setdefault((tuple(memory), boxes), name) if is_known else name
            held[name] = Held(dtype, shape, boxes, root)
            given_as[name] = given
        check_names(list(held))
        unknown = next((name for name in changed or () if name not in known), None)
        if unknown is not None:
            raise ValueError(
                f"changed has {unknown!r}, but the state dict has no tensor of that name; give its names, not those that are "
                "published"
            )
        return _Described(held, local, given_as)

    def _renamed(self, name: str) -> Optional[str]:
        if self._rename is None:
            return name
        return self._rename.get(name, name) if isinstance(self._rename, Mapping) else self._rename(name)

    def _compare_replicas(self, described: _Described) -> None:
        """Errors: RankError, with the name of the first tensor of which ranks hold different elements."""

        def digests() -> dict[tuple[str, Box], bytes]:
            return {key: _digest_of(key[0], local.view(key[1])) for key, local in described.local.items()}

        def compare() -> None:
            first: dict[tuple[str, Box], tuple[int, bytes]] = {}
            for rank, of_rank in enumerate(said if self._rank == 0 else ()):
                for (name, box), digest in of_rank.items():
                    other, expected = first.setdefault((name, box), (rank, digest))
                    if digest != expected:
                        raise ValueError(
                            f"tensor {name!r}: ranks {other} and {rank} hold replicas of {box.shape} elements from "
                            f"{box.start} on that differ; sum its gradients over the ranks, and broadcast it once"
                        )

        said = self._agree("compare the replicas", digests)
        self._agree("compare the replicas", compare)

    # ---------------------------------------------------------------------------------------------------- publishing

    def _publish_whole(self, described: _Described, begun: Optional[list[Any]], options: Mapping[str, Any]) -> int:
        """`begun`: what _begin_whole() gave on each rank, if that was done ahead."""
        begun = begun or self._agree("begin a version", self._begin_whole, options)
        owned = self._plan.owned

        def fill(memory: Union[Publication, Region]) -> None:
            for name, box in owned[self._rank]:
                memory.fill(name, described.local[name, box].view(box), offset=box.start)

        published = self._finish("whole", begun[0], [rank for rank, of_rank in enumerate(owned) if of_rank], fill)
        if self._publisher is not None:
            self._publisher._remember_cells(self._plan.infos)
        return published

    def _begin_whole(self, options: Mapping[str, Any]) -> Optional[tuple[str, int, int]]:
        """On rank 0: where the others find the memory."""
        if self._rank != 0:
            return None
        if not options.get("new_model"):
            self._publisher._check_cells(self._plan.infos)
        parts = sum(1 for of_rank in self._plan.owned if of_rank)
        self._begun = self._publisher.begin(self._plan.infos, parts=parts, timeout=self._origin_timeout, **options)
        return self._begun.path, self._begun.id, self._begun.memory

    def _publish_lists(
        self, base: int, counts: list[Optional[dict[int, tuple[int, int]]]], options: Mapping[str, Any]
    ) -> Optional[int]:
        """`counts`: what _find() gave on each rank. None: the whole is to be published instead."""
        plan = self._plan
        if None in counts:
            return None
        pieces, mine, listed_bytes = [], [], 0
        dtypes = {info.name: info.dtype for info in plan.infos}
        for rank, of_rank in enumerate(counts):
            for number, (count, width) in of_rank.items():
                name, box = plan.owned[rank][number]
                pieces.append(Piece(name, dtypes[name], box.start, box.shape, count))
                listed_bytes += count * (_INDEX_BYTES + width)
                if rank == self._rank:
                    mine.append((pieces[-1], self._found[number]))
        if listed_bytes > _LISTED_SHARE_MAX * plan.size_bytes:
            return None
        fillers = [rank for rank, of_rank in enumerate(counts) if of_rank]

        def begin() -> Optional[tuple[str, int, int]]:
            if self._rank != 0:
                return None
            try:
                # What the origin did not take over cannot be changed.
                self._publisher.wait(base, timeout=self._origin_timeout)
            except TimedOut:
                raise
            except Error:
                return None
            self._begun = self._publisher.begin_changes(
                pieces, base=base, parts=len(fillers), timeout=self._origin_timeout, **options
            )
            return self._begun.path, self._begun.id, self._begun.memory

        def fill(memory: Union[Publication, Region]) -> None:
            for piece, lists in mine:
                memory.fill(piece.indices, lists.indices.view(torch.uint32))
                memory.fill(piece.values, lists.values)

        where = self._agree("begin a version", begin)[0]
        return None if where is None else self._finish("changes", where, fillers, fill)

    def _finish(
        self, kind: str, where: tuple[str, int, int], fillers: list[int], fill: Callable[[Any], None]
    ) -> Optional[int]:
        """fill(memory) on the fillers, and the commit. None: the origin has another base, and wants the whole."""

        def fill_here() -> None:
            if self._rank not in fillers:
                return
            memory = self._begun or self._region(kind, *where)
            fill(memory)
            memory.done(fillers.index(self._rank))

        def commit_here() -> Optional[int]:
            if self._rank != 0:
                return None
            try:
                return self._begun.commit(timeout=self._origin_timeout)
            except Error as error:
                if kind == "changes" and error.code == Code.WRONG_BASE:
                    return None
                raise

        self._agree("fill a version", fill_here)
        return self._agree("commit a version", commit_here)[0]

    def _abort(self) -> None:
        """Forgets what was begun and not committed, on rank 0."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.abort()

    def _region(self, kind: str, path: str, id: int, memory: int) -> Region:
        """The memory that rank 0 has begun, mapped here from one publication to the next."""
        region = self._regions.get(kind)
        if region is not None and region.memory == memory:
            region.renew(id)
            return region
        if region is not None:
            region.close()
        self._regions[kind] = attach(path)
        return self._regions[kind]

    def _wait_a_while(self, version: int, installed: Optional[float], end: float) -> Optional[Outcome]:
        """The outcome, on rank 0; None: there is time left, but not for the other ranks."""
        if self._rank != 0:
            return None
        left = max(end - time.monotonic(), 0.0)
        try:
            return self._publisher.wait(version, installed=installed, timeout=min(left, self._origin_timeout))
        except TimedOut:
            if left > self._origin_timeout:
                return None
            raise

    # ---------------------------------------------------------------------------------------------------- changes

    def _remember(self, described: _Described) -> None:
        """Keeps a copy of what this rank owns."""

        def copy() -> None:
            shadow = self._shadow or {}
            for name, box in self._plan.owned[self._rank]:
                view = described.local[name, box].view(box).detach()
                if (name, box) not in shadow:
                    shadow[name, box] = torch.empty(box.shape, dtype=view.dtype)
                shadow[name, box].copy_(view)
            self._shadow = shadow

        self._agree("keep a copy", copy)

    def _find(self, described: _Described, changed: Optional[Mapping[str, Any]]) -> Optional[dict[int, tuple[int, int]]]:
        """Lists the changes of each box that this rank owns, and brings the copy up to date. By the box's number in the
        plan, where there are any: how many, and their bytes each. None: too many to list them."""
        self._found.clear()
        self._used.clear()
        counts = {}
        for number, (name, box) in enumerate(self._plan.owned[self._rank]):
            if changed is None:
                lists = self._compared(name, box, described.local[name, box])
            else:
                lists = self._listed(name, box, described, changed)
            if lists is None:
                return None
            if len(lists.indices):
                self._found[number] = lists
                counts[number] = (len(lists.indices), lists.values.element_size())
        return counts

    def _compared(self, name: str, box: Box, local: _Local) -> Optional[_Lists]:
        now = local.view(box).detach().cpu().contiguous()
        if now.dtype not in self._room:
            shadows = [shadow for shadow in self._shadow.values() if shadow.dtype == now.dtype]
            room = sum(shadow.numel() for shadow in shadows) // 2 + _ROOM_MIN  # memory is taken when it is written
            self._room[now.dtype] = _Lists(torch.empty(room, dtype=torch.int32), torch.empty(room, dtype=now.dtype))
        begin = self._used.get(now.dtype, 0)
        indices, values = (row[begin:] for row in self._room[now.dtype])
        count = update_shadow(self._shadow[name, box], now, indices, values)
        self._used[now.dtype] = begin + count
        return _Lists(indices[:count], values[:count]) if count <= len(indices) else None

    def _listed(self, name: str, box: Box, described: _Described, changed: Mapping[str, Any]) -> _Lists:
        """What the caller says of a box; of tied tensors under whatever name."""
        names = [name, *(tied for tied, root in self._plan.stands_for.items() if root == name)]
        given = next((described.given_as[tied] for tied in names if described.given_as.get(tied) in changed), None)
        tensor, start, part = described.local[name, box]
        tensor = tensor.detach()
        if given is None:
            return _Lists(torch.empty(0, dtype=torch.int32), torch.empty(0, dtype=tensor.dtype))
        numbers = changed[given]
        numbers = numbers[part] if isinstance(numbers, (list, tuple)) else numbers
        numbers = _numbers_of(given, numbers, tensor)
        inside = numbers
        if box.shape != tuple(tensor.shape):
            # Some of the local tensor's elements: those of the box, counted in it.
            at = torch.unravel_index(numbers, tensor.shape)
            among = torch.ones_like(numbers, dtype=torch.bool)
            inside = torch.zeros_like(numbers)
            for place, begin, length in zip(at, start, box.shape):
                among &= (place >= begin) & (place < begin + length)
                inside = inside * length + (place - begin)
            numbers, inside = numbers[among], inside[among]
        values = tensor.reshape(-1).index_select(0, numbers).cpu()
        inside = inside.cpu()
        if self._shadow is not None:
            self._shadow[name, box].view(-1)[inside] = values
        return _Lists(inside.to(torch.int32), values)


def _connect_ranks(ranks: list[int], rank: int, timeout: float) -> Any:
    """Connections between the ranks, of a publisher's own: what is agreed on lies in host memory, and never waits behind the
    trainer's kernels. They end with the object.

    Not by new_group(), which takes a number of other groups into the name of one of some ranks, and gives the name of one
    that has ended again: its ranks would dial addresses that are gone.
    """
    made = _made[tuple(ranks)] = _made.get(tuple(ranks), 0) + 1
    name = f"weightcast/{'_'.join(map(str, ranks))}/{made}/"
    store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
    return dist.ProcessGroupGloo(store, rank, len(ranks), datetime.timedelta(seconds=timeout))


def _digest_of(name: str, tensor: Any) -> bytes:
    source = source_of(name, tensor.detach())
    address, _kept = source.contiguous()
    size = tensor_bytes(source.dtype, source.shape)
    return hashlib.sha256((ctypes.c_char * size).from_address(address) if size else b"").digest()


def _numbers_of(name: str, given: Any, tensor: Any) -> Any:
    """The numbers of elements that `given` says of a local tensor, on its device. Errors: ValueError."""
    given = given.to_local() if hasattr(given, "to_local") else torch.as_tensor(given)
    given = given.detach().to(tensor.device)
    if given.dtype == torch.bool:
        if given.shape != tensor.shape:
            raise ValueError(
                f"tensor {name!r}: a mask of shape {tuple(given.shape)} for a local tensor of {tuple(tensor.shape)}"
            )
        return given.reshape(-1).nonzero().view(-1)
    if given.dim() != 1 or given.is_floating_point() or given.is_complex():
        raise ValueError(f"tensor {name!r}: changes of {given.dtype} {tuple(given.shape)}; give a row of integers, or a mask")
    numbers = given.to(torch.int64)
    # Whether they ascend the origin finds out, and tells wait().
    if len(numbers) and not (0 <= numbers[0] and numbers[-1] < tensor.numel()):
        raise ValueError(f"tensor {name!r}: changes that are none of its {tensor.numel()} local elements")
    return numbers


def _whole_elements(name: str, source: Source) -> Source:
    """Errors: TypeError, of elements that are less than a byte, which are published whole alone."""
    if DTYPE_BITS[source.dtype] % 8:
        raise TypeError(f"tensor {name!r} is {source.dtype}, of less than a byte each; publish it by Publisher, on one rank")
    return source


def _split_of(name: str, placement: Any) -> Optional[Split]:
    if placement.is_replicate():
        return None
    if placement.is_partial():
        raise TypeError(f"tensor {name!r} is {placement}, a sum that is still to be made; redistribute() it first")
    if not hasattr(placement, "dim"):
        raise TypeError(f"tensor {name!r} is placed by {placement}, which this release does not know; redistribute() it")
    return Split(placement.dim, getattr(placement, "split_factor", 1))


def _parts_of(name: str, value: Any) -> tuple[str, tuple[int, ...], list[tuple[Any, Source, tuple[Shard, ...]]]]:
    """dtype and shape of a whole tensor, and this rank's local tensors of it, each with the boxes that it consists of."""
    if isinstance(value, Part):
        value = [value]
    if isinstance(value, (list, tuple)):
        if not value or not all(isinstance(part, Part) for part in value):
            raise TypeError(f"tensor {name!r} is a {type(value).__name__}; give Parts, one at least")
        dtype, shape = _whole_elements(name, source_of(name, value[0].tensor)).dtype, tuple(value[0].shape)
        parts = []
        for part in value:
            box, source = Box(tuple(part.offset), tuple(part.tensor.shape)), source_of(name, part.tensor)
            if source.dtype != dtype or tuple(part.shape) != shape:
                raise ValueError(f"tensor {name!r}: its parts differ in dtype or shape")
            try:
                box.check(shape)
            except ValueError as error:
                raise ValueError(f"tensor {name!r}: {error}") from None
            parts.append((part.tensor, source, (Shard(box, (0,) * len(shape)),) if box.volume else ()))
        return dtype, shape, parts
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"tensor {name!r} is a {type(value).__name__}; give a torch tensor, a DTensor or Parts")
    shape = tuple(value.shape)
    if not hasattr(value, "placements"):
        shards = (Shard(Box((0,) * len(shape), shape), (0,) * len(shape)),)
        source = _whole_elements(name, source_of(name, value))
        return source.dtype, shape, [(value, source, shards if value.numel() else ())]
    mesh, local = value.device_mesh, value.to_local()
    splits = tuple(_split_of(name, placement) for placement in value.placements)
    source, coordinate = _whole_elements(name, source_of(name, local)), mesh.get_coordinate()
    if coordinate is None:
        return source.dtype, shape, []
    local_shape, shards = local_shards(shape, tuple(mesh.shape), tuple(coordinate), splits)
    if tuple(local.shape) != local_shape:
        raise ValueError(
            f"tensor {name!r}: {value.placements} put {local_shape} of its {shape} elements here, but it has "
            f"{tuple(local.shape)}; give a size that the mesh divides"
        )
    return source.dtype, shape, [(local, source, shards)]
