"""verl's generalised advantage estimation and value loss, on random batches in double."""

import random

import torch

from verl_losses import load_verl, matrix

MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


def lines(count):
    algos, _ = load_verl()
    source = random.Random(18)
    torch.set_num_threads(1)
    for i in range(count):
        rows, columns = source.randint(1, 3), source.randint(3, 6)
        mask = [[int(source.random() < 0.7) for _ in range(columns)] for _ in range(rows)]
        mask[0][:2] = [1, 1]
        line = {
            "rewards": matrix(source, rows, columns, -1, 1),
            "values": matrix(source, rows, columns, -1, 1),
            "response_mask": mask,
            "gamma": source.choice([1.0, 0.9]),
            "lambda": source.choice([1.0, 0.95, 0.5]),
            "new_values": matrix(source, rows, columns, -1, 1),
            "clip_range": source.choice([0.2003, 0.4997]),  # no value of three digits lies on its edge
            "loss_agg_mode": MODES[i % len(MODES)],
        }
        rewards, values, counted, predicted = (
            torch.tensor(line[name], dtype=torch.double) for name in ("rewards", "values", "response_mask", "new_values"))
        advantages, returns = algos.compute_gae_advantage_return(rewards, values, counted, line["gamma"], line["lambda"])
        predicted.requires_grad_()
        loss, clipped = algos.compute_value_loss(predicted, returns, values, counted, line["clip_range"], line["loss_agg_mode"])
        loss.backward()
        yield {
            **line,
            "advantages": (advantages * counted).tolist(),
            "returns": (returns * counted).tolist(),
            "loss": loss.item(),
            "clipped_share": clipped.item(),
            "grad_values": predicted.grad.tolist(),
        }
