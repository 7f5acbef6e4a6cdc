#!/bin/bash
# A launch script as Megatron-LM's users write them: Llama 3 8B, long sequences, activations of attention
# and norms offloaded. offsim reads the flags and the environment; it never runs the text.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NVTE_CPU_OFFLOAD_V1=1

MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --normalization RMSNorm --swiglu --disable-bias-linear
    --position-embedding-type rope --rotary-base 500000
    --hidden-dropout 0.0 --attention-dropout 0.0
    --untie-embeddings-and-output-weights
    --max-position-embeddings 32768 --vocab-size 128256
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size 2 --sequence-parallel
    --pipeline-model-parallel-size 2
    --context-parallel-size 2
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
)
TRAINING_ARGS=(
    --seq-length 32768 --micro-batch-size 1 --global-batch-size 64
    --bf16 --attention-backend flash --cross-entropy-loss-fusion
    --train-iters 1000 --lr 3e-4 --lr-decay-style cosine  # neither memory nor time: accepted, unused
)
OFFLOAD_ARGS=(
    --fine-grained-activation-offloading
    --offload-modules attn_norm core_attn attn_proj mlp_norm
)

torchrun --nproc-per-node 8 --nnodes 8 pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${TRAINING_ARGS[@]}" "${OFFLOAD_ARGS[@]}"
