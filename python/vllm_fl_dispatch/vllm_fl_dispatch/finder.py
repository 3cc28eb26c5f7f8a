"""Serves `import vllm_fl.dispatch` from this package, whether or not vllm-plugin-FL is installed.

Nothing is written into an installed vllm_fl: a finder on sys.meta_path answers for two names. `vllm_fl.dispatch` is the
package beside this file; an installed vllm_fl lends it the submodules that it has and this has not (the backends). And
`vllm_fl` itself, where none is installed, is an empty package. A .pth file installs the finder when Python starts; once
the wheel is uninstalled all is as it was.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

NAME = "vllm_fl.dispatch"
DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dispatch")


class Finder:
    """For sys.meta_path."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == NAME:
            return _dispatch_spec(path)
        if name == "vllm_fl":
            return _parent_spec()
        return None

    @staticmethod
    def invalidate_caches():
        pass


def _dispatch_spec(path):
    spec = importlib.util.spec_from_file_location(
        NAME, os.path.join(DIRECTORY, "__init__.py"), submodule_search_locations=[DIRECTORY]
    )
    spec.submodule_search_locations.extend(
        found for found in (os.path.join(entry, "dispatch") for entry in path or ()) if os.path.isdir(found)
    )
    return spec


def _parent_spec():
    """None where one is installed: it is found as ever."""
    if importlib.machinery.PathFinder.find_spec("vllm_fl") is not None:
        return None
    spec = importlib.machinery.ModuleSpec("vllm_fl", None, is_package=True)
    spec.submodule_search_locations = []
    return spec


def install() -> None:
    """Once; in front, since an installed vllm_fl has a dispatch of its own."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
