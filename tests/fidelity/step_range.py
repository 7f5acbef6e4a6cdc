"""A measured step beside a prediction of `offsim predict --range --json`."""


def step_s(prediction):
    return float(prediction["result"]["step_time_s"])


def holds(prediction, measured_s):
    """Whether the measured step is in the predicted range."""
    told = prediction["range"]
    return float(told["least_s"]) <= measured_s <= float(told["most_s"])


def share_percent(inside):
    """Of a list of truth values."""
    return 100 * sum(inside) / len(inside)
