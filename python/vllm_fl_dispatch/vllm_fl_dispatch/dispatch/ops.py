"""The base class of Python backends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class VLLMFLBackendBase(ABC):
    """A backend: what it is called, whether it can run here, and a method for each op that it has."""

    @abstractmethod
    def is_available(self) -> bool:
        """Can it be used on this machine?"""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name."""

    @property
    def vendor(self) -> str | None:
        """Its vendor; None if it is nobody's."""
        return None

    @abstractmethod
    def silu_and_mul(self, x: Any) -> Any:
        """SiLU of the first half of x's last dimension, times the second."""

    @abstractmethod
    def gelu_and_mul(self, x: Any, approximate: str = "none") -> Any:
        """GELU of the first half of x's last dimension, times the second."""

    @abstractmethod
    def rms_norm(self, x: Any, residual: Any | None, weight: Any, epsilon: float) -> Any:
        """x normalised by its root mean square; with a residual, of the sum, which is given back, too."""

    @abstractmethod
    def rotary_embedding(
        self,
        query: Any,
        key: Any,
        cos: Any,
        sin: Any,
        position_ids: Any,
        rotary_interleaved: bool = False,
        inplace: bool = True,
    ) -> Any:
        """Query and key, rotated by their positions."""

    @abstractmethod
    def attention_backend(self, use_mla: bool = False, use_sparse: bool = False) -> str:
        """The path of the attention backend's class."""
