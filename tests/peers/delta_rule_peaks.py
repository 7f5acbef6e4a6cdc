#!/usr/bin/env python3
"""What flash-linear-attention's gated delta rule allocates at most beyond its operands, in forward and in backward, on a
CPU with kernels that do nothing: the figures of tests/fidelity/test_delta_rule.py. Needs torch, the Python files of
flash-linear-attention and a Triton that they accept (3.5). Not a test.

    FLA_CACHE_RESULTS=0 python3 tests/peers/delta_rule_peaks.py
"""
import torch
from triton.runtime.jit import JITFunction, KernelInterface

for kind in (KernelInterface, JITFunction):
    kind.__getitem__ = lambda self, grid: lambda *args, **named: None
from fla.ops.gated_delta_rule.chunk import chunk_gated_delta_rule  # noqa: E402

BATCH, TOKENS, KEY_HEADS, HEADS, KEY, VALUE = 2, 1000, 2, 4, 32, 16


def peak(function):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        result = function()
    now = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return result, most


def main():
    keys, values = KEY_HEADS * KEY, HEADS * VALUE
    mixed = torch.zeros(BATCH, TOKENS, 2 * keys + values, dtype=torch.bfloat16, requires_grad=True)
    q, k, v = torch.split(mixed, [keys, keys, values], dim=-1)
    q, k, v = (x.unflatten(-1, (heads, -1)) for x, heads in ((q, KEY_HEADS), (k, KEY_HEADS), (v, HEADS)))
    decay = torch.zeros(BATCH, TOKENS, HEADS, requires_grad=True)
    beta = torch.zeros(BATCH, TOKENS, HEADS, dtype=torch.bfloat16, requires_grad=True)
    (o, _), forward = peak(lambda: chunk_gated_delta_rule(q, k, v, decay, beta, use_qk_l2norm_in_kernel=True))
    gradient = torch.zeros_like(o)
    _, backward = peak(lambda: torch.autograd.grad(o, (q, k, v, decay, beta), gradient))
    print(f"forward {forward}, backward {backward}")


if __name__ == "__main__":
    main()
