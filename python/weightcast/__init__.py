"""weightcast for Python: publish a trainer's weights, and use them in inference engines.

Pure Python over libweightcast.so by ctypes, so that it loads in whatever interpreter (from 3.9 on) an engine brings.
It imports neither torch nor NumPy: it takes their tensors, and gives them, where the program has them.

A trainer:
    with weightcast.Publisher("/var/lib/weightcast") as publisher:
        version = publisher.publish(model, files=model_dir)  # its config.json and tokenizer, with the first one

An engine, on a worker's host:
    with weightcast.Subscription("/var/lib/weightcast") as subscription:
        for event in subscription:
            if event.kind is weightcast.EventKind.INSTALLED:
                with subscription.acquire(event.version) as pin:
                    weights = weightcast.Snapshot(pin.directory)

Time-outs are in seconds and bound the whole call. A failing call raises Error, whose `code` a program can react to.
Waiting releases the GIL. Ctrl-C (KeyboardInterrupt) ends a call that waits in the main thread.
"""

from ._changes import Piece, update_shadow
from ._errors import Code, Error, TimedOut
from ._library import library_version
from ._load import Weights, load
from ._node import history, status, versions, wait_until_ready
from ._publication import Publication, Region, attach
from ._publisher import Outcome, Payload, Publisher
from ._snapshot import Snapshot
from ._subscription import Change, Event, EventKind, Pin, Subscription, TorchChange
from ._tensors import RawTensor, TensorInfo, describe

__all__ = [
    "Change",
    "Code",
    "Error",
    "Event",
    "EventKind",
    "Outcome",
    "Payload",
    "Piece",
    "Pin",
    "Publication",
    "Publisher",
    "RawTensor",
    "Region",
    "Snapshot",
    "Subscription",
    "TensorInfo",
    "TimedOut",
    "TorchChange",
    "Weights",
    "attach",
    "describe",
    "history",
    "library_version",
    "load",
    "status",
    "update_shadow",
    "versions",
    "wait_until_ready",
]
