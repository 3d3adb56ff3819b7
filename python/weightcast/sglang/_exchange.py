"""The directory by which a follower orders the processes of its server, which SGLang gives no way to answer.

The follower writes one order, has SGLang call the loader in each process, and reads a report from each. SGLang does what it is
asked one by one: a call that is late finds no order, because the follower takes it away when it gives up.
"""

from __future__ import annotations

import json
import os
import uuid
from typing import Any, Optional

_ORDER = "order.json"
_REPORT = "report-"


class Exchange:
    def __init__(self, directory: str) -> None:
        """Errors: OSError, PermissionError (others could write orders there)."""
        os.makedirs(directory, mode=0o700, exist_ok=True)
        found = os.stat(directory)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PermissionError(f"{directory}: has to be this user's, and nobody else may write there: chmod 700 it")
        self.directory = directory

    # The follower.

    def order(self, operation: str, arguments: dict[str, Any]) -> str:
        """Its id."""
        self.withdraw()
        number = uuid.uuid4().hex
        self._write(_ORDER, {"id": number, "operation": operation, "arguments": arguments})
        return number

    def reports(self, number: str) -> list[dict[str, Any]]:
        found = []
        for name in sorted(os.listdir(self.directory)):
            if name.startswith(_REPORT + number):
                with open(os.path.join(self.directory, name)) as file:
                    found.append(json.load(file))
        return found

    def withdraw(self) -> None:
        """Neither an order nor reports are left."""
        for name in os.listdir(self.directory):
            if name.startswith((_ORDER, _REPORT)):
                try:
                    os.unlink(os.path.join(self.directory, name))
                except FileNotFoundError:
                    pass

    # A process of the server.

    def ordered(self) -> Optional[dict[str, Any]]:
        try:
            with open(os.path.join(self.directory, _ORDER)) as file:
                return json.load(file)
        except FileNotFoundError:
            return None

    def report(self, number: str, result: dict[str, Any]) -> None:
        self._write(f"{_REPORT}{number}-{os.getpid()}", result)

    def _write(self, name: str, what: dict[str, Any]) -> None:
        path = os.path.join(self.directory, name)
        making = os.path.join(self.directory, f".{name}.{os.getpid()}")
        with open(making, "w") as file:
            json.dump(what, file)
        os.replace(making, path)
