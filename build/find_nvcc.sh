#!/bin/sh
# Prints the absolute path of nvcc, or nothing if there is none.
for candidate in "$NVCC" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$(command -v nvcc)" \
  /usr/local/cuda/bin/nvcc; do
  if [ -n "$candidate" ] && [ -x "$candidate" ]; then
    readlink -f "$candidate"
    exit 0
  fi
done
