#!/usr/bin/python3
"""Reads what `weightcast patch export` writes and writes what `weightcast patch import` reads, by the formats' descriptions
alone: with Python's own modules, zstandard and xxhash, as the tools do that the formats come from.

Usage: other_tools.py WEIGHTCAST. Exit status 77 where the two modules are missing.
"""

import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import xxhash
    import zstandard
except ImportError as missing:
    print(f"skipped: {missing}; the packages are python3-zstandard and python3-xxhash")
    sys.exit(77)

WIDTHS = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "U8": 1, "F8_E4M3": 1}
SHAPES = {
    "model.embed.weight": ("BF16", 70_001),
    "model.layers.0.norm": ("F32", 1_024),
    "model.layers.0.scale": ("F8_E4M3", 333),
    "model.layers.0.weight": ("BF16", 200_000),
    "model.untouched": ("F16", 5_000),
    "steps": ("I32", 1),
}


def read_safetensors(path):
    data = path.read_bytes()
    (header_bytes,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + header_bytes])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, info in header.items():
        begin, end = (8 + header_bytes + offset for offset in info["data_offsets"])
        tensors[name] = (info["dtype"], data[begin:end])
    return metadata, tensors


def write_safetensors(path, tensors, metadata=None):
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, data) in tensors.items():
        count = len(data) // WIDTHS[dtype]
        header[name] = {"dtype": dtype, "shape": [count], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, data in tensors.values()))


def make_versions():
    source = random.Random(7)
    old, new = {}, {}
    for name, (dtype, count) in SHAPES.items():
        before = bytearray(source.randbytes(count * WIDTHS[dtype]))
        after = bytearray(before)
        if name != "model.untouched":
            for _ in range(max(1, count // 100)):
                after[source.randrange(len(after))] ^= 1 << source.randrange(8)
        old[name], new[name] = (dtype, bytes(before)), (dtype, bytes(after))
    return old, new


def xor(a, b):
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")


def apply_slime(folder, tensors):
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    metadata = index["metadata"]
    assert metadata["version"] == "000008" and metadata["base_version"] == "000007", metadata
    assert metadata["compression_format"] == "zstd" and metadata["checksum_format"] == "xxh3-128", metadata
    result = dict(tensors)
    for name, file in index["weight_map"].items():
        checksums, frames = read_safetensors(folder / file)
        dtype, old = tensors[name]
        frame = zstandard.ZstdDecompressor().decompress(frames[name][1], max_output_size=1 << 30)
        if metadata["delta_encoding"] == "xor":
            new = xor(old, frame)
        else:
            (count,) = struct.unpack("<I", frame[:4])
            places = struct.unpack(f"<{count}I", frame[4 : 4 + 4 * count])
            values = frame[4 + 4 * count :]
            assert len(values) == count, name
            changed = bytearray(old)
            for place, value in zip(places, values):
                changed[place] = value
            new = bytes(changed)
        assert xxhash.xxh3_128_hexdigest(new) == checksums[name], name
        result[name] = (dtype, new)
    return result


def write_slime(folder, old, new, encoding):
    folder.mkdir()
    frames, checksums = {}, {}
    for name, (dtype, after) in new.items():
        before = old[name][1]
        if after == before:
            continue
        if encoding == "xor":
            frame = xor(before, after)
        else:
            places = [i for i in range(len(after)) if after[i] != before[i]]
            frame = struct.pack(f"<I{len(places)}I", len(places), *places) + bytes(after[i] for i in places)
        frames[name] = ("U8", zstandard.ZstdCompressor(level=3).compress(frame))
        checksums[name] = xxhash.xxh3_128_hexdigest(after)
    file = "model-00000-of-00001.safetensors"
    write_safetensors(folder / file, frames, checksums)
    metadata = {
        "version": "000008",
        "base_version": "000007",
        "delta_encoding": encoding,
        "compression_format": "zstd",
        "checksum_format": "xxh3-128",
    }
    index = {"metadata": metadata, "weight_map": {name: file for name in frames}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def apply_hf_sparse(path, tensors):
    metadata, changes = read_safetensors(path)
    assert metadata["sparse"] == "true" and metadata["model_version"] == "8", metadata
    result, changed = dict(tensors), 0
    for name, (dtype, data) in changes.items():
        if not name.endswith(".indices"):
            continue
        assert dtype == "I32", name
        name = name[: -len(".indices")]
        indices = struct.unpack(f"<{len(data) // 4}i", data)
        dtype, values = changes[name + ".values"]
        assert dtype == tensors[name][0], name
        width = WIDTHS[dtype]
        assert len(values) == width * len(indices), name
        cells = bytearray(tensors[name][1])
        for i, index in enumerate(indices):
            cells[index * width : (index + 1) * width] = values[i * width : (i + 1) * width]
        changed += len(indices)
        result[name] = (dtype, bytes(cells))
    assert metadata["changed_params"] == str(changed), metadata
    return result


def write_hf_sparse(path, old, new):
    changes, changed = {}, 0
    for name, (dtype, after) in new.items():
        width, before = WIDTHS[dtype], old[name][1]
        places = [i for i in range(len(after) // width) if after[i * width : (i + 1) * width] != before[i * width : (i + 1) * width]]
        if not places:
            continue
        changes[name + ".indices"] = ("I32", struct.pack(f"<{len(places)}i", *places))
        changes[name + ".values"] = (dtype, b"".join(after[i * width : (i + 1) * width] for i in places))
        changed += len(places)
    metadata = {"sparse": "true", "model_version": "8", "sparsity": "0.99", "changed_params": str(changed)}
    write_safetensors(path, changes, metadata)


def main():
    weightcast = sys.argv[1]
    old, new = make_versions()
    with tempfile.TemporaryDirectory(prefix="weightcast-other-tools-") as scratch:
        home = pathlib.Path(scratch)

        def run(*arguments):
            subprocess.run([weightcast, "patch", *map(str, arguments)], check=True, timeout=60, stdout=subprocess.DEVNULL)

        def check(what, tensors):
            wrong = [name for name in new if tensors.get(name) != new[name]]
            assert not wrong and len(tensors) == len(new), f"{what}: other bytes in {wrong}"
            print(f"{what}: the same bytes")

        write_safetensors(home / "old.safetensors", old)
        write_safetensors(home / "new.safetensors", new)
        versions = ("--base-version", 7, "--version", 8)
        for encoding in ("xor", "overwrite"):
            out = home / f"ours-{encoding}"
            out.mkdir()
            run("export", home / "old.safetensors", home / "new.safetensors", "--format", "slime", "--encoding", encoding,
                "-o", out, *versions)
            check(f"slime, {encoding}, written by weightcast", apply_slime(out / "weight_v000008", old))
            delta = home / f"weight_v000008-{encoding}"
            write_slime(delta, old, new, encoding)
            made = home / f"made-{encoding}.safetensors"
            run("import", home / "old.safetensors", delta, "--format", "slime", "-o", made)
            check(f"slime, {encoding}, read by weightcast", read_safetensors(made)[1])
        run("export", home / "old.safetensors", home / "new.safetensors", "--format", "hf-sparse", "-o",
            home / "ours.safetensors", *versions)
        check("sparse safetensors written by weightcast", apply_hf_sparse(home / "ours.safetensors", old))
        write_hf_sparse(home / "theirs.safetensors", old, new)
        run("import", home / "old.safetensors", home / "theirs.safetensors", "--format", "hf-sparse", "-o",
            home / "made.safetensors")
        check("sparse safetensors read by weightcast", read_safetensors(home / "made.safetensors")[1])


main()
