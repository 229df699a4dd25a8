"""The label doctor: annotations that are probably wrong or missing, and the rows worth labeling next."""

from shortlist.doctor.label_issues import LabelIssues
from shortlist.doctor.label_sets import find_label_issues
from shortlist.doctor.one_class import find_wrong_classes
from shortlist.doctor.uncertain_rows import UncertainRows, rows_to_label

__all__ = ["LabelIssues", "UncertainRows", "find_label_issues", "find_wrong_classes", "rows_to_label"]
