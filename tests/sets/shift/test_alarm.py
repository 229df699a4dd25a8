"""The alarm is rarely false, finds shifts, agrees with its definition, and resumes from a file."""

import json
import math
from fractions import Fraction

import pytest
import torch

from shortlist.errors import InputError
from shortlist.sets import AverageError, ShiftAlarm
from tests.sets.worlds import overconfident, seeded


def alarm(seed: int, **options) -> ShiftAlarm:
    return ShiftAlarm(generator=seeded(seed), **options)


def test_the_capital_is_that_of_the_definition():
    values, uniforms = [3.0, 1.0, 2.0, 2.0, 9.0, 2.0], torch.rand(4, dtype=torch.float64, generator=seeded(5)).tolist()
    capital = dict.fromkeys((-1, 0, 1), Fraction(1, 3))
    jump = Fraction(1, 4)
    for step, uniform in enumerate(uniforms):
        before, value = values[: 2 + step], values[2 + step]
        below, equal = sum(v < value for v in before), sum(v == value for v in before)
        p = (below + Fraction(uniform) * (1 + equal)) / (len(before) + 1)
        total = sum(capital.values())
        capital = {e: (1 + e * (p - Fraction(1, 2))) * ((1 - jump) * c + jump / 3 * total) for e, c in capital.items()}
    found = alarm(5, jump=0.25).fit(values[:2]).update(values[2:])
    assert math.exp(found.log_capital) == pytest.approx(float(sum(capital.values())), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("ties", [False, True])
def test_exchangeable_streams_raise_it_at_most_as_often_as_delta(ties):
    repetitions, delta = 400, 0.1
    raised = 0
    for repetition in range(repetitions):
        values = torch.randn(400, generator=seeded(repetition))
        values = values.round() if ties else values
        raised += alarm(repetition, delta=delta).fit(values[:100]).update(values[100:]).raised
    assert raised / repetitions < delta + 4 * math.sqrt(delta * (1 - delta) / repetitions)


@pytest.mark.slow
def test_with_restarts_the_mean_time_to_a_false_alarm_is_at_least_promised():
    """Streams are cut at 600 rows, which only lowers the mean."""
    repetitions, delta, rows = 300, 0.05, 600
    times = []
    for repetition in range(repetitions):
        values = torch.randn(50 + rows, generator=seeded(repetition))
        found = alarm(repetition, delta=delta, restart=True).fit(values[:50]).update(values[50:]).raised_at
        times.append(rows if found is None else found + 1)
    assert sum(times) / repetitions > 1 / delta


@pytest.mark.slow
def test_a_shift_is_found_by_the_sizes_of_sets_and_faster_with_restarts_after_a_quiet_time():
    repetitions, quiet = 200, 1500
    delays = {False: [], True: []}
    for repetition in range(repetitions):
        generator = seeded(repetition)
        known = overconfident(torch.full((300,), 3.0), 5, generator)
        rule = AverageError(0.1).fit(*known, from_logits=False)
        signal = torch.cat([torch.full((quiet,), 3.0), torch.zeros(500)])
        sizes = rule.predict(overconfident(signal, 5, generator)[0], generator=generator).sizes
        before = rule.predict(overconfident(torch.full((300,), 3.0), 5, generator)[0], generator=generator).sizes
        for restart, found in delays.items():
            at = alarm(repetition, restart=restart, delta=0.001).fit(before).update(sizes).raised_at
            found.append(quiet + 500 if at is None else at)
    found = {restart: sum(at >= quiet for at in ats) for restart, ats in delays.items()}
    means = {restart: sum(at for at in ats if at >= quiet) / found[restart] for restart, ats in delays.items()}
    assert found[False] > 0.99 * repetitions
    assert means[True] < means[False] < quiet + 400, means


def test_an_alarm_that_is_saved_and_resumed_goes_on_as_if_nothing_had_happened(tmp_path):
    values = torch.randn(300, generator=seeded(0))
    values[200:] += 1.5
    whole = alarm(1, delta=0.05).fit(values[:50]).update(values[50:])
    parts = alarm(1, delta=0.05).fit(values[:50])
    for some in values[50:].split(47):
        parts.update(some.numpy()).save(tmp_path / "alarm.json")
        parts = ShiftAlarm.load(tmp_path / "alarm.json")
    assert parts.raised_at == whole.raised_at
    assert parts.raised
    assert parts.log_capital == whole.log_capital
    text = (tmp_path / "alarm.json").read_text()
    for change in (
        {"format": "other"},
        {"values": []},
        {"values": "x"},
        {"shares": [0.5, 0.5]},
        {"shares": [0.5, 0.6, -0.1]},
        {"steps": None},
        {"raised_at": 1.5},
        {"log_capital": None},
        {"options": {"delta": 2, "jump": 0.1, "restart": False}},
        {"draw": {"generator": "?", "seen": 0}},
    ):
        (tmp_path / "bad.json").write_text(json.dumps(json.loads(text) | change))
        with pytest.raises(InputError, match=r"bad\.json"):
            ShiftAlarm.load(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ShiftAlarm(0.0), "`delta` must lie strictly between 0 and 1"),
        (lambda: ShiftAlarm(0.1, jump=1.0), "`jump` must lie strictly between 0 and 1"),
        (lambda: ShiftAlarm().fit(torch.zeros(0)), "`values` must have at least one number"),
        (lambda: ShiftAlarm().fit(torch.zeros(3, 1)), r"`values` must be finite numbers of shape \(rows,\)"),
        (lambda: ShiftAlarm().fit([math.nan]), "`values` must be finite"),
        (lambda: ShiftAlarm().update([1.0]), "ShiftAlarm must be fitted before it is updated"),
    ],
)
def test_wrong_input_is_one_sentence(call, match):
    with pytest.raises(ValueError, match=match):
        call()
