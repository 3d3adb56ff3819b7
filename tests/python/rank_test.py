"""One rank of an engine, whose model is bytes, hears of versions from a real daemon and prepares them before they are ordered."""

import array
import time

import weightcast
from daemons import PublisherTest, eventually
from weightcast import RawTensor, Snapshot, Subscription
from weightcast.engines._listener import Listener
from weightcast.engines._rank import Rank, Staged

CELLS = 5000


class Model:
    """What a rank asks of a model. `cells_staged` counts versions that were prepared by their changes."""

    def __init__(self):
        self.tensors, self.cells_staged = {}, 0

    def check(self, snapshot):
        pass

    def settle(self):
        pass

    def stage_whole(self, snapshot, why):
        def write():
            self.tensors = {name: bytearray(tensor.data) for name, tensor in snapshot.items()}

        return Staged("copies", write, 0, why)

    def stage_cells(self, changes):
        def write():
            for name, change in changes.items():
                cells = memoryview(self.tensors[name]).cast("f")
                for index, value in zip(change.indices.data.cast("I"), change.values.data.cast("f")):
                    cells[index] = value

        self.cells_staged += 1
        return Staged("cells", write, sum(len(change.indices.data) // 4 for change in changes.values()), "")


class RankTest(PublisherTest):
    def follow(self, *flags):
        self.worker = self.start_worker("worker", *flags)
        self.model = Model()
        self.rank = Rank(self.model, self.subscribe)
        self.addCleanup(self.rank.call, "drop")
        self.listener = Listener(self.rank, self.subscribe)
        self.addCleanup(self.listener.close)
        self.values = array.array("f", range(CELLS))
        self.publish_and_wait({"weight": RawTensor("F32", (CELLS,), self.values.tobytes())}, installed=1.0)
        self.order()
        self.write("copies")
        self.listener.start()

    def subscribe(self):
        return Subscription(self.worker.state)

    def publish(self):
        """Other values in a few cells. Returns when the worker's daemon has them in use."""
        version = self.publisher.next_version()
        indices = array.array("I", range(version % 7, CELLS, 97))
        for index in indices:
            self.values[index] += 0.5
        values = array.array("f", (self.values[index] for index in indices))
        change = (RawTensor("U32", (len(indices),), indices.tobytes()), RawTensor("F32", (len(indices),), values.tobytes()))
        self.assertEqual(self.publisher.publish_sparse({"weight": change}, base=version - 1), version)
        self.publisher.wait(version, installed=1.0, timeout=60)

    def order(self):
        """What the answer to the order of the version in use is."""
        with self.subscribe() as subscription:
            event = subscription.current()
        answer = self.rank.prepare(event.version, event.digest, whole=False, limit_s=60)
        self.assertTrue(answer["ok"], answer)
        return answer

    def write(self, kind):
        told = self.rank.call("write")
        self.assertEqual((told["ok"], told.get("kind")), (True, kind), told)
        with weightcast.load(self.worker.state) as weights:
            self.assertEqual(self.model.tensors["weight"], bytes(Snapshot(weights.directory)["weight"].data))
        self.assertEqual(self.model.tensors["weight"], self.values.tobytes())

    def expect_prepared_before_the_order(self):
        staged = self.model.cells_staged
        self.publish()
        eventually(lambda: self.model.cells_staged > staged)
        answer = self.order()
        self.assertEqual((answer["kind"], self.model.cells_staged), ("cells", staged + 1))
        self.write("cells")

    def test_versions_are_prepared_before_they_are_ordered(self):
        self.follow()
        for _ in range(3):
            self.expect_prepared_before_the_order()
        # Of two the first one is not ordered.
        staged = self.model.cells_staged
        self.publish()
        eventually(lambda: self.model.cells_staged > staged)
        self.expect_prepared_before_the_order()

    def test_a_daemon_that_comes_back_is_heard_again(self):
        self.follow()
        self.worker.kill()
        self.worker.start()
        self.expect_prepared_before_the_order()

    def test_what_nobody_orders_is_not_in_the_way_of_a_single_copy(self):
        self.follow("--single-copy")
        begin = time.monotonic()
        for _ in range(3):
            self.publish()
        self.assertLess(time.monotonic() - begin, 60)
        self.order()
        self.write("copies")  # such a daemon keeps no lists
