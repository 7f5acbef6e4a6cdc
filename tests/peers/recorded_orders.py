"""What peers that run a file of Megatron-LM on a stub share: the current stream; jobs in, the orders of their events out."""

import contextlib
import importlib.util
import json
import pathlib
import sys


@contextlib.contextmanager
def on_stream(stream):
    """torch.cuda.stream: the class of a peer's streams has the `current` one."""
    streams = type(stream)
    before, streams.current = streams.current, stream
    yield
    streams.current = before


def print_orders(order, package=""):
    """Loads the file that the command line names; `order(module, job)` gives the events of each job of standard input."""
    spec = importlib.util.spec_from_file_location(package + pathlib.Path(sys.argv[1]).stem, sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    jobs = json.load(sys.stdin)
    print("[")
    for i, job in enumerate(jobs):
        print(json.dumps({**job, "order": order(module, job)}) + ("," if i + 1 < len(jobs) else ""))
    print("]")
