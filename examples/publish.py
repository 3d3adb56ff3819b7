"""Publishes tensors at an origin, and waits for its workers. Usage: publish.py STATE_DIR"""

import array
import sys

import weightcast

if len(sys.argv) != 2:
    sys.exit("usage: publish.py STATE_DIR")

weights = {
    # Tensors of torch on any device and NumPy arrays go here just so.
    "model.norm": array.array("f", [1.0] * 1024),
    # What a library has no type for is given as bytes, with its dtype.
    "model.embed": weightcast.RawTensor("BF16", (256, 64), bytes(256 * 64 * 2)),
}

try:
    with weightcast.Publisher(sys.argv[1]) as publisher:
        version = publisher.publish(weights)  # one copy; the weights may change now
        print(f"published version {version}")

        # The same in place: memory that the origin reads itself.
        infos = [weightcast.describe(name, tensor) for name, tensor in weights.items()]
        with publisher.begin(infos) as publication:
            for name, tensor in weights.items():
                publication.fill(name, tensor)
            version = publication.commit()
        outcome = publisher.wait(version)  # installed=0.9 waits for workers
        print(f"published version {version}, {outcome.workers} workers")

        # The next one: only the cells that changed.
        cells, values = array.array("q", [0, 7]), array.array("f", [2.0, 3.0])
        version = publisher.publish_sparse({"model.norm": (cells, values)}, base=version)
        publisher.wait(version)
        print(f"published version {version}")
except weightcast.Error as error:
    sys.exit(f"{error} ({error.code.name})")
