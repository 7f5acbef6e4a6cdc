#!/bin/sh
# Prints the compiler flags of the installed MPI, or nothing if there is none.
for name in ompi-c mpich mpi-c; do
  if pkg-config --exists "$name" 2>/dev/null; then
    pkg-config --cflags --libs "$name"
    exit 0
  fi
done
