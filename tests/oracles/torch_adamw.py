"""torch.optim.AdamW with clip_grad_norm_, on small tensors in FP32."""

import random
import struct

import torch


def single(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def numbers(source, count, scale):
    return [single(source.gauss(0, scale)) for _ in range(count)]


def lines(count):
    source = random.Random(15)
    torch.set_num_threads(1)
    for _ in range(count):
        sizes = [source.randint(1, 9), source.randint(1, 4)]
        decays = [source.choice([0.0, 0.01, 0.1]), 0.0]
        line = {
            "beta1": source.choice([0.9, 0.0, 0.5]),
            "beta2": source.choice([0.999, 0.95, 0.99]),
            "epsilon": source.choice([1e-8, 1e-6, 1e-3]),
            "grad_norm_max": source.choice([0.0, 0.5, 1.0, 100.0]),
            "weight_decay": decays,
            "weights": [numbers(source, size, source.choice([0.02, 1.0])) for size in sizes],
            "updates": [],
        }
        tensors = [torch.nn.Parameter(torch.tensor(weights)) for weights in line["weights"]]
        groups = [{"params": [tensor], "weight_decay": decay} for tensor, decay in zip(tensors, decays)]
        optimiser = torch.optim.AdamW(groups, lr=1, betas=(line["beta1"], line["beta2"]), eps=line["epsilon"])
        for _ in range(source.randint(1, 4)):
            rate = source.choice([1e-3, 1e-6, 0.1, 3e-4])
            scale = source.choice([1e-4, 1.0, 30.0])
            gradients = [numbers(source, size, scale) for size in sizes]
            for group, tensor, gradient in zip(optimiser.param_groups, tensors, gradients):
                group["lr"] = rate
                tensor.grad = torch.tensor(gradient)
            norm = torch.linalg.vector_norm(torch.cat([tensor.grad for tensor in tensors])).item()
            if line["grad_norm_max"] > 0:
                torch.nn.utils.clip_grad_norm_(tensors, line["grad_norm_max"])
            optimiser.step()
            line["updates"].append({
                "learning_rate": rate,
                "gradients": gradients,
                "grad_norm": norm,
                "weights": [tensor.detach().tolist() for tensor in tensors],
            })
        yield line
