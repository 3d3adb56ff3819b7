#!/bin/sh
# train_check_test.sh WEIGHTCAST_TRAIN DATA: runs each check command, with good input and bad.
set -eu
train=$1 data=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# expect STATUS OUTPUT ARGUMENT...: OUTPUT is a part of what the command prints.
expect() {
  status=$1 wanted=$2
  shift 2
  got=0
  "$train" check "$@" >out 2>&1 || got=$?
  if [ "$got" != "$status" ] || ! grep -qF -- "$wanted" out; then
    echo "weightcast-train check $*: status $got, not $status, or not: $wanted" >&2
    cat out >&2
    exit 1
  fi
}

echo '{"response": "so #### 1,800", "answer": "1800"}' >one.json
echo '[{"response": "12", "answer": "12"}, {"response": "13", "answer": "12"}]' >list.json
expect 0 '{"reward":1.0}' reward gsm8k one.json
expect 0 '{"reward":0.0}' reward gsm8k one.json --set answer_method=flexible
expect 0 '{"rewards":[1.0,0.0]}' reward arithmetic list.json
expect 1 "'gsm8' is no task; the nearest is 'gsm8k'" reward gsm8 one.json
expect 1 "the nearest is 'boxed'" reward gsm8k one.json --set answer_method=box
expect 1 "--set x: it is NAME=VALUE" reward gsm8k one.json --set x
echo '{"answer": "12"}' >bad.json
expect 1 "an item has no 'response'" reward arithmetic bad.json
echo '{"response": 12}' >bad.json
expect 1 "'response' is no text" reward arithmetic bad.json
echo '{"response"' >bad.json
expect 1 "bad.json: no JSON" reward arithmetic bad.json
expect 1 "missing.json" reward arithmetic missing.json

mkdir model
cp "$data/trained_tokenizer.json" model/tokenizer.json
expect 0 '{"ids":[1,2]}' tokenize model --text '<|im_start|><|im_end|>'
expect 1 "tokenizer.json" tokenize . --text x
expect 2 "--text is required" tokenize model

echo '{"rewards": [6, 3, 9, 12], "group_ids": ["a", "a", "b", "b"], "norm": "none"}' >adv.json
expect 0 '{"advantages":[1.5,-1.5,-1.5,1.5]}' advantages adv.json
echo '{"rewards": [1], "group_ids": [0], "norm": "bach"}' >adv.json
expect 1 "the nearest is 'batch'" advantages adv.json
echo '{"rewards": [1], "group_id": [0], "norm": "std"}' >adv.json
expect 1 "'group_id' is no member of the input; the nearest is 'group_ids'" advantages adv.json
echo '{"rewards": [null], "group_ids": [0], "norm": "std"}' >adv.json
expect 1 "rewards[0] is no number" advantages adv.json
echo '{"rewards": [1, 2], "group_ids": [0], "norm": "std"}' >adv.json
expect 1 "2 rewards and 1 group ids" advantages adv.json
expect 2 "" nothing
