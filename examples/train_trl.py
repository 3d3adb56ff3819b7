"""TRL's asynchronous GRPO trainer publishes each step's weights, and its engines follow.
Usage: train_trl.py STATE_DIR ENGINE [MODEL [STEPS]]

Start an origin first, on the same host, and on the engine's a worker and the engine, which listens at the URL ENGINE:
    WEIGHTCAST_STATE=... VLLM_PLUGINS=weightcast vllm serve MODEL --weight-transfer-config '{"backend": "weightcast"}'
"""

import sys

if not 3 <= len(sys.argv) <= 5:
    sys.exit("usage: train_trl.py STATE_DIR ENGINE [MODEL [STEPS]]")

from datasets import Dataset
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer
from weightcast.integrations.trl import WeightTransfer


def reward(completion_ids, **_):
    """A stand-in for yours: many different tokens."""
    return [float(len(set(ids))) for ids in completion_ids]


def main(state_dir, engine, model="Qwen/Qwen3-0.6B", steps="12"):
    transfer = WeightTransfer(state_dir, engine)
    prompts = [[{"role": "user", "content": f"What is {n} plus {n + 1}?"}] for n in range(64)]
    trainer = AsyncGRPOTrainer(
        model=model,
        reward_funcs=reward,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        weight_transfer=transfer,
        callbacks=[transfer],  # what it cost, in the step log
        args=AsyncGRPOConfig(
            output_dir="run", max_steps=int(steps), num_generations=4, max_completion_length=64, logging_steps=1,
            vllm_server_base_url=engine, save_strategy="no", report_to=[],
        ),
    )
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
