#!/usr/bin/env python3
"""What Publisher.publish() costs beside wc_publish(), the one call that wc::Client::publish() is.

Both publish the same tensors from this process's memory, in turns, and wait in between until the origin has its copy.
$WEIGHTCAST_LIBRARY names the library and $WEIGHTCAST_PROGRAM the daemon. Figures are medians, in seconds: of the wall
clock, and of this process's processor time.

Usage: python_publish.py [--mib 1024] [--tensors 500] [--repetitions 7] [--torch]
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python")]

import weightcast  # noqa: E402
from daemons import Daemon  # noqa: E402
from weightcast import _arguments, _library  # noqa: E402


def measure(function):
    wall, processor = time.perf_counter(), time.process_time()
    version = function()
    return version, time.perf_counter() - wall, time.process_time() - processor


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--tensors", type=int, default=500)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--torch", action="store_true", help="torch tensors in place of raw bytes")
    given = parser.parse_args()

    elements = given.mib * (1 << 20) // 2 // given.tensors
    memory = bytearray(b"\x3f\x3d" * (elements * given.tensors))
    tensors = []
    for i in range(given.tensors):
        data = memoryview(memory)[2 * elements * i : 2 * elements * (i + 1)]
        tensor = weightcast.RawTensor("BF16", (elements,), data)
        tensors.append((f"layers.{i}.weight", tensor.torch() if given.torch else tensor))

    lib = _library.library()
    infos = [weightcast.TensorInfo(name, "BF16", (elements,)) for name, _ in tensors]
    listed, array = _arguments.structs_of(infos)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for i in range(len(listed)):
        array[i].data = base + 2 * elements * i

    folder = os.environ.get("TMPDIR", "/var/tmp")
    with tempfile.TemporaryDirectory(prefix="weightcast-bench-", dir=folder) as directory:
        origin = Daemon(directory, "origin", "--role", "origin", "--listen", "127.0.0.1:0")
        try:
            with weightcast.Publisher(origin.state) as publisher:
                client = publisher._handle

                def by_python():
                    return publisher.publish(tensors)

                def by_library():
                    version = ctypes.c_uint64()
                    options = _library.PublishOptions()
                    _library.check(
                        lib.wc_publish, client.pointer, ctypes.byref(options), array, len(listed), 60_000,
                        ctypes.byref(version),
                    )  # fmt: skip
                    return version.value

                took = {"python": [], "library": []}
                publisher.reserve(infos)
                publisher.wait(by_library(), timeout=120)
                for turn in range(given.repetitions):
                    # A change, so that each version has something to carry.
                    memory[:2] = bytes([turn, 0x3D])
                    order = [("python", by_python), ("library", by_library)]
                    for name, function in order if turn % 2 else reversed(order):
                        version, wall, processor = measure(function)
                        took[name].append((wall, processor))
                        publisher.wait(version, timeout=120)
        finally:
            origin.close()
    result = {"tensor_bytes": 2 * elements * given.tensors, "tensors": given.tensors, "torch": given.torch}
    for name, each in took.items():
        result[f"{name}_s"] = round(statistics.median(wall for wall, _ in each), 4)
        result[f"{name}_cpu_s"] = round(statistics.median(processor for _, processor in each), 4)
    result["ratio"] = round(result["python_s"] / result["library_s"], 3)
    result["cpu_ratio"] = round(result["python_cpu_s"] / result["library_cpu_s"], 3)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
