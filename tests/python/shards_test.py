"""Who publishes which part of a tensor: the planning of sharded trainers, without torch."""

import itertools
import math
import random
import unittest

from weightcast import TensorInfo
from weightcast._tensors import Box
from weightcast.integrations._shards import Held, Split, local_shards, make_plan


def chunks(elements, count):
    """torch.chunk(), with empty ones at the end."""
    size = -(-len(elements) // count) or 1
    return [elements[i * size : (i + 1) * size] for i in range(count)]


def placed(length, mesh, coordinate, splits):
    """Which elements of one dimension a coordinate holds, as torch's placements define it."""
    elements = list(range(length))
    for size, at, split in zip(mesh, coordinate, splits):
        if split is not None:
            shards = [chunks(piece, size) for piece in chunks(elements, split.factor)]
            elements = [element for of_piece in shards for element in of_piece[at]]
    return elements


def held(*boxes, shape=(4, 6), dtype="BF16", tied_to="w"):
    return Held(dtype, shape, tuple(Box(*box) for box in boxes), tied_to)


class LocalShards(unittest.TestCase):
    def test_are_where_torch_places_them(self):
        made = random.Random(1)
        several = 0
        for _ in range(300):
            shape = tuple(made.randrange(0, 12) for _ in range(made.randrange(1, 4)))
            mesh = tuple(made.randrange(1, 4) for _ in range(made.randrange(1, 4)))
            splits = tuple(
                made.choice([None, Split(made.randrange(len(shape)), made.choice([1, 1, 2, 3]))]) for _ in mesh
            )
            for coordinate in itertools.product(*map(range, mesh)):
                local_shape, shards = local_shards(shape, mesh, coordinate, splits)
                expected = [
                    placed(length, mesh, coordinate, [s if s and s.dim == dim else None for s in splits])
                    for dim, length in enumerate(shape)
                ]
                self.assertEqual(local_shape, tuple(map(len, expected)))
                where = dict(zip(itertools.product(*map(range, local_shape)), itertools.product(*expected)))
                several += len(shards) > 1
                for (start, size), local_start in shards:
                    for at in itertools.product(*map(range, size)):
                        local = tuple(a + b for a, b in zip(local_start, at))
                        self.assertEqual(where.pop(local), tuple(a + b for a, b in zip(start, at)))
                self.assertFalse(where, "each element is in one box")
        self.assertGreater(several, 0)

    def test_of_fsdp_over_tensor_parallel_are_one_box(self):
        # Tensor parallel splits first, into rows 0-3 and 4-7; then FSDP splits each.
        boxes = [
            local_shards((8, 3), (2, 2), at, (Split(0, 2), Split(0)))[1] for at in itertools.product(range(2), range(2))
        ]
        self.assertEqual([[box for box, _ in of] for of in boxes],
                         [[Box((start, 0), (2, 3))] for start in (0, 4, 2, 6)])  # fmt: skip

    def test_of_a_scalar_and_of_more_ranks_than_rows(self):
        self.assertEqual(local_shards((), (4,), (3,), (None,)), ((), ((Box((), ()), ()),)))
        self.assertEqual(local_shards((2, 5), (4,), (3,), (Split(0),)), ((0, 5), ()))
        with self.assertRaises(ValueError):
            local_shards((2,), (4,), (3,), (Split(1),))


class Plans(unittest.TestCase):
    def test_each_element_has_one_owner(self):
        top, bottom = ((0, 0), (2, 6)), ((2, 0), (2, 6))
        plan = make_plan([{"w": held(top)}, {"w": held(bottom)}, {"w": held(top)}, {"w": held(bottom)}], range(4))
        self.assertEqual(plan.infos, [TensorInfo("w", "BF16", (4, 6))])
        self.assertEqual(plan.owned, [[("w", Box(*top))], [("w", Box(*bottom))], [], []])
        self.assertEqual(plan.size_bytes, 48)

    def test_all_boxes_are_of_one_replica(self):
        """Where replicas differ nevertheless, what is published is one of them."""
        whole, top, bottom = ((0, 0), (4, 6)), ((0, 0), (2, 6)), ((2, 0), (2, 6))
        upper = {"a": held(top, tied_to="a"), "b": held(whole, tied_to="b")}
        lower = {"a": held(bottom, tied_to="a"), "b": held(whole, tied_to="b")}
        plan = make_plan([upper, lower, upper, lower], range(4))
        self.assertEqual(plan.owned, [[("a", Box(*top)), ("b", Box(*whole))], [("a", Box(*bottom))], [], []])
        inner = make_plan([upper, upper, lower, lower], range(4))
        self.assertEqual(inner.owned, [[("a", Box(*top)), ("b", Box(*whole))], [], [("a", Box(*bottom))], []])

    def test_only_ranks_on_the_origins_host_own_something(self):
        whole, top, bottom = ((0, 0), (4, 6)), ((0, 0), (2, 6)), ((2, 0), (2, 6))
        plan = make_plan([{"w": held(whole)}] * 3, [2])
        self.assertEqual([len(owned) for owned in plan.owned], [0, 0, 1])
        with self.assertRaisesRegex(ValueError, "'w': ranks .1. hold .* none of them runs on the origin's host"):
            make_plan([{"w": held(top)}, {"w": held(bottom)}], [0])

    def test_ranks_may_hold_other_names(self):
        whole = ((0, 0), (4, 6))
        plan = make_plan([{"a": held(whole, tied_to="a")}, {"b": held(whole, tied_to="b")}], range(2))
        self.assertEqual([info.name for info in plan.infos], ["a", "b"])
        self.assertEqual([[name for name, _ in owned] for owned in plan.owned], [["a"], ["b"]])

    def test_tied_names_are_published_once_where_all_ranks_say_so(self):
        top, bottom = ((0, 0), (4, 6)), ((0, 0), (0, 6))
        # Rank 1 holds nothing of it, and so cannot tell.
        some, none = held(top, tied_to="a"), held(tied_to="b")
        plan = make_plan([{"a": some, "b": some}, {"a": held(tied_to="a"), "b": none}], range(2))
        self.assertEqual([info.name for info in plan.infos], ["a"])
        self.assertEqual(plan.stands_for, {"b": "a"})
        # Two halves, of which one is another's memory.
        top, bottom = ((0, 0), (2, 6)), ((2, 0), (2, 6))
        plan = make_plan(
            [{"a": held(top, tied_to="a"), "b": held(top, tied_to="a")},
             {"a": held(bottom, tied_to="a"), "b": held(bottom, tied_to="b")}], range(2))  # fmt: skip
        self.assertEqual([info.name for info in plan.infos], ["a", "b"])
        # Three names of one memory.
        of = held(((0, 0), (4, 6)), tied_to="a")
        plan = make_plan([{"a": of, "b": of, "c": of}], range(1))
        self.assertEqual(plan.stands_for, {"b": "a", "c": "a"})

    def test_contradictions_are_refused(self):
        top, most, bottom = ((0, 0), (2, 6)), ((1, 0), (3, 6)), ((2, 0), (2, 6))
        left, inner = ((0, 0), (4, 3)), ((1, 1), (2, 2))
        for ranks, error in (
            ([held(top), held(top)], "hold 12 of its 24 elements"),
            ([held(top), held(most)], "overlap without being the same"),
            ([held(left), held(inner)], "overlap without being the same"),
            ([held(top), held(bottom, dtype="F32")], "is BF16 .* on rank 0, but F32 .* on rank 1"),
            ([held(top), held(bottom, shape=(4, 7))], "on rank 0, but BF16 .4, 7. on rank 1"),
            ([held(((0, 0), (4, 7)))], "are not within"),
        ):
            with self.assertRaisesRegex(ValueError, error):
                make_plan([{"w": rank} for rank in ranks], range(len(ranks)))

    def test_boxes_of_any_grid_cover_their_tensor(self):
        made = random.Random(2)
        for _ in range(50):
            shape = tuple(made.randrange(1, 9) for _ in range(made.randrange(1, 4)))
            cuts = [sorted({0, length, *(made.randrange(length) for _ in range(3))}) for length in shape]
            sides = [list(zip(cut, cut[1:])) for cut in cuts]
            boxes = [
                Box(tuple(a for a, _ in grid), tuple(b - a for a, b in grid)) for grid in itertools.product(*sides)
            ]
            ranks = [{"w": Held("F32", shape, (box,), "w")} for box in made.sample(boxes, len(boxes))]
            plan = make_plan(ranks, range(len(ranks)))
            self.assertEqual(sum(box.volume for owned in plan.owned for _, box in owned), math.prod(shape))
            if len(ranks) > 1:
                with self.assertRaisesRegex(ValueError, "the ranks hold"):
                    make_plan(ranks[1:], range(len(ranks) - 1))


if __name__ == "__main__":
    unittest.main()
