"""The parts of TRL's asynchronous GRPO trainer that speak to a server, unmodified: its VLLMClient, and the loop that
generates and scores rollouts. The trainer itself takes a newer torch than Debian's. What it imports of that and of
`datasets` stands here as stubs; nothing of it is between the loop and the server."""

import functools
import inspect
import sys
import types

import torch_shims  # first, because it ends the program where there is no torch
import accelerate
import transformers  # before `datasets` is a stub: it looks for the real one
from golden import installed

sys.modules["datasets"] = torch_shims.AnyNames("datasets")


def name_of(function):
    return getattr(function, "__name__", type(function).__name__)


def package(name, folder):
    """A package without what its __init__ imports."""
    module = types.ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module


accelerate.PartialState(cpu=True)  # which its log wants
trl = installed("trl")
package("trl.trainer", trl / "trainer")
package("trl.experimental", trl / "experimental")
package("trl.experimental.async_grpo", trl / "experimental" / "async_grpo")
utils = types.ModuleType("trl.trainer.utils")
utils.get_callable_name = name_of
utils.is_async_callable = inspect.iscoroutinefunction
utils.print_prompt_completions_sample = functools.partial(print, "sample:")
sys.modules["trl.trainer.utils"] = utils
sys.modules["trl.data_utils"] = torch_shims.AnyNames("trl.data_utils")

from trl.experimental.async_grpo.async_rollout_worker import _AsyncRolloutLoop as RolloutLoop  # noqa: E402,F401
from trl.experimental.async_grpo.vllm_client import VLLMClient  # noqa: E402,F401
