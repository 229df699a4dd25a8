"""Plain tables: CSV, TSV, JSON lines and Parquet with a row for each example."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.data.dataset import Dataset
from shortlist.data.files.part_names import PARTS, part_name
from shortlist.data.files.table_files import TableFile, open_table
from shortlist.data.formats.table_columns import (
    ClassColumn,
    LabelColumns,
    LabelListColumn,
    NameColumn,
    NotNumbersError,
    NumberColumns,
    TextColumns,
)


def read_table(
    path: str | Path,
    *,
    text: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: str | Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    separator: str = ";",
    split: str | None = None,
    groups: Sequence[str] | None = None,
    encoding: str = "utf-8",
) -> Dataset:
    r"""Read a table of texts or numbers with labels.

    The ending says what the file is: ``.csv``, ``.tsv`` (quotes as in CSV), ``.jsonl`` or ``.ndjson``, these also in
    ``.gz`` or ``.xz``, and ``.parquet`` (needs ``shortlist[data]``). The argument, never a value, says whether a row
    has one class (``label``) or a set of labels (``labels``). The table is read into memory, numbers as float32. Errors
    count lines of text from 1 and rows of Parquet from 0, as the dataset does.

    Args:
        path: the file.
        text: a column, or several, which are joined by a space; None for ``text`` if there is one.
        features: columns of numbers, or a name like ``x_*`` for all that begin so; in JSON and Parquet a column may
            hold lists of as many numbers in each row. None without texts for all columns that nothing else asks for.
        label: the column with the class of each row. None without ``labels`` for ``labels`` or ``label``, whichever
            there is.
        labels: one column with a set of labels: a list, or names between separators, where an empty cell is an empty
            set. Or several columns, or a name like ``tag_*``, that hold 1 for present, 0 for absent, -1 for unknown.
        label_names: the labels in their order, others are refused; None for those that occur, sorted (by value, if all
            are whole numbers). Not for labels in columns, which have the columns' names.
        separator: between the names in a cell of ``labels``.
        split: the column with the part of each row; None for ``split`` if there is one. Names as ``Training``,
            ``validation``, ``dev`` and ``TEST`` are read as ``train``, ``val`` and ``test``.
        groups: columns that become ``row_groups``; None for ``source`` if there is one.
        encoding: of text files.

    Returns:
        The dataset; class indices for ``label``, sparse targets for ``labels``.

    Raises:
        ValueError: names the file and the line (or row) for what is missing or wrong.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from shortlist.data.formats.tables import read_table
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.csv").write_text("text,labels,split\nred rose,rose;red,train\nold,,test\n")
        ...     flowers = read_table(Path(folder, "a.csv"))
        >>> flowers[0]
        Example(input='red rose', labels=('red', 'rose'), unknown=(), split='train')
    """
    table = open_table(path, encoding=encoding)
    roles = _roles(
        table,
        text=text,
        features=features,
        label=label,
        labels=labels,
        label_names=label_names,
        separator=separator,
        split=split,
        groups=groups,
    )
    readers = [roles.inputs, roles.target, roles.parts, *roles.members.values()]
    try:
        for block in table.blocks(list(dict.fromkeys(name for reader in readers for name in reader.columns))):
            for reader in readers:
                reader.add(block)
    except NotNumbersError as error:
        if features is not None:
            raise
        # All columns that nothing else asks for were taken, and not all of them are features.
        raise ValueError(f"{str(error).removesuffix('.')}; `features` may name the columns of numbers.") from error
    return Dataset(
        roles.inputs.settle(),
        *roles.target.settle(),
        row_groups={name: member.codes.groups() for name, member in roles.members.items()},
        split=roles.parts.codes.groups(first=PARTS) if roles.parts.columns else None,
        name=table.path.name.split(".")[0],
    )


def input_columns(path: str | Path, *, encoding: str = "utf-8", **options: Any) -> dict[str, list[str]]:
    """Which columns `read_table` takes as inputs with the same options, by the name of the option: text or features.

    Raises:
        ValueError: as `read_table`; no row is read.
    """
    inputs = _roles(open_table(path, encoding=encoding), **options).inputs
    return {"text" if isinstance(inputs, TextColumns) else "features": list(inputs.columns)}


class _Roles(NamedTuple):
    """What the columns of a table are for."""

    inputs: TextColumns | NumberColumns
    target: ClassColumn | LabelListColumn | LabelColumns
    parts: NameColumn
    members: dict[str, NameColumn]


def _roles(
    table: TableFile,
    *,
    text: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: str | Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    separator: str = ";",
    split: str | None = None,
    groups: Sequence[str] | None = None,
) -> _Roles:
    if text is not None and features is not None:
        raise TypeError("`text` and `features` must not both be given, a row has one kind of input.")
    if label is not None and labels is not None:
        raise TypeError("`label` and `labels` must not both be given, a row has one class or a set of labels.")
    if not separator:
        raise ValueError("`separator` must not be empty.")
    if label is None and labels is None:
        found = [name for name in ("labels", "label") if name in table.columns]
        if len(found) != 1:
            raise ValueError(
                f"`{table.path}`: name the column of labels by `label` or `labels`; it has {_names(table)}."
            )
        label, labels = (found[0], None) if found == ["label"] else (None, found[0])
    target = _target_reader(table, label, labels, label_names, separator)
    split_columns = named_columns(table, "split", _usual("split", table) if split is None else [split])
    names = named_columns(table, "groups", _usual("source", table) if groups is None else groups)
    inputs = _input_reader(table, text, features, {*target.columns, *split_columns, *names})
    return _Roles(
        inputs, target, NameColumn(split_columns, renamed=part_name), {name: NameColumn([name]) for name in names}
    )


def _target_reader(
    table: TableFile,
    label: str | None,
    labels: str | Sequence[str] | None,
    names: Sequence[str] | None,
    separator: str,
) -> ClassColumn | LabelListColumn | LabelColumns:
    if label is not None:
        return ClassColumn(named_columns(table, "label", [label])[0], names)
    if isinstance(labels, str) and not labels.endswith("*"):
        return LabelListColumn(named_columns(table, "labels", labels)[0], names, separator)
    if names is not None:
        raise TypeError("`label_names` must not be given for labels in columns, which have the columns' names.")
    columns = named_columns(table, "labels", labels or ())
    if not columns:
        raise ValueError("`labels` must name at least one column; got none.")
    begin = len(labels) - 1 if isinstance(labels, str) else 0
    return LabelColumns(columns, [column[begin:] for column in columns])


def _input_reader(
    table: TableFile, text: str | Sequence[str] | None, features: str | Sequence[str] | None, taken: set[str]
) -> TextColumns | NumberColumns:
    if text is None and features is None and "text" in table.columns and "text" not in taken:
        text = "text"
    if text is not None:
        return TextColumns(named_columns(table, "text", text))
    rest = [name for name in table.columns if name and name not in taken]
    columns = named_columns(table, "features", rest if features is None else features)
    if not columns:
        raise ValueError(f"`{table.path}`: has no column of text or features; it has {_names(table)}.")
    return NumberColumns(columns)


def _usual(name: str, table: TableFile) -> Sequence[str]:
    return (name,) if name in table.columns else ()


def named_columns(table: TableFile, argument: str, names: str | Sequence[str]) -> list[str]:
    """The columns that are meant, each of which must be there; a single name may end in ``*``.

    Raises:
        ValueError: names the file, the column that is not there, and the argument that asks for it.
    """
    found = []
    for name in [names] if isinstance(names, str) else names:
        begin = name[:-1] if name.endswith("*") and isinstance(names, str) else None
        meant = [column for column in table.columns if (column == name if begin is None else column.startswith(begin))]
        if not meant:
            raise ValueError(
                f"`{table.path}`: has no column {name!r}, which `{argument}` names; it has {_names(table)}."
            )
        found += meant
    return found


def _names(table: TableFile) -> str:
    listed = ", ".join(map(repr, table.columns[:12]))
    return listed + (f" and {len(table.columns) - 12} more" if len(table.columns) > 12 else "") or "none"
