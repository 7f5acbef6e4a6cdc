#!/usr/bin/env python3
"""What Megatron-LM's own offload manager issues: its file fine_grained_activation_offload.py, run on a stub of torch.

    python3 tests/peers/megatron_manager.py FILE [fixed|pr7575] < jobs.json > logs.json

With a mode the manager has the changes of megatron_manager_fixes.py.

The stub has streams and events that only note what is asked of them, and tensors without contents. A job says in which
order micro-batches pass, which groups each layer of a chunk has, and the bytes of each group's tensors; the manager is
then driven through `iterations` steps as Megatron's layers drive it (a layer of the checkpoint that `checkpoints` names, if any,
saves nothing in forward, and runs again in backward): transformer_layer.py, multi_latent_attention.py,
moe/experts.py, and for overlapped passes model_chunk_schedule_plan.py and fine_grained_callables.py.

A log has for each step a list of events in issue order; a tensor is [micro-batch, chunk, commit of the chunk, number]:

    ["d2h", tensor]              a copy out
    ["h2d", stream, tensor]      a copy back
    ["join", stream, on]         stream waits for all that another stream was given so far
    ["wait", stream, on, [...]]  stream waits for an event on another stream, after these copies
    ["work"]                     a checkpoint's recomputation and backward, where layer_input is a group
    ["stop", message]            the manager raised an exception
"""

import contextlib
import importlib.util
import inspect
import itertools
import json
import sys
import types

from megatron_manager_fixes import mend

# A layer's groups in the order in which forward commits them.
COMMITS = ("layer_input", "qkv_linear", "core_attn", "attn_proj", "attn_norm", "expert_fc1", "moe_act", "mlp_norm")

# Forward in parts, as an overlapped pass runs them: + enters a group, - commits it.
FORWARD = {
    "attention": ("+layer_input", "-layer_input", "+attn_norm", "+qkv_linear", "-qkv_linear", "+core_attn", "-core_attn", "+attn_proj", "-attn_proj",
                  "-attn_norm", "+mlp_norm"),
    "mlp": ("+expert_fc1", "-expert_fc1", "+moe_act", "-moe_act"),
    "combine": ("-mlp_norm",),
}

# Backward: - the commit's node, = autograd unpacks what was saved, + the start's node, ! a recomputation unpacks what it
# reads. CheckpointWithoutOutput recomputes in a hook: the norms when the gradient of attention's and of the MLP's output is
# there, the up projections with that of core attention's, which is before the commits of core_attn and qkv_linear.
BACKWARD = {
    "combine": ("-mlp_norm",),
    "mlp": ("!mlp_norm", "-moe_act", "=moe_act", "+moe_act", "-expert_fc1", "=expert_fc1", "+expert_fc1"),
    "attention": ("=mlp_norm", "+mlp_norm", "-attn_norm", "!attn_norm", "-attn_proj", "=attn_proj", "+attn_proj",
                  "!qkv_linear", "-core_attn", "=core_attn", "+core_attn", "-qkv_linear", "=qkv_linear", "+qkv_linear",
                  "=attn_norm", "+attn_norm", "-layer_input", "=layer_input", "+layer_input"),
}
# The recomputed module, and how many of the group's tensors it reads: the last ones.
RECOMPUTED = {"attn_norm": ("layernorm", 1), "mlp_norm": ("layernorm", 1), "qkv_linear": ("mla_up_proj", 3)}
# Of a layer's forward and another's backward that overlap (TransformerLayerSchedulePlan.run).
OVERLAPPED = (("B", "combine"), ("F", "attention"), ("B", "mlp"), ("F", "mlp"), ("F", "combine"), ("B", "attention"))

LOG = []


# ---- the stub --------------------------------------------------------------------------------------------------------

class Event:
    def __init__(self, **options):
        pass

    def record(self, stream):
        self.stream, self.copies = stream.name, stream.since_record
        stream.since_record = []


class Stream:
    def __init__(self, name=None):
        self.name, self.since_record = name, []

    def wait_event(self, event):
        LOG.append(["wait", self.name, getattr(event, "stream", None), list(getattr(event, "copies", []))])

    def wait_stream(self, stream):
        LOG.append(["join", self.name, stream.name])

    def record_event(self, event=None):
        return event


CURRENT = [Stream("compute")]
EXCHANGE = Stream("a2a")  # of tokens, beside the computation of an overlapped pass


@contextlib.contextmanager
def on_stream(stream):
    CURRENT.append(stream)
    yield
    CURRENT.pop()


class Tensor:
    def __init__(self, label, size, device="cuda"):
        self.label, self.size, self.device = label, size, types.SimpleNamespace(type=device)
        self.shape = (size,)
        self.is_cuda = False

    def numel(self):
        return self.size

    def element_size(self):
        return 1

    def record_stream(self, stream):
        pass

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: id(self), nbytes=lambda: self.size, resize_=lambda size: None)


class Anything:
    """A class of torch that is named, and never has an instance."""

    def __init__(self, *arguments):
        pass


def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)
    return sys.modules[name]


def install_stub():
    graph = module("torch.autograd.graph", saved_tensors_hooks=Anything)
    autograd = module("torch.autograd", Function=type("Function", (), {}), graph=graph)
    cuda = types.SimpleNamespace(Stream=Stream, Event=Event, current_stream=lambda: CURRENT[-1], stream=on_stream,
                                 is_available=lambda: False, empty_cache=lambda: None,
                                 nvtx=types.SimpleNamespace(range_push=lambda name: None, range_pop=lambda: None))
    fakes = types.SimpleNamespace(fake_tensor=types.SimpleNamespace(FakeTensor=type("FakeTensor", (), {})),
                                  functional_tensor=types.SimpleNamespace(FunctionalTensor=type("Functional", (), {})))
    alone = types.SimpleNamespace(is_initialized=lambda: True, get_rank=lambda group=None: 0,
                                  get_world_size=lambda group=None: 1, ProcessGroup=object)
    module("torch", cuda=cuda, autograd=autograd, Tensor=type("TorchTensor", (), {}), _subclasses=fakes, distributed=alone,
           nn=types.SimpleNamespace(Parameter=type("Parameter", (), {})), device=str, dtype=object, float32="fp32")
    for name in ("megatron", "megatron.core", "megatron.core.transformer", "megatron.core.telemetry"):
        module(name)
    module("megatron.core.transformer.cuda_graphs", is_graph_capturing=lambda: False)
    module("megatron.core.utils", nvtx_range_pop=lambda *a, **k: None, nvtx_range_push=lambda *a, **k: None)
    module("megatron.core.telemetry.fallbacks", trace_fn=lambda *names: lambda function: function)


def load(path):
    install_stub()
    spec = importlib.util.spec_from_file_location("manager", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)

    def offload(handler, source, pin_memory=True, use_cpu_pool=True):
        LOG.append(["d2h", source.label])
        CURRENT[-1].since_record.append(source.label)
        return "cuda", Tensor(source.label, source.size, "cpu"), use_cpu_pool, None

    def reload(handler, state, non_blocking=None):
        LOG.append(["h2d", CURRENT[-1].name, state[1].label])
        CURRENT[-1].since_record.append(state[1].label)
        return Tensor(state[1].label, state[1].size)

    handler = loaded.ChunkOffloadHandler
    handler.offload, handler.reload = offload, reload
    handler._record_offload_transfer = staticmethod(lambda *arguments: None)
    loaded.print_offload_summary_table = lambda *arguments, **named: None
    return loaded


# ---- driving it ------------------------------------------------------------------------------------------------------

def call(method, **arguments):
    """With those of the arguments that this version of the method takes."""
    method(**{name: arguments[name] for name in inspect.signature(method).parameters})


class Layer:
    """One layer in one micro-batch: what its forward leaves for its backward. `checkpoint`: the layers that full
    recomputation runs again together, this one among them."""

    def __init__(self, job, manager, pass_, names, commits, checkpoint):
        self.job, self.manager, self.pass_ = job, manager, pass_
        self.names, self.commits, self.checkpoint = names, commits, checkpoint
        self.saves = checkpoint is None
        self.at_start, self.at_commit, self.groups, self.tags = {}, {}, {}, {}
        self.number()

    def number(self):
        self.commit = {name: next(self.commits) for name in COMMITS if name in self.names}

    def run_again(self):
        self.saves = True
        self.number()
        for part in ("attention", "mlp", "combine"):
            self.run("F", part)

    def run(self, direction, part):
        if direction == "B" and part == "combine" and self.checkpoint and self.checkpoint[-1] is self:
            for layer in self.checkpoint:
                layer.run_again()
        table = FORWARD if direction == "F" else BACKWARD
        for step in table[part]:
            if step[1:] in self.names:
                (self.forward if direction == "F" else self.backward)(step[0], step[1:])

    def forward(self, action, name):
        if action == "-":
            self.at_commit[name] = self.manager.cur_forward_chunk()
            if self.at_commit[name] is not None:
                call(self.at_commit[name].on_group_commit_forward, name=name, forced_released_tensors=[])
            return
        self.at_start[name] = self.manager.pop_forward_chunk(name=name)
        if self.at_start[name] is None:
            return
        self.groups[name] = self.at_start[name].on_group_start_forward(name)
        chunk, commit = self.pass_[1], self.commit[name]
        self.tags[name] = [self.manager.cur_forward_chunk().tensor_push(Tensor([*self.pass_, commit, i], size))
                           for i, size in enumerate(self.job["tensors"][chunk][commit] if self.saves else [])]

    def unpack(self, name, count):
        """The last `count` tensors that are still saved, in the order in which they were."""
        tags = self.tags[name]
        unpacked, self.tags[name] = tags[max(0, len(tags) - count):], tags[:max(0, len(tags) - count)]
        for tag in unpacked:
            chunk = self.at_start[name] if self.job["mended"] else self.manager.cur_backward_chunk()
            chunk.tensor_pop(tag)

    def backward(self, action, name):
        handler = self.at_start[name]
        if handler is None:
            return
        if action == "-":
            call(self.at_commit[name].on_group_commit_backward, name=name, group=self.groups[name])
        elif action == "=":
            self.unpack(name, len(self.tags[name]))
            if name == "layer_input":
                LOG.append(["work"])
        elif action == "!":
            recomputed, reads = RECOMPUTED[name]
            if recomputed in self.job["recompute"]:
                self.unpack(name, reads)
        elif len(inspect.signature(handler.on_group_start_backward).parameters) > 0:
            handler.on_group_start_backward(self.groups[name])
        else:
            handler.on_group_start_backward()


def layers_of(job, manager, pass_):
    made, commits = [], itertools.count()
    checkpoints = [[] for _ in range(len(job["chunks"][pass_[1]]))]
    for i, names in enumerate(job["chunks"][pass_[1]]):
        number = job["checkpoints"][i] if "checkpoints" in job else None
        made.append(Layer(job, manager, pass_, names, commits, None if number is None else checkpoints[number]))
        if number is not None:
            checkpoints[number].append(made[-1])
    return made


def run_step(job, manager):
    """One step; [[F, m, c]] is a pass alone, [[F, m, c], [B, m, c]] are two that overlap."""
    alive = {}
    for passes in job["order"]:
        forward = next((tuple(where) for kind, *where in passes if kind == "F"), None)
        backward = next((tuple(where) for kind, *where in passes if kind == "B"), None)
        entering, leaving = [], []
        if forward is not None:
            call(manager.init_model_chunk_offload_handler, pp_rank=job["pp_rank"], vp_size=job["virtual_stages"],
                 vp_stage=forward[1] if job["virtual_stages"] > 1 else None, min_offloaded_tensor_size=0,
                 delta_offload_bytes_across_pp_ranks=job["delta_bytes"], activation_offload_fraction=job["fraction"],
                 max_inflight_offloads=job["max_inflight"])
            entering = alive[forward] = layers_of(job, manager, forward)
        if backward is not None:
            leaving = alive.pop(backward)[::-1]
        for i in range(max(len(entering), len(leaving))):
            for direction, part in OVERLAPPED:
                layers = entering if direction == "F" else leaving
                if i < len(layers):
                    with on_stream(EXCHANGE if part == "combine" and job["overlap"] else CURRENT[0]):
                        layers[i].run(direction, part)
    manager.reset()


def run_job(loaded, job):
    loaded.PipelineOffloadManager.OFFLOAD_MGR = None
    manager = loaded.PipelineOffloadManager.get_instance()
    manager._d2h_stream.name, manager._h2d_stream.name = "d2h", "h2d"
    logs = []
    for _ in range(job["iterations"]):
        LOG.clear()
        try:
            run_step(job, manager)
        except (AssertionError, AttributeError, KeyError, IndexError) as stop:
            LOG.append(["stop", str(stop)[:200]])
        logs.append(list(LOG))
        if LOG and LOG[-1][0] == "stop":
            break
    return logs


def main():
    loaded = load(sys.argv[1])
    if len(sys.argv) > 2:
        mend(loaded, sys.argv[2])
    json.dump([run_job(loaded, job) for job in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
