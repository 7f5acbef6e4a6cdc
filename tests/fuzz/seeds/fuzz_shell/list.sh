ARGS="
 --num-layers 24 \
 --bf16"
python pretrain_gpt.py $ARGS ${ARGS} "$ARGS"
