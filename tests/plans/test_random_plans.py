"""Random plans: `offsim check` must say of each whether it is safe as two oracles do (tests/plans/oracle.py):
the closure of its order, and, of short ones, every state that a machine can be in."""

import json
import random

import pytest

import oracle

STREAMS = ["compute", "d2h", "h2d"]
SHAPE = "bf16[4096,1024] 8388608 bytes"
ELEMENTS = 4096 * 1024


class Writer:
    """Puts down a plan of one rank that is well formed, and otherwise as chance wants."""

    def __init__(self, seed, length):
        self.random = random.Random(seed)
        self.lines, self.events, self.buffers = [], 0, 0
        self.device, self.host, self.filled = {}, {}, set()
        for _ in range(2):
            self.resident()
        while len(self.lines) < length:
            self.random.choice([self.alloc, self.kernel, self.kernel, self.copy_out, self.copy_out,
                                self.copy_in, self.join, self.join, self.free, self.host_free,
                                self.host_wait])()

    def text(self):
        return "\n".join(["offsim-plan 1", "ranks 1", "", "rank 0"] + self.lines) + "\n"

    def put(self, kind, stream, rest):
        self.lines.append(f"  {kind:10} {stream:8} {rest}")

    def number(self):
        self.buffers += 1
        return f"%{self.buffers - 1}"

    def resident(self):
        name = self.number()
        self.device[name] = "compute"
        self.put("resident", "compute", f"{name} x {SHAPE} saved")

    def alloc(self):
        name, pool = self.number(), self.random.choice(["compute", "h2d"])
        self.device[name] = pool
        self.put("alloc", pool, f"{name} x {SHAPE} saved")

    def kernel(self):
        if self.device:
            read, written = (self.random.choice(list(self.device)) for _ in range(2))
            stream = self.random.choice(["compute", "compute", "h2d"])
            parts = self.random.choice([1, 1, 2, 4])  # of each buffer it sees a half, or a quarter
            seen = ["" if parts == 1 else f"{{bf16+{self.random.randrange(2 * parts - 1) * ELEMENTS // parts // 2}:"
                    f"{ELEMENTS // parts}}}" for _ in range(2)]
            self.put("kernel", stream, f"elementwise bf16 elements={ELEMENTS // parts} {4 * ELEMENTS // parts} bytes "
                     f"{read}{seen[0]} -> {written}{seen[1]}")

    def copy_out(self):
        if self.device:
            name, key = self.number(), self.random.choice(["", " key 1", " key 1"])
            self.host[name] = key
            self.put("host_alloc", "host", f"{name} x {SHAPE} pinned_host{key}")
            self.put("d2h", self.random.choice(["d2h", "d2h", "compute"]),
                     f"{self.random.choice(list(self.device))} -> {name}")

    def copy_in(self):
        if self.device and self.host:
            self.put("h2d", self.random.choice(["h2d", "h2d", "compute"]),
                     f"{self.random.choice(list(self.host))} -> "
                     f"{self.random.choice(list(self.device))}")

    def record(self):
        self.put("record", self.random.choice(STREAMS), f"e{self.events}")
        self.events += 1
        return f"e{self.events - 1}"

    def join(self):
        event = self.record()
        self.put("wait", self.random.choice(STREAMS), event)

    def host_wait(self):
        if self.random.random() < 0.3:
            self.put("host_wait", "host", self.record())

    def free(self):
        if len(self.device) > 1:
            name = self.random.choice(list(self.device))
            marks = [s for s in STREAMS if s != self.device[name] and self.random.random() < 0.3]
            self.put("free", self.device.pop(name),
                     name + (" after " + " ".join(marks) if marks else ""))

    def host_free(self):
        if self.host:
            name = self.random.choice(list(self.host))
            del self.host[name]
            self.put("host_free", "host", name)


class RankWriter(Writer):
    """One of several ranks that send each other messages and meet in collectives, mostly those of a common list."""

    def __init__(self, seed, number, ranks, common):
        self.rank, self.ranks, self.common = number, ranks, common
        super().__init__(seed, 0)
        self.resident()
        self.kernel()
        for meeting in self.mine():
            for _ in range(self.random.randrange(3)):
                self.random.choice([self.kernel, self.kernel, self.join, self.join, self.join])()
            self.meet(*meeting)

    def mine(self):
        """Now and then one is missing, or two come in another order."""
        mine = [m for m in self.common if self.rank in m[1]]
        if self.random.random() < 0.06 and len(mine) > 1:
            i = self.random.randrange(len(mine) - 1)
            mine[i], mine[i + 1] = mine[i + 1], mine[i]
        collective = [m for m in mine if m[0] in GROUPS]
        if self.random.random() < 0.05 and collective:
            mine.remove(self.random.choice(collective))
        return mine

    def text(self):
        return "\n".join([f"rank {self.rank}"] + self.lines) + "\n"

    def own(self, stream):
        """A buffer that mostly only one stream uses."""
        return self.random.choice(list(self.device)) if self.random.random() < 0.07 else OWN[stream]

    def kernel(self):
        name = self.own("compute")
        self.put("kernel", "compute", f"elementwise bf16 elements=4194304 16777216 bytes {name} -> {name}")

    def meet(self, what, ranks, stream):
        name = self.own(stream)
        if what in GROUPS:
            size, stride = GROUPS[what]
            self.put("collective", stream, f"all_reduce {what} of {size} stride {stride} 8388608 bytes {name} -> {name}")
        elif self.rank == ranks[0]:
            self.put("send", stream, f"msg {what} to rank {ranks[1]} 8388608 bytes {name}")
        else:
            self.put("recv", stream, f"msg {what} from rank {ranks[0]} 8388608 bytes -> {name}")


OWN = {"compute": "%0", "comm": "%1", "d2h": "%2"}
# Of four ranks that represent two global ranks each: (size, stride).
GROUPS = {"world": (8, 1), "embd": (2, 6), "dp": (4, 1), "tp": (2, 1)}
MEMBERS = {"world": (0, 1, 2, 3), "embd": (0, 3), "dp": (0, 1, 2, 3), "tp": (0, 1, 2, 3)}


def ranks_text(seed):
    chance, common, messages = random.Random(seed), [], 0
    for _ in range(chance.randrange(2, 7)):
        stream = chance.choice(["comm", "comm", "compute", "d2h"])
        if chance.random() < 0.5:
            group = chance.choice(list(GROUPS))
            common.append((group, MEMBERS[group], stream))
        else:
            common.append((str(messages), tuple(chance.sample(range(4), 2)), stream))
            messages += 1
    ranks = [RankWriter(f"{seed}.{number}", number, 4, common) for number in range(4)]
    return "offsim-plan 1\nranks 4 of 8\n\n" + "\n".join(rank.text() for rank in ranks)


def is_safe(offsim, text):
    done = offsim("check", "--plan", "-", "--json", stdin=text)
    assert done.status in (0, 1), done.stderr
    return not [finding for finding in json.loads(done.stdout)["findings"]
                if finding["severity"] == "error" and finding["kind"] not in ("leak", "mismatched_messages")]


@pytest.mark.parametrize("length", [10, 16, 24, 60])
def test_random_plans(offsim, request, length):
    seeds = 400 if request.config.getoption("--all-configurations") else 60
    counts = {True: 0, False: 0}
    for seed in range(seeds):
        text = Writer(f"{length}.{seed}", length).text()
        ranks = oracle.read(text)
        expected = oracle.conflicts(ranks)
        if length <= 24:
            assert oracle.conflicts_by_states(ranks) == expected, text
        counts[not expected] += 1
        assert is_safe(offsim, text) == (not expected), text
    if length <= 16:
        assert min(counts.values()) > 0, counts


def test_random_plans_of_several_ranks(offsim, request):
    seeds = 2000 if request.config.getoption("--all-configurations") else 150
    counts = {True: 0, False: 0}
    for seed in range(seeds):
        text = ranks_text(f"ranks.{seed}")
        expected = oracle.conflicts(oracle.read(text))
        counts[not expected] += 1
        assert is_safe(offsim, text) == (not expected), text
    assert min(counts.values()) > seeds / 10, counts
