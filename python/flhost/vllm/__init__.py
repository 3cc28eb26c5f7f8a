"""flhost in vLLM: what its two entry points call.

`register` (vllm.general_plugins) is called in every process that vLLM starts, and may be called again. From then on the
layers that flhost's op entries name run through flhost. Nothing else of this package is imported by anyone but vLLM.
"""

from __future__ import annotations

__all__ = ["platform", "register"]


def register() -> None:
    """Makes vLLM's layers of this process run through flhost. An invalid setting of VLLM_FL_* is an error here, before
    a model is loaded."""
    from . import plugin

    plugin.register()


def platform() -> str | None:
    """The platform of vLLM's that VLLM_FL_PLATFORM asks for; None, and vLLM chooses, if it asks for none: two platforms
    from outside vLLM would end it."""
    from . import platforms

    return platforms.requested()
