"""weightcast.integrations.nemo_rl without NeMo-RL, Ray and torch: all ranks in one process."""

import asyncio
import unittest

from engine_doubles import LONG_S, EngineTest, Tensor, run_all

BUCKET_BYTES = 8


class NemoRlTest(EngineTest):
    MODULE = "nemo_rl"

    @classmethod
    def others(cls):
        return {
            "nemo_rl": {}, "nemo_rl.utils": {}, "nemo_rl.utils.checkpoint_engines": {},
            "nemo_rl.utils.checkpoint_engines.base": {"CheckpointEngine": object},
        }

    def setUp(self):
        super().setUp()
        make = self.module.WeightcastCheckpointEngine
        options = {"bucket_size": BUCKET_BYTES, "release_after_refit": True, "timeout": LONG_S}
        self.policy = [make(state_dir="origin", **options) for _ in range(2)]
        self.vllm = [make(state_dir="worker", **options) for _ in range(2)]

    def join(self):
        """As NeMo-RL's CheckpointEngineWeightSynchronizer: the policy's metadata come first, and its workers add the rank."""
        self.hosts.clear()
        engines = self.policy + self.vllm
        metadata = [{**engine.prepare(), "rank": rank % 2} for rank, engine in enumerate(engines)]
        topology = {"train_world_size": 2, "rollout_world_size": 2, "metadata": metadata}
        for rank, engine in enumerate(self.policy):
            engine.init_policy_process_group(worker_rank=rank, **topology)
        for rank, engine in enumerate(self.vllm):
            engine.init_rollout_process_group(rollout_rank=rank, **topology)

    def refit(self, *weights):
        """What each rank has in the end: nothing, batches, or an exception."""

        async def receive(engine):
            return [[(name, bytes(tensor.data)) for name, tensor in batch] async for batch in engine.receive_weight_batches()]

        sending = [engine.send_weights(given) for engine, given in zip(self.policy, weights)]
        results = run_all(sending + [receive(engine) for engine in self.vllm])
        for engine in self.policy + self.vllm:
            engine.finalize()
        self.assertTrue(all(host.closed for host in self.hosts), "nothing stays pinned")
        return results

    def test_vllm_gets_what_rank_0_sends_in_batches_of_a_buckets_bytes(self):
        weights = [("a", Tensor()), ("b", Tensor(b"1234")), ("c", Tensor(b"12345678")), ("d", Tensor(b"much more than 8")),
                   ("e", Tensor())]
        expected = [[("a", b"abcd"), ("b", b"1234")], [("c", b"12345678")], [("d", b"much more than 8")], [("e", b"abcd")]]
        for version in (1, 2):
            self.join()
            walked = iter(weights)
            with self.assertLogs("nemo_rl.weightcast", "INFO") as log:
                self.assertEqual(self.refit(weights, walked), [None, None, expected, expected])
            self.assertIsNone(next(walked, None), "other ranks make their weights, too: that takes all of them")
            self.assertRegex(log.output[0], f"weightcast: version {version}, gather_s .*, payload_bytes 11")
            self.assertEqual(len(log.output), 1, "rank 0 alone")

    def test_ranks_meet_at_the_policys_rank_0_alone(self):
        self.join()
        self.assertEqual([engine._rank._server is not None for engine in self.policy + self.vllm], [True, False, False, False])

    def test_a_failure_is_that_of_all_and_the_next_refit_works(self):
        def broken():
            yield "a", Tensor()
            raise MemoryError("device full")

        self.join()
        for result in self.refit(broken(), [("a", Tensor())]):
            self.assertRegex(str(result), "device full")
        self.join()
        self.assertEqual(self.refit([("a", Tensor())], [])[2:], [[[("a", b"abcd")]]] * 2)

    def test_a_refit_needs_a_preparation_of_its_own(self):
        self.join()
        self.refit([("a", Tensor())], [])
        with self.assertRaisesRegex(RuntimeError, "sends weights after it has joined"):
            asyncio.run(self.policy[0].send_weights([]))
        with self.assertRaisesRegex(ValueError, "set release_after_refit: true"):
            self.module.WeightcastCheckpointEngine(bucket_size=1, state_dir="origin")


if __name__ == "__main__":
    unittest.main()
