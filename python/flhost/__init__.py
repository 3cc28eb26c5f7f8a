"""flhost: operators for machine learning, by the plugins of whoever has a faster one."""

from ._core import __version__

__all__ = ["__version__"]
