"""One experiment per published table and figure; see README.md."""
