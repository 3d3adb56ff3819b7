"""The figures of a publication, and how they come into the step log of a Hugging Face trainer."""

from __future__ import annotations

from typing import Any, Optional

from transformers import TrainerCallback

from .._publisher import Outcome, Payload


def figures_of(outcome: Outcome, publish_s: float, waited_s: float, until: str, weights_bytes: int) -> dict[str, float]:
    """Of one publication, by the names that the step log has. `publish_s`: until the origin had accepted it; `waited_s`: from
    the same begin until the workers had it "installed", or the origin had "taken" it over."""
    figures = {
        "weightcast/version": outcome.version,
        "weightcast/publish_s": publish_s,
        f"weightcast/{until}_s": waited_s,
        "weightcast/weights_bytes": weights_bytes,
        "weightcast/workers": outcome.workers,
        "weightcast/workers_installed": outcome.installed,
    }
    if outcome.payload is not Payload.UNDECIDED:
        figures["weightcast/payload_bytes"] = outcome.payload_bytes
    return figures


class StepLog(TrainerCallback):
    """Adds `figures` to the trainer's next log line, once. A trainer tells its callbacks of a line one after the other:
    those that report it elsewhere see the figures where they come later in trainer.callback_handler.callbacks."""

    def __init__(self) -> None:
        self._figures: dict[str, float] = {}
        self._is_logged = True

    @property
    def figures(self) -> dict[str, float]:
        """Seconds and bytes of the last publication; empty before the first."""
        return dict(self._figures)

    def _tell(self, figures: dict[str, float]) -> None:
        self._figures, self._is_logged = figures, False

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[dict[str, Any]] = None, **_: Any) -> None:
        if self._is_logged or logs is None:
            return
        self._is_logged = True
        logs.update(self._figures)
        if state.log_history:  # it has a copy
            state.log_history[-1].update(self._figures)
