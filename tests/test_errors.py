"""What a user can mend is one line of bounded length, whatever the file holds."""

import pickle

import pytest

from shortlist.errors import ChoiceError, InputError


@pytest.mark.parametrize("make", [InputError, lambda message: ChoiceError(message, [])], ids=["input", "choice"])
def test_a_sentence_is_one_line_that_keeps_its_beginning_and_its_end(make):
    assert str(make("`a.csv`: must be  x.")) == "`a.csv`: must be  x."
    assert str(make("`a\n b.csv`\u2028 must\r\nbe x.")) == "`a b.csv` must be x."
    shown = str(make(f"`a.csv`: got {'x' * 10**6}; give `label`."))
    assert shown.startswith("`a.csv`: got x")
    assert shown.endswith("x; give `label`.")
    assert len(shown) < 1000
    assert str(make("y" * 1000)) == "y" * 1000


def test_a_sentence_crosses_processes():
    again = pickle.loads(pickle.dumps(InputError("`a.csv`\nis empty.")))
    assert (type(again), str(again)) == (InputError, "`a.csv` is empty.")
