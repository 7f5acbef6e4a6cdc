"""What `offload.mode` fixed and pr7575 change in Megatron-LM's offload manager (sim/offload/megatron.c), as changes of the
methods of the released one: `mend(module, mode)`. Written for main of August 2026.

A group's state here is where it is: on its chunk's stack (_groups_to_reload), coming (_reloading_group), or neither.
"""


def mend(module, mode):
    import torch

    handler, manager = module.ChunkOffloadHandler, module.PipelineOffloadManager
    all_step = mode == "pr7575"
    start_forward, commit_backward = handler.on_group_start_forward, handler.on_group_commit_backward
    reload_group, should_offload = handler.bulk_reload_group, handler.should_bulk_offload
    after_warmup = manager.post_warmup_callback

    def has_copies(group):
        return any(isinstance(state, tuple) for state in group._tensors.values())

    # ---- PR #6783: a chunk is finished when no later group has the name ----

    def finish_all_groups(self, name=None):
        return self.find_group_with_name(self.offload_groups, name, self._offloaded_group_index) is None

    # ---- PR #7575: a kept group has an entry on the stack. In pr7575 every group has one, and a group's own is popped
    # first; in fixed the groups of the margin and of the last stage's rule have none, as they set the prefetch's length ----

    def post_warmup_callback(self, **options):
        kept_by = self._delta_offload_bytes_across_pp_ranks, self._activation_offload_fraction
        self._delta_offload_bytes_across_pp_ranks, self._activation_offload_fraction = 0, 1.0
        after_warmup(self, **options)
        for chunk in self._cached_chunks_forward:
            for group in chunk.offload_groups:
                group.in_margin = not group.offload
        self._delta_offload_bytes_across_pp_ranks, self._activation_offload_fraction = kept_by
        after_warmup(self, **options)

    def has_entry(self, group):
        if all_step or self.is_warmup:
            return True
        kept, group.offload = group.offload, not group.in_margin
        entry = should_offload(self, group)
        group.offload = kept
        return entry

    def bulk_offload(self, name, forced_released_tensors):
        group = self.find_group_with_name(self._groups_to_offload, name)
        if has_entry(self, group):
            self._groups_to_reload.append(group)
        if self.should_bulk_offload(group):
            self.bulk_offload_group(group)
        self._groups_to_offload.remove(group)

    def on_group_start_backward(self, group):
        self.h2d_stream.wait_stream(torch.cuda.current_stream())
        if all_step and self._groups_to_reload and self._groups_to_reload[-1] is group:
            self._groups_to_reload.pop()
        self.bulk_reload()

    # ---- a group that comes back after its marker has passed is waited for at once ----

    def on_group_start_forward(self, name):
        start_forward(self, name)
        group = self._groups_to_offload[-1]
        group.marker_has_passed = False
        return group

    def bulk_reload_group(self):
        group = self._groups_to_reload[-1]
        copies = has_copies(group)
        if (not self.is_warmup and not group.offload) or (all_step and not copies):
            self._groups_to_reload.pop()
            return
        reload_group(self)
        if group.marker_has_passed:
            self._reloading_group.remove(group)
            if copies:
                group.wait_reload_event(torch.cuda.current_stream())

    def on_group_commit_backward(self, name, group):
        group.marker_has_passed = True
        coming = self._reloading_group
        if group not in coming and group not in self._groups_to_reload:
            self._reloading_group = []  # nothing of this group comes: another one's event is not taken
        commit_backward(self, name)
        self._reloading_group = coming

    # ---- PR #7399, and a recomputation that reads a group on its way back waits for it. The chunk that saved a tensor
    # gives it back (megatron_manager.py) ----

    def tensor_pop(self, tag):
        group = self.offload_groups[tag[0] - 1]
        if group in self._reloading_group and not group.marker_has_passed:
            self._reloading_group.remove(group)
            group.wait_reload_event(torch.cuda.current_stream())
        tensor = group.pop_tensor(tag)
        if isinstance(tensor, tuple):
            group.wait_offload_event(torch.cuda.current_stream())
            tensor = self.reload(tensor)
        return tensor

    for method in (finish_all_groups, bulk_offload, on_group_start_backward, on_group_start_forward, bulk_reload_group,
                   on_group_commit_backward, tensor_pop):
        setattr(handler, method.__name__, method)
    manager.post_warmup_callback = post_warmup_callback
