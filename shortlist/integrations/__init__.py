"""Other libraries at home here: one file for each, which imports it when the file is imported."""
