"""A task of your own, in a process of its own: for weightcast-train and weightcast-engine, which start it.

    from weightcast.tasks import Task, serve

    class Sums(Task):
        name = "sums"
        metadata = ["answer"]

        def prompt(self, index):
            return f"{index % 10}+{index // 10 % 10}=", {"answer": str(index % 10 + index // 10 % 10)}

        def score(self, metadata, response):
            return response.strip() == metadata["answer"]

    serve(Sums())

docs/TASKS.md has the protocol (JSON lines) and the keys that name the program. What a task prints goes to stderr, the
learner's log. An exception of a task is an error of that one prompt, score or step, and the process goes on.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

__all__ = ["EpisodeTask", "Task", "serve"]

PROTOCOL = 1
# How long calls that came before the end of stdin may still take: somebody may have piped them in.
_LAST_ANSWERS_S = 1.0

Message = Dict[str, str]
# A text is one message of the user's. The second of a pair are metadata, for score().
Prompt = Union[str, Sequence[Message], Tuple[Union[str, Sequence[Message]], Mapping[str, str]]]
# True and False are 1 and 0, and say whether it is a success. A number alone is one from 1 on.
Score = Union[bool, float, Tuple[float, bool]]


class Task:
    """Prompts by number, and what an answer to one is worth."""

    #: Letters, digits and _ . - ; the learner and its workers compare both. Change the version with rules or data.
    name = "task"
    version = "1"
    #: How many prompts there are; None: without end.
    prompt_count: Optional[int] = None
    #: The names of each prompt's metadata. One called "solution" is a right answer, for supervised fine-tuning.
    metadata: Sequence[str] = ()

    def configure(self, options: Mapping[str, str]) -> None:
        """Takes the learner's task_options. Raise ValueError for what is wrong with them."""
        if options:
            raise ValueError(f"task {self.name} has no options; it was given {', '.join(options)}")

    def prompt(self, index: int) -> Prompt:
        """The prompt of this number. Equal numbers give equal prompts, in every process."""
        raise NotImplementedError

    def score(self, metadata: Mapping[str, str], response: str) -> Score:
        """What `response` is worth as an answer to the prompt that had `metadata`."""
        raise NotImplementedError


class EpisodeTask(Task):
    """Episodes of several turns. Each is an object of its own, with two methods:

    reset(seed) -> prompt, as Task.prompt(); the same seed gives the same episode
    step(action) -> (observation, reward, done, success): what the policy's text does; nonsense is no exception
    """

    def episode(self) -> Any:
        raise NotImplementedError


class _Calls:
    """Answers calls, each a dictionary, with dictionaries."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._episodes: Dict[int, Any] = {}

    def answer(self, call: Mapping[str, Any]) -> Dict[str, Any]:
        handler = getattr(self, "_" + str(call.get("call")), None)
        try:
            if handler is None:
                raise ValueError(f"no call {call.get('call')!r}")
            answer = handler(call)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        return {"id": call.get("id"), **answer}

    def _hello(self, call: Mapping[str, Any]) -> Dict[str, Any]:
        task = self._task
        hello = {"protocol": PROTOCOL, "name": task.name, "version": task.version, "metadata": list(task.metadata)}
        hello["offers"] = "episodes" if isinstance(task, EpisodeTask) else "prompts"
        if call["protocol"] == PROTOCOL:  # otherwise the caller refuses the answer
            task.configure(call["options"])
        if task.prompt_count is not None:
            hello["prompt_count"] = task.prompt_count
        return hello

    def _prompt(self, call: Mapping[str, Any]) -> Dict[str, Any]:
        return _prompt_members(self._task.prompt(call["index"]))

    def _score(self, call: Mapping[str, Any]) -> Dict[str, Any]:
        score = self._task.score(call["metadata"], call["response"])
        reward, success = score if isinstance(score, tuple) else (score, score >= 1)
        return {"reward": float(reward), "success": bool(success)}

    def _reset(self, call: Mapping[str, Any]) -> Dict[str, Any]:
        for closed in call["closed"]:
            self._episodes.pop(closed, None)
        assert isinstance(self._task, EpisodeTask)
        episode = self._task.episode()
        prompt = _prompt_members(episode.reset(call["seed"]))
        self._episodes[call["episode"]] = episode
        return prompt

    def _step(self, call: Mapping[str, Any]) -> Dict[str, Any]:
        observation, reward, done, success = self._episodes[call["episode"]].step(call["action"])
        return {"observation": observation, "reward": float(reward), "done": bool(done), "success": bool(success)}


def _prompt_members(prompt: Prompt) -> Dict[str, Any]:
    asked, metadata = prompt if isinstance(prompt, tuple) else (prompt, {})
    messages: List[Any] = [{"role": "user", "content": asked}] if isinstance(asked, str) else list(asked)
    return {"messages": messages, "metadata": dict(metadata)}


def serve(task: Task) -> None:
    """Answers the calls of the process that has started this one, until that ends."""
    if sys.stdin.isatty():
        sys.exit(f"task {task.name}: a learner or an engine starts this program, by its [task_program] (docs/TASKS.md); it is not for a terminal")
    # The answers' way is ours alone: what a task prints, or a library of its, must not get between them.
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.stdout.flush()  # what was printed before, to where it belongs now
    lines: "queue.Queue[Optional[bytes]]" = queue.Queue()  # None: no more will come

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        lines.put(None)
        time.sleep(_LAST_ANSWERS_S)
        os._exit(0)  # nobody is there any more, even if the task hangs

    threading.Thread(target=read, daemon=True).start()
    calls = _Calls(task)
    while True:
        line = lines.get()
        if line is None:
            os._exit(0)
        answer = calls.answer(json.loads(line))
        try:
            text = json.dumps(answer, allow_nan=False)
        except (TypeError, ValueError) as error:
            text = json.dumps({"id": answer["id"], "error": f"the task's answer is no JSON: {error}"})
        data = memoryview(text.encode() + b"\n")
        try:
            while data:
                data = data[out.write(data) :]
        except BrokenPipeError:
            os._exit(0)  # nobody reads answers any more
