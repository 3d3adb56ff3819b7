"""verl's policy losses, with its aggregation, KL and weights of importance sampling, on random batches in double."""

import random
import sys
import types
import unittest.mock

import torch

from golden import installed, load


def stub(name, **members):
    """Stands for a module that verl imports and these functions do not need."""
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


@unittest.mock.patch.dict(sys.modules)  # the stubs go when it returns
def load_verl():
    """verl.trainer.ppo.core_algos and rollout_corr_helper, without what the whole package asks for."""
    verl = installed("verl")
    nothing = type("Nothing", (), {})
    for name, members in {
        "omegaconf": {"DictConfig": nothing, "open_dict": None},
        "tensordict": {"TensorDict": nothing},
        "transformers": {"PreTrainedTokenizer": nothing},
        "verl": {}, "verl.utils": {"as_torch_index": None, "group_mean_std": None},
        "verl.utils.device": {"get_device_name": None, "get_torch_device": None},
        "verl.utils.import_utils": {"deprecated": lambda _: lambda function: function},
        "verl.trainer": {}, "verl.trainer.config": {"AlgoConfig": nothing},
        "verl.trainer.config.algorithm": {"RolloutCorrectionConfig": nothing},
        "verl.protocol": {"DataProto": nothing},
        "verl.workers": {}, "verl.workers.config": {"ActorConfig": Config},
        "verl.workers.config.actor": {"PolicyLossConfig": nothing},
    }.items():
        stub(name, **members)
    functional = load(verl / "utils" / "torch_functional.py", "verl.utils.torch_functional")
    sys.modules["verl.utils"].torch_functional = functional
    algos = load(verl / "trainer" / "ppo" / "core_algos.py", "verl.trainer.ppo.core_algos")
    correction = load(verl / "trainer" / "ppo" / "rollout_corr_helper.py", "verl.trainer.ppo.rollout_corr_helper")
    return algos, correction


class Config(types.SimpleNamespace):
    def get(self, name, default):
        return getattr(self, name, default)


def matrix(source, rows, columns, low, high):
    return [[round(source.uniform(low, high), 3) for _ in range(columns)] for _ in range(rows)]


def plus(one, other):
    return [[round(a + b, 3) for a, b in zip(*rows)] for rows in zip(one, other)]


def batch(source):
    rows, columns = source.randint(2, 4), source.randint(2, 5)
    log_probs = matrix(source, rows, columns, -3, -0.1)
    old = plus(log_probs, matrix(source, rows, columns, -0.6, 0.6))
    mask = [[int(source.random() < 0.7) for _ in range(columns)] for _ in range(rows)]
    mask[0][0] = 1
    if rows > 2 and source.random() < 0.3:
        mask[1] = [0] * columns
    return {
        "log_probs": log_probs,
        "old_log_probs": old,
        "rollout_log_probs": plus(old, matrix(source, rows, columns, -0.5, 0.5)),
        "ref_log_probs": plus(log_probs, matrix(source, rows, columns, -0.7, 0.7)),
        "advantages": matrix(source, rows, columns, -2, 2),
        "response_mask": mask,
    }


def lines(count):
    algos, correction = load_verl()
    source = random.Random(16)
    torch.set_num_threads(1)
    for i in range(count):
        data = batch(source)
        variant = ["ppo", "cispo", "reinforce"][i % 3]
        if variant == "cispo":  # verl takes its ratio against old_log_probs; ours is against the policy that sampled
            data["rollout_log_probs"] = data["old_log_probs"]
        tensors = {name: torch.tensor(rows, dtype=torch.double) for name, rows in data.items()}
        log_probs = tensors["log_probs"].requires_grad_()
        mask = tensors["response_mask"]
        chosen = {
            "pg_variant": variant,
            "clip_ratio_low": source.choice([0.1, 0.2]),
            "clip_ratio_high": source.choice([0.2, 0.28, 3.0]),
            "clip_ratio_c": source.choice([1.5, 3.0]),
            "loss_agg_mode": source.choice(["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]),
            "kl_loss_type": source.choice(["k1", "k2", "k3"]),
            "kl_loss_coef": source.choice([0.0, 0.1]),
        }
        weights, metrics = None, {}
        cap = (source.choice([1.2, 2.0]), source.choice(["token", "sequence"])) if source.random() < 0.5 else None
        if cap and variant != "cispo":  # ours weighs against the sampler already, and refuses to do it twice
            chosen["tis_cap"], chosen["tis_level"] = cap
            weights, found = correction.compute_rollout_correction_weights(
                tensors["old_log_probs"] - tensors["rollout_log_probs"], mask, chosen["tis_level"], chosen["tis_cap"])
            metrics["rollout_corr/rollout_is_eff_sample_size"] = found["rollout_is_eff_sample_size"]
            if chosen["tis_level"] == "token":
                metrics["rollout_corr/rollout_is_mean"] = found["rollout_is_mean"]
                metrics["rollout_corr/rollout_is_max"] = found["rollout_is_max"]
        config = Config(clip_ratio=0.2, clip_ratio_low=chosen["clip_ratio_low"], clip_ratio_high=chosen["clip_ratio_high"],
                        clip_ratio_c=chosen["clip_ratio_c"], global_batch_info={})
        mode = chosen["loss_agg_mode"]
        if variant == "reinforce":
            loss, _ = algos.compute_policy_loss_reinforce(tensors["rollout_log_probs"], log_probs, tensors["advantages"], mask, mode, config, weights)
        else:
            function = algos.compute_policy_loss_vanilla if variant == "ppo" else algos.compute_policy_loss_cispo
            loss, found = function(tensors["old_log_probs"], log_probs, tensors["advantages"], mask, mode, config, weights)
            metrics.update((name, found[name]) for name in found if variant == "ppo" or name != "actor/pg_clipfrac_lower")
        metrics["actor/pg_loss"] = loss.item()
        kl = algos.kl_penalty(log_probs, tensors["ref_log_probs"], chosen["kl_loss_type"])
        kl_loss = algos.agg_loss(kl, mask, mode)
        metrics["actor/kl_loss"] = kl_loss.item()
        loss = loss + chosen["kl_loss_coef"] * kl_loss
        loss.backward()
        off_policy = correction.compute_offpolicy_metrics(tensors["old_log_probs"], tensors["rollout_log_probs"], mask)
        metrics["rollout_corr/kl"] = off_policy["kl"]
        metrics["rollout_corr/k3_kl"] = off_policy["k3_kl"]
        yield {"input": {**chosen, **data}, "loss": loss.item(), "grad_log_probs": log_probs.grad.tolist(), "metrics": metrics}
