"""Days on which all cases recorded on one GPU type took longer, or less long, than on its other days.

Nothing but the machine, and who else used it, is common to all cases of such a day. A cell is a case on a day: by how much
its measured step exceeds the predicted one, which divides out what images and versions of Megatron-LM change. Tukey's
median polish splits the logarithms of cells into an effect of the case and one of the day.
"""
import collections
import math
import statistics

# A day counts as the recorder's if SHARE of at least LEAST_CASES cases, which were recorded on other days, too, are off by more
# than MOST, all on one side.
LEAST_CASES, SHARE, MOST = 3, 0.9, 1.12
# Two days alone do not say which of them is the odd one.
LEAST_DAYS = 3
TURNS = 50


def compared(cells):
    """Groups of cells {(case, day): value} that share cases, directly or by other days; without cases of one day."""
    days = collections.Counter(case for case, _ in cells)
    left = {key: value for key, value in cells.items() if days[key[0]] > 1}
    while left:
        group, cases, before = {}, {next(iter(left))[0]}, -1
        while len(group) != before:
            before = len(group)
            met = {day for case, day in left if case in cases}
            cases |= {case for case, day in left if day in met}
            group = {key: value for key, value in left.items() if key[0] in cases}
        left = {key: value for key, value in left.items() if key not in group}
        yield group


def polish(cells):
    """Effects of cases and of days: the median cell has no effect of its day."""
    effects = [collections.defaultdict(float), collections.defaultdict(float)]
    for _ in range(TURNS):
        for which in (0, 1):
            rest = collections.defaultdict(list)
            for key, value in cells.items():
                rest[key[which]].append(value - effects[1 - which][key[1 - which]])
            effects[which] = {name: statistics.median(values) for name, values in rest.items()}
    cases, days = effects
    middle = statistics.median(days[day] for _, day in cells)
    return {case: effect + middle for case, effect in cases.items()}


def factors(cells):
    """By day: sorted factors of its cases against their other days. cells: {(case, day): measured over predicted}."""
    found = {}
    for group in compared({key: math.log(value) for key, value in cells.items()}):
        if len({day for _, day in group}) < LEAST_DAYS:
            continue
        cases = polish(group)
        for (case, day), value in group.items():
            found.setdefault(day, []).append(math.exp(value - cases[case]))
    return {day: sorted(values) for day, values in found.items() if len(values) >= LEAST_CASES}


def is_the_recorders(values):
    """Of factors()."""
    least = math.ceil(SHARE * len(values))
    return sum(v > MOST for v in values) >= least or sum(v < 1 / MOST for v in values) >= least
