"""The trainer's half of vLLM's weight transfer, for frameworks that drive vLLM's own interface: they name the backend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

from vllm.distributed.weight_transfer.base import TrainerInitInfo, TrainerWeightTransferEngine

from .._publication import fill_all
from .._publisher import Publisher
from .._tensors import DTYPE_OF_NAME, TensorInfo
from . import BACKEND


@dataclass
class WeightcastTrainerInit(TrainerInitInfo):
    backend: ClassVar[str] = BACKEND

    state_dir: Optional[str] = None  # the origin's; None: $WEIGHTCAST_STATE
    files: Optional[str] = None  # the directory with config.json and the tokenizer
    install_s_max: float = 600.0
    allow_nonfinite: bool = False  # NaN and infinity are published, too


class WeightcastTrainer(TrainerWeightTransferEngine[WeightcastTrainerInit]):
    """Rank 0 publishes what the source yields, once for the whole fleet, and waits until all workers have installed it. Then
    it has vLLM take that version. Its caller pauses generation around send_weights(), and the servers need no follower."""

    init_info_cls = WeightcastTrainerInit

    def __init__(self, init_info: WeightcastTrainerInit, client: Any, source: Any) -> None:
        super().__init__(client=client, source=source, is_sender=init_info.is_sender)
        self._init_info = init_info
        self._publisher = Publisher(init_info.state_dir) if self.is_sender else None

    @classmethod
    def trainer_init(cls, init_info: WeightcastTrainerInit, *, client: Any, source: Any = None) -> WeightcastTrainer:
        """Errors: ValueError (no source), those of Publisher."""
        if source is None:
            raise ValueError("weightcast: give a WeightSource, such as ModuleSource(model)")
        made = cls(init_info, client, source)
        if made.is_sender:
            client.init_weight_transfer_engine({})
        return made

    def send_weights(self) -> None:
        """Errors: ValueError (a source whose rank 0 has not all tensors), those of Publisher.begin(), commit() and wait(), and
        of the client."""
        if self._publisher is None:
            for _ in _tensors_of(self.source):  # its gathers are collective
                pass
            return
        infos = _infos_of(self.source)
        options = {"files": self._init_info.files, "allow_nonfinite": self._init_info.allow_nonfinite}
        with self._publisher.begin(infos, **options) as publication:
            # None: another rank's.
            here = ((name, tensor) for name, tensor in _tensors_of(self.source) if tensor is not None)
            missing = fill_all(publication, infos, here)
            if missing:
                raise ValueError(
                    f"weightcast: rank 0's source has nothing of {len(missing)} of {len(infos)} tensors, such as "
                    f"{min(missing)!r}; nothing was published. Give a source whose rank 0 owns them all, or publish by "
                    "weightcast.integrations.fsdp.ShardedPublisher"
                )
            version = publication.commit()
        self._publisher.wait(version, installed=1.0, timeout=self._init_info.install_s_max)
        self.client.start_weight_update()
        self.client.update_weights({"version": version})
        self.client.finish_weight_update(str(version))

    def shutdown(self) -> None:
        if self._publisher is not None:
            self._publisher.close()


def _infos_of(source: Any) -> list[TensorInfo]:
    metadata = source.metadata
    metas = metadata() if callable(metadata) else metadata  # a method until vLLM 0.32
    return [TensorInfo(meta.name, DTYPE_OF_NAME[str(meta.dtype).rpartition(".")[2]], meta.shape) for meta in metas]


def _tensors_of(source: Any) -> Iterable[tuple[str, Any]]:
    return source.iter_full() if hasattr(source, "iter_full") else source  # vLLM 0.32's is iterable itself
