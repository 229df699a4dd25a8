"""Experiment files: errors name the file."""

import pytest

from shortlist.evidence import read_experiments
from tests.evidence.toy_experiments import CONFIG, write_experiments


def test_experiments_come_in_the_order_of_claims_and_numbers(tmp_path):
    folder = write_experiments(tmp_path)
    (folder / "sets-table-1.yaml").write_text(CONFIG.format(item=1, claim=0))
    assert list(read_experiments(folder)) == ["sets-table-1", "lml-table-2", "lml-table-10"]


def test_a_folder_without_experiments_says_so(tmp_path):
    with pytest.raises(ValueError, match="holds no experiments"):
        read_experiments(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("claim: 1", "claim: one"), "`claim` has the wrong type; got 'one'"),
        (("title: Ours and the other", ""), "`title` is missing"),
        (("study: toy:study", "study: toy"), "`study` must be module:function; got 'toy'"),
        (("published:", "publishd:"), "keys must be among .*; got 'publishd'"),
        (("settings: {seeds: [0, 1]}", "setting: {}"), "`settings` is missing"),
        (("minutes: 1", "minutes: soon"), "`minutes` has the wrong type; got 'soon'"),
        (("title: Ours", "title: [Ours"), "cannot be read"),
        (
            ("published:", "claims: [{text: Ours wins}]\npublished:"),
            "each of `claims` must have the texts `text` and",
        ),
    ],
)
def test_errors_name_the_file(tmp_path, change, message):
    text = CONFIG.format(item=1, claim=1)
    assert change[0] in text
    (tmp_path / "lml-table-1.yaml").write_text(text.replace(*change))
    with pytest.raises(ValueError, match=rf"lml-table-1\.yaml`.*{message}"):
        read_experiments(tmp_path)
