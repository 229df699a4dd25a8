"""Which attributes of an ARFF file are labels: by MEKA's option, by Mulan's XML list, or by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.parsers import expat

from shortlist.data.files.part_names import SPELLINGS
from shortlist.data.files.text_files import need_file
from shortlist.data.formats.arff_header import Header

PART = re.compile(
    rf"(.*?)([-_]?)({'|'.join(name for names in SPELLINGS.values() for name in names)})([-_].*)?\.arff(\.gz)?",
    re.IGNORECASE,
)
"""A file name that says which part of the data it holds."""

LABEL_VALUES = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "?": -1.0}
"""How a label may be written; a question mark is unknown."""

_MULAN = "http://mulan.sourceforge.net/labels"


def label_places(path: Path, header: Header, labels: str | Path | Sequence[str] | None) -> list[int]:
    """Ascending numbers of the attributes that are labels."""
    count = next((value for value in map(header.option, "Cc") if value is not None), None)
    if labels is None and count is not None:
        if not 0 < abs(count) <= len(header.attributes):
            raise ValueError(
                f"`{path}`: -C in the relation must name 1 to {len(header.attributes)} attributes; got {count}."
            )
        first = 0 if count > 0 else len(header.attributes) + count
        places = list(range(first, first + abs(count)))
    else:
        if labels is None or isinstance(labels, (str, Path)):
            source = _xml_beside(path) if labels is None else need_file(labels)
            names, told = label_names(source), f"`{source}`"
        else:
            names, told = list(labels), "`labels`"
            if not names:
                raise ValueError("`labels` must name at least one attribute; got none.")
        number = {attribute.name: at for at, attribute in enumerate(header.attributes)}
        for name in names:
            if name not in number:
                raise ValueError(f"{told}: label {name!r} must be an attribute of `{path}`.")
        places = sorted({number[name] for name in names})
    for at in places:
        attribute = header.attributes[at]
        fits = set(attribute.choices) <= set(LABEL_VALUES) - {"?"} if attribute.choices else attribute.kind == "numeric"
        if not fits:
            shown = ",".join(attribute.choices) if attribute.choices else attribute.kind
            raise ValueError(
                f"`{path}`: label {attribute.name!r} must be declared {{0,1}} or numeric; got {shown[:60]}."
            )
    return places


def _xml_beside(path: Path) -> Path:
    part = PART.fullmatch(path.name)
    stems = [path.name.lower().removesuffix(".gz").removesuffix(".arff"), part[1].lower() if part else ""]
    found = sorted(file for file in path.parent.iterdir() if file.suffix.lower() == ".xml")
    for stem in stems:
        for file in found:
            if file.stem.lower() == stem:
                return file
    if len(found) == 1:
        return found[0]
    raise ValueError(f"`{path}` states no labels: give `labels`, or put an XML file of the same name beside it.")


def label_names(path: Path) -> list[str]:
    """The names in Mulan's XML list of labels, outer ones before those within; entities and DTDs are refused."""
    names: dict[str, bool] = {}
    parser = expat.ParserCreate(namespace_separator=" ")

    def begin(tag: str, attributes: dict[str, str]) -> None:
        place = f"`{path}` line {parser.CurrentLineNumber}"
        plain = tag.removeprefix(f"{_MULAN} ")
        if plain != ("label" if started else "labels"):
            raise ValueError(f"{place}: must be a list <labels> of <label>; got <{plain[:40]}>.")
        if started and "name" not in attributes:
            raise ValueError(f"{place}: a label must have a name.")
        if started:
            if attributes["name"] in names:
                raise ValueError(f"{place}: label {attributes['name']!r} must stand once; got it twice.")
            names[attributes["name"]] = True
        started.append(True)

    def refuse(*_: Any) -> None:
        raise ValueError(f"`{path}` line {parser.CurrentLineNumber}: must not declare a document type or entities.")

    started: list[bool] = []
    parser.StartElementHandler = begin
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(path.read_bytes(), True)
    except expat.ExpatError as error:
        raise ValueError(f"`{path}` line {error.lineno} is not XML: {expat.ErrorString(error.code)}.") from error
    if not names:
        raise ValueError(f"`{path}` must list at least one label.")
    return list(names)
