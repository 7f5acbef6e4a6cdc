#!/bin/bash
# A command in a text, run by bash -c behind srun, with a here-document beside it.
export NUM_LAYERS=4
CONFIG=$(cat <<EOF
--num-layers $NUM_LAYERS
--bf16
EOF
)
cat > notes.txt <<'EOT'
python never_run.py --num-layers 99 --hidden-size 1 --fp16
EOT
run_cmd="cd /work && python -u pretrain_gpt.py ${CONFIG//$'\n'/ } --layers-again \${NUM_LAYERS}"
srun -l --nodes 2 sh -c "${run_cmd}"
nohup env OMP_NUM_THREADS=1 bash -c 'python other.py --num-layers $1 $0' name first
eval "torchrun --nnodes 2 pretrain_gpt.py --a '1 2' \
  --b"
