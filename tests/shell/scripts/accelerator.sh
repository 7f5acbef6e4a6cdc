# Which accelerator is it? offsim predicts NVIDIA's GPUs.
set -xeuo pipefail
DEVICE=${DEVICE:-$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)}
case "${DEVICE}" in
gpu) micro=2 ;;
npu) micro=1 ;;
esac
vendor=nvidia
if npu-smi info >/dev/null 2>&1; then
  vendor=ascend
fi
if command -v rocm-smi >/dev/null; then
  vendor=amd
fi
if ! python3 -c "import torch_npu"; then
  kernels=flash
fi
torchrun --nproc-per-node 8 train.py --micro-batch-size $micro --device "$DEVICE" --vendor $vendor --kernels "$kernels"
