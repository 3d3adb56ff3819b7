"""TRL's GRPO losses on random batches in double: the method GRPOTrainer._compute_loss, cut out of its file, because the
module imports far more than is installed."""

import ast
import collections
import random
import types

import torch

from golden import installed
from verl_losses import batch

# loss_type of TRL: our variant and mode, or None where each of ours would do.
LOSS_TYPES = {
    "grpo": ("ppo", "seq-mean-token-mean"),
    "bnpo": ("ppo", "token-mean"),
    "dapo": ("ppo", "token-mean"),
    "dr_grpo": ("ppo", "seq-mean-token-sum-norm"),
    "luspo": ("ppo", "seq-mean-token-sum"),
    "cispo": ("cispo", "token-mean"),
}


def compute_loss_of_trl():
    source = (installed("trl") / "trainer" / "grpo_trainer.py").read_text()
    method = next(node for node in ast.walk(ast.parse(source))
                  if isinstance(node, ast.FunctionDef) and node.name == "_compute_loss")
    names = {"torch": torch, "nanmin": torch.min, "nanmax": torch.max}
    exec(compile(ast.Module(body=[method], type_ignores=[]), "trl", "exec"), names)
    return names["_compute_loss"]


def trainer(loss_type, chosen, log_probs, horizon):
    same = lambda value, **_: value
    return types.SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (log_probs, torch.zeros_like(log_probs), None),
        accelerator=types.SimpleNamespace(num_processes=1, gather=same, reduce=same),
        args=types.SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        _metrics=collections.defaultdict(lambda: collections.defaultdict(list)), aux_loss_enabled=False, beta=chosen["kl_loss_coef"],
        current_gradient_accumulation_steps=1, _entropy_bonus_enabled=False, epsilon_low=chosen["clip_ratio_low"],
        epsilon_high=chosen["clip_ratio_high"] + (1 if loss_type == "cispo" else 0), importance_sampling_level="token",
        loss_type=loss_type, max_completion_length=horizon, model=types.SimpleNamespace(training=True), off_policy_mask_threshold=None,
        top_entropy_quantile=1.0, use_vllm=True, vllm_importance_sampling_correction=True)


def lines(count):
    compute_loss = compute_loss_of_trl()
    source = random.Random(17)
    torch.set_num_threads(1)
    for i in range(count):
        data = batch(source)
        for row in data["response_mask"]:
            row[0] = 1  # where a sequence has no token, TRL's means count it all the same
        loss_type, (variant, mode) = list(LOSS_TYPES.items())[i % len(LOSS_TYPES)]
        chosen = {
            "pg_variant": variant,
            "clip_ratio_low": source.choice([0.1, 0.2]),
            "clip_ratio_high": source.choice([0.2, 0.28, 3.0]),
            "loss_agg_mode": mode,
            "horizon": source.choice([4.0, 10.0]),
            "kl_loss_type": "k3",
            "kl_loss_coef": source.choice([0.0, 0.1]),
        }
        if variant == "cispo":
            del chosen["clip_ratio_low"]  # TRL's has no lower bound, and takes its ratio against old_per_token_logps
            data["rollout_log_probs"] = data["old_log_probs"]
        tensors = {name: torch.tensor(rows, dtype=torch.double) for name, rows in data.items()}
        log_probs = tensors["log_probs"].requires_grad_()
        weights = torch.ones_like(tensors["log_probs"]).detach()
        if variant == "ppo" and source.random() < 0.5:
            chosen["tis_cap"] = source.choice([1.2, 2.0])
            weights = torch.exp(tensors["old_log_probs"] - tensors["rollout_log_probs"]).clamp(max=chosen["tis_cap"])
        mask = tensors["response_mask"]
        loss = compute_loss(trainer(loss_type, {"clip_ratio_low": 0.0, **chosen}, log_probs, chosen["horizon"]), None, {
            "prompt_ids": torch.zeros(len(mask), 1), "prompt_mask": torch.zeros(len(mask), 1),
            "completion_ids": mask, "completion_mask": mask, "advantages": tensors["advantages"],
            "old_per_token_logps": tensors["old_log_probs"], "ref_per_token_logps": tensors["ref_log_probs"],
            "importance_sampling_ratio": weights, "num_items_in_batch": mask.sum(),
        })
        loss.backward()
        yield {"input": {**chosen, **data}, "loss": loss.item(), "grad_log_probs": log_probs.grad.tolist(), "metrics": {}}
