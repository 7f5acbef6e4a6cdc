#!/bin/bash
# The model by its name: a chain of elif, a function with local variables, a map, and a case.
MODEL_SIZE=${MODEL_SIZE:-8B}
declare -A LAYERS=([1B]=16 [8B]=32 [70B]=80)
if [[ ${MODEL_SIZE} == "1B" ]]; then HIDDEN=2048; elif [[ ${MODEL_SIZE} == "8B" ]]; then
  HIDDEN=4096
else echo "unknown" && exit 1; fi
heads() { local width=$1; local -i n=width/128; echo "$n"; }
case $MODEL_SIZE in
  *[0-9]B) FFN=$((HIDDEN * 7 / 2)) ;;
  *) FFN=0 ;;
esac
OPTIONS=" \
    --num-layers ${LAYERS[$MODEL_SIZE]} \
    --hidden-size ${HIDDEN} \
    --num-attention-heads $(heads $HIDDEN) \
    --ffn-hidden-size ${FFN} \
"
for i in 0 1; do ((i == 1)) && OPTIONS+=" --seed $((1234 + i))"; done
python -m torch.distributed.launch --nproc_per_node=8 pretrain_gpt.py $OPTIONS 2>&1 | tee log-$(basename "$MODEL_SIZE").txt
