"""Files that users bring, whatever the format: text, JSON, arrays, tables, split names and label vocabularies."""
