#!/usr/bin/env bash
# What docs/train.md and the README say of training on a GPU, measured one after the other:
#
#     bash benchmarks/on_gpu.sh OUT MODEL DATA PAIRS.jsonl KERNELBENCH.jsonl
#
# DATA is what teaching_data.py wrote, KERNELBENCH.jsonl what kernelbench_small.py wrote; a line of
# PAIRS.jsonl has id, reference and triton. Every part writes its results as they come, and the first,
# which takes longest, goes on where it stopped; ARMS=ours leaves the ablation out. Needs torch,
# triton, transformers, TRL, peft, click, rich and pyarrow, and of this project the repository.
# Nothing else should run.
set -uo pipefail
out=$1 model=$2 data=$3 pairs=$4 kernelbench=$5
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$out"

part() {
    local name=$1 began=$SECONDS
    shift
    "$@" > "$out/$name.log" 2>&1
    echo "$name: exit $?, $((SECONDS - began)) s, at $SECONDS s"
}

part teaches python3 "$here/teaches.py" "$out" "$model" "$data" --arms "${ARMS:-ours,unfiltered}" \
    --grpo 20 --bench "ours=$data/test.jsonl" --bench "kb=$kernelbench"
part audit python3 -m curate.verify "$out/grpo/rewards/correct.jsonl" "$out/audit.jsonl" \
    --trials 32
part train_cost python3 "$here/train_cost.py" "$model" "$data/ours" "$out/train_cost.json" \
    --batch-size 16 --max-length 2304
part rewards python3 "$here/rewards.py" "$pairs" "$out/rewards.json" --backend cuda --workers 16
part contexts python3 "$here/contexts.py" "$out/contexts.json"
