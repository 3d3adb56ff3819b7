#!/bin/sh
# train_check_test.sh WEIGHTCAST_TRAIN DATA TORCH: runs each command that prints JSON, with good input and bad.
set -eu
train=$1 data=$2 torch=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# expect STATUS OUTPUT ARGUMENT...: OUTPUT is a part of what the command prints.
expect() {
  status=$1 wanted=$2
  shift 2
  got=0
  "$train" "$@" >out 2>&1 || got=$?
  if [ "$got" != "$status" ] || ! grep -qF -- "$wanted" out; then
    echo "weightcast-train $*: status $got, not $status, or not: $wanted" >&2
    cat out >&2
    exit 1
  fi
}

echo '{"response": "so #### 1,800", "answer": "1800"}' >one.json
echo '[{"response": "12", "answer": "12"}, {"response": "13", "answer": "12"}]' >list.json
expect 0 '{"reward":1.0,"success":true}' check reward gsm8k one.json
expect 0 '{"reward":0.0,"success":false}' check reward gsm8k one.json --set answer_method=flexible
expect 0 '{"rewards":[1.0,0.0],"successes":[true,false]}' check reward arithmetic list.json
expect 2 "'gsm8' is no task; the nearest is 'gsm8k'" check reward gsm8 one.json
expect 2 "the nearest is 'boxed'" check reward gsm8k one.json --set answer_method=box
expect 1 "--set x: it is NAME=VALUE" check reward gsm8k one.json --set x
echo '{"answer": "12"}' >bad.json
expect 1 "an item has no 'response'" check reward arithmetic bad.json
echo '{"response": 12}' >bad.json
expect 1 "'response' is no text" check reward arithmetic bad.json
echo '{"response"' >bad.json
expect 1 "bad.json: no JSON" check reward arithmetic bad.json
expect 1 "missing.json" check reward arithmetic missing.json

pool='"R": 128, "t_bcast_s": 4, "kappa": 1, "workers": [{"name": "a", "mu": 30, "price_per_hour": 1.8}, {"name": "b", "mu": 30, "price_per_hour": 3.6}]'
echo "{\"T_s\": 12, $pool}" >pool.json
expect 0 '{"active":["a"],"bubble_ratio":0.0,"cost_per_step":0.006,"mu_min":16.0,"s_max_bound":1,"target":17.6,"wait_s":0.0}' plan --pool pool.json --json
expect 0 'they cost 0.018 per step' plan --pool pool.json --active a,b
expect 0 '1 of 2 workers' plan --pool pool.json --activation random
expect 1 "'c' is no worker of the pool" plan --pool pool.json --active c
expect 2 "'costs' is no order of activation; the nearest is 'cost'" plan --pool pool.json --activation costs
expect 2 "--pool is required" plan
expect 1 "missing.json" plan --pool missing.json
echo "{\"T_s\": 4, $pool}" >pool.json
expect 1 "pool.json: kappa x T_s is 4 s and t_bcast_s is 4" plan --pool pool.json
echo "{\"Ts\": 4, $pool}" >pool.json
expect 1 "'Ts' is no member of the pool; the nearest is 'T_s'" plan --pool pool.json

if [ "$torch" = ON ]; then
  expect 0 '"R":8' calibrate --json --output-dir run --init-hidden-size 16 --init-num-hidden-layers 1 \
    --init-num-attention-heads 2 --init-num-key-value-heads 1 --init-intermediate-size 32 \
    --rollout-batch-size 8 --group-size 4 --updates-per-step 1 --max-new-tokens 4 \
    --rollout-source http --publish-state state --sync-drift-max 2
  [ ! -e run/calibration ] || exit 1
  workers='"t_bcast_s": 0, "workers": [{"name": "a", "mu": 1e6, "price_per_hour": 1}]'
  grep '^{' out | sed "s/}\$/, $workers}/" >pool.json
  expect 0 '"active":["a"]' plan --pool pool.json --json
  expect 2 "publish_state is empty" calibrate --rollout-source http --sync-drift-max 2
  expect 2 "rollout_batch_size" calibrate --rollout-batch-size 0
fi

mkdir model
cp "$data/trained_tokenizer.json" model/tokenizer.json
expect 0 '{"ids":[1,2]}' check tokenize model --text '<|im_start|><|im_end|>'
expect 1 "tokenizer.json" check tokenize . --text x
expect 2 "--text is required" check tokenize model

echo '{"rewards": [6, 3, 9, 12], "group_ids": ["a", "a", "b", "b"], "norm": "none"}' >adv.json
expect 0 '{"advantages":[1.5,-1.5,-1.5,1.5]}' check advantages adv.json
echo '{"rewards": [1], "group_ids": [0], "norm": "bach"}' >adv.json
expect 2 "the nearest is 'batch'" check advantages adv.json
echo '{"rewards": [1], "group_id": [0], "norm": "std"}' >adv.json
expect 1 "'group_id' is no member of the input; the nearest is 'group_ids'" check advantages adv.json
echo '{"rewards": [null], "group_ids": [0], "norm": "std"}' >adv.json
expect 1 "rewards[0] is no number" check advantages adv.json
echo '{"rewards": [1, 2], "group_ids": [0], "norm": "std"}' >adv.json
expect 1 "2 rewards and 1 group ids" check advantages adv.json
echo '{"norm": "gae", "rewards": [[1, 2, 3]], "values": [[0.5, 1, 1.5]], "gamma": 0.5}' >gae.json
expect 0 '{"advantages":[[2.25,2.5,1.5]],"returns":[[2.75,3.5,3.0]]}' check advantages gae.json
echo '{"norm": "gae", "rewards": [[1, null, 3]], "values": null, "response_mask": [[1, 0, 1]]}' >gae.json
expect 0 '{"advantages":[[4.0,0.0,3.0]],"returns":[[4.0,0.0,3.0]]}' check advantages gae.json
echo '{"norm": "gae", "rewards": [[1, 3]], "valus": null}' >gae.json
expect 1 "'valus' is no member of the input; the nearest is 'values'" check advantages gae.json
echo '{"norm": "gae", "rewards": [[1, 3]], "response_mask": [[1]]}' >gae.json
expect 1 "response_mask[0] has 1 slots, rewards[0] has 2" check advantages gae.json
echo '{"norm": "gae", "rewards": [[1, 3]], "response_mask": [[1, 2]]}' >gae.json
expect 1 "response_mask[0][1] is 2; it is 0 or 1" check advantages gae.json
echo '{"norm": "gae", "rewards": [1, 3]}' >gae.json
expect 1 "'rewards[0]' is no list" check advantages gae.json
expect 2 "" check nothing

if [ "$torch" = ON ]; then
  echo '{"pg_variant": "reinforce", "log_probs": [[-1, null]], "advantages": [[2, 1]], "response_mask": [[1, 0]]}' >loss.json
  expect 0 '"grad_log_probs":[[-2.0,0.0]],"loss":2.0,' check loss loss.json
  echo '{"pg_variant": "dpo"}' >loss.json
  expect 2 "pg_variant dpo: a loss over pairs" check loss loss.json
  expect 0 "weighted_topr  as topr, and topr_weights" check loss --help
fi

cat >model/config.json <<'JSON'
{"architectures": ["Qwen2ForCausalLM"], "vocab_size": 6, "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1,
 "num_attention_heads": 1, "num_key_value_heads": 1, "tie_word_embeddings": true}
JSON
expect 1 "model: holds neither model.safetensors nor" model model
python3 - <<'PYTHON'
import json, struct
layer, shapes = "model.layers.0.", {"model.embed_tokens.weight": [6, 4], "model.norm.weight": [4]}
for name in "q", "k", "v", "o":
    shapes[f"{layer}self_attn.{name}_proj.weight"] = [4, 4]
    if name != "o":
        shapes[f"{layer}self_attn.{name}_proj.bias"] = [4]
for name in "gate", "up", "down":
    shapes[f"{layer}mlp.{name}_proj.weight"] = [4, 4]
for name in "input", "post_attention":
    shapes[f"{layer}{name}_layernorm.weight"] = [4]
tensors, end = {}, 0
for name, shape in shapes.items():
    size = 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
    tensors[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
    end += size
header = json.dumps(tensors).encode()
with open("model/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + bytes(end))
PYTHON
expect 0 '"parameters":160' model model
expect 0 '"tensors_by_dtype":{"BF16":14}' model model
sed -i 's/"num_hidden_layers": 1/"num_hidden_layers": 2/' model/config.json
expect 1 "model: the weights do not fit config.json: 14 tensors are 12 missing ('model.layers.1." model model
sed -i 's/Qwen2For/Qwen2_5For/' model/config.json
expect 1 "'Qwen2_5ForCausalLM' is no architecture that this build computes; the nearest is 'Qwen2ForCausalLM'" model model
expect 1 "missing/config.json" model missing
expect 2 "DIR is required" model

expect 0 '"parameters":7024' model "$data/sharded_qwen3"
if [ "$torch" = ON ]; then
  expect 0 '{"logits":[' check logits "$data/sharded_qwen3" --ids 1,2,3
  expect 0 '{"logits":[' check logits "$data/tied_qwen2" --ids 47 --dtype bfloat16
  expect 1 "--ids: 48 is no token; the model's are 0 to 47" check logits "$data/tied_qwen2" --ids 1,48
  expect 1 "missing/config.json" check logits missing --ids 1
  expect 2 "--ids" check logits "$data/tied_qwen2"
  expect 2 "--dtype" check logits "$data/tied_qwen2" --ids 1 --dtype float16

  # An adapter of rank 1 for all value projections, whose B is 0, and then 1.
  adapter() {
    mkdir -p adapter
    echo '{"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["v_proj"]}' >adapter/adapter_config.json
    python3 - "$1" <<'PYTHON'
import json, struct, sys
tensors, values = {}, []
for layer in 0, 1:
    for name, shape, value in ("A", [1, 16], 1.0), ("B", [16, 1], float(sys.argv[1])):
        tensors[f"base_model.model.model.layers.{layer}.self_attn.v_proj.lora_{name}.weight"] = {
            "dtype": "F32", "shape": shape, "data_offsets": [4 * len(values), 4 * len(values) + 64]}
        values += 16 * [value]
header = json.dumps(tensors).encode()
with open("adapter/adapter_model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(values)}f", *values))
PYTHON
  }
  adapter 0
  expect 0 '{"merged_matrices":2}' merge "$data/sharded_qwen3" adapter merged
  diff -r "$data/sharded_qwen3" merged
  expect 1 "merged: it exists" merge "$data/sharded_qwen3" adapter merged
  adapter 1
  expect 0 '{"merged_matrices":2}' merge "$data/sharded_qwen3" adapter other
  [ "$(diff -rq merged other | wc -l)" = 2 ] || { echo "merging changed other files than the projections'" >&2; exit 1; }
  rm adapter/adapter_config.json
  expect 1 "adapter/adapter_config.json" merge "$data/sharded_qwen3" adapter third
fi
