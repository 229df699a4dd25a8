"""Documents as plain dicts, for the parts of the report that do not take `ComparisonDocument` yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shortlist import comparison_document
from shortlist.comparison_document import comparison_file

__all__ = ["comparison_file", "read_comparison"]


def read_comparison(path: str | Path) -> dict[str, Any]:
    """Read a document with `shortlist.comparison_document.read_comparison`, as a dict."""
    return comparison_document.read_comparison(path).to_json()
