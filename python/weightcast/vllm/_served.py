"""vLLM's adapters, as its API server has them: by a name that stays, of versions that change."""

from __future__ import annotations

from typing import Any

from vllm.lora.request import LoRARequest


class VersionRequest(LoRARequest, weakref=True):
    """What vLLM keeps with each request of one version. When the last one has ended nobody has it any more."""


class Served:
    """`models` is vLLM's OpenAIServingModels. A request takes what stands under its model's name there when it arrives, and keeps
    it. In the engine each version has a name and a number of its own: vLLM compares adapters by name."""

    def __init__(self, engine: Any, models: Any) -> None:
        self._engine, self._models = engine, models
        self._names: set[str] = set()
        self._list = models.show_available_models
        models.show_available_models = self._show_available_models

    @property
    def has_ended(self) -> bool:
        return self._engine.errored

    @property
    def model_names(self) -> list[str]:
        """What the model beneath is called, by its path and to clients."""
        return sorted({name for card in self._models.base_model_paths for name in (card.model_path, card.name)})

    async def load(self, label: str, path: str) -> VersionRequest:
        """Beside the others, between two steps of the engine. Errors: RuntimeError (it says why); nothing is loaded then."""
        number = self._models.lora_id_counter.inc(1)
        results = await self._ranks("load_adapter", label=label, number=number, path=path)
        why = next((result["error"] for result in results if not result["ok"]), "")
        if not why:
            unused = set.intersection(*(set(result["unused"]) for result in results))
            if unused:
                some = ", ".join(sorted(unused)[:3])
                why = f"the served model takes no adapter for {len(unused)} of its modules, such as {some}: is it of another model?"
        if why:
            await self.drop(number)
            raise RuntimeError(why)
        return VersionRequest(lora_name=label, lora_int_id=number, lora_path=path)

    async def drop(self, number: int) -> None:
        await self._ranks("drop_adapter", number=number)

    def show(self, name: str, request: VersionRequest) -> None:
        """From now on requests for `name` are computed with it."""
        self._names.add(name)
        self._models.lora_requests[name] = request

    async def _ranks(self, operation: str, **arguments: Any) -> list[dict[str, Any]]:
        return await self._engine.collective_rpc("weightcast", args=(operation, arguments))

    async def _show_available_models(self) -> Any:
        """/v1/models: by the name that clients address, and `root` says the version."""
        found = await self._list()
        labels = {self._models.lora_requests[name].lora_name: name for name in self._names if name in self._models.lora_requests}
        found.data = [
            card.model_copy(update={"id": labels[card.id], "root": card.id}) if card.id in labels else card for card in found.data
        ]
        return found
