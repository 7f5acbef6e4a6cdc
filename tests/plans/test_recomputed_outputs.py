"""Megatron-LM's CheckpointWithoutOutput keeps what it has recomputed until autograd has passed the region, also where
the tensors that attention reads come back from the host."""
import re

import pytest

from conftest import sets

LATENT = ["docs/examples/one-layer.yaml", *sets(
    "num_layers=2", "multi_latent_attention=true", "q_lora_rank=512", "kv_lora_rank=256", "qk_head_dim=64", "qk_pos_emb_head_dim=64",
    "v_head_dim=64", "recompute_granularity=selective", "recompute_modules=mla_up_proj")]


@pytest.mark.parametrize("modules", ["core_attn", ""])
def test_recomputed_query_lives_until_the_projection_is_passed(offsim, modules):
    plan = offsim("plan", *LATENT, *sets(f"offload_modules={modules}", "fine_grained_activation_offloading=" + str(bool(modules)).lower()),
                  check=0).stdout.splitlines()
    layer = [line for line in plan if "free " in line or "@ layer 0 " in line]
    backward = next(i for i, line in enumerate(layer) if re.search("kernel .*attention_backward.* layer 0 ", line))
    made = max(i for i, line in enumerate(layer[:backward]) if re.match(r"  alloc +compute +%\d+ query ", line))
    query = layer[made].split()[2]
    freed = next(i for i, line in enumerate(layer) if i > made and re.match(rf"  free +\S+ +{query}( |$)", line))
    weight = max(i for i, line in enumerate(layer) if re.search("kernel .*linear_q_up_proj", line))
    assert made < backward < weight < freed


def test_older_megatron_copies_into_the_emptied_storage(offsim):
    """Before March 2026 the new output and the storage that it is copied to are both there until autograd has passed."""
    older, newer = (offsim("plan", *LATENT, *sets("offload_modules=", "fine_grained_activation_offloading=false", f"megatron_day={day}"),
                           check=0).stdout for day in ("2026-03-10", "2026-03-11"))
    copies = re.findall(r"kernel +compute +copy .* (%\d+) -> (%\d+) @ layer 0 ", older)
    assert len(copies) == 3 and not re.search("kernel .* copy .* @ layer ", newer)
    lines = older.splitlines()
    for computed, emptied in copies:
        made, copied, freed = (next(i for i, line in enumerate(lines) if re.match(pattern, line)) for pattern in (
            rf"  alloc +\S+ +{computed} ", rf"  kernel .* copy .*{computed} -> {emptied} ", rf"  free +\S+ +{computed}( |$)"))
        used = max(i for i, line in enumerate(lines) if re.match(rf"  kernel .*{emptied}[ {{]", line))
        assert made < copied < used < freed
