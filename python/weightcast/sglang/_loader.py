"""In each process of an SGLang server: does what its follower orders, by a Rank of the model that SGLang gives."""

from __future__ import annotations

import logging
import os
import weakref
from typing import Any, Callable, Optional

from .._snapshot import Snapshot
from .._subscription import Subscription
from ..engines._rank import Rank
from . import EXCHANGE
from ._exchange import Exchange

_log = logging.getLogger("weightcast.sglang")


class Loader:
    """The rank of one model. `model` is as engines/_rank.py wants it, and can probe()."""

    def __init__(self, model: Any, subscribe: Callable[[], Subscription] = Subscription) -> None:
        self._model = model
        self._rank = Rank(model, subscribe)

    def do(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One of prepare, write, probe, drop. Never raises: see load_changes()."""
        if operation == "prepare":
            return self._prepare(**arguments)
        if operation == "probe":
            try:
                self._model.probe(Snapshot(arguments["directory"]))
            except Exception as error:
                return {"ok": False, "wrote": True, "error": f"the probe failed: {error}"}
            return {"ok": True}
        return self._rank.call(operation, **arguments)

    def _prepare(
        self, version: int, digest: str, base: Optional[list[Any]], limit_s: float
    ) -> dict[str, Any]:
        """`base`: what the follower knows to be served; None: nothing here is to be relied upon. SGLang may have loaded something
        else since a version was written here, so changes are of use only against that."""
        whole = base is None or not self._rank.holds(*base)
        return self._rank.prepare(version, digest, whole, limit_s)


#: By model: a server with a draft model has several.
loaders: weakref.WeakKeyDictionary[Any, Loader] = weakref.WeakKeyDictionary()


def obey(model: Any) -> None:
    """Never raises: see load_changes()."""
    try:
        directory = os.environ.get(EXCHANGE)
        if not directory:
            _log.error("weightcast: set %s for the server to the directory that its follower has, too", EXCHANGE)
            return
        exchange = Exchange(directory)
        order = exchange.ordered()
        if order is None:
            _log.warning("weightcast: there is no order in %s; the follower has given up this call", directory)
            return
        try:
            if model not in loaders:
                from ._model import SglangModel

                loaders[model] = Loader(SglangModel(model))
            result = loaders[model].do(order["operation"], order["arguments"])
        except Exception as error:
            result = {"ok": False, "wrote": True, "error": str(error) or type(error).__name__}
        exchange.report(order["id"], result)
    except Exception:
        _log.exception("weightcast: the follower gets no report")
