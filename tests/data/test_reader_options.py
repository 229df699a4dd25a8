"""Options of readers: texts become what the types of the readers say, or one sentence."""

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Literal, get_args, get_type_hints

import pytest
import torch

from shortlist.data.opening import FORMATS, reader_options
from shortlist.typed_values import read_entries


def read(
    path: Path,
    *,
    size: int | tuple[int, int] | None = None,
    column: str | Sequence[str] | None = None,
    columns: Sequence[str] = (),
    values: Sequence[float] | None = None,
    share: float | None = None,
    file: str | Path | bool | None = None,
    which: Literal["all", "some"] = "all",
    dtype: torch.dtype = torch.float32,
    loose=None,
) -> None:
    """Take an option of each type."""


def options_of(texts, reader):
    return reader_options(read_entries(texts, "--reader", parse=False), reader)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("size=8", 8),
        ("size=[8, 9]", (8, 9)),
        ("size=null", None),
        ("column=5", "5"),
        ("column=true", "true"),
        ("column=a=b", "a=b"),
        ("column=", ""),
        ('column="5"', "5"),
        ('column=["a", "b"]', ("a", "b")),
        ("column=[1, 2]", "[1, 2]"),
        ("column=NaN", "NaN"),
        ("column=Infinity", "Infinity"),
        ("columns=a", ("a",)),
        ("columns=[]", ()),
        ("values=[1, 0.5]", (1, 0.5)),
        ("share=1", 1),
        ("share=0.5", 0.5),
        ("file=false", False),
        ("file=0", "0"),
        ("which=some", "some"),
        ("which=none", "none"),  # The reader says which there are.
        ("loose=[1, [2]]", (1, (2,))),
    ],
)
def test_a_value_is_what_the_reader_takes(option, value):
    (found,) = options_of([option], read).values()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["size=abc"],
            "reader option `size` must be a whole number or a list of 2, each a whole number or null; got 'abc'.",
        ),
        (["size=[8]"], "got '[8]'."),
        (["size=[8, 1.5]"], "got '[8, 1.5]'."),
        (["size=true"], "got 'true'."),
        (["share=[1]"], "reader option `share` must be a number or null; got '[1]'."),
        (["values=[true]"], "reader option `values` must be a list, each a number or null; got '[true]'."),
        (["dtype=float32"], "reader option `dtype` must be a dtype, which cannot be given as text; got 'float32'."),
        (["size"], "--reader must be NAME=VALUE, or an object like '{name: value}'; got 'size'."),
        (["a b=1"], "got 'a b=1'."),
        (["[size]"], "got '[size]'."),
        (["format=x"], "must be among size, column, columns, values, share, file, which, dtype, loose; got 'format'."),
    ],
)
def test_a_mistake_is_one_sentence(options, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        options_of(options, read)
    assert str(caught.value).endswith(message)
    assert str(caught.value).startswith(("--reader ", "reader option"))


def test_an_object_replaces_what_came_before_and_an_entry_adds_to_it():
    assert options_of(["share=1", "{size: [1, 2], column: a}", "column=b"], read) == {"size": (1, 2), "column": "b"}


def test_deep_nesting_is_text():
    text = "[" * 100_000
    assert options_of([f"column={text}"], read) == {"column": text}


def takes(reader, option: str, text: str) -> bool:
    try:
        return bool(options_of([f"{option}={text}"], reader))
    except ValueError as error:
        return pytest.fail(str(error)) if f"reader option `{option}` must be " not in str(error) else False


@pytest.mark.parametrize("name", FORMATS)
def test_the_types_of_every_reader_are_understood(name):
    reader = FORMATS[name].read
    hints = get_type_hints(reader)
    options = {given.name for given in signature(reader).parameters.values() if given.kind is given.KEYWORD_ONLY}
    assert options <= hints.keys()
    for option in options - {"dtype"}:
        assert any(takes(reader, option, text) for text in ("5", "true", "[8, 8]", "a"))
        # Whatever may be left out may be null.
        assert takes(reader, option, "null") or type(None) not in get_args(hints[option])
    if "size" in options:
        assert options_of(["size=[8, 8]"], reader) == {"size": (8, 8)}
