"""A trainer of several ranks, with FSDP2: each rank publishes its own shards, and no rank gathers any.

Start an origin first (weightcast daemon --role origin --state DIR ...), one without versions of another model. Then, on its host:
    torchrun --nproc-per-node 4 publish_fsdp.py DIR
"""

import sys

if len(sys.argv) != 2:
    sys.exit("usage: torchrun --nproc-per-node 4 publish_fsdp.py STATE_DIR")

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from weightcast.integrations.fsdp import ShardedPublisher


def main(state_dir):
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("cuda:nccl,cpu:gloo" if on_gpu else "gloo")
    if on_gpu:
        torch.cuda.set_device(dist.get_rank())
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    for module in (model[0], model[2], model):
        fully_shard(module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    with ShardedPublisher(state_dir) as publisher:  # like all its calls, on every rank
        for _ in range(3):
            inputs = torch.randn(8, 64, device="cuda" if on_gpu else "cpu")
            (model(inputs) - inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            version = publisher.publish_changed(model.state_dict())
            outcome = publisher.wait()
        if dist.get_rank() == 0:
            print(f"published version {version}, taken over in {outcome.take_s:.3f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
