"""``python -m shortlist``."""

from shortlist.cli import main

raise SystemExit(main())
