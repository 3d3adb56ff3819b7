"""Reads each version that a worker installs. Usage: subscribe.py STATE_DIR [VERSIONS]"""

import sys

import weightcast

if not 2 <= len(sys.argv) <= 3:
    sys.exit("usage: subscribe.py STATE_DIR [VERSIONS]")
left = int(sys.argv[2]) if len(sys.argv) > 2 else -1
try:
    with weightcast.Subscription(sys.argv[1]) as subscription:
        for event in subscription:
            if event.kind is not weightcast.EventKind.INSTALLED:
                continue  # PREPARING, with --single-copy: let go of what is mapped
            with subscription.acquire(event.version) as pin:  # its files stay, while we read
                snapshot = weightcast.Snapshot(pin.directory)
                size = sum(tensor.data.nbytes for tensor in snapshot.values())
                # snapshot[name].torch() and .numpy() are views of the mapped file.
                print(f"version {pin.version}: {len(snapshot)} tensors, {size} bytes", flush=True)
            left -= 1
            if left == 0:
                break
except weightcast.Error as error:
    sys.exit(f"{error} ({error.code.name})")
