"""TRL's asynchronous GRPO trainer publishes through weightcast.

    transfer = WeightTransfer("/var/lib/weightcast", "http://inference-1:8000")
    AsyncGRPOTrainer(..., weight_transfer=transfer, callbacks=[transfer])

The engines follow the daemons of their hosts: vLLM with `weightcast[vllm]`, or `weightcast-engine serve --state`. Each
pauses itself, for the write alone, so generation goes on while weights travel.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Optional, Union

from .._arguments import Files
from .._errors import Code, Error, TimedOut
from .._library import PathLike
from .._node import versions
from .._publication import fill_all
from .._publisher import Publisher
from .._tensors import TensorInfo, describe, tensor_bytes
from ._step_log import StepLog, figures_of

# How often an engine is asked. A look costs it microseconds.
_POLL_S = 0.02
# For one answer: what only looks is answered at once, also while an engine writes.
_ANSWER_S_MAX = 10.0
# The last look, at the deadline, takes at most this long: its answer tells why the engine is late.
_LAST_LOOK_S = 0.5
_SHOWN_CHARACTERS_MAX = 500


class WeightTransfer(StepLog):
    """TRL's WeightTransferProtocol, and as one of the trainer's callbacks the log of what it costs.

    TRL calls it on its main process alone, which runs on the origin's host; on other ranks it does nothing. The daemon is
    connected when training begins.
    """

    def __init__(
        self,
        state_dir: Optional[PathLike] = None,
        engines: Union[str, Sequence[str]] = "http://localhost:8000",
        *,
        files: Optional[Files] = None,
        dtype: Any = None,
        new_model: bool = False,
        installed: float = 1.0,
        timeout: float = 600.0,
        allow_nonfinite: bool = False,
    ) -> None:
        """`state_dir`: the origin's; None: WEIGHTCAST_STATE's. `engines`: base URLs of the servers that generate; without
        any the daemons are waited for alone. `files`: what accompanies the weights, as for Publisher.publish().
        `dtype`: a torch dtype in which floating tensors are published, such as that of the engines. FP32 weights change in
        nearly every element of a step, their BF16 values in a few per cent. `new_model`: the first publication may have
        other tensors than the origin's last version. `installed`: the fraction of the active workers that has to have each
        version. `timeout`: seconds for the engines to be ready at first, and then for each version. `allow_nonfinite`: NaN
        and infinity are published, too.

        Errors: ValueError (no time-out, fraction or URL).
        """
        super().__init__()
        urls = [engines] if isinstance(engines, str) else list(engines)
        if not 0 < installed <= 1 or not timeout > 0:
            raise ValueError(f"weightcast: installed={installed}, timeout={timeout}: give a fraction up to 1, and seconds")
        self._state_dir = state_dir
        self._engines = [_Engine(url) for url in urls]
        self._files, self._dtype, self._new_model = files, dtype, new_model
        self._installed, self._timeout, self._allow_nonfinite = installed, timeout, allow_nonfinite
        self._publisher: Optional[Publisher] = None
        self._infos: list[TensorInfo] = []

    def init_weight_transfer(self) -> None:
        """Connects to the origin, and waits until the engines answer.

        Errors: those of Publisher; Error with UNSUPPORTED (an engine follows no daemon), IO (it answers an HTTP error);
        TimedOut.
        """
        self._publisher = self._publisher or Publisher(self._state_dir)
        deadline = time.monotonic() + self._timeout
        for engine in self._engines:
            engine.wait_until_ready(deadline)

    def pause(self) -> None:
        """Does nothing: an engine pauses itself, for the write alone. One that others have paused takes no version."""

    def resume(self) -> None:
        """Does nothing, as pause()."""

    def send_weights(self, iterator: Iterable[tuple[str, Any]]) -> None:
        """Publishes the tensors, and waits until the workers have installed the version and the engines generate under it.

        Tensors may be made one by one: after the first publication, for which they are copied to the host first, one is
        held at a time.
        Errors: those of Publisher.begin(), Publication.commit() and Publisher.wait(); RuntimeError (other tensors than the
        first time); Error with IO (an engine answers an HTTP error), CORRUPT (it refused the version); TimedOut, which says
        what was waited for; NOT_FOUND (another program has published since). The engines generate under the version before then.
        """
        if self._publisher is None:
            raise RuntimeError("weightcast: send_weights() before init_weight_transfer(), or after destroy()")
        began = time.monotonic()
        deadline = began + self._timeout
        for engine in self._engines:
            engine.count_refusals()
        version = self._publish(iterator)
        published = time.monotonic()
        left = max(deadline - published, 0.0)
        outcome = self._publisher.wait(version, installed=self._installed, timeout=left)
        installed = time.monotonic()
        if self._engines:
            digest = self._digest(version)
            for engine in self._engines:
                engine.wait_until_generating(version, digest, deadline)
        weights_bytes = sum(tensor_bytes(info.dtype, info.shape) for info in self._infos)
        figures = figures_of(outcome, published - began, installed - began, "installed", weights_bytes)
        if self._engines:
            figures["weightcast/generating_s"] = time.monotonic() - began
        self._tell(figures)

    def destroy(self) -> None:
        """Ends the connection. Repeating it is harmless."""
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def _digest(self, version: int) -> str:
        """What tells the version from one of the same number that an engine has of an earlier run."""
        for known in versions(self._state_dir)["versions"]:
            if known["version"] == version:
                return known["digest"]
        why = f"weightcast: the origin has version {version} no more; let no other program publish while this one trains"
        raise Error(Code.NOT_FOUND, "wait", why)

    def _publish(self, iterator: Iterable[tuple[str, Any]]) -> int:
        named: Iterable[tuple[str, Any]] = ((name, self._cast(tensor)) for name, tensor in iterator)
        infos, options = self._infos, {"allow_nonfinite": self._allow_nonfinite}
        if not infos:
            # Nobody has said yet what comes, and memory on the device is scarce.
            named = [(name, tensor.cpu()) for name, tensor in named]
            infos = [describe(name, tensor) for name, tensor in named]
            options |= {"files": self._files, "new_model": self._new_model}
        with self._publisher.begin(infos, timeout=self._timeout, **options) as publication:
            missing = fill_all(publication, infos, named)
            if missing:
                raise RuntimeError(
                    f"weightcast: {len(missing)} of {len(infos)} tensors are no longer sent, such as "
                    f"{min(missing)!r}; nothing was published. Send the same ones each time"
                )
            version = publication.commit(timeout=self._timeout)
        self._infos = infos
        return version

    def _cast(self, tensor: Any) -> Any:
        return tensor.to(self._dtype) if self._dtype is not None and tensor.is_floating_point() else tensor


class _Seen(NamedTuple):
    """What an engine says of itself."""

    version: int  # 0: none yet
    digest: Optional[str]  # of the version
    why: str  # the last failure
    refusals: int  # versions that it will not take, ever


def _vllm(answer: Any) -> _Seen:
    return _Seen(answer.get("version") or 0, answer.get("digest"), answer.get("why") or "", 0)  # it tries again


def _worker(answer: Any) -> _Seen:
    why, refused = answer["last_version_error"] or "", answer["versions_refused"]
    return _Seen(int(answer["weight_version"]), answer["digest"], why, refused)


_ROUTES = {"/weightcast/status": _vllm, "/get_weight_version": _worker}


def _opener_for(url: str) -> urllib.request.OpenerDirector:
    """What opens it: http_proxy and its like are followed, but for this host itself, which no proxy reaches."""
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost" or host.endswith(".localhost")
    return urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_here else []))


class _Engine:
    """A server that follows a daemon, and says which version it generates under."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"weightcast: engine {url!r}: give its base URL, such as http://inference-1:8000")
        self._url = url.rstrip("/")
        self._opener = _opener_for(url)
        self._route: Optional[str] = None
        self._refusals: Optional[int] = None

    def wait_until_ready(self, deadline: float) -> None:
        self._wait("it does not answer", lambda seen: True, deadline)

    def count_refusals(self) -> None:
        """Refusals after this one are of the next version."""
        self._refusals = None
        try:
            self._refusals = self._look(_ANSWER_S_MAX).refusals
        except OSError:  # it is away, and the wait for the version says so
            pass

    def wait_until_generating(self, version: int, digest: str, deadline: float) -> None:
        def is_generating(seen: _Seen) -> bool:
            if seen.digest == digest:
                return True
            if self._refusals is not None and seen.refusals > self._refusals:
                raise Error(
                    Code.CORRUPT, "wait",
                    f"weightcast: {self._url} refused version {version}: {seen.why}; it generates under {seen.version}",
                )
            return False

        self._wait(f"it does not generate under version {version}", is_generating, deadline)

    def _wait(self, what: str, is_over: Callable[[_Seen], bool], deadline: float) -> None:
        while True:
            left = deadline - time.monotonic()
            try:
                seen = self._look(min(max(left, _LAST_LOOK_S), _ANSWER_S_MAX))
            except OSError as error:  # it is started, or started anew
                last = f"the last call failed: {error}"
            else:
                if is_over(seen):
                    return
                last = f"it generates under {seen.version or 'what it was started with'}"
                last += f", because: {seen.why}" if seen.why else "; look at its log, and at its daemon's"
            if left <= 0:
                raise TimedOut(Code.TIMED_OUT, "wait", f"weightcast: {self._url}: {what} in time; {last}")
            time.sleep(_POLL_S)

    def _look(self, limit_s: float) -> _Seen:
        """Errors: OSError (no answer), Error (another one than a server gives that follows a daemon)."""
        for route in [self._route] if self._route else _ROUTES:
            try:
                with self._opener.open(self._url + route, timeout=limit_s) as response:
                    seen = _ROUTES[route](json.load(response))
            except urllib.error.HTTPError as error:
                if error.code == 404 and self._route is None:
                    continue
                said = error.read(_SHOWN_CHARACTERS_MAX).decode("utf-8", "replace")
                raise Error(Code.IO, "wait", f"weightcast: {self._url}{route} answers {error.code}: {said}") from None
            except http.client.HTTPException as error:
                raise ConnectionError(f"{type(error).__name__}: {error}") from None
            except (AttributeError, KeyError, TypeError, ValueError):
                continue
            self._route = route
            return seen
        raise Error(
            Code.UNSUPPORTED, "wait",
            f"weightcast: {self._url} does not say which version it generates under; start `vllm serve` with "
            "WEIGHTCAST_STATE and VLLM_PLUGINS=weightcast (docs/VLLM.md), or `weightcast-engine serve --state`",
        )
