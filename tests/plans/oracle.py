"""Is a plan safe? The slow and plain way, from a plan's text, for tests of `offsim check`.

A plan is one step of many, so two of them are looked at, one written out after the other (`two_steps`): what a
step leaves is what the next one finds.

Every op has a begin and an end. Edges: the host issues ops in program order and an op begins after it is
issued; a stream's op begins after the one before it has ended; a wait ends after its event's record; the
host goes on after a host_wait's record, and removes a file at once; messages that follow each other on a stream are one exchange, which
ends after the other sides of all of them have begun; so does a collective. What is over at a node is kept as one whole
number, a bit for each op. Two ops that touch the same bytes of the same memory, one of them writing, must be ordered: what an op
sees of a buffer is a list of runs of bytes, element by element.
"""

import copy
import functools
import itertools
import re

HOST_WAITS = "host_wait", "host_read"
STREAMLESS = {"alloc", "free", "host_alloc", "host_free", "host_wait", "host_read", "host_work", "resident", "graph_begin", "graph_end"}
EVENTS = {"record", "wait"}
COPIES = {"d2h", "h2d", "disk_write", "disk_read"}
TYPE_BYTES = {"u8": 1, "fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "i32": 4, "i64": 8}
WHOLE = ((0, float("inf")),)


@functools.lru_cache(maxsize=None)
def runs_of(view):
    """The bytes that a view sees, as runs (begin, end) in order that do not meet: "fp32+1024:4096x8/3072x1"."""
    if not view:
        return WHOLE
    kind, offset, sizes, strides = re.fullmatch(r"(\w+)\+(\d+)(?::([\dx]+))?(?:/([-\dx]+))?", view).groups()
    sizes = [int(n) for n in sizes.split("x")] if sizes else []
    if strides:
        strides = [int(n) for n in strides.split("x")]
    else:
        strides = [functools.reduce(int.__mul__, sizes[i + 1:], 1) for i in range(len(sizes))]
    axes = sorted((abs(step), count) for step, count in zip(strides, sizes))
    first = int(offset) + sum(step * (count - 1) for step, count in zip(strides, sizes) if step < 0)
    length = min([1, *sizes])
    while axes and axes[0][0] <= length:  # its elements leave no gap
        step, count = axes.pop(0)
        length += step * (count - 1)
    places = [sum(steps) for steps in itertools.product(*(range(0, count * step, step) for step, count in axes))]
    runs, bytes_ = [], TYPE_BYTES[kind]
    for place in sorted(places):
        begin, end = (first + place) * bytes_, (first + place + length) * bytes_
        if runs and begin <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(end, runs[-1][1])
        else:
            runs.append((begin, end))
    return tuple(runs)


@functools.lru_cache(maxsize=None)
def without(runs, others):
    """The bytes of `runs` that are in none of the others."""
    left, k = [], 0
    for begin, end in runs:
        while k < len(others) and others[k][1] <= begin:
            k += 1
        at, i = begin, k
        while i < len(others) and others[i][0] < end:
            if others[i][0] > at:
                left.append((at, others[i][0]))
            at, i = max(at, others[i][1]), i + 1
        if at < end:
            left.append((at, end))
    return tuple(left)


def meet(runs, others):
    if others is WHOLE:
        return bool(runs)
    return without(runs, others) != runs


class Op:
    def __init__(self, line, number, phase=None):
        self.__dict__.update(parts_of(line))
        self.line, self.step = number, 1
        self.begin = self.over = None  # node of a Graph, and bit of those that are over: `two_steps` numbers the ops
        self.filled = self.filled or phase == "setup"

    def again(self, names):
        """The same op in the step after; `names`: what its buffers are called there."""
        made = copy.copy(self)
        made.step = 2
        made.event = self.event and self.event + "'"
        made.message = self.message and self.message + "'"
        made.reads, made.writes = [names(b) for b in self.reads], [names(b) for b in self.writes]
        made.buffer = self.buffer and names(self.buffer)
        return made

    def without_mark(self, mark):
        made = copy.copy(self)
        made.marks = [m for m in self.marks if m != mark]
        return made

    def tensor(self, rank):
        """Name and place of what a collective is for."""
        buffers = [b.rstrip("'") for b in self.reads + self.writes]
        return next((op.description for op in rank if buffers and op.description and op.buffer == buffers[0]), None)


@functools.lru_cache(maxsize=None)
def parts_of(line):
    return vars(Parts(line))


class Parts:
    def __init__(self, line):
        views = re.sub(r"(%\d+)\{([^}]*)\}", r"\1 {\2", line.split(" @ ")[0]).split()
        words = re.sub(r"\{[^}]*\}", "", line).split()
        self.kind, self.stream = words[0], words[1]
        at = words.index("@") if "@" in words else len(words)
        body = words[2:at]
        self.marks = body[body.index("after") + 1:] if self.kind == "free" and "after" in body else []
        self.event = next((w for w in body if re.fullmatch(r"e\d+", w)), None)
        self.message = body[1] if self.kind in ("send", "recv") else None
        buffers = [w for w in body if re.fullmatch(r"%\d+", w)]
        arrow = body.index("->") if "->" in body else len(body)
        self.reads = [w for w in body[:arrow] if w in buffers]
        self.writes = [w for w in body[arrow:] if w in buffers]
        seen = [runs_of(after[1:] if after.startswith("{") else "")
                for word, after in zip(views, views[1:] + [""]) if re.fullmatch(r"%\d+", word)]
        self.read_runs, self.written_runs = seen[:len(self.reads)], seen[len(self.reads):]
        self.buffer = buffers[0] if self.kind in STREAMLESS and buffers else None
        self.key = body[body.index("key") + 1] if "key" in body else None
        self.is_file = "disk" in body
        self.filled = "filled" in body
        takes = self.kind in ("alloc", "host_alloc", "resident")
        self.description = (body[1], words[at:]) if takes else None
        place = body.index("bytes") if takes else 0
        self.size = (body[place + 1], body[place - 1], self.stream if body[place + 1] != "retained" else "") if takes else None
        of = body.index("of") if self.kind == "collective" else 0
        self.group = (body[of - 1], int(body[of + 1]), int(body[of + 3])) if of else None
        self.call = (body[:of - 1], body[of + 4]) if of else None
        self.works = self.kind not in STREAMLESS and self.kind not in EVENTS


class Ranks(dict):
    """{rank: [Op]} of the ranks that a text has; each represents `width` global ranks of all `world`."""

    width = world = 1
    builds = frozenset()  # the ranks whose step builds the model: no other step is like it


def read(text):
    ranks, rank, phase, builds = Ranks(), None, None, set()
    for number, line in enumerate(text.splitlines()):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "ranks":
            ranks.world = int(words[-1])
            ranks.width = ranks.world // int(words[1])
        elif words[0] == "rank":
            rank, phase = ranks.setdefault(int(words[1]), []), None
        elif rank is not None and not line.startswith("  "):
            phase = words[0]
            if phase == "setup":
                builds.add(max(ranks))
        elif rank is not None and len(words) > 2:
            rank.append(Op(line, number, phase))
    ranks.builds = frozenset(builds)
    return ranks


def two_steps(ranks):
    """Each rank's ops, and the same again with what the first time has left."""
    both = Ranks({number: rank if number in ranks.builds else rank + next_step(rank) for number, rank in ranks.items()})
    both.width, both.world = ranks.width, ranks.world
    for k, op in enumerate(op for rank in both.values() for op in rank):
        op.begin, op.over = 2 * k, 1 << k
    return both


def next_step(rank):
    found = heritage(rank)
    residents = {op.buffer for op in rank if op.kind == "resident"}
    return [op.again(lambda b: found.get(b, b) if b in residents else b + "'")
            for op in rank if op.kind != "resident" or (op.buffer not in found and op.key is None)]


def heritage(rank):
    """{resident: what it was called in the step before}: itself, or what that step has left in its place, by size
    and name or by size alone."""
    left, made = {}, {}
    for op in rank:
        if op.kind in ("alloc", "host_alloc", "resident"):
            left[op.buffer] = op
        elif op.kind in ("free", "host_free"):
            made[op.buffer] = left.pop(op.buffer)
    found = {b: b for b, op in left.items() if op.kind == "resident"}
    gone = sorted((op for op in made.values() if op.kind == "resident" and op.key is None), key=lambda op: int(op.buffer[1:]))
    new = [op for b, op in left.items() if op.kind != "resident" and op.key is None]
    for same in (lambda a, b: (a.size, a.description) == (b.size, b.description), lambda a, b: a.size == b.size):
        for op in gone:
            other = next((o for o in new if op.buffer not in found and same(op, o)), None)
            if other is not None:
                found[op.buffer] = other.buffer
                new.remove(other)
    return found


class Graph:
    """Nodes `begin` (or the host's turn) and `begin` + 1 (end) of each op. An op that is gone leaves nodes without edges."""

    def __init__(self, ranks):
        self.before = [[] for _ in range(2 + max((op.begin for rank in ranks.values() for op in rank), default=-2))]
        sides = {}
        for rank in ranks.values():
            self._rank(rank, sides)
        for ends in sides.values():
            self._messages(ends)
        self.unmet = False
        self._collectives(ranks)

    def _edge(self, a, b):
        self.before[b].append(a)

    def _rank(self, rank, sides):
        recorded = {op.event: k for k, op in enumerate(rank) if op.kind == "record"}
        last_on, last_wait = {}, None
        groups = []
        for k, op in enumerate(rank):
            node = op.begin
            self._edge(node, node + 1)
            if last_wait is not None:
                self._edge(last_wait, node)
            if op.kind in HOST_WAITS:
                if recorded.get(op.event, k) < k:
                    self._edge(rank[recorded[op.event]].begin + 1, node)
                last_wait = node
                continue
            if op.kind in STREAMLESS:
                continue
            previous = last_on.get(op.stream)
            joins = (previous is not None and previous.message is not None and
                     op.message is not None and previous.step == op.step)
            if joins:
                groups[-1 if groups[-1][-1] is previous else self._group(groups, previous)].append(op)
            elif op.message is not None:
                groups.append([op])
            if previous is not None and not joins:
                self._edge(previous.begin + 1, node)
            if op.kind == "wait" and recorded.get(op.event, k) < k:
                self._edge(rank[recorded[op.event]].begin + 1, node + 1)
            last_on[op.stream] = op
        for group in groups:
            self._exchange(group, sides)

    @staticmethod
    def _group(groups, op):
        return next(i for i, group in enumerate(groups) if group[-1] is op)

    def _exchange(self, group, sides):
        """The first of them represents the exchange: all begin and end with it."""
        first = group[0].begin
        for op in group[1:]:
            for a in self.before[op.begin]:
                if a != first:
                    self._edge(a, first)
            self._edge(first, op.begin)
            self._edge(first + 1, op.begin + 1)
        for op in group:
            sides.setdefault(op.message, []).append((first, first + 1))

    def _messages(self, ends):
        if len(ends) == 2:
            (begin_a, end_a), (begin_b, end_b) = ends
            self._edge(begin_a, end_b)
            self._edge(begin_b, end_a)

    def _collectives(self, ranks):
        """Each rank's n-th collective of a communicator in a step meets the others' n-th."""
        calls = {}
        for number, rank in ranks.items():
            for op in rank:
                if op.group is not None:
                    calls.setdefault((number, op.group, op.step), []).append(op)
        for (number, group, step), mine in calls.items():
            if len(ranks) == 1 and ranks.width == ranks.world:
                continue
            for other in peers(ranks, number, group):
                theirs = calls.get((other, group, step), [])
                self.unmet |= len(theirs) < len(mine) and (step == 1 or other not in ranks.builds)
                names = [op.tensor(ranks[other]) for op in theirs]
                for a, b in zip(mine, theirs):
                    self._edge(b.begin, a.begin + 1)
                    name = a.tensor(ranks[number])
                    self.unmet |= a.call != b.call or (name != b.tensor(ranks[other]) and name in names)

    def over(self):
        """Of each node the bits of the ops that are over by then. None: a cycle, so an op waits for itself.
        `self.order`: the nodes, each after those before it."""
        after = [[] for _ in self.before]
        for node, before in enumerate(self.before):
            for a in before:
                after[a].append(node)
        missing = [len(before) for before in self.before]
        over = [1 << node // 2 if node % 2 else 0 for node in range(len(missing))]
        ready = [node for node, count in enumerate(missing) if count == 0]
        for node in ready:
            for b in after[node]:
                over[b] |= over[node]
                missing[b] -= 1
                if missing[b] == 0:
                    ready.append(b)
        self.order = ready
        return over if len(ready) == len(missing) else None

    def over_without(self, edges, over):
        """What `over` is without some edges {node: the node before it}: only what comes after them is looked at."""
        changed = {}
        for node in self.order[min(map(self.order.index, edges), default=len(self.order)):]:
            before = self.before[node]
            if node not in edges and changed.keys().isdisjoint(before):
                continue
            bits = 1 << node // 2 if node % 2 else 0
            for a in before:
                if a != edges.get(node):
                    bits |= changed.get(a, over[a])
            if bits != over[node]:
                changed[node] = bits
        made = over.copy()
        for node, bits in changed.items():
            made[node] = bits
        return made


def peers(ranks, number, group):
    """The other ranks of the text that have members of a group that the rank has members of."""
    _, size, stride = group
    if size <= 1 or stride == 0:
        return []
    found = set()
    for member in range(number * ranks.width, (number + 1) * ranks.width):
        first = member - member // stride % size * stride
        if first + (size - 1) * stride >= ranks.world:
            return []
        found |= {m // ranks.width for m in range(first, first + size * stride, stride)}
    return sorted(found & set(ranks) - {number})


class Memory:
    """The ops that have touched one piece of memory, in order, and those that have written it, each with the bytes."""

    def __init__(self, filled=False):
        self.touched, self.writers, self.filled, self.is_file = [], [], filled, False

    def last_writers(self, runs):
        """The ops that have written what is in these bytes, and the bytes that none has written."""
        found = []
        for op, written in reversed(self.writers):
            if not runs:
                break
            if meet(runs, written):
                found.append(op)
                runs = () if written is WHOLE else without(runs, written)
        return found, runs


def demands(rank):
    """(op, bits of those that must be over when it begins) of one rank, from program order alone: a wait adds nothing. None
    instead of bits: there is no order in which the op is right."""
    memory, former, returned, pools, pinned, unread = {}, {}, {}, {}, {}, unread_copies(rank)
    recorded = {op.event: k for k, op in enumerate(rank) if op.kind == "record"}
    for k, op in enumerate(rank):
        if op.kind in ("wait", *HOST_WAITS) and recorded.get(op.event, k) >= k:
            yield op, None
        elif op.kind in ("alloc", "resident"):
            memory[op.buffer] = Memory(filled=op.filled or op.kind == "resident")
            if op.key is not None:
                pools.setdefault(op.key, []).append(Memory())
            former[op.buffer] = returned.get(op.stream, 0)
            pinned[op.buffer] = None
        elif op.kind == "host_alloc":
            queue = pools.setdefault(op.key, [])
            memory[op.buffer] = queue.pop(0) if op.key is not None and queue else Memory()
            memory[op.buffer].writers = []
            pinned[op.buffer] = op.key
            memory[op.buffer].is_file = op.is_file
        elif op.kind == "host_free":
            if memory[op.buffer].is_file:
                yield op, bits_of(use for use, _ in memory[op.buffer].touched)
            if pinned[op.buffer] is not None:
                pools[pinned[op.buffer]].append(memory[op.buffer])
        elif op.kind == "free":
            unmarked = bits_of(use for use, _ in memory[op.buffer].touched if use.stream not in op.marks)
            returned[op.stream] = returned.get(op.stream, 0) | unmarked
        elif op.works:
            yield op, demand_of(op, memory, former, unread)
            for name, runs in zip(op.reads + op.writes, op.read_runs + op.written_runs):
                memory[name].touched.append((op, runs))
            for name, runs in zip(op.writes, op.written_runs):
                memory[name].writers.append((op, runs))


def unread_copies(rank):
    """The copies (by id) whose result is freed before anything reads it."""
    found = set()
    for k, op in enumerate(rank):
        if op.kind not in COPIES or not op.writes:
            continue
        for later in rank[k + 1:]:
            if later.works and op.writes[0] in later.reads:
                break
            if later.kind in ("free", "host_free") and later.buffer == op.writes[0]:
                found.add(id(op))
                break
    return found


def bits_of(ops):
    bits = 0
    for op in ops:
        bits |= op.over
    return bits


def demand_of(op, memory, former, unread):
    demand = 0
    for name, runs in zip(op.reads, op.read_runs):
        writers, _ = memory[name].last_writers(runs)
        if not memory[name].writers and not memory[name].filled:
            return None
        demand |= bits_of(writers)
    for name, runs in zip(op.writes, op.written_runs):
        demand |= bits_of(use for use, seen in memory[name].touched if meet(runs, seen) and
                          (id(use) not in unread or name not in use.reads or name in use.writes))
        if memory[name].last_writers(runs)[1]:
            demand |= former.get(name, 0)
    return demand


class Steps:
    """Two steps of a plan, each rank with what its ops demand; and those of the plan without one of its edges."""

    def __init__(self, ranks):
        self.ranks = two_steps(ranks)
        self.demands = {number: list(demands(rank)) for number, rank in self.ranks.items()}
        self._order()

    def _order(self):
        self.graph = Graph(self.ranks)
        self.over = self.graph.over()

    def without_wait(self, line):
        """What a wait orders is gone; what the other ops demand is the same."""
        made = copy.copy(self)
        made.demands = {number: [(op, demand) for op, demand in demanded if op.line != line]
                        for number, demanded in self.demands.items()}
        if self.over is None or self._is_between_messages(line):
            made.ranks = copy.copy(self.ranks)
            made.ranks.update({number: [op for op in rank if op.line != line] for number, rank in self.ranks.items()})
            made._order()
        else:
            made.over = self.graph.over_without(self._awaited(line), self.over)
        return made

    def _is_between_messages(self, line):
        """Without the wait, the messages before and after it would be one exchange."""
        for rank in self.ranks.values():
            for k, op in enumerate(rank):
                if op.line == line and op.kind == "wait":
                    others = reversed(rank[:k]), rank[k + 1:]
                    beside = [next((o for o in ops if o.stream == op.stream and o.kind not in STREAMLESS), None) for ops in others]
                    if all(o is not None and o.message is not None for o in beside):
                        return True
        return False

    def _awaited(self, line):
        """{node that goes on after the wait: node of the record}."""
        edges = {}
        for rank in self.ranks.values():
            recorded = {}
            for op in rank:
                if op.kind == "record":
                    recorded[op.event] = op.begin + 1
                elif op.line == line and op.event in recorded:
                    edges[op.begin + (op.kind == "wait")] = recorded[op.event]
        return edges

    def without_mark(self, line, mark):
        """The block that a free returns is no longer held for that stream."""
        made = copy.copy(self)
        made.ranks, made.demands = copy.copy(self.ranks), dict(self.demands)
        for number, rank in self.ranks.items():
            if any(op.line == line for op in rank):
                made.ranks[number] = [op.without_mark(mark) if op.line == line else op for op in rank]
                made.demands[number] = list(demands(made.ranks[number]))
        return made

    def conflicts(self):
        """The ops (line numbers) that are not ordered after everything they must be; a deadlock is [-1]."""
        if self.over is None or self.graph.unmet:
            return [-1]
        return sorted({op.line for demanded in self.demands.values() for op, demand in demanded
                       if demand is None or demand & ~self.over[op.begin]})


def conflicts(ranks):
    return Steps(ranks).conflicts()


def conflicts_by_states(ranks):
    """The same of one rank without messages, by going through every state that a machine can be in: how far
    the host has come, how far each stream, and whether the stream is in the middle of its next op."""
    (rank,) = two_steps(ranks).values()
    bits = {op.over: demand for op, demand in demands(rank)}
    demanded = [[k for k, op in enumerate(rank) if op.over & (bits.get(a.over) or 0)] for a in rank]
    found = {op.line for op, demand in demands(rank) if demand is None}
    streams = sorted({op.stream for op in rank if op.works or op.kind in EVENTS})
    queues = [[k for k, op in enumerate(rank)
               if op.stream == s and (op.works or op.kind in EVENTS)] for s in streams]
    place = {k: (s, n) for s, queue in enumerate(queues) for n, k in enumerate(queue)}
    recorded = {op.event: k for k, op in enumerate(rank) if op.kind == "record"}

    def is_over(state, k):
        stream, number = place[k]
        return state[1][stream][0] > number

    def may_pass(state, k):
        record = recorded.get(rank[k].event, len(rank))
        return record > k or is_over(state, record)

    start = (0, tuple((0, False) for _ in streams))
    seen, todo = {start}, [start]
    while todo:
        host, positions = state = todo.pop()
        following = []
        if host < len(rank) and (rank[host].kind not in HOST_WAITS or may_pass(state, host)):
            following.append((host + 1, positions))
        for s, (number, running) in enumerate(positions):
            if number == len(queues[s]) or queues[s][number] >= host:
                continue
            k = queues[s][number]
            if running:
                step = (number + 1, False)
            elif rank[k].kind == "wait" and not may_pass(state, k):
                continue
            else:
                step = (number, True)
                if not all(is_over(state, a) for a in demanded[k]):
                    found.add(rank[k].line)
            following.append((host, positions[:s] + (step,) + positions[s + 1:]))
        for state in following:
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return sorted(found)


def useless_edges(ranks):
    """Lines of waits for what is over by then anyway, and (line, stream) of frees that name a stream which
    has never touched the block."""
    ranks = two_steps(ranks)
    graph = Graph(ranks)
    over = graph.over()
    works = bits_of(op for rank in ranks.values() for op in rank if op.works)
    found = set()
    for rank in ranks.values():
        touched, records = {}, {}
        for op in rank:
            node = op.begin
            if op.kind == "record":
                records[op.event] = node + 1
            elif op.kind in ("wait", *HOST_WAITS) and op.event in records:
                others = [a for a in graph.before[node] if a != records[op.event]]
                before = over[node] if op.kind == "wait" else 0
                for a in others if op.kind in HOST_WAITS else []:
                    before |= over[a]
                if over[records[op.event]] & works & ~before == 0:
                    found.add(op.line)
                else:
                    found.discard(op.line)  # it is of use in the second step
            elif op.kind == "free":
                found |= {(op.line, mark) for mark in op.marks
                          if mark not in touched.get(op.buffer, ())}
            for name in op.reads + op.writes:
                touched.setdefault(name, set()).add(op.stream)
    return found
