micro=8
python3 -m verl.trainer.main_ppo \
    data.max_response_length=1024 \
    actor_rollout_ref.model.path=Qwen/Qwen3-8B \
    actor_rollout_ref.model.enable_activation_offload=True \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=${micro} \
    +actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype=bf16 \
    actor_rollout_ref.rollout.n=5 trainer.n_gpus_per_node=8 $@
