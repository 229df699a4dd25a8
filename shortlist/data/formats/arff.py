"""Multi-label ARFF files as Mulan and MEKA write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PARTS, part_name
from shortlist.data.files.text_files import need_file, text_lines
from shortlist.data.formats.arff_header import Attribute, Header, read_header
from shortlist.data.formats.arff_labels import LABEL_VALUES, PART, label_places
from shortlist.data.formats.arff_rows import ArffRows, RowReader
from shortlist.data.groups import Groups
from shortlist.data.inputs import Features, Inputs, Texts
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.target_rows import sparse_targets

_MOST_UNTOLD = 2**31


def read_arff(
    path: str | Path,
    *,
    labels: str | Path | Sequence[str] | None = None,
    test: str | Path | None = None,
    missing: float | None = None,
    encoding: str = "utf-8",
) -> Dataset:
    r"""Read a multi-label ARFF file, or a train and a test file.

    Mulan lists the labels in an XML file beside the data, ``name.xml``. MEKA states in the name of the relation how
    many of the first attributes are labels (``-C 5``), or of the last (``-C -5``), and may state how many of the first
    rows are for training (``-split-number 391``); its other options are left alone. A label is 0 or 1; ``?`` is
    unknown. Rows in full make dense features, rows in braces sparse ones; a nominal feature becomes the place of its
    value among those that are declared, from 0, as in Weka. A file whose one feature is a string gives texts.

    Args:
        path: a file; if it is called ``name-train.arff`` and there is a ``name-test.arff``, both are read, and so is a
            ``name-val.arff``. Or a folder with one such group, or with one file.
        labels: an XML file, or the names of the attributes that are labels; by default MEKA's option, else the XML file
            of the same name (without ``-train``), else the only XML file in the folder.
        test: the file of the test rows, with the same attributes.
        missing: what ``?`` becomes in a feature; None to refuse it.
        encoding: of the text; older files may need ``latin-1``.

    Returns:
        Features of float32 and sparse targets; the labels in the order of the attributes; a split if one is stated.

    Raises:
        ValueError: names file and line where a rule is broken.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> text = "@relation 'Music: -C 2'\n@attribute sad {0,1}\n@attribute calm {0,1}\n"
        >>> text += "@attribute tempo real\n@data\n"
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "music.arff").write_text(text + "0,1,60.5\n1,?,72\n")
        ...     music = read_arff(f"{folder}/music.arff")
        >>> music[1].labels, music[1].unknown, music[1].input
        (('sad',), ('calm',), tensor([72.]))

    References:
        Tsoumakas et al., "Mulan: a Java library for multi-label learning", 2011; Read et al., "MEKA: a multi-label
        extension to Weka", 2016.
    """
    files = _files(Path(path), None if test is None else Path(test))
    train, *others = files.values()
    header, rows, labelled = _read(train, labels, missing, encoding, None)
    names, number = list(files), header.option("split-number")
    parts = [rows, *(_read(file, labels, missing, encoding, (header, labelled, train))[1] for file in others)]
    sizes = [len(part) for part in parts]
    if not others and number is not None:
        if not 0 <= number <= len(rows):
            raise ValueError(f"`{train}` has {len(rows)} rows; its relation says {number} of them are for training.")
        names, sizes = ["train", "test"], [number, len(rows) - number]
    features = [at for at in range(len(header.attributes)) if at not in set(labelled)]
    inputs, targets = _tensors(_joined(parts, list(files.values())), header, features, labelled, train)
    split = Groups(torch.arange(len(names)).repeat_interleave(torch.tensor(sizes)), tuple(names))
    return Dataset(
        inputs,
        targets,
        tuple(header.attributes[at].name for at in labelled),
        split=split if len(names) > 1 else None,
        name=header.relation or train.stem,
    )


def _read(
    path: Path,
    labels: str | Path | Sequence[str] | None,
    missing: float | None,
    encoding: str,
    like: tuple[Header, list[int], Path] | None,
) -> tuple[Header, ArffRows, list[int]]:
    lines = text_lines(path, encoding=encoding)
    header = read_header(lines, path)
    if like is None:
        places = label_places(path, header, labels)
    else:
        first, places, other = like
        _refuse_different(header.attributes, first.attributes, path, other)
    text = _text_place(path, header, places)
    return header, RowReader(header, places, text, missing).read(lines, path), places


def _text_place(path: Path, header: Header, labels: list[int]) -> int | None:
    features = [at for at in range(len(header.attributes)) if at not in set(labels)]
    for at in features:
        attribute = header.attributes[at]
        if attribute.kind == "string" and len(features) == 1:
            return at
        if attribute.kind in ("string", "date"):
            raise ValueError(
                f"`{path}`: attribute {attribute.name!r} must be numeric or nominal, or a string and the only feature; "
                f"got {attribute.kind}."
            )
    return None


def _tensors(
    rows: ArffRows, header: Header, features: list[int], labels: list[int], path: Path
) -> tuple[Inputs, Tensor]:
    if rows.full is None:
        return _sparse_tensors(rows, header, features, labels, path)
    if rows.texts is not None:
        labels = [at - (at > features[0]) for at in labels]  # The text is not among the columns.
        inputs: Inputs = Texts(rows.texts)
    else:
        inputs = Features(torch.from_numpy(np.ascontiguousarray(rows.full[:, features])))
    told = rows.full[:, labels]
    row, label = np.nonzero(told)
    return inputs, sparse_targets(row, label, len(rows), len(labels), present=told[row, label] > 0)


def _sparse_tensors(
    rows: ArffRows, header: Header, features: list[int], labels: list[int], path: Path
) -> tuple[Inputs, Tensor]:
    row = np.repeat(np.arange(len(rows)), rows.counts)
    place = np.full(len(header.attributes), -1, dtype=np.int64)
    place[labels] = np.arange(len(labels))
    label = place[rows.columns]
    told, stored = label >= 0, rows.values != 0
    # What a row leaves out has the first value of those declared, which is 1 for a label declared {1,0}.
    reversed_labels = [at for at in labels if header.attributes[at].choices[:1] and _first(header.attributes[at]) == 1]
    if reversed_labels and len(rows) * len(labels) > _MOST_UNTOLD:
        raise ValueError(
            f"`{path}`: label {header.attributes[reversed_labels[0]].name!r} must not be declared with 1 first, which "
            f"makes it present where rows leave it out; got too many, {len(rows)} rows of {len(labels)} labels."
        )
    untold = np.zeros((len(rows), len(labels)), dtype=bool) if reversed_labels else np.zeros((0, 0), dtype=bool)
    if reversed_labels:
        untold[:, place[reversed_labels]] = True
        untold[row[told], label[told]] = False
    more_rows, more_labels = np.nonzero(untold)
    known = told & stored
    targets = sparse_targets(
        np.concatenate([row[known], more_rows]),
        np.concatenate([label[known], more_labels]),
        len(rows),
        len(labels),
        present=np.concatenate([rows.values[known] > 0, np.ones(len(more_rows), dtype=bool)]),
    )
    place[labels], place[features] = -1, np.arange(len(features))
    column = place[rows.columns]
    kept = (column >= 0) & stored
    crow = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=len(rows)))]).astype(np.int64)
    columns, values = column[kept].astype(np.int32), rows.values[kept]
    inputs = SparseRows(torch.from_numpy(crow), torch.from_numpy(columns), torch.from_numpy(values), len(features))
    return inputs, targets


def _first(attribute: Attribute) -> float:
    return LABEL_VALUES[attribute.choices[0]]


def _joined(parts: list[ArffRows], files: list[Path]) -> ArffRows:
    if len(parts) == 1:
        return parts[0]
    filled = [part for part in parts if len(part)] or parts[:1]
    first = filled[0]
    for part, file in zip(parts, files, strict=True):
        if len(part) and (part.full is None) != (first.full is None):
            other = files[parts.index(first)]
            raise ValueError(f"`{file}`: rows must be in braces exactly if those of `{other}` are.")
    return ArffRows(
        None if first.full is None else np.concatenate([part.full for part in filled if part.full is not None]),
        None if first.texts is None else [text for part in filled for text in part.texts or ()],
        np.concatenate([part.counts for part in filled]),
        np.concatenate([part.columns for part in filled]),
        np.concatenate([part.values for part in filled]),
    )


def _refuse_different(found: Sequence[Attribute], wanted: Sequence[Attribute], path: Path, other: Path) -> None:
    if len(found) != len(wanted):
        raise ValueError(f"`{path}` must have the {len(wanted)} attributes of `{other}`; got {len(found)}.")
    for at, (one, two) in enumerate(zip(found, wanted, strict=True)):
        if one != two:
            raise ValueError(f"`{path}`: attribute {at}, {one.name!r}, must be declared as in `{other}`.")


def _files(path: Path, test: Path | None) -> dict[str, Path]:
    """The file of each part, train first; a single file may hold all of them."""
    if not path.is_dir():
        path = need_file(path)
        return _group(path) if test is None else {"train": path, "test": need_file(test)}
    if test is not None:
        raise ValueError(f"`test` must be None where `path` is a folder; got `{test}`.")
    found = sorted(file for file in path.iterdir() if file.name.lower().removesuffix(".gz").endswith(".arff"))
    groups = [group for file in found if len(group := _group(file)) > 1]
    if len(groups) == 1:
        return groups[0]
    if len(found) == 1:
        return {"train": found[0]}
    names = ", ".join(file.name for file in found[:6]) + (", ..." if len(found) > 6 else "")
    raise ValueError(f"`{path}` must hold one ARFF file or one pair, -train and -test; got {names or 'none'}.")


def _group(path: Path) -> dict[str, Path]:
    """A train file and those of the other parts beside it, whose names differ in the part only; else the file alone."""
    own = PART.fullmatch(path.name)
    if own is None or part_name(own[3]) != "train":
        return {"train": path}
    found = {"train": path}
    for file in sorted(path.parent.iterdir()):
        other = PART.fullmatch(file.name)
        if other is None or not file.is_file() or part_name(other[3]) == "train":
            continue
        if [(other[place] or "").lower() for place in (1, 2, 4, 5)] == [
            (own[place] or "").lower() for place in (1, 2, 4, 5)
        ]:
            part = part_name(other[3])
            if part in found:
                raise ValueError(f"`{file}` and `{found[part].name}` must not both be there, being the part {part!r}.")
            found[part] = file
    return {part: found[part] for part in PARTS if part in found}
