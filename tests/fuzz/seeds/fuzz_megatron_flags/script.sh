#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
DISTRIBUTED_ARGS=(--nproc_per_node 8 --nnodes 4 --master_addr localhost)
MODEL_ARGS=(
  --num-layers 61 --hidden-size 7168 # shape
  --moe-layer-freq ([0]*3+[1]*58)
  --pipeline-model-parallel-layout Et*3|(tt|)*29m|L
  --recompute-modules moe_act layernorm
)
TRAIN="--bf16 --swiglu --rampup-batch-size 16 16 1000"
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${MODEL_ARGS[@]} $TRAIN --lr=1e-4 2>&1 | tee log
