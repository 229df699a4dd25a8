"""Sets of labels as columns: record batches that are appended one by one, and the Parquet file that is made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shortlist.cli.set_lines import SetRows, row_groups
from shortlist.extras import require
from shortlist.sets import PredictionSets

# A row group ends after so many rows or labels: enough for columns to be read fast, and few enough to hold.
_ROWS, _LABELS = 1 << 17, 1 << 20


class SetColumns:
    """Record batches in the stream format of Arrow, which a killed process leaves readable up to any batch.

    Columns are ``row`` or ``id``, ``labels`` (numbers) and ``scores`` (lists, best first).

    Args:
        begun: the file of batches that is gone on with, or None; it says what types the columns have.
    """

    def __init__(self, begun: Path | None = None) -> None:
        self._arrow = require("pyarrow", extra="data")
        self._schema: Any = None
        if begun is not None:
            with self._arrow.OSFile(str(begun)) as file, self._arrow.ipc.open_stream(file) as stream:
                self._schema = stream.schema

    def begin(self, rows: SetRows) -> bytes:
        """What stands before the first batch."""
        arrow = self._arrow
        kind = arrow.float64() if rows.sets.scores.dtype == torch.float64 else arrow.float32()
        self._schema = arrow.schema(
            [
                (rows.key, arrow.int64() if rows.key == "row" else arrow.string()),
                ("labels", arrow.list_(arrow.int32())),
                ("scores", arrow.list_(kind)),
            ]
        )
        return self._schema.serialize().to_pybytes()

    def batches(self, rows: SetRows) -> Iterator[memoryview]:
        """Some rows, as they are appended to the stream."""
        for first, last in row_groups(rows.sets, _LABELS):
            yield self._batch(rows.rows[first:last], rows.sets[first:last])

    def _batch(self, rows: Sequence[int | str], sets: PredictionSets) -> memoryview:
        arrow, schema = self._arrow, self._schema
        ends = arrow.array(sets.indptr.numpy().astype(np.int32))
        labels = arrow.array(sets.labels.numpy().astype(np.int32))
        scores = arrow.array(sets.scores.numpy()).cast(schema.field("scores").type.value_type)
        columns = [
            arrow.array(np.asarray(rows) if schema.names[0] == "row" else list(rows), schema.field(0).type),
            arrow.ListArray.from_arrays(ends, labels),
            arrow.ListArray.from_arrays(ends, scores),
        ]
        return memoryview(arrow.record_batch(columns, names=schema.names).cast(schema).serialize())


def write_parquet(batches: Path, output: Path, names: Sequence[str] | None) -> None:
    """Make one Parquet file of a stream of batches, with the names of labels instead of their numbers."""
    arrow, parquet = require("pyarrow", extra="data"), require("pyarrow.parquet", extra="data")
    known = None if names is None else arrow.array(names, arrow.string())
    with arrow.OSFile(str(batches)) as file, arrow.ipc.open_stream(file) as stream:
        schema = stream.schema
        if known is not None:
            schema = schema.set(1, arrow.field("labels", arrow.list_(arrow.string())))
        with parquet.ParquetWriter(output, schema) as writer:
            held, rows, labels = [], 0, 0
            for batch in stream:
                held.append(batch if known is None else _named(arrow, batch, known, schema))
                rows, labels = rows + batch.num_rows, labels + len(batch.column("labels").values)
                if rows >= _ROWS or labels >= _LABELS:
                    writer.write_table(arrow.Table.from_batches(held, schema), row_group_size=rows)
                    held, rows, labels = [], 0, 0
            if held:
                writer.write_table(arrow.Table.from_batches(held, schema), row_group_size=rows)


def _named(arrow: Any, batch: Any, names: Any, schema: Any) -> Any:
    numbers = batch.column("labels")
    named = arrow.ListArray.from_arrays(numbers.offsets, names.take(numbers.values))
    return arrow.record_batch([batch.column(0), named, batch.column("scores")], schema=schema)
