"""One name for each part, however it is spelled."""

import pytest

from shortlist.data.files.part_names import PARTS, SPELLINGS, part_keys, part_name


@pytest.mark.parametrize(("part", "spelling"), [(part, name) for part, names in SPELLINGS.items() for name in names])
def test_capitals_and_blanks_do_not_make_another_part(part, spelling):
    for text in (spelling, spelling.upper(), spelling.title(), f" {spelling}\n"):
        assert part_name(text) == part


def test_each_usual_name_is_its_own_spelling_and_no_spelling_is_shared():
    assert tuple(SPELLINGS) == PARTS
    assert all(part in names for part, names in SPELLINGS.items())
    spellings = [name for names in SPELLINGS.values() for name in names]
    assert len(set(spellings)) == len(spellings)


def test_other_names_stay_as_they_are():
    assert [part_name(text) for text in ("Holdout", "test2", "", "train val", "Ümlaut")] == [
        "Holdout",
        "test2",
        "",
        "train val",
        "Ümlaut",
    ]


def test_keys_of_parts_are_found_in_the_order_of_parts():
    assert part_keys(["F_TEST", "F_dev", "F_Train", "F", "F_mean", "FF_train"], "F", "`a`") == {
        "train": "F_Train",
        "val": "F_dev",
        "test": "F_TEST",
    }
    assert part_keys(["y_coarse_train"], "y", "`a`") == {}
    with pytest.raises(ValueError, match=r"^`a`: 'F_val' and 'F_dev' both are the part 'val'; one of them must go\.$"):
        part_keys(["F_val", "F_dev"], "F", "`a`")
