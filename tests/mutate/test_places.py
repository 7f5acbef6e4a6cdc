"""Where tests/mutate makes mistakes: only in code, at the same places every time. (The mistakes themselves take hours.)"""

import mutate
import places
from conftest import ROOT

SOURCE = """#include "x.h"
static int limit = 3; /* 1 < 2 */

/* Calls: f(a, b). */
int f(int a, int b)
{
  assert(a < b && "a < b");
  if (a > 4) return 0;
  g("%d < %d", b, a); // a < b
  for (int i = 0; i < b; i++)
    a += h(*p, &a) * 2;
  return a == b ? min_i64(a, 0x10) : 1.5;
}
"""


def found(operator):
    return [(place.line, place.before, place.after) for place in places.places("x.c", SOURCE) if place.operator == operator]


def test_operators():
    assert found("comparison") == [(8, ">", ">="), (10, "<", "<="), (12, "==", "!=")]
    assert found("arithmetic") == [(11, "+=", "-="), (11, "*", "/")]
    assert found("constant") == [(8, "4", "5"), (8, "4", "3"), (8, "0", "1"), (10, "0", "1"), (11, "2", "3"), (11, "2", "1")]
    assert found("condition") == [(8, "(a > 4)", "(!(a > 4))")]
    assert found("dropped") == [(9, 'g("%d < %d", b, a);', "{}"), (11, "a += h(*p, &a) * 2;", "{}")]
    assert found("swapped") == [(9, "b, a", "a, b")]
    assert found("min_max") == [(12, "min", "max")]


def test_a_change_is_one_line():
    for place in places.places("x.c", SOURCE):
        changed = [(old, new) for old, new in zip(SOURCE.splitlines(), place.apply(SOURCE).splitlines()) if old != new]
        assert len(changed) == 1 or place.operator == "early_return"


def test_there_are_enough_of_them_and_they_stay():
    chosen = {}
    for folder in mutate.FOLDERS:
        files = sorted((ROOT / folder).glob("*.c"))
        assert files
        for path in files:
            text = path.read_text()
            chosen[path] = places.chosen(str(path), text, 44, 1)
            assert chosen[path] == places.chosen(str(path), text, 44, 1)
    keys = [place.key for group in chosen.values() for place in group]
    assert len(keys) >= 400 and len(set(keys)) == len(keys)
    assert {place.operator for group in chosen.values() for place in group} == set(places.OPERATORS)
