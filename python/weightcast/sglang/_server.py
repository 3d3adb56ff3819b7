"""An SGLang server over HTTP: bounded calls, and what kind of failure each was."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from typing import Any, Optional

_ANSWER_BYTES_MAX = 64 << 20  # /server_info tells of each scheduler


class Unreachable(Exception):
    """No answer: whether the call had an effect, or will have one, is not known."""


class Refused(Exception):
    """The server answered that it did not do it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Server:
    def __init__(self, url: str, api_key: Optional[str] = None) -> None:
        """Errors: ValueError (not the address of a server)."""
        found = urllib.parse.urlsplit(url)
        if found.scheme not in ("http", "https") or not found.hostname or found.path not in ("", "/"):
            raise ValueError(f"--server {url!r} is no address; give one such as http://127.0.0.1:30000")
        kind = http.client.HTTPSConnection if found.scheme == "https" else http.client.HTTPConnection
        self._connect = lambda limit_s: kind(found.hostname, found.port, timeout=limit_s)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.url = url.rstrip("/")

    def get(self, path: str, limit_s: float) -> dict[str, Any]:
        return self._call("GET", path, None, limit_s)

    def post(self, path: str, body: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """The answer; {} where it is no JSON object. Errors: Unreachable, Refused (a status other than 200, or success false)."""
        return self._call("POST", path, json.dumps(body).encode(), limit_s)

    def _call(self, method: str, path: str, body: Optional[bytes], limit_s: float) -> dict[str, Any]:
        connection = self._connect(max(0.001, limit_s))
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **self._headers})
            response = connection.getresponse()
            text = response.read(_ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise Unreachable(f"{self.url}{path}: no answer within {limit_s:.0f} s ({why}); is the server up?") from None
        finally:
            connection.close()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        answer = answer if isinstance(answer, dict) else {}
        if response.status != 200 or answer.get("success") is False:
            said = answer.get("message") or answer.get("error") or text[:300].decode(errors="replace").strip() or "nothing"
            raise Refused(response.status, f"{path}: status {response.status}; the server says: {str(said)[:300]}")
        return answer
