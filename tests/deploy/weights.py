"""Weights for the tests: a safetensors file of any size, whose few last bytes tell versions apart."""

import json
import pathlib
import struct


def write_weights(path, size_bytes, version):
    data = bytearray((bytes(range(256)) * (size_bytes // 256 + 1))[:size_bytes])
    data[-4:] = struct.pack("<I", version)
    header = json.dumps({"w": {"dtype": "U8", "shape": [size_bytes], "data_offsets": [0, size_bytes]}}).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(header)) + header + data)
