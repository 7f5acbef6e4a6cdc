python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml \
  data.max_prompt_length=64 data.max_response_length=192 \
  actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1024 \
  actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=null \
  +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_modules=["core_attn","mlp"] \
  +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True actor_rollout_ref.actor.entropy_coeff=0.001
