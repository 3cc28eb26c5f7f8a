"""What the wheel of the drop-in needs: flhost of its own version, whose private names it uses, and PyYAML."""

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        metadata["dependencies"] = [f"flhost=={metadata['version']}", "PyYAML"]
