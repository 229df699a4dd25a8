"""The links of the package: to the repository that builds it, and to none if that has no public address."""

from __future__ import annotations

import os
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CustomMetadataHook(MetadataHookInterface):
    """Fills in ``[project.urls]`` from what GitHub's runners, and others like them, say of the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the links."""
        server, repository = (os.environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY"))
        home = f"{server}/{repository}" if server and repository else ""
        paths = {"Repository": "", "Issues": "/issues", "Changelog": "/blob/HEAD/CHANGELOG.md"}
        metadata["urls"] = {name: home + path for name, path in paths.items()} if home else {}
