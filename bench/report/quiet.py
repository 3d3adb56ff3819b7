"""Whether this host is quiet: what else used its processors over some seconds, and who."""

import dataclasses
import os
import pathlib
import time

BUSY_MAX = 0.05  # of all processors, of which a row's command knows nothing


@dataclasses.dataclass(frozen=True)
class Ticks:
    """Of processors since the host started, and of each process since it did."""
    busy: int
    total: int
    processes: dict  # pid: (name, ticks)


def parse_stat(text):
    """Busy and all ticks of /proc/stat's first line. What a hypervisor gave to others counts as busy."""
    fields = [int(field) for field in text.split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, sum(fields)


def parse_process(text):
    """Name and ticks of /proc/PID/stat. The name may hold anything, parentheses too."""
    name = text[text.index("(") + 1:text.rindex(")")]
    fields = text[text.rindex(")") + 2:].split()
    return name, int(fields[11]) + int(fields[12])


def read_ticks(proc=pathlib.Path("/proc")):
    busy, total = parse_stat((proc / "stat").read_text())
    processes = {}
    for entry in proc.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                processes[int(entry.name)] = parse_process((entry / "stat").read_text())
            except OSError:
                pass  # it has ended
    return Ticks(busy, total, processes)


def busy_share(before, after):
    return (after.busy - before.busy) / max(1, after.total - before.total)


def busiest(before, after, count=5):
    """Names and shares of a processor of those that used the most, the first of each name."""
    used = []
    ticks = max(1, (after.total - before.total) / (os.cpu_count() or 1))
    for pid, (name, now) in after.processes.items():
        then = before.processes.get(pid, (name, 0))[1]
        if now > then:
            used.append(((now - then) / ticks, name, pid))
    return [f"{name} ({pid}) {100 * share:.0f} %" for share, name, pid in sorted(used, reverse=True)[:count]]


def why_loaded(seconds=2, patience_s=60, read=read_ticks, sleep=time.sleep):
    """"" as soon as the host is quiet for `seconds`; after `patience_s` who it is that keeps it from that."""
    waited = 0
    before = read()
    while True:
        sleep(seconds)
        waited += seconds
        after = read()
        if busy_share(before, after) <= BUSY_MAX:
            return ""
        if waited >= patience_s:
            return (f"{100 * busy_share(before, after):.0f} % of this host's processors are busy: "
                    f"{', '.join(busiest(before, after)) or 'by the hypervisor or the kernel'}")
        before = after
