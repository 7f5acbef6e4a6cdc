/*
 * What settings_resolve refuses, and in which words.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "sim/config/settings.h"
#include "sim/offload/systems.h"

/* Sets "key=value" words on a small valid model; a '~' in a value is a blank. */
static void apply(settings *s, const char *words, arena *a, diag *d)
{
  for (const char *t = words + strspn(words, " "); *t != '\0'; t += strspn(t, " ")) {
    size_t key = strcspn(t, "="), value = strcspn(t + key + 1, " ");
    char *text = arena_strndup(a, t + key + 1, value);
    for (char *c = text; *c != '\0'; c++) {
      if (*c == '~') *c = ' ';
    }
    assert_true(
        settings_set(s, arena_strndup(a, t, key), text, (source_pos){ "--set", 0, 0 }, a, d));
    t += key + 1 + value;
  }
}

static const char *const small_model =
    "num_layers=8 hidden_size=1024 num_attention_heads=16 vocab_size=1000 world_size=8 "
    "seq_length=512 global_batch_size=64 bf16=true position_embedding_type=rope";

#define EXPERTS  "num_experts=8 moe_ffn_hidden_size=512 moe_grouped_gemm=true add_bias_linear=false "
#define OFFLOAD  "fine_grained_activation_offloading=true "
#define FUSED    "offload_modules=fused_group_mlp use_transformer_engine_op_fuser=true "
#define OVERLAP  "overlap_moe_expert_parallel_comm=true "
#define EXCHANGE "expert_model_parallel_size=2 moe_token_dispatcher_type=alltoall " OVERLAP
#define STATIC                                                                                     \
  "moe_token_dispatcher_type=flex moe_flex_dispatcher_backend=hybridep "                           \
  "moe_expert_rank_capacity_factor=1.5 use_transformer_engine_op_fuser=true "
#define LAYERS      "cpu_offloading_num_layers=4 "
#define MANUAL      "system=te_v2 cpu_offloading_manual_synchronization=true "
#define HF          "implementation=hf normalization=RMSNorm swiglu=true add_bias_linear=false "
#define CHECKPOINTS HF "recompute_granularity=full recompute_method=uniform recompute_num_layers=1 "
#define SELECTIVE   CHECKPOINTS "recompute.selective_checkpointing=true "

static const struct {
  const char *words;
  const char *message; /* without "--set: error: "; NULL: accepted */
} cases[] = {
  { "", NULL },
  { "world_size=6 tensor_model_parallel_size=4",
    "world_size is 6; it must be divisible by tensor_model_parallel_size (4) x "
    "pipeline_model_parallel_size (1) x context_parallel_size (1) = 4" },
  { "tensor_model_parallel_size=65536 context_parallel_size=65536 "
    "pipeline_model_parallel_size=4096",
    "the parallel sizes ask for more than 16777216 GPUs" },
  { "global_batch_size=12", "global_batch_size is 12; it must be divisible by micro_batch_size (1) "
                            "x data parallel size (8) "
                            "= 8" },
  { "hidden_size=1023", "hidden_size is 1023; it must be divisible by num_attention_heads (16)" },
  { "num_attention_heads=12 kv_channels=64 tensor_model_parallel_size=8",
    "num_attention_heads is 12; it must be divisible by tensor_model_parallel_size (8)" },
  { "group_query_attention=true num_query_groups=3 tensor_model_parallel_size=2",
    "num_query_groups is 3; it must be a multiple or a divisor of tensor_model_parallel_size (2)" },
  { "seq_length=510 context_parallel_size=2",
    "seq_length is 510; it must be divisible by twice context_parallel_size (2 x 2)" },
  { "seq_length=510 tensor_model_parallel_size=4 sequence_parallel=true",
    "seq_length is 510, on each context parallel rank 510; sequence_parallel needs that to be "
    "divisible by tensor_model_parallel_size (4)" },
  { "tensor_model_parallel_size=4 context_parallel_size=2 cp_comm_type=a2a "
    "group_query_attention=true num_query_groups=4",
    "cp_comm_type a2a splits the heads of a tensor parallel rank, 4 of queries and 1 of keys; both "
    "must be divisible by context_parallel_size (2)" },
  { "context_parallel_size=2 window_size=127,0 window_attn_skip_freq=2",
    "cp_comm_type must be a2a or all_gather in layers with a sliding window" },
  { "context_parallel_size=2 window_size=127,0 window_attn_skip_freq=1", NULL },
  { "context_parallel_size=2 window_size=127,0 cp_comm_type=all_gather", NULL },
  { "window_size=127", "window_size is \"127\"; it must be two whole numbers such as 2048,0, below "
                       "1073741824; -1 is all keys" },
  { "window_size=-2,0",
    "window_size is \"-2,0\"; it must be two whole numbers such as 2048,0, below "
    "1073741824; -1 is all keys" },
  { "window_size=9223372036854775807,0",
    "window_size is \"9223372036854775807,0\"; it must be two whole numbers such as 2048,0, below "
    "1073741824; -1 is all keys" },
  { "window_size=127,0 sliding_window=128",
    "window_size and sliding_window are both given; they are the same window" },
  { "window_size=127,0 window_attn_skip_freq=0",
    "window_attn_skip_freq is 0; it must be at least 1" },
  { "window_size=127,0 window_attn_skip_freq=[1,0]",
    "window_attn_skip_freq has 2 entries; it must have num_layers (8)" },
  { OFFLOAD "system=megatron_pr1752 pipeline_model_parallel_size=2 "
            "pipeline_model_parallel_layout=Etttt||tttt|L",
    "offload system megatron_pr1752 needs a decoder layer on every virtual stage" },
  { "padded_vocab_size=999", "padded_vocab_size is 999; it must be at least vocab_size (1000)" },
  { "mtp_num_layers=1 position_embedding_type=yarn",
    "mtp_num_layers does not work with position_embedding_type yarn; it must be rope or "
    "none" },
  { "pipeline_model_parallel_size=4 pipeline_model_parallel_layout=Ettttt||ttt|L",
    "pipeline_model_parallel_layout \"Ettttt||ttt|L\" leaves pipeline rank 1 with nothing; it must "
    "have a layer, the embedding or the loss" },
  { "pipeline_model_parallel_size=4 pipeline_model_parallel_layout=Ettttt|t|tt|L", NULL },
  { OFFLOAD "offload_modules=core_attn,attn_norm cuda_graph_impl=transformer_engine "
            "cuda_graph_modules=attn container=pytorch:25.09-py3",
    "cuda_graph_modules has attn, and offload_modules core_attn, attn_proj or qkv_linear inside "
    "it, "
    "which needs PyTorch 2.9 and Transformer Engine 2.14; container is \"pytorch:25.09-py3\"" },
  { EXPERTS "fp8_format=hybrid fp8_recipe=tensorwise recompute_granularity=selective "
            "recompute_modules=layernorm container=pytorch:25.07-py3",
    "recompute_modules moe_act and layernorm with fp8_format need Transformer Engine 2.6; "
    "container "
    "is \"pytorch:25.07-py3\"" },
  { OFFLOAD "system=megatron_pr1752 pipeline_model_parallel_size=2 "
            "num_virtual_stages_per_pipeline_rank=2 recompute_granularity=full "
            "recompute_method=block recompute_num_layers=1",
    "offload system megatron_pr1752 does not work with recompute_granularity full, which leaves "
    "layers without a group" },
  { "num_layers=9 pipeline_model_parallel_size=2",
    "num_layers is 9; it must be divisible by pipeline_model_parallel_size (2)" },
  { "num_layers=2 pipeline_model_parallel_size=4 ",
    "num_layers is 2; there must be a layer for each of the 1 virtual stages of the 4 pipeline "
    "ranks" },
  { "num_virtual_stages_per_pipeline_rank=2",
    "there are 2 virtual stages on a rank, but pipeline_model_parallel_size is 1; it must be at "
    "least "
    "2" },
  { "num_virtual_stages_per_pipeline_rank=2 pipeline_model_parallel_size=2 overlap_p2p_comm=false",
    "virtual stages without overlap_p2p_comm need a pipeline_model_parallel_size above 2; it is "
    "2" },
  { "num_virtual_stages_per_pipeline_rank=2 pipeline_model_parallel_size=2 global_batch_size=4",
    "microbatch_group_size_per_vp_stage is 2; with virtual stages it must be from "
    "pipeline_model_parallel_size (2) to the number of micro-batches (1)" },
  { "num_virtual_stages_per_pipeline_rank=2 pipeline_model_parallel_size=4 global_batch_size=20 "
    "microbatch_group_size_per_vp_stage=4",
    "the 10 micro-batches in groups of microbatch_group_size_per_vp_stage (4) leave a last group "
    "of "
    "2; it must be empty, or at least pipeline_model_parallel_size (4)" },
  { "num_virtual_stages_per_pipeline_rank=2 num_layers_per_virtual_pipeline_stage=2 "
    "pipeline_model_parallel_size=2",
    "more than one of num_layers_per_virtual_pipeline_stage, num_virtual_stages_per_pipeline_rank "
    "and "
    "pipeline_model_parallel_layout is given; one is enough" },
  { "pipeline_model_parallel_layout=Et*8x|L pipeline_model_parallel_size=2",
    "pipeline_model_parallel_layout has 'x', which is no layer; it must be made of E (embedding), "
    "t "
    "(decoder layer), m (MTP layer), L (loss) and | between stages, with x*n or (x)*n for "
    "repetition" },
  { "pipeline_model_parallel_layout=Et*7|L pipeline_model_parallel_size=2",
    "pipeline_model_parallel_layout has 7 decoder layers (t); it must have num_layers (8)" },
  { "pipeline_model_parallel_layout=Et*8|L|| pipeline_model_parallel_size=3 world_size=3",
    "pipeline_model_parallel_layout has 4 stages; their number must be divisible by "
    "pipeline_model_parallel_size (3)" },
  { "decoder_first_pipeline_num_layers=2 pipeline_model_parallel_size=8",
    "6 layers remain for the 7 pipeline ranks whose layers decoder_first_pipeline_num_layers and "
    "decoder_last_pipeline_num_layers do not give; they must be divisible" },
  { "max_position_embeddings=100",
    "max_position_embeddings is 100; it must be at least seq_length (512)" },
  { "bf16=true fp16=true", "bf16 and fp16 are both given; give one of them" },
  { "tensor_model_parallel_size=4 sequence_parallel=true tp_comm_overlap=true", NULL },
  { "tensor_model_parallel_size=4 tp_comm_overlap=true",
    "tp_comm_overlap needs sequence_parallel, with a tensor_model_parallel_size above 1" },
  { "sequence_parallel=true tp_comm_overlap=true",
    "tp_comm_overlap needs sequence_parallel, with a tensor_model_parallel_size above 1" },
  { "world_size=64 tensor_model_parallel_size=64 sequence_parallel=true tp_comm_overlap=true "
    "hidden_size=4096 num_attention_heads=64",
    "tp_comm_overlap works with a tensor_model_parallel_size of at most 32" },
  { "tensor_model_parallel_size=4 sequence_parallel=true tp_comm_overlap=true "
    "fp8_format=hybrid fp8_recipe=blockwise",
    "tp_comm_overlap does not work with fp8_recipe blockwise: user buffers do not take its "
    "tensors" },
  { "optimizer=sgd use_distributed_optimizer=true",
    "optimizer sgd does not work with use_distributed_optimizer: its checkpoints know the states "
    "of Adam" },
  { "overlap_param_gather=true",
    "overlap_param_gather needs use_distributed_optimizer or use_megatron_fsdp" },
  { "expert_model_parallel_size=2",
    "expert_model_parallel_size is 2 but num_experts is 0; it must be 1" },
  { EXPERTS, NULL },
  { EXPERTS "num_experts=9 expert_model_parallel_size=2",
    "num_experts is 9; it must be divisible by expert_model_parallel_size (2)" },
  { EXPERTS "tensor_model_parallel_size=2",
    "a model with experts on tensor_model_parallel_size 2 must be trained with sequence_parallel" },
  { EXPERTS "moe_router_topk=1",
    "moe_router_topk 1 with softmax scores needs moe_router_pre_softmax: a softmax over one expert "
    "has no gradient" },
  { EXPERTS "moe_layer_freq=[0]*3+[1]*6",
    "moe_layer_freq has more than the 8 entries of num_layers" },
  { EXPERTS "moe_layer_freq=[0]*3+[1]*4",
    "moe_layer_freq has 7 entries; it must have num_layers (8)" },
  { EXPERTS "moe_layer_freq=__import__('os')", "moe_layer_freq is \"__import__('os')\", wrong from "
                                               "character 1 on; it must be a whole number, or "
                                               "a list such as ([0]*3+[1]*58)" },
  { EXPERTS "overlap_moe_expert_parallel_comm=true",
    "overlap_moe_expert_parallel_comm needs an expert_model_parallel_size above 1" },
  { EXPERTS "ep_overlap_early_attn_memory_release=true",
    "ep_overlap_early_attn_memory_release needs overlap_moe_expert_parallel_comm" },
  { "recompute_granularity=full",
    "recompute_granularity full needs recompute_method, uniform or block" },
  { "recompute_granularity=selective recompute_modules=moe_act",
    "recompute_modules has moe_act, which needs moe_grouped_gemm" },
  { OFFLOAD "offload_modules=core_attn", NULL },
  { OFFLOAD, "offload_modules is empty; offloading needs at least one module" },
  { OFFLOAD "offload_modules=attn_proj",
    "offload_modules has attn_proj without core_attn; the input of the projection is the output of "
    "core attention, whose backward needs it" },
  { OFFLOAD "offload_modules=core_attn cpu_offloading=true",
    "cpu_offloading and fine_grained_activation_offloading cannot both be used" },
  { OFFLOAD "offload_modules=core_attn transformer_impl=local",
    "fine_grained_activation_offloading needs transformer_impl transformer_engine; it is local" },
  { EXPERTS OFFLOAD "offload_modules=moe_act recompute_granularity=selective recompute_modules=moe",
    "offload_modules moe_act, expert_fc1 and fused_group_mlp do not work with recompute_modules "
    "moe, "
    "which recomputes the whole MoE layer" },
  { EXPERTS OFFLOAD "offload_modules=fused_group_mlp",
    "offload_modules has fused_group_mlp, which needs use_transformer_engine_op_fuser" },
  { EXPERTS OFFLOAD "offload_modules=fused_group_mlp,moe_act use_transformer_engine_op_fuser=true",
    "offload_modules has fused_group_mlp and expert_fc1 or moe_act; the whole MLP and its parts "
    "cannot both move" },
  { EXPERTS OFFLOAD "offload_modules=moe_act use_transformer_engine_op_fuser=true",
    "offload_modules expert_fc1 and moe_act do not work with use_transformer_engine_op_fuser; "
    "offload fused_group_mlp instead" },
  { OFFLOAD "offload_modules=core_attn cuda_graph_impl=local cuda_graph_modules=attn",
    "with cuda_graph_impl local, offload_modules may have only expert_fc1, moe_act and "
    "fused_group_mlp" },
  { OFFLOAD
    "offload_modules=core_attn cuda_graph_impl=transformer_engine cuda_graph_warmup_steps=0",
    "cuda_graph_warmup_steps is 0; offloading needs at least 1" },
  { OFFLOAD "offload_modules=core_attn environment_given=true container=pytorch:26.04-py3",
    "fine_grained_activation_offloading with Transformer Engine 2.10 or newer needs "
    "NVTE_CPU_OFFLOAD_V1=1 in the environment (nvte_cpu_offload_v1=true)" },
  { OFFLOAD "offload_modules=core_attn environment_given=true container=pytorch:25.09-py3", NULL },
  /* fine-grained offloading: what transformer_config.py, experts.py and transformer_layer.py
   * refuse */
  { EXPERTS OFFLOAD FUSED, NULL },
  { EXPERTS OFFLOAD FUSED "container=pytorch:25.09-py3",
    "offload_modules has fused_group_mlp, which needs Transformer Engine 2.14; container is "
    "\"pytorch:25.09-py3\"" },
  { EXPERTS OFFLOAD FUSED "tensor_model_parallel_size=2 sequence_parallel=true "
                          "expert_tensor_parallel_size=2",
    "offload_modules has fused_group_mlp, which needs expert_tensor_parallel_size 1" },
  { OFFLOAD "offload_modules=core_attn recompute_granularity=selective recompute_modules=mhc",
    "recompute_modules mhc does not work with fine_grained_activation_offloading, which has no "
    "handler for the chunk yet when that recomputation is set up" },
  { "recompute_granularity=selective recompute_modules=mhc",
    "recompute_modules has mhc, which needs hyper connections; they are not modelled" },
  { OFFLOAD "offload_modules=gdp_qkv recompute_granularity=selective recompute_modules=gdp_in_proj",
    "recompute_modules gdp_in_proj does not work with offload_modules gdp_qkv, whose input it "
    "discards" },
  { "recompute_granularity=selective recompute_modules=gdp_in_proj",
    "recompute_modules has gdp_in_proj, which needs a gated delta product mixer; it is not "
    "modelled" },
  { EXPERTS OFFLOAD "offload_modules=expert_fc1 use_transformer_engine_op_fuser=true",
    "offload_modules expert_fc1 and moe_act do not work with use_transformer_engine_op_fuser; "
    "offload fused_group_mlp instead" },
  { EXPERTS OFFLOAD "offload_modules=expert_fc1,moe_act cuda_graph_impl=local "
                    "cuda_graph_modules=attn",
    NULL },
  { EXPERTS OFFLOAD FUSED "cuda_graph_impl=local cuda_graph_modules=attn", NULL },
  { EXPERTS OFFLOAD "offload_modules=moe_act cuda_graph_impl=local",
    "cuda_graph_impl local with empty cuda_graph_modules captures whole layers, which cannot be "
    "offloaded" },
  { EXPERTS OFFLOAD "offload_modules=moe_act cuda_graph_impl=local cuda_graph_modules=moe "
                    "moe_expert_capacity_factor=1 moe_pad_expert_input_to_capacity=true",
    "cuda_graph_modules moe does not work with offloading" },
  { OFFLOAD "offload_modules=core_attn cuda_graph_impl=full_iteration "
            "check_for_nan_in_loss_and_grad=false",
    "cuda_graph_impl full_iteration with offloading needs "
    "fine_grained_offloading_max_inflight_offloads" },
  { OFFLOAD "offload_modules=core_attn cuda_graph_impl=full_iteration "
            "fine_grained_offloading_max_inflight_offloads=0 check_for_nan_in_loss_and_grad=false",
    NULL },
  { EXPERTS EXCHANGE OFFLOAD "offload_modules=expert_fc1 moe_token_dispatcher_type=flex "
                             "moe_flex_dispatcher_backend=ncclep",
    "offload_modules expert_fc1 does not work with overlap_moe_expert_parallel_comm on the ncclep "
    "backend" },
  /* CUDA graphs by themselves */
  { EXPERTS "cuda_graph_impl=transformer_engine cuda_graph_modules=moe,moe_router",
    "cuda_graph_modules has both moe and moe_router; give one of them" },
  { EXPERTS "cuda_graph_impl=transformer_engine cuda_graph_modules=moe_preprocess",
    "cuda_graph_modules has moe_preprocess, which needs moe_router" },
  { "cuda_graph_impl=transformer_engine cuda_graph_modules=moe_router",
    "cuda_graph_modules moe and moe_router need a model with experts" },
  { EXPERTS "cuda_graph_impl=transformer_engine cuda_graph_modules=moe",
    "cuda_graph_modules moe needs moe_expert_capacity_factor and "
    "moe_pad_expert_input_to_capacity" },
  { EXPERTS "cuda_graph_impl=transformer_engine cuda_graph_modules=mlp",
    "cuda_graph_modules mlp needs a dense layer; every layer has experts" },
  { EXPERTS "cuda_graph_impl=transformer_engine cuda_graph_modules=moe_router,moe_preprocess "
            "moe_token_dispatcher_type=alltoall moe_expert_capacity_factor=1",
    "cuda_graph_modules moe_preprocess does not work with the alltoall dispatcher where the host "
    "reads counts (moe_expert_capacity_factor, moe_router_padding_for_quantization)" },
  { "cuda_graph_impl=full_iteration cuda_graph_modules=attn check_for_nan_in_loss_and_grad=false",
    "cuda_graph_modules must be empty with cuda_graph_impl full_iteration" },
  { "cuda_graph_impl=full_iteration",
    "cuda_graph_impl full_iteration needs check_for_nan_in_loss_and_grad false" },
  { "cuda_graph_impl=transformer_engine recompute_granularity=full recompute_method=uniform "
    "recompute_num_layers=1",
    "recompute_granularity full needs cuda_graph_impl none or full_iteration; it is "
    "transformer_engine" },
  { EXPERTS "cuda_graph_impl=transformer_engine cuda_graph_modules=moe_router "
            "recompute_granularity=selective recompute_modules=moe",
    "recompute_modules moe does not work with cuda_graph_modules moe_router" },
  { "cuda_graph_impl=transformer_engine cuda_graph_modules=attn recompute_granularity=selective",
    "recompute_modules core_attn inside a CUDA graph needs attention_dropout 0" },
  { "cuda_graph_impl=transformer_engine cuda_graph_modules=mlp recompute_granularity=selective "
    "recompute_modules=mlp",
    "recompute_modules mlp and moe inside a CUDA graph need hidden_dropout 0" },
  /* static buffers of experts, and their stash */
  { EXPERTS STATIC, NULL },
  { EXPERTS "moe_expert_rank_capacity_factor=1.5 use_transformer_engine_op_fuser=true",
    "moe_expert_rank_capacity_factor needs moe_flex_dispatcher_backend hybridep or ncclep; it is "
    "deepep" },
  { EXPERTS STATIC "use_transformer_engine_op_fuser=false",
    "moe_expert_rank_capacity_factor with the hybridep backend needs "
    "use_transformer_engine_op_fuser or moe_use_grouped_tensor" },
  { EXPERTS STATIC "use_transformer_engine_op_fuser=false moe_use_grouped_tensor=true", NULL },
  { EXPERTS STATIC "expert_model_parallel_size=2 world_size=2 moe_imbalance=1.6",
    "moe_expert_rank_capacity_factor is less than moe_imbalance: the busiest rank would run every "
    "step twice, the second time with larger buffers" },
  { EXPERTS STATIC "moe_paged_stash=true", NULL },
  { EXPERTS STATIC "moe_paged_stash=true " OFFLOAD "offload_modules=core_attn", NULL },
  { EXPERTS STATIC "moe_paged_stash=true " OFFLOAD "offload_modules=fused_group_mlp",
    "offload_modules expert_fc1, moe_act and fused_group_mlp do not work with moe_paged_stash, "
    "which holds the same tensors" },
  { EXPERTS STATIC "moe_paged_stash=true cpu_offloading_num_layers=4",
    "moe_paged_stash does not work with cpu_offloading" },
  { EXPERTS "moe_paged_stash=true",
    "moe_paged_stash needs moe_expert_rank_capacity_factor: without it, nothing is padded" },
  { EXPERTS "system=paged_stash",
    "moe_paged_stash needs moe_expert_rank_capacity_factor: without it, nothing is padded" },
  { EXPERTS STATIC "moe_paged_stash=true container=pytorch:25.09-py3",
    "moe_paged_stash with use_transformer_engine_op_fuser needs Transformer Engine 2.14; container "
    "is \"pytorch:25.09-py3\"" },
  { EXPERTS "moe_apply_probs_on_input=true moe_router_topk=2",
    "moe_apply_probs_on_input needs moe_router_topk 1; it is 2" },
  { EXPERTS STATIC "moe_paged_stash=true moe_apply_probs_on_input=true moe_router_topk=1 "
                   "moe_router_pre_softmax=true",
    "moe_paged_stash with use_transformer_engine_op_fuser does not work with "
    "moe_apply_probs_on_input" },
  { EXPERTS STATIC "moe_paged_stash=true tensor_model_parallel_size=2 sequence_parallel=true "
                   "expert_tensor_parallel_size=2",
    "moe_paged_stash with use_transformer_engine_op_fuser needs expert_tensor_parallel_size 1" },
  /* overlap of the token exchange */
  { EXPERTS EXCHANGE, NULL },
  { EXPERTS EXCHANGE "container=pytorch:24.10-py3",
    "overlap_moe_expert_parallel_comm needs PyTorch 2.6, which comes with pytorch:24.11-py3; "
    "container is \"pytorch:24.10-py3\"" },
  { EXPERTS EXCHANGE "pipeline_model_parallel_size=2",
    "overlap_moe_expert_parallel_comm in a pipeline needs virtual stages" },
  { EXPERTS EXCHANGE "moe_token_dispatcher_type=allgather",
    "overlap_moe_expert_parallel_comm needs moe_token_dispatcher_type alltoall or flex; it is "
    "allgather" },
  { EXPERTS EXCHANGE "fp8_format=e4m3 moe_apply_probs_on_input=true moe_router_topk=1 "
                     "moe_router_pre_softmax=true moe_token_dispatcher_type=flex "
                     "moe_flex_dispatcher_backend=hybridep",
    "with overlap_moe_expert_parallel_comm and fp8_format, moe_apply_probs_on_input loses the "
    "experts' input before backward; use the deepep backend, or alltoall with more than one expert "
    "on a rank" },
  { EXPERTS EXCHANGE "bf16=false", "overlap_moe_expert_parallel_comm needs bf16 or fp16" },
  { EXPERTS EXCHANGE "recompute_granularity=full recompute_method=uniform recompute_num_layers=1",
    "overlap_moe_expert_parallel_comm does not work with recompute_granularity full" },
  { EXPERTS EXCHANGE "recompute_method=uniform",
    "recompute_method and recompute_num_layers do not work with overlap_moe_expert_parallel_comm" },
  { EXPERTS EXCHANGE "recompute_num_layers=1",
    "recompute_method and recompute_num_layers do not work with overlap_moe_expert_parallel_comm" },
  { EXPERTS EXCHANGE "recompute_granularity=selective recompute_modules=moe",
    "recompute_modules has moe, which does not work with overlap_moe_expert_parallel_comm" },
  { EXPERTS EXCHANGE "moe_shared_expert_overlap=true moe_shared_expert_intermediate_size=512",
    "moe_shared_expert_overlap does not work with overlap_moe_expert_parallel_comm" },
  { EXPERTS EXCHANGE "mtp_num_layers=2",
    "mtp_num_layers is 2; with overlap_moe_expert_parallel_comm it may be at most 1" },
  /* recomputation and fp8 */
  { EXPERTS "fp8_format=hybrid fp8_recipe=delayed recompute_granularity=selective "
            "recompute_modules=moe_act",
    "recompute_modules moe_act and layernorm do not work with fp8_recipe delayed" },
  { "fp8_format=hybrid fp8_recipe=delayed recompute_granularity=selective "
    "recompute_modules=layernorm",
    "recompute_modules moe_act and layernorm do not work with fp8_recipe delayed" },
  { "system=megatron_pr1752", "offload system megatron_pr1752 needs virtual pipeline stages" },
  { LAYERS, NULL },
  { LAYERS "system=te_v1 cpu_offloading_double_buffering=true", NULL },
  { LAYERS "cpu_offloading_num_layers=8",
    "cpu_offloading_num_layers is 8; it must be less than num_layers (8)" },
  { LAYERS "pipeline_model_parallel_size=2",
    "cpu_offloading needs pipeline_model_parallel_size 1; it is 2" },
  { LAYERS "recompute_granularity=selective", "cpu_offloading does not work with recomputation" },
  { LAYERS "recompute_granularity=full recompute_method=uniform recompute_num_layers=1",
    "cpu_offloading does not work with recomputation" },
  { LAYERS "cuda_graph_impl=transformer_engine",
    "cuda_graph_impl transformer_engine does not work with cpu_offloading" },
  { LAYERS "cpu_offloading_activations=false",
    "cpu_offloading_activations and cpu_offloading_weights are both false; cpu_offloading needs "
    "one "
    "of them" },
  { LAYERS "cpu_offloading_activations=false cpu_offloading_weights=true", NULL },
  { LAYERS "system=te_v1 cpu_offloading_activations=false cpu_offloading_weights=true",
    "offload system te_v1 needs cpu_offloading_activations" },
  { LAYERS "system=te_v2 " OFFLOAD "offload_modules=core_attn",
    "cpu_offloading and fine_grained_activation_offloading cannot both be used" },
  { "system=te_v1", "cpu_offloading_num_layers is 0; offload system te_v1 needs a layer" },
  { "system=te_v2", NULL },
  { MANUAL "cpu_offloading_layers=0,7", NULL },
  { MANUAL "cpu_offloading_layers=0,3 pipeline_model_parallel_size=2", NULL },
  { MANUAL "cpu_offloading_layers=0 cpu_offloading_stream=compute", NULL },
  { MANUAL "cpu_offloading_layers=0 cpu_offloading_retain_pinned_cpu_buffers=true", NULL },
  { LAYERS "cpu_offloading_retain_pinned_cpu_buffers=true", NULL },
  { MANUAL "cpu_offloading_layers=4 pipeline_model_parallel_size=2",
    "cpu_offloading_layers has 4; a chunk has 4 layers, from 0 to 3" },
  { MANUAL "cpu_offloading_layers=0,first",
    "cpu_offloading_layers has \"first\"; layers are whole numbers, from 0 in each chunk" },
  { MANUAL "",
    "cpu_offloading_layers is empty; with cpu_offloading_manual_synchronization only the "
    "layers that it names move" },
  { MANUAL "cpu_offloading_layers=0 system=te_v1 cpu_offloading_num_layers=4",
    "cpu_offloading_manual_synchronization needs offload system te_v2; it is te_v1" },
  { MANUAL "cpu_offloading_layers=0 cpu_offloading_activations=false",
    "cpu_offloading_activations and cpu_offloading_weights are both false; cpu_offloading needs "
    "one of them" },
  { LAYERS "cpu_offloading_layers=0",
    "cpu_offloading_layers needs cpu_offloading_manual_synchronization; without it the first "
    "cpu_offloading_num_layers layers move" },
  { LAYERS "cpu_offloading_stream=comm",
    "cpu_offloading_stream needs cpu_offloading_manual_synchronization" },
  { LAYERS "system=te_v1 cpu_offloading_retain_pinned_cpu_buffers=true",
    "cpu_offloading_retain_pinned_cpu_buffers needs offload system te_v2; it is te_v1" },
  { HF "system=layer_offloading world_size=1",
    "offload system layer_offloading moves frozen parameters; without lora.adapter all parameters "
    "train" },
  { HF "system=layer_offloading world_size=1 adapter=lora", NULL },
  { HF "fsdp=fsdp2 system=save_on_cpu", "offload system save_on_cpu does not work with fsdp: it "
                                        "would copy gathered parameters, which FSDP frees soon" },
  { LAYERS "system=te_v2 container=pytorch:25.09-py3",
    "offload system te_v2 needs Transformer Engine 2.10; container is \"pytorch:25.09-py3\"" },
  { "container=ubuntu:22.04",
    "container is \"ubuntu:22.04\"; it must be the name of a PyTorch image with its month, such as "
    "pytorch:25.09-py3" },
  { "megatron_day=2026-05-30", NULL },
  { "megatron=core_v0.18 megatron_day=2026-05-30", NULL },
  { "megatron=core_v0.18 megatron_day=2026-07-02",
    "megatron_day is 2026-07-02, when main had the offloading of core_v0.19, and megatron is "
    "core_v0.18; leave one of the two out" },
  { EXPERTS "add_bias_linear=true tensor_model_parallel_size=2 sequence_parallel=true "
            "expert_tensor_parallel_size=2",
    "add_bias_linear works in experts only with expert_tensor_parallel_size 1, as in Megatron-LM; "
    "it "
    "is 2" },
  { "megatron_day=2026-5-30",
    "megatron_day is \"2026-5-30\"; it must be a day, such as 2026-05-30" },
  { "megatron_day=2026-13-01",
    "megatron_day is \"2026-13-01\"; it must be a day, such as 2026-05-30" },
  { CHECKPOINTS "system=hidden_states", NULL },
  { CHECKPOINTS "system=hidden_states_reentrant", NULL },
  { CHECKPOINTS "system=hidden_states_reentrant use_reentrant=true", NULL },
  { CHECKPOINTS "system=axolotl_disk mode=fixed", NULL },
  { HF "system=hidden_states", "offload system hidden_states moves the inputs of checkpoints; it "
                               "needs recompute_granularity full" },
  { HF "system=hidden_states_reentrant",
    "offload system hidden_states_reentrant moves the inputs of "
    "checkpoints; it needs recompute_granularity full" },
  { HF "system=axolotl_disk mode=fixed",
    "offload system axolotl_disk moves the inputs of checkpoints; it needs "
    "recompute_granularity full" },
  { CHECKPOINTS "system=hidden_states use_reentrant=true",
    "offload system hidden_states needs use_reentrant false; with reentrant checkpoints the system "
    "is hidden_states_reentrant" },
  { CHECKPOINTS "system=hidden_states_reentrant use_reentrant=false",
    "offload system hidden_states_reentrant uses reentrant checkpoints; use_reentrant cannot be "
    "false" },
  { CHECKPOINTS "system=axolotl_disk mode=fixed use_reentrant=false",
    "offload system axolotl_disk uses reentrant checkpoints; use_reentrant cannot be false" },
  { SELECTIVE, NULL },
  { SELECTIVE "system=hidden_states", NULL },
  { CHECKPOINTS "system=selective_checkpointing", NULL },
  { CHECKPOINTS "system=selective_checkpointing selective_checkpointing_hidden_states=true", NULL },
  { SELECTIVE "selective_checkpointing_save=attention,aten::mm", NULL },
  { SELECTIVE "selective_checkpointing_save=aten::mm selective_checkpointing_mlp_layers=2", NULL },
  { SELECTIVE "selective_checkpointing_mlp_layers=2",
    "selective_checkpointing_mlp_layers needs selective_checkpointing, and a matrix product in "
    "selective_checkpointing_save" },
  { SELECTIVE "system=hidden_states selective_checkpointing_save=aten::mm "
              "selective_checkpointing_mlp_layers=2",
    "selective_checkpointing_mlp_layers works with offload systems none and planned; it is "
    "hidden_states" },
  { SELECTIVE "selective_checkpointing_activation_layers=2", NULL },
  { HF CHECKPOINTS "selective_checkpointing_activation_layers=2",
    "selective_checkpointing_activation_layers needs selective_checkpointing" },
  { SELECTIVE "system=hidden_states selective_checkpointing_activation_layers=2",
    "selective_checkpointing_activation_layers works with offload systems none and planned; it is "
    "hidden_states" },
  { "recompute.selective_checkpointing=true",
    "selective_checkpointing needs implementation hf; it is te" },
  { HF "recompute.selective_checkpointing=true",
    "selective_checkpointing needs recompute_granularity full" },
  { HF "system=selective_checkpointing",
    "selective_checkpointing needs recompute_granularity full" },
  { SELECTIVE "use_reentrant=true", "selective_checkpointing does not work with use_reentrant" },
  { SELECTIVE "system=trl",
    "selective_checkpointing works with offload system none, hidden_states, planned or "
    "selective_checkpointing; it is trl" },
  { SELECTIVE "system=axolotl_disk mode=fixed",
    "selective_checkpointing does not work with use_reentrant" },
  { SELECTIVE "selective_checkpointing_save=",
    "selective_checkpointing_save is empty; nothing would be saved" },
  { SELECTIVE "adapter=lora", NULL },
  { SELECTIVE "adapter=lora selective_checkpointing_save=attention,aten::mm",
    "selective_checkpointing_save names matrix products, which cannot be saved with an adapter: it "
    "is added to them in place" },
  { CHECKPOINTS "system=selective_checkpointing recompute.selective_checkpointing=false",
    "offload system selective_checkpointing needs selective_checkpointing" },
  { CHECKPOINTS "system=hidden_states selective_checkpointing_hidden_states=true",
    "selective_checkpointing_hidden_states needs offload system selective_checkpointing; it is "
    "hidden_states" },
};

static void test_cases(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    arena a = { 0 };
    diag d = { .quiet = true };
    settings s;
    settings_init(&s, &a);
    apply(&s, small_model, &a, &d);
    apply(&s, cases[i].words, &a, &d);
    bool good = settings_resolve(&s, offload_conditions, &a, &d);
    const char *expected =
        cases[i].message == NULL ? "" : arena_printf(&a, "--set: error: %s", cases[i].message);
    assert_string_equal(d.message, expected);
    assert_int_equal(good, cases[i].message == NULL);
    assert_int_equal(d.exit_status, cases[i].message == NULL ? 0 : 2);
    arena_release(&a);
  }
}

/* Which engine Megatron's layer-level flags mean, and what of them it has no use for. */
static void test_layer_engine(void **state)
{
  static const struct {
    const char *words, *system;
    bool double_buffering;
  } engines[] = {
    { "", "none", false },
    { LAYERS, "te_v2", false },
    { LAYERS "container=pytorch:25.09-py3", "te_v1", false },
    { LAYERS "container=pytorch:25.12-py3", "te_v2", false },
    { LAYERS "nvte_cpu_offload_v1=true", "te_v1", false },
    { LAYERS "cpu_offloading_activations=false cpu_offloading_weights=true", "none", false },
    { LAYERS "cpu_offloading_double_buffering=true", "te_v2", false },
    { LAYERS "cpu_offloading_double_buffering=true nvte_cpu_offload_v1=true", "te_v1", true },
    { LAYERS "cpu_offloading_double_buffering=true container=pytorch:25.06-py3", "te_v1", false },
  };
  (void)state;
  for (size_t i = 0; i < sizeof engines / sizeof engines[0]; i++) {
    arena a = { 0 };
    diag d = { .quiet = true };
    settings s;
    settings_init(&s, &a);
    apply(&s, small_model, &a, &d);
    apply(&s, engines[i].words, &a, &d);
    assert_true(settings_resolve(&s, offload_conditions, &a, &d));
    assert_string_equal(chosen_word(&s, KEY_offload_system), engines[i].system);
    assert_int_equal(s.offload.cpu_offloading_double_buffering, engines[i].double_buffering);
    assert_false(s.offload.fine_grained_activation_offloading);
    arena_release(&a);
  }
}

static void test_required(void **state)
{
  (void)state;
  arena a = { 0 };
  diag d = { .quiet = true };
  settings s;
  settings_init(&s, &a);
  assert_false(settings_resolve(&s, offload_conditions, &a, &d));
  assert_string_equal(
      d.message, "offsim: error: model.num_layers is not given and has no default; write it in a "
                 "scenario, or --set num_layers=N, or --hf-config FILE of the model");
  arena_release(&a);
}

/* Every key at its upper bound, or nearly: an error, never an overflow. */
static void test_large_sizes(void **state)
{
  (void)state;
  static const char *const largest[] = {
    "num_layers=4096 hidden_size=1048576 ffn_hidden_size=4194304",
    "hidden_size=1048576 num_experts=65536 moe_ffn_hidden_size=4194304 add_bias_linear=false",
    "num_attention_heads=65536 kv_channels=65536 seq_length=67108864",
    "seq_length=67108864 padded_vocab_size=16777216 world_size=1 micro_batch_size=64",
  };
  for (size_t i = 0; i < sizeof largest / sizeof largest[0]; i++) {
    arena a = { 0 };
    diag d = { .quiet = true };
    settings s;
    settings_init(&s, &a);
    apply(&s, small_model, &a, &d);
    apply(&s, largest[i], &a, &d);
    assert_false(settings_resolve(&s, offload_conditions, &a, &d));
    assert_non_null(strstr(d.message, "; reduce "));
    arena_release(&a);
  }
}

static void test_too_many_ops(void **state)
{
  (void)state;
  arena a = { 0 };
  diag d = { .quiet = true };
  settings s;
  settings_init(&s, &a);
  apply(&s, small_model, &a, &d);
  apply(&s, "global_batch_size=1000000", &a, &d);
  assert_false(settings_resolve(&s, offload_conditions, &a, &d));
  assert_int_equal(d.exit_status, 3);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_cases),        cmocka_unit_test(test_layer_engine),
    cmocka_unit_test(test_required),     cmocka_unit_test(test_large_sizes),
    cmocka_unit_test(test_too_many_ops),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
