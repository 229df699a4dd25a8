"""The page of a comparison: cards, tables, charts and examples in one self-contained file."""
