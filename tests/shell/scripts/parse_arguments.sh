#!/usr/bin/env bash
# A loop over the script's own arguments, with defaults, a usage function and a trap.
set -euo pipefail
usage() { echo "usage: $0 [--tp N]" >&2; exit 1; }
trap 'echo failed' ERR
set -- --tp 4 --recompute --name="my run" -- extra
TP=1 RECOMPUTE=false NAME= REST=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --tp) TP="$2"; shift 2 ;;
    --name=*) NAME="${1#*=}"; shift ;;
    --recompute) RECOMPUTE=true; shift ;;
    --) shift; REST=("$@"); break ;;
    -h | --help) usage ;;
    *) echo "unknown $1"; usage ;;
  esac
done
ARGS=(--tensor-model-parallel-size "$TP" --wandb-exp-name "$NAME")
if [ "$RECOMPUTE" = true ]; then ARGS+=(--recompute-granularity full); else ARGS+=(--no-recompute); fi
torchrun --nproc_per_node 8 pretrain_gpt.py "${ARGS[@]}" "${REST[@]}"
