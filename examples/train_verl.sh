#!/bin/sh
# Trains with verl: GRPO on a trainer's GPUs, vLLM on others, and weightcast between them.
# Start the daemons first, an origin on the trainer's host and a worker on each rollout's, all with the state directory
# /var/lib/weightcast (docs/FLEET.md), and Ray on all hosts; `pip install verl weightcast` on each. Then, on the head:
#     sh train_verl.sh Qwen/Qwen3-0.6B gsm8k/train.parquet gsm8k/test.parquet
set -eu
if [ $# -ne 3 ]; then
  echo "usage: sh train_verl.sh MODEL TRAIN_FILES TEST_FILES" >&2
  exit 2
fi
rollout=actor_rollout_ref.rollout
python3 -m verl.experimental.fully_async_policy.fully_async_main \
  data.train_files="$2" data.val_files="$3" data.return_raw_chat=True data.gen_batch_size=1 data.train_batch_size=0 \
  algorithm.adv_estimator=grpo \
  actor_rollout_ref.model.path="$1" \
  actor_rollout_ref.hybrid_engine=False \
  actor_rollout_ref.actor.ppo_mini_batch_size=32 \
  $rollout.name=vllm $rollout.mode=async $rollout.n=8 \
  $rollout.checkpoint_engine.backend=weightcast \
  $rollout.checkpoint_engine.custom_backend_module=weightcast.integrations.verl \
  +$rollout.checkpoint_engine.engine_kwargs.weightcast.state_dir=/var/lib/weightcast \
  trainer.nnodes=1 trainer.n_gpus_per_node=4 \
  rollout.nnodes=2 rollout.n_gpus_per_node=4 rollout.total_rollout_steps=4096 \
  async_training.staleness_threshold=0.5 async_training.trigger_parameter_sync_step=4
