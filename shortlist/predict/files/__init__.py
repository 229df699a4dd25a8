"""Files of scores, labels and sets: each kind is read or written in blocks, and named in errors."""
