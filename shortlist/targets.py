"""The four forms of labels, recognized by type and never by value.

===================  ================  ================  ==========================================================
form                 shape             dtype             meaning
===================  ================  ================  ==========================================================
class indices        ``(*rows,)``      int64             exactly one label per row
index lists          ``(*rows, m)``    int64             the labels of the row; -1, only trailing, pads; m is not n
multi-hot            ``(*rows, n)``    bool or floating  1 present, 0 absent, negative unknown
sparse (COO or CSR)  ``(rows, n)``     bool or floating  the same; what is not stored is absent
===================  ================  ================  ==========================================================

Class indices and index lists share a dtype, so the number of row dimensions (``row_dims``, by default one) decides
between them. Int64 tables with n columns are refused, because they may also be multi-hots: `from_multi_hot` and
`from_indices` say what integers are. `target_form` looks at types and shapes only. `check_target` and the ``to_...``
conversions read the values and raise ValueError with the row that breaks a rule. `sum_over_positives`,
`count_positives`, `count_known` and `fill_unknown` are for use inside losses: they trust the values, never synchronize
with the device, take O(labels) memory beside the logits for index and sparse forms, and compile with
``fullgraph=True`` (except for sparse tensors, which torch does not compile). Results stay on the device of the target.
Only `to_multi_hot` and `unknown_mask` turn sparse labels into a dense tensor.
"""

from shortlist.labels.conversions import (
    check_target,
    count_known,
    count_positives,
    fill_unknown,
    from_indices,
    from_multi_hot,
    sum_over_positives,
    to_class_indices,
    to_index_lists,
    to_multi_hot,
    to_pairs,
    to_sparse,
    unknown_mask,
)
from shortlist.labels.reading import TargetForm, stored_entries, target_form

__all__ = [
    "TargetForm",
    "check_target",
    "count_known",
    "count_positives",
    "fill_unknown",
    "from_indices",
    "from_multi_hot",
    "stored_entries",
    "sum_over_positives",
    "target_form",
    "to_class_indices",
    "to_index_lists",
    "to_multi_hot",
    "to_pairs",
    "to_sparse",
    "unknown_mask",
]
