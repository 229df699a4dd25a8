"""The one reading of labels, made once per call: every loss, metric and set rule takes its target as `Labels`."""

from shortlist.labels.labels import Labels
from shortlist.labels.reading import TargetForm, list_labels, read_labels, stored_entries, target_form

__all__ = ["Labels", "TargetForm", "list_labels", "read_labels", "stored_entries", "target_form"]
