#!/bin/bash
# A port from a queue's job number, which is not set here, arguments that are compared and not given, and a loop over them.
PORT=$((10000 + (${JOB_ID} % 5000)))
SIZE=${1}
LAYERS=8
if [ "$SIZE" = 7B ]; then LAYERS=32; elif [[ $SIZE == 13B ]]; then LAYERS=40; fi
case $SIZE in 30B | 70B) LAYERS=80 ;; *) WIDTH=$((LAYERS * 64)) ;; esac
for option in $*; do
  [[ $option == --bf16* ]] && PRECISION=--bf16
done
torchrun --nproc_per_node 8 --master_port ${PORT:-6000} pretrain_gpt.py --num-layers $LAYERS --hidden-size $WIDTH $PRECISION
