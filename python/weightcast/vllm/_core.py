"""In vLLM's engine core, which serves what it is asked between two steps of its own."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Optional, Union

#: Of the engine core: prepare() below.
UTILITY = "weightcast_prepare"

Answer = list[dict[str, Any]]


def prepare(core: Any, arguments: dict[str, Any], pause: Optional[str], clear_cache: bool) -> Union[Answer, Future[Answer]]:
    """Has every rank prepare a version, or say how far it is, and pauses generation at once where all have prepared it.

    A question and a pause one after the other would each wait for a step. `arguments`: of Rank.prepare(). `pause`: vLLM's mode;
    None: not yet. What each rank says; it is paused if `pause` was given, all are "ok", and none "pending".
    Errors: those of pausing; it may be paused then.
    """
    if core.is_scheduler_paused():
        return [{"ok": False, "error": "somebody else has paused the engine; resume it"}]
    results = core.model_executor.collective_rpc("weightcast", args=("prepare", arguments))
    if pause is None or not all(result["ok"] and not result.get("pending") for result in results):
        return results
    pausing = core.pause_scheduler(pause, clear_cache)
    if pausing is None:
        return results
    told: Future[Answer] = Future()

    def handle_paused(paused: Future) -> None:
        error = paused.exception()
        if error is not None:
            told.set_exception(error)
        else:
            told.set_result(results)

    pausing.add_done_callback(handle_paused)
    return told
