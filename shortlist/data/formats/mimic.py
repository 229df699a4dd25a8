"""MIMIC-III discharge summaries with ICD-9 codes, in the output of the CAML preprocessing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PARTS, part_name
from shortlist.data.files.table_files import open_table
from shortlist.data.files.text_files import need_folder, text_lines
from shortlist.data.files.vocabularies import LabelSets, NameCodes
from shortlist.data.groups import Groups
from shortlist.data.inputs import Texts
from shortlist.errors import InputError

COLUMNS = ("SUBJECT_ID", "HADM_ID", "TEXT", "LABELS")
FILES = ("train", "dev", "test")

# The first category of each chapter of ICD-9-CM: volume 1 (diagnoses) and volume 3 (procedures).
DIAGNOSES = {
    1: "001-139 infectious and parasitic diseases",
    140: "140-239 neoplasms",
    240: "240-279 endocrine, nutritional, metabolic and immunity disorders",
    280: "280-289 blood and blood-forming organs",
    290: "290-319 mental disorders",
    320: "320-389 nervous system and sense organs",
    390: "390-459 circulatory system",
    460: "460-519 respiratory system",
    520: "520-579 digestive system",
    580: "580-629 genitourinary system",
    630: "630-679 pregnancy, childbirth and the puerperium",
    680: "680-709 skin and subcutaneous tissue",
    710: "710-739 musculoskeletal system and connective tissue",
    740: "740-759 congenital anomalies",
    760: "760-779 conditions originating in the perinatal period",
    780: "780-799 symptoms, signs and ill-defined conditions",
    800: "800-999 injury and poisoning",
}
SUPPLEMENTS = {"V": "V01-V91 factors influencing health status", "E": "E000-E999 external causes of injury"}
PROCEDURES = {
    0: "00 procedures and interventions, not elsewhere classified",
    1: "01-05 operations on the nervous system",
    6: "06-07 operations on the endocrine system",
    8: "08-16 operations on the eye",
    17: "17 other miscellaneous procedures",
    18: "18-20 operations on the ear",
    21: "21-29 operations on the nose, mouth and pharynx",
    30: "30-34 operations on the respiratory system",
    35: "35-39 operations on the cardiovascular system",
    40: "40-41 operations on the hemic and lymphatic system",
    42: "42-54 operations on the digestive system",
    55: "55-59 operations on the urinary system",
    60: "60-64 operations on the male genital organs",
    65: "65-71 operations on the female genital organs",
    72: "72-75 obstetrical procedures",
    76: "76-84 operations on the musculoskeletal system",
    85: "85-86 operations on the integumentary system",
    87: "87-99 miscellaneous diagnostic and therapeutic procedures",
}
CHAPTERS = (*DIAGNOSES.values(), *SUPPLEMENTS.values(), *PROCEDURES.values())


def read_mimic(folder: str | Path, *, version: str | int = "full", codes: Sequence[str] | None = None) -> Dataset:
    """Read discharge summaries and their codes from the output of the CAML preprocessing.

    The folder holds ``train_full.csv``, ``dev_full.csv`` and ``test_full.csv`` (or ``train_50.csv`` and so on) with the
    columns ``SUBJECT_ID, HADM_ID, TEXT, LABELS`` and optionally ``length``, where semicolons separate labels. Or it
    holds ``notes_labeled.csv`` alone, with the split in ``train_full_hadm_ids.csv`` and so on: rows that no list names
    are then left out, and without any list there is no split. Notes are kept in memory. Rows may have no codes.

    Args:
        folder: the folder of the files.
        version: ``full`` for all codes, ``50`` (or the number) for the files of the 50 most frequent ones.
        codes: the labels, in their order; all other codes are dropped, but their rows are kept. None for all codes that
            occur, sorted, as CAML numbers them. To restrict ``notes_labeled.csv`` to the 50 codes, give those.

    Returns:
        Texts with sparse targets. ``split`` has ``train``, ``val`` (the file ``dev``) and ``test``; ``row_groups`` has
        ``patient``; ``label_groups`` has ``category`` (the code before its period) and ``chapter`` of ICD-9-CM.

    Raises:
        InputError: names the file and the line of a wrong row, or of an admission that occurs twice.

    References:
        Mullenbach, Wiegreffe, Duke, Sun & Eisenstein, "Explainable prediction of medical codes from clinical text",
        2018; https://github.com/jamesmullenbach/caml-mimic.
    """
    folder = need_folder(folder)
    if isinstance(version, bool) or str(version) not in ("full", "50"):
        raise InputError(f"`version` must be 'full' or '50'; got {version!r}.")
    version = str(version)
    if isinstance(codes, str):
        raise InputError(f"`codes` must be a sequence of codes; got the text {codes!r}.")
    rows = _split_rows(folder, version)
    texts: list[str] = []
    labels, patients, parts = LabelSets(codes), NameCodes(), NameCodes()
    seen: dict[str, str] = {}
    for part, where, (patient, admission, text, listed) in rows:
        for column, value in (("SUBJECT_ID", patient), ("HADM_ID", admission)):
            if not (value.isascii() and value.isdecimal()):
                raise InputError(f"{where}: {column} must be an integer; got {value!r:.60}.")
        if admission in seen:
            raise InputError(f"{where}: HADM_ID {admission} must occur once; it is also at {seen[admission]}.")
        seen[admission] = where
        texts.append(text)
        labels.add(code for code in map(str.strip, listed.split(";")) if code and labels.allows(code))
        patients.add(patient)
        parts.add(part)
    targets, names = labels.finish()
    split = parts.groups(first=PARTS)
    return Dataset(
        Texts(texts),
        targets,
        names,
        label_groups={
            "category": Groups.of([name.partition(".")[0] for name in names]),
            "chapter": Groups.of([_chapter(name) for name in names], order=CHAPTERS),
        },
        row_groups={"patient": patients.groups()},
        split=split if split.names else None,
        name=f"mimic-{version}",
    )


def _split_rows(folder: Path, version: str) -> Iterator[tuple[str | None, str, list[str]]]:
    """Part, location and cells of all rows, from three files or from one file and three lists."""
    files = {part: folder / f"{part}_{version}.csv" for part in FILES}
    if any(file.exists() for file in files.values()):
        for part, file in files.items():
            for where, cells in _rows(file):
                yield part_name(part), where, cells
        return
    single = folder / "notes_labeled.csv"
    if not single.exists():
        raise InputError(f"`{folder}` holds neither `train_{version}.csv` nor `notes_labeled.csv`.")
    lists = {part: folder / f"{part}_{version}_hadm_ids.csv" for part in FILES}
    if version == "full" and not any(file.exists() for file in lists.values()):
        for where, cells in _rows(single):
            yield None, where, cells
        return
    part_of = _part_of_admission(lists)
    for where, cells in _rows(single):
        if cells[1] in part_of:
            yield part_of[cells[1]], where, cells


def _part_of_admission(lists: dict[str, Path]) -> dict[str, str]:
    part_of: dict[str, str] = {}
    for part, file in lists.items():
        for number, line in text_lines(file):
            admission = line.strip()
            if not admission:
                continue
            if part_of.setdefault(admission, part_name(part)) != part_name(part):
                other = part_of[admission]
                raise InputError(
                    f"`{file}` line {number}: HADM_ID {admission} must be in one part; it is also in {other}."
                )
    return part_of


def _rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Location and the four cells of each row of one file."""
    table = open_table(path, encoding="utf-8", delimiter=",")
    missing = [column for column in COLUMNS if column not in table.columns]
    if missing:
        raise InputError(f"`{path}` line 1: must name the columns {', '.join(COLUMNS)}; {missing[0]} is missing.")
    for block in table.blocks(COLUMNS):
        for row, (subject, admission, text, labels) in enumerate(zip(*block.columns.values(), strict=True)):
            yield block.location(row), [subject.strip(), admission.strip(), text, labels]


def _chapter(code: str) -> str | None:
    """The chapter of ICD-9-CM: procedures have two digits before the period, diagnoses three; None for no code."""
    category = code.partition(".")[0]
    if category[:1] in SUPPLEMENTS and category[1:].isdecimal():
        return SUPPLEMENTS[category[0]]
    if not (category.isascii() and category.isdecimal()):
        return None
    chapters = {2: PROCEDURES, 3: DIAGNOSES}.get(len(category), {})
    below = bisect_right(list(chapters), int(category))
    return list(chapters.values())[below - 1] if below else None
