"""Progress on a terminal, elsewhere and where it is not wanted."""

import sys

import pytest

from shortlist import progress
from shortlist.progress import progress_bar


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test advances."""
    now = [100.0]
    monkeypatch.setattr("shortlist.progress.time.monotonic", lambda: now[0])

    def advance(seconds):
        now[0] += seconds

    return advance


def use_terminal(monkeypatch):
    """Make standard error a terminal; capsys replaces it between the fixtures and the test."""
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


def test_elsewhere_a_line_comes_every_half_minute_with_the_time_left(clock, capsys):
    with progress_bar("reading", 100, completed=10, unit="rows") as bar:
        clock(5)
        bar.update(20)
        assert not capsys.readouterr().err
        clock(25)
        bar.update(40)
        clock(10)
        bar.update(50)
    assert capsys.readouterr().err == "reading: 40 of 100 rows, about 60 s left\n"


def test_long_work_says_how_long_as_soon_as_its_pace_is_known(clock, capsys):
    with progress_bar("comparing", 10, unit="runs") as bar:
        clock(2)
        bar.update(0.1)
        assert not capsys.readouterr().err
        clock(2)
        bar.update(0.2)
        assert capsys.readouterr().err == "comparing: 0.2 of 10 runs, about 3.3 min left\n"
        clock(20)
        bar.update(1.2)
        assert not capsys.readouterr().err
        clock(10)
        bar.update(1.7)
    assert capsys.readouterr().err == "comparing: 1.7 of 10 runs, about 2.8 min left\n"


def test_the_first_moments_tell_no_time(clock, capsys):
    with progress_bar("comparing", 10, unit="runs") as bar:
        clock(4)
        bar.update(0.01)
        assert (bar.seconds_left, capsys.readouterr().err) == (None, "")
        clock(17)  # Work that takes hours does not wait for a share of it.
        bar.update(0.05)
        assert capsys.readouterr().err == "comparing: 0.1 of 10 runs, about 69.7 min left\n"


def test_what_was_finished_before_does_not_shorten_the_time_left(clock, capsys):
    with progress_bar("comparing", 10, unit="runs") as bar:
        for done in range(1, 6):  # Runs of an interrupted comparison are found at once.
            clock(0.01)
            bar.update(done)
        clock(60)
        bar.update(6)
    assert capsys.readouterr().err == "comparing: 6 of 10 runs, about 4.0 min left\n"


def test_a_percentage_is_shown_without_a_unit_and_a_better_estimate_is_used(clock, capsys):
    with progress_bar("training", 1.0) as bar:
        clock(31)
        bar.update(0.255, description="fitting", seconds_left=7200)
    assert capsys.readouterr().err == "fitting: 26%, about 2.0 h left\n"


def test_without_a_total_the_amount_alone_is_shown(clock, capsys):
    with progress_bar("counting", unit="rows") as bar:
        clock(31)
        bar.advance(1000)
    assert capsys.readouterr().err == "counting: 1,000 rows, 32 per second\n"


def test_progress_that_is_not_wanted_counts_and_shows_nothing(clock, capsys):
    with progress_bar("reading", 3, shown=False) as bar:
        clock(50)
        bar.advance()
        clock(50)
        bar.advance(0.5)
    assert bar.completed == 1.5
    assert bar.seconds_left == pytest.approx(100)
    assert not capsys.readouterr().err


def test_on_a_terminal_a_bar_appears_when_work_is_long_and_leaves_nothing(clock, monkeypatch, capsys):
    use_terminal(monkeypatch)
    with progress_bar("reading [a]", 10, unit="rows") as bar:
        bar.update(1)
        assert not capsys.readouterr().err
        clock(2)
        bar.update(2.5)
        bar.message("[1] a line that stays")
        clock(2)
        bar.update(5)
    shown = capsys.readouterr().err
    assert "reading [a]" in shown
    assert "2.5 of 10 rows" in shown
    assert "[1] a line that stays\n" in shown
    assert shown.endswith("\x1b[2K")  # The line of the bar is erased.


def test_a_bar_stops_before_an_error_leaves_the_block(clock, monkeypatch, capsys):
    use_terminal(monkeypatch)
    with pytest.raises(ZeroDivisionError), progress_bar("reading", 10, delay=0) as bar:
        bar.update(1 / 0)
    assert capsys.readouterr().err.endswith("\x1b[2K")


def test_without_rich_a_terminal_gets_lines(clock, monkeypatch, capsys):
    use_terminal(monkeypatch)
    monkeypatch.setattr(progress, "_import", lambda name: None)
    with progress_bar("reading", 10) as bar:
        clock(40)
        bar.update(5)
    assert capsys.readouterr().err == "reading: 50%, about 40 s left\n"


def test_preparation_does_not_count_in_the_time_left(clock, capsys):
    with progress_bar("comparing", 10, unit="runs") as bar:
        clock(50)
        bar.update(0)
        capsys.readouterr()
        clock(30)
        bar.update(5)
    assert capsys.readouterr().err == "comparing: 5 of 10 runs, about 30 s left\n"
