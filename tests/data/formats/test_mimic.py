"""MIMIC-III with ICD-9 codes, in the files that the CAML preprocessing writes."""

import csv
from functools import partial

import pytest

from shortlist.data.formats.mimic import read_mimic
from tests.data.datasets import labels_of, parts_of, values_of
from tests.data.refusals import refuses_to_read

refuses = partial(refuses_to_read, read_mimic)

HEADER = "SUBJECT_ID,HADM_ID,TEXT,LABELS,length\n"
TRAIN = (
    HEADER + "6,107064,admission date chronic renal failure,403.91;584.9;55.69;E878.0,5\n7,118037,newborn,V30.00,1\n"
)
DEV = HEADER + "6,200001,second stay,403.91;96.04,2\n"
TEST = HEADER + "9,150750,no codes at all,,4\n"


@pytest.fixture
def folder(tmp_path):
    for part, text in (("train", TRAIN), ("dev", DEV), ("test", TEST)):
        (tmp_path / f"{part}_full.csv").write_text(text)
    return tmp_path


def test_the_three_files_of_the_preprocessing_are_read(folder):
    notes = read_mimic(folder)
    assert notes.label_names == ("403.91", "55.69", "584.9", "96.04", "E878.0", "V30.00")
    assert labels_of(notes) == [("403.91", "55.69", "584.9", "E878.0"), ("V30.00",), ("403.91", "96.04"), ()]
    assert parts_of(notes) == (("train", "val", "test"), [0, 0, 1, 2])
    assert notes.inputs.batch(notes.split.members("val")) == ["second stay"]
    patients = notes.row_groups["patient"]
    assert values_of(patients) == ["6", "7", "6", "9"]


def test_codes_have_their_category_and_chapter(folder):
    notes = read_mimic(folder)
    category, chapter = notes.label_groups["category"], notes.label_groups["chapter"]
    assert values_of(category) == ["403", "55", "584", "96", "E878", "V30"]
    assert [chapter.names[i].split()[0] for i in chapter.index.tolist()] == [
        "390-459",
        "55-59",
        "580-629",
        "87-99",
        "E000-E999",
        "V01-V91",
    ]
    assert chapter.names[0].startswith("390-459"), "chapters keep the order of the classification"


@pytest.mark.parametrize(
    ("code", "chapter"),
    [
        ("001.1", "001-139"),
        ("139", "001-139"),
        ("140.0", "140-239"),
        ("999.9", "800-999"),
        ("00.66", "00"),
        ("17.1", "17"),
        ("99.04", "87-99"),
        ("05.9", "01-05"),
        ("86.", "85-86"),
        ("V91", "V01-V91"),
        ("000.1", None),
        ("nan", None),
        ("7", None),
    ],
)
def test_the_bounds_of_chapters(tmp_path, code, chapter):
    (tmp_path / "notes_labeled.csv").write_text(f"SUBJECT_ID,HADM_ID,TEXT,LABELS\n1,2,x,{code}\n")
    groups = read_mimic(tmp_path).label_groups["chapter"]
    found = groups.names[groups.index[0]].split()[0] if groups.index[0] >= 0 else None
    assert found == chapter


def test_the_version_names_the_files(folder):
    for part in ("train", "dev", "test"):
        (folder / f"{part}_50.csv").write_text(
            f"SUBJECT_ID,HADM_ID,TEXT,LABELS,length\n1,{len(part)}{part[0] == 'd':d},x,401.9,1\n"
        )
    assert read_mimic(folder, version="50").label_names == ("401.9",)
    refuses(folder, "`version` must be 'full' or '50'; got '10'", version="10")


def test_one_file_with_lists_of_admissions_gives_the_same_split(folder, tmp_path_factory):
    single = tmp_path_factory.mktemp("single")
    with open(single / "notes_labeled.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["SUBJECT_ID", "HADM_ID", "TEXT", "LABELS"])
        for text in (DEV, TRAIN, TEST):
            writer.writerows(line.split(",")[:4] for line in text.splitlines()[1:])
        writer.writerow(["3", "999", "in no list", "001.0"])
    for part, text in (("train", TRAIN), ("dev", DEV), ("test", TEST)):
        ids = [line.split(",")[1] for line in text.splitlines()[1:]]
        (single / f"{part}_full_hadm_ids.csv").write_text("\n".join(ids) + "\n")
    one, three = read_mimic(single), read_mimic(folder)
    assert len(one) == len(three) == 4
    assert one.label_names == three.label_names
    for part in ("train", "val", "test"):
        assert labels_of(one.part(part)) == labels_of(three.part(part))


def test_one_file_without_lists_has_no_split(tmp_path):
    (tmp_path / "notes_labeled.csv").write_text("SUBJECT_ID,HADM_ID,TEXT,LABELS\n1,2,x,401.9\n")
    assert read_mimic(tmp_path).split is None
    refuses(tmp_path, "train_50_hadm_ids.csv` does not exist", version="50")


def test_given_codes_are_the_labels_in_their_order_and_rows_stay(folder):
    notes = read_mimic(folder, codes=["96.04", "250.00", "403.91"])
    assert notes.label_names == ("96.04", "250.00", "403.91")
    assert labels_of(notes) == [("403.91",), (), ("96.04", "403.91"), ()]
    with pytest.raises(ValueError, match="`codes` must be a sequence"):
        read_mimic(folder, codes="96.04")


def test_long_notes_quotes_marks_and_windows_ends_are_read(folder):
    limit = csv.field_size_limit()
    long = "word " * 60_000
    text = '\ufeffSUBJECT_ID,HADM_ID,TEXT,LABELS\r\n1,2,"' + long + '",401.9\r\n3,4,"said ""no"",\r\nthen é",401.9\r\n'
    (folder / "train_full.csv").write_bytes(text.encode())
    texts = read_mimic(folder).inputs.batch(read_mimic(folder).part_rows("train"))
    assert texts == [long, 'said "no",\r\nthen é']
    assert csv.field_size_limit() == limit


def test_missing_files_are_named(folder, tmp_path_factory):
    (folder / "dev_full.csv").unlink()
    refuses(folder, "dev_full.csv` does not exist")
    empty = tmp_path_factory.mktemp("empty")
    refuses(empty, "holds neither `train_full.csv` nor `notes_labeled.csv`")


def test_an_admission_in_two_lists_is_refused(tmp_path):
    (tmp_path / "notes_labeled.csv").write_text("SUBJECT_ID,HADM_ID,TEXT,LABELS\n1,2,x,401.9\n")
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}_full_hadm_ids.csv").write_text("2\n" if part != "dev" else "\n")
    refuses(tmp_path, "test_full_hadm_ids.csv` line 1: HADM_ID 2 must be in one part; it is also in train")
