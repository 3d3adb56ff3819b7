"""An environment of Gymnasium as a task of several turns: the policy answers with the name of an action.

    serve(GymnasiumTask("FrozenLake-v1", {"left": 0, "down": 1, "right": 2, "up": 3}, is_slippery=False))

The observation is what the environment renders as text (render_mode "ansi"), or what `describe` makes of its observation.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import gymnasium

from ..tasks import EpisodeTask

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class GymnasiumTask(EpisodeTask):
    """`actions` has the words of the answer and the actions that they stand for. The last word of an answer counts. An
    answer without one changes nothing, and costs `no_action_reward`. `rules` stand before the first observation. An episode
    is a success if `is_success(reward, terminated)` says so of its last step: without it, if that has a reward and is the
    environment's own end. `options` go to gymnasium.make()."""

    def __init__(
        self,
        environment: str,
        actions: Mapping[str, Any],
        *,
        rules: str = "",
        describe: Optional[Callable[[Any], str]] = None,
        no_action_reward: float = -0.1,
        is_success: Callable[[float, bool], bool] = lambda reward, terminated: terminated and reward > 0,
        version: str = "1",
        **options: Any,
    ) -> None:
        self.name = re.sub(r"[^A-Za-z0-9_.-]", "_", environment)
        self.version = version
        self._id = environment
        self._options: Dict[str, Any] = {"render_mode": "ansi", **options} if describe is None else options
        self._describe = describe
        self._actions = {word.lower(): action for word, action in actions.items()}
        self._words = re.compile(r"\b(" + "|".join(map(re.escape, self._actions)) + r")\b", re.IGNORECASE)
        self._ask = "Answer with one of: " + ", ".join(actions)
        self._rules = rules
        self._no_action_reward = no_action_reward
        self._is_success = is_success

    def episode(self) -> "_Episode":
        return _Episode(self)


class _Episode:
    def __init__(self, task: GymnasiumTask) -> None:
        self._task = task
        self._environment = gymnasium.make(task._id, **task._options)

    def reset(self, seed: int) -> str:
        observation, _ = self._environment.reset(seed=seed % 2**32)
        rules = self._task._rules
        return (rules + "\n" if rules else "") + self._text(observation)

    def step(self, action: str) -> Tuple[str, float, bool, bool]:
        task = self._task
        words = task._words.findall(action)
        if not words:
            return task._ask, task._no_action_reward, False, False
        observation, reward, terminated, truncated, _ = self._environment.step(task._actions[words[-1].lower()])
        success = task._is_success(float(reward), bool(terminated))
        return self._text(observation), float(reward), terminated or truncated, success

    def _text(self, observation: Any) -> str:
        describe = self._task._describe
        if describe is not None:
            text = describe(observation)
        else:
            # Colours mark places where a terminal shows them: brackets do for a policy.
            rendered = str(self._environment.render())
            text = _COLOURS.sub("", re.sub(r"\x1b\[41m(.)\x1b\[0m", r"[\1]", rendered)).strip("\n")
        return text + "\n" + self._task._ask
