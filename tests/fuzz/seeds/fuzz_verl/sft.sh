torchrun --nnodes=1 --nproc_per_node 4 -m verl.trainer.fsdp_sft_trainer data.max_length=128 data.train_batch_size=8 \
  model.partial_pretrain=a/b model.strategy=fsdp ulysses_sequence_parallel_size=2 use_remove_padding=true model.lora_rank=4
