"""verl's own classes with weightcast as their checkpoint engine: its manager, its registry, its worker groups of Ray's
actors, its rollout workers and its configuration, unmodified, on the processor. What is not verl's:

- the trainer's model: a few tensors, which each rank yields as verl's training engines do.
- the inference engine: a rollout adapter that keeps the weights which it is given.
"""

import os
import pathlib
import subprocess
import tempfile
import unittest

import ray_here  # noqa: I001, before what looks at its settings
import hydra  # noqa: E402
import ray  # noqa: E402
import torch  # noqa: E402
import verl  # noqa: E402
import weightcast  # noqa: E402
from daemons import DaemonTest, eventually  # noqa: E402
from verl.checkpoint_engine import CheckpointEngineManager, CheckpointEngineRegistry, CheckpointEngineWorker  # noqa: E402
from verl.single_controller.base import Worker  # noqa: E402
from verl.single_controller.base.decorator import Dispatch, register  # noqa: E402
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup  # noqa: E402
from verl.utils.config import omega_conf_to_dataclass  # noqa: E402
from verl.utils.import_utils import import_external_libs  # noqa: E402
from verl.workers.config import CheckpointEngineConfig, RolloutConfig  # noqa: E402
from verl.workers.rollout import BaseRollout, RolloutReplica  # noqa: E402

TRAINERS = 2
ROLLOUTS = 2  # of one rank each
TIMEOUT_S = 60
HANG_S = 4  # the time-out of tests that wait for its end
STEP_S = 120  # no update may take longer


def weights_of(step):
    """Of several dtypes, an empty one and a number among them; few elements change from step to step."""
    torch.manual_seed(7)
    weights = {f"layers.{i}.weight": torch.randn(64, 48).to(torch.bfloat16) for i in range(4)}
    weights |= {"norm.weight": torch.ones(48), "scale": torch.tensor(2.0, dtype=torch.float16), "none": torch.empty(0, 3)}
    for i in range(4):
        weights[f"layers.{i}.weight"].view(-1)[step + i] = 1000.0 + step
    return weights


def bytes_of(tensor):
    return str(tensor.dtype), tuple(tensor.shape), tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def engine_of(config, **rank):
    """As verl's workers make it, the trainer's and the rollouts'."""
    import_external_libs(config.custom_backend_module or None)
    return CheckpointEngineRegistry.new(
        config.backend, bucket_size=config.update_weights_bucket_megabytes << 20,
        **config.engine_kwargs.get(config.backend, {}), **rank)


class Trainer(Worker):
    """A trainer's rank. What concerns the checkpoint engine is as in verl's ActorRolloutRefWorker."""

    def __init__(self, config):
        super().__init__()
        self.begin(config)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def begin(self, config):
        self.checkpoint_engine = engine_of(config, is_master=self.rank == 0)
        self.fault = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fail_next(self, kind, rank):
        self.fault = kind if rank == self.rank else None

    def get_per_tensor_param(self, step):
        fault, self.fault = self.fault, None
        for i, (name, tensor) in enumerate(weights_of(step).items()):
            if i == 2 and fault == "error":
                raise MemoryError("device full")
            if i == 2 and fault == "exit":
                os._exit(1)
            yield name, tensor

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps=None, mode="auto"):
        return await self.checkpoint_engine.send_weights(
            self.get_per_tensor_param(global_steps), global_steps=global_steps) or {}

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method, *args, **kwargs):
        return getattr(self.checkpoint_engine, method)(*args, **kwargs)


class Adapter(BaseRollout):
    """In place of an inference engine."""

    def __init__(self, config, model_config):
        super().__init__(config, model_config, device_mesh=None)
        self.replica_rank, self.is_leader_rank = 0, True
        self.steps, self.weights = [], {}

    async def resume(self, tags):
        pass

    async def release(self):
        pass

    async def update_weights(self, weights, global_steps=None, wire_format="named_tensors", **_):
        assert wire_format == "named_tensors"
        self.steps.append(global_steps)
        given = {}
        async for name, tensor in weights:
            assert name not in given
            given[name] = bytes_of(tensor)
        self.weights = given


class Rollout(CheckpointEngineWorker):
    def __init__(self, rollout_config, model_config):
        super().__init__(rollout_config, model_config, Adapter(rollout_config, model_config))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def begin(self, config):
        self.checkpoint_engine = engine_of(config)
        self.server_adapter = Adapter(self.rollout_config, self.model_config)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def given(self):
        return self.server_adapter.steps, self.server_adapter.weights


class Replica(RolloutReplica):
    """One rank. Without a server there is nothing to pause."""

    def __init__(self, workers):
        self.workers = workers

    async def nothing(self, **_):
        pass

    abort_all_requests = release_kv_cache = resume_kv_cache = resume_generation = nothing

    async def launch_servers(self):
        raise NotImplementedError

    get_ray_class_with_init_args = launch_servers


class Example(unittest.TestCase):
    def test_its_settings_are_ones_of_verls(self):
        example = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "train_verl.sh"
        with tempfile.TemporaryDirectory(prefix="weightcast-test-", dir=os.environ.get("TMPDIR", "/var/tmp")) as directory:
            stand_in = pathlib.Path(directory) / "python3"
            stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
            stand_in.chmod(0o755)
            printed = subprocess.run(
                ["sh", example, "MODEL", "train.parquet", "test.parquet"], env={"PATH": f"{directory}:{os.environ['PATH']}"},
                stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout.splitlines()
        self.assertEqual(printed[:2], ["-m", "verl.experimental.fully_async_policy.fully_async_main"])
        folder = pathlib.Path(verl.__file__).parent / "experimental" / "fully_async_policy" / "config"
        with hydra.initialize_config_dir(config_dir=str(folder), version_base=None):
            config = hydra.compose(config_name="fully_async_ppo_trainer", overrides=printed[2:])
        made = omega_conf_to_dataclass(config.actor_rollout_ref.rollout.checkpoint_engine)
        self.assertIsInstance(made, CheckpointEngineConfig)
        self.assertEqual(type(engine_of(made, is_master=True)).__module__, "weightcast.integrations.verl")


class VerlCheckpointEngine(DaemonTest):
    worker_flags = ()
    trainer = rollout = None  # the groups, from one test to the next: actors take long to start

    @classmethod
    def setUpClass(cls):
        here = pathlib.Path(__file__).resolve().parent
        paths = [here, here.parent / "python", here.parent.parent / "python"]
        path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
        ray_here.start(path, num_cpus=6)
        cls.addClassCleanup(ray.shutdown)

    def group(self, cls, count, **arguments):
        pool = RayResourcePool(process_on_nodes=[count], use_gpu=False, max_colocate_count=1)
        return RayWorkerGroup(
            resource_pool=pool, device_name="cpu", ray_cls_with_init=RayClassWithInitArgs(cls=ray.remote(cls), **arguments))

    def begin(self, timeout=TIMEOUT_S, **options):
        """Makes groups and manager as verl's trainer does, with the settings that docs/TRAINERS.md has."""
        config = CheckpointEngineConfig(
            backend="weightcast", custom_backend_module="weightcast.integrations.verl",
            engine_kwargs={"weightcast": {
                "state_dir": self.origin.state, "rollout_state_dir": self.worker.state, "timeout": timeout, **options}})
        cls = type(self)
        if cls.trainer is None:
            cls.trainer = self.group(Trainer, TRAINERS, config=config)
        else:
            self.trainer.begin(config)
        if cls.rollout is None:
            rollout_config = RolloutConfig(name="vllm", checkpoint_engine=config)
            cls.rollout = self.group(Rollout, ROLLOUTS, rollout_config=rollout_config, model_config=None)
        else:
            self.rollout.begin(config)
        self.manager = CheckpointEngineManager(config, self.trainer, [Replica([one]) for one in self.rollout.workers])

    def update(self, step):
        return self.manager.update_weights(global_steps=step)

    def expect_given(self, *steps):
        """The steps whose weights every rollout's engine was told of, and the weights of the last one."""
        expected = {name: bytes_of(tensor) for name, tensor in weights_of(steps[-1]).items()}
        for given, weights in self.rollout.given():
            self.assertEqual(given, list(steps))
            self.assertEqual(weights, expected)

    def outcomes(self, step):
        """An update as the manager makes it, but for what each rank says: the metrics, or the error."""
        workers = [worker for replica in self.manager.replicas for worker in replica.workers]
        rollout = RayWorkerGroup(worker_handles=workers, ray_cls_with_init=RayClassWithInitArgs(cls=ray.remote(Rollout)))
        self.manager.build_process_group(rollout)
        found = []
        for result in self.trainer.update_weights(global_steps=step, mode="weightcast") + rollout.update_weights(global_steps=step):
            try:
                found.append(ray.get(result, timeout=STEP_S))
            except ray.exceptions.GetTimeoutError:
                raise AssertionError("a rank waits without end") from None
            except ray.exceptions.RayError as error:
                found.append(error)
        return found

    def expect_failed_everywhere(self, outcomes, why):
        for outcome in outcomes:
            self.assertIsInstance(outcome, ray.exceptions.RayError)
            self.assertRegex(str(outcome), why)

    def test_rollouts_have_each_steps_weights_and_a_patch_travels(self):
        self.begin()
        first, second = self.update(0), self.update(1)
        self.expect_given(0, 1)
        self.assertEqual([first["weightcast/version"], second["weightcast/version"]], [1, 2])
        third = self.update(30)
        self.expect_given(0, 1, 30)
        self.assertEqual(third["weightcast/version"], 30)
        self.assertEqual(self.update(30)["weightcast/version"], 31, "a step that is sent again")
        self.assertEqual(self.update(5)["weightcast/version"], 32, "a trainer that went back to a checkpoint")
        self.expect_given(0, 1, 30, 30, 5)
        with weightcast.Publisher(self.origin.state) as publisher:
            outcome = publisher.wait(32)
        self.assertEqual(outcome.payload, weightcast.Payload.PATCH)
        self.assertLess(outcome.payload_bytes, 2000)

    def test_replicas_may_come_and_go(self):
        self.begin()
        replicas = list(self.manager.replicas)
        self.manager.remove_replicas(replicas[1:])
        self.update(1)
        self.assertEqual([steps for steps, _ in self.rollout.given()], [[1], []])
        self.manager.add_replicas(replicas[1:])
        self.update(2)
        self.assertEqual([steps for steps, _ in self.rollout.given()], [[1, 2], [2]])

    def test_a_rank_that_fails_in_its_generator_fails_all(self):
        self.begin()
        self.update(1)
        for rank in range(TRAINERS):
            self.trainer.fail_next("error", rank)
            self.expect_failed_everywhere(self.outcomes(2), "device full")
            self.expect_given(1)
        self.update(3)
        self.expect_given(1, 3)

    def test_the_end_of_the_trainer_fails_all_and_a_new_one_goes_on(self):
        self.begin()
        self.update(1)
        self.trainer.fail_next("exit", 0)
        self.expect_failed_everywhere(self.outcomes(2), "rank 0 is not reached|died|exit")
        self.expect_given(1)
        for worker in self.trainer.workers:
            ray.kill(worker)
        type(self).trainer = self.group(Trainer, TRAINERS, config=self.manager.config)
        self.manager.actor_wg = self.trainer
        self.update(2)
        self.expect_given(1, 2)

    def test_a_rollouts_daemon_that_ends_during_an_update_is_waited_for(self):
        self.begin()
        self.update(1)
        self.manager.build_process_group(self.rollout)
        self.worker.kill()
        results = self.trainer.update_weights(global_steps=2, mode="weightcast") + self.rollout.update_weights(global_steps=2)
        with weightcast.Publisher(self.origin.state) as publisher:
            eventually(lambda: publisher.next_version() > 2)
        self.assertEqual(ray.wait(results, num_returns=1, timeout=1)[0], [], "no rank goes on without all of them")
        self.worker.start()
        ray.get(results, timeout=STEP_S)
        self.expect_given(1, 2)

    def test_a_rollouts_daemon_that_stays_away_fails_all(self):
        self.begin(timeout=HANG_S)
        self.update(1)
        self.manager.build_process_group(self.rollout)
        self.worker.kill()
        results = self.trainer.update_weights(global_steps=2, mode="weightcast") + self.rollout.update_weights(global_steps=2)
        for result in results:
            with self.assertRaisesRegex(ray.exceptions.RayError, "no daemon runs there"):
                ray.get(result, timeout=STEP_S)
        with self.assertRaisesRegex(ray.exceptions.RayError, "no daemon runs there"):
            self.update(3)
        self.worker.start()
        self.update(4)
        self.expect_given(1, 4)

    def test_daemons_may_be_started_again_between_two_updates(self):
        self.begin()
        self.update(1)
        address = self.origin.node()["address"]
        self.origin._flags[self.origin._flags.index("127.0.0.1:0")] = address  # where the worker looks for it
        for daemon in (self.worker, self.origin):
            daemon.kill()
            daemon.start()
        self.update(2)
        self.expect_given(1, 2)


if __name__ == "__main__":
    unittest.main()
