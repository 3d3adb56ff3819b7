"""weightcast.integrations.trl against real daemons on loopback, which die. The engine is a stand-in that generates under what
its daemon has."""

import threading
import time
from unittest import main, mock

import trainers_test
import weightcast
from daemons import DaemonTest
from json_server import JsonServer
from weightcast import Code


class TransferTest(trainers_test.Trainers, DaemonTest):
    worker_flags = ()

    def setUp(self):
        super().setUp()
        self.trl = trainers_test.integration("trl")
        self.has = {}
        self.server = JsonServer(self.answer)
        self.addCleanup(self.server.stop)
        self.tensors = {name: trainers_test.Tensor(*range(1000)) for name in ("a", "b")}

    def answer(self, path, _):
        try:
            self.has = next((known for known in weightcast.versions(self.worker.state)["versions"] if known["current"]), {})
        except weightcast.Error as error:
            self.has = {**self.has, "why": str(error)}
        return (200, self.has) if path == "/weightcast/status" else (404, {})

    def transfer(self, timeout=30):
        transfer = self.trl.WeightTransfer(self.origin.state, self.server.url, timeout=timeout)
        self.addCleanup(transfer.destroy)
        transfer.init_weight_transfer()
        return transfer

    def send(self, transfer, tensors=None):
        transfer.send_weights(iter((tensors or self.tensors).items()))
        self.assertEqual(self.has["version"], transfer.figures["weightcast/version"])
        return self.has["version"]

    def killed_during_the_wait(self, daemon):
        """Kills it once a version is published, before anybody waits for that."""
        wait = weightcast.Publisher.wait

        def kill_and_wait(*arguments, **options):
            daemon.kill()
            return wait(*arguments, **options)

        return mock.patch.object(weightcast.Publisher, "wait", kill_and_wait)

    def test_every_version_gets_to_the_engine(self):
        transfer = self.transfer()
        for version in (1, 2, 3):
            self.assertEqual(self.send(transfer), version)
        self.assertEqual(transfer.figures["weightcast/workers_installed"], 1)
        self.assertEqual(transfer.figures["weightcast/weights_bytes"], 8000)

    def test_worker_that_comes_back_during_the_wait_is_waited_for(self):
        transfer = self.transfer(timeout=60)
        self.send(transfer)
        self.worker.kill()
        back = threading.Timer(1, self.worker.start)
        back.start()
        self.assertEqual(self.send(transfer), 2)
        back.join()

    def test_worker_that_stays_away_ends_the_wait_in_time(self):
        transfer = self.transfer(timeout=4)
        self.send(transfer)
        began = time.monotonic()
        with self.killed_during_the_wait(self.worker), self.assertRaisesRegex(weightcast.TimedOut, "version 2: 0 of . workers"):
            self.send(transfer)
        self.assertLess(time.monotonic() - began, 30)
        self.worker.start()
        self.assertEqual(self.send(transfer), 3)

    def test_origin_that_dies_ends_the_wait_and_the_next_version_is_taken_by_its_successor(self):
        self.origin.keep_port()
        transfer = self.transfer()
        self.send(transfer)
        with self.killed_during_the_wait(self.origin), self.assertRaisesRegex(weightcast.Error, "no daemon runs there; start one"):
            self.send(transfer)
        self.origin.start()
        self.assertGreaterEqual(self.send(transfer), 2)

    def test_other_tensors_than_the_last_version_are_refused(self):
        self.send(self.transfer())
        with self.raises(Code.INVALID_ARGUMENT, "'c' is new.*new_model=True"):
            self.send(self.transfer(), {"c": trainers_test.Tensor(1)})

    def test_no_daemon_is_said_before_training_begins(self):
        self.origin.kill()
        with self.raises(Code.NOT_FOUND, "origin"):
            self.transfer()


if __name__ == "__main__":
    main()
