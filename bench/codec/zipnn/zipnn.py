"""zipnn.py FILE DTYPE REPETITIONS: packs and unpacks the file's cells on one thread with zipnn's module in C, called as
its class ZipNN calls it with its default parameters. Prints one line of JSON: bytes, and the least processor seconds of
each way. Exit status 1 where the cells do not come back."""

import json
import sys
import time

import zipnn_core

# Of each dtype: byte planes, whether the sign goes behind the exponent, the order of planes, bytes of a chunk.
PARAMETERS = {
    "bf16": (2, 1, 0b0_10_10, 256 * 1024),
    "f16": (2, 0, 0b0_10_10, 256 * 1024),
    "f32": (4, 1, 0b11_01_11_00, 256 * 1024),
    "f8_e4m3": (1, 1, 0b0_10_10, 128 * 1024),
}
HEADER_BYTES = 32
THRESHOLD = 0.95
CHECK_AFTER_PERCENT = 10
THREADS = 1


def main() -> int:
    path, dtype, repetitions = sys.argv[1], sys.argv[2], int(sys.argv[3])
    planes, signs, order, chunk_bytes = PARAMETERS[dtype]
    with open(path, "rb") as file:
        cells = file.read()
    pack_s = unpack_s = float("inf")
    packed = b""
    for _ in range(repetitions):
        mine = bytearray(cells)  # it moves the signs in place
        start = time.process_time()
        packed = zipnn_core.zipnn_core(bytes(HEADER_BYTES), mine, planes, signs, order, 0, chunk_bytes, THRESHOLD,
                                       CHECK_AFTER_PERCENT, THREADS)
        pack_s = min(pack_s, time.process_time() - start)
        del mine
        start = time.process_time()
        unpacked = zipnn_core.combine_dtype(memoryview(packed)[HEADER_BYTES:], planes, signs, order, chunk_bytes,
                                            len(cells), THREADS)
        unpack_s = min(unpack_s, time.process_time() - start)
        if unpacked != cells:
            print("zipnn: the cells do not come back", file=sys.stderr)
            return 1
        del unpacked
    print(json.dumps({"bytes": len(packed), "pack_cpu_s": pack_s, "unpack_cpu_s": unpack_s}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
