"""Which days' steps show the recorder's machine (recorded_days.py)."""
import pytest

import recorded_days

CASES = ["dense", "experts", "pipeline", "virtual", "tensor"]
OWN = dict(zip(CASES, (0.8, 1.6, 1.0, 1.1, 0.9)))  # measured over predicted: what the prediction of each case misses
DAYS = ["2025-04-04", "2025-07-05", "2025-10-12", "2026-01-16"]


def cells(factor, cases=CASES, day="2025-07-05"):
    """Each case on each day, with some noise; on one day the cases take `factor` times as long."""
    return {(case, d): OWN[case] * (1.02 if (i + j) % 2 else 0.99) * (factor if d == day and case in cases else 1)
            for i, case in enumerate(CASES) for j, d in enumerate(DAYS)}


def odd_days(found):
    return [day for day, values in recorded_days.factors(found).items() if recorded_days.is_the_recorders(values)]


@pytest.mark.parametrize("factor", [0.6, 0.8, 1.3, 20])
def test_a_slow_and_a_fast_day_are_found_alike(factor):
    assert odd_days(cells(factor)) == ["2025-07-05"]
    assert recorded_days.factors(cells(factor))["2025-07-05"] == pytest.approx([factor] * 5, rel=0.05)


@pytest.mark.parametrize("factor", [0.95, 1, 1.08])
def test_days_that_differ_little_are_kept(factor):
    assert odd_days(cells(factor)) == []


def test_what_some_cases_share_is_not_the_day():
    assert odd_days(cells(1.5, cases=CASES[:3])) == []


def test_a_day_with_two_cases_that_others_have_says_nothing():
    few = {key: value for key, value in cells(1.5).items() if key[1] != "2025-07-05" or key[0] in CASES[:2]}
    few["other case", "2025-07-05"] = 3.0
    assert "2025-07-05" not in recorded_days.factors(few)


def test_of_two_days_none_is_the_odd_one():
    assert recorded_days.factors({key: v for key, v in cells(1.5).items() if key[1] in DAYS[:2]}) == {}


def test_days_without_a_common_case_are_not_compared():
    apart = {("apart " + case, "2027" + day[4:]): 3 * value for (case, day), value in cells(1).items()}
    assert odd_days({**cells(1.5), **apart}) == ["2025-07-05"]
    assert recorded_days.factors({**cells(1.5), **apart})["2027-07-05"] == pytest.approx([1] * 5, rel=0.05)
