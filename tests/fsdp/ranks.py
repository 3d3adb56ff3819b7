"""Runs a function on several ranks, as a trainer would have them: processes of one gloo group."""

import datetime
import os
import pathlib
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def _run(rank, world, store, function, arguments, answers):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=120)
    )
    try:
        answers.put((rank, True, function(rank, *arguments)))
    except BaseException:
        answers.put((rank, False, traceback.format_exc()))
        raise
    # Not destroyed: what is left of a group, of which a rank has died, would be waited for.
    answers.close()
    answers.join_thread()
    os._exit(0)


def run(directory, world, function, *arguments, lost=()):
    """function(rank, *arguments) on `world` ranks. Gives what each returned; None for the ranks in `lost`, which end."""
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    store = pathlib.Path(directory) / f"store-{os.urandom(4).hex()}"
    ranks = [
        spawn.Process(target=_run, args=(rank, world, store, function, arguments, answers)) for rank in range(world)
    ]
    for rank in ranks:
        rank.start()
    found = [None] * world
    try:
        for _ in range(world - len(lost)):
            rank, is_well, answer = answers.get(timeout=240)
            if not is_well:
                raise AssertionError(f"rank {rank}:\n{answer}")
            found[rank] = answer
        for rank, process in enumerate(ranks):
            if rank not in lost:
                process.join(60)
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    return found
