"""Loggers of the dispatcher, under the names that they have always had.

The host logs to "flhost"; what it says of dispatching is said here, by "vllm_fl.dispatch.manager".
"""

from __future__ import annotations

import logging
import os
import sys
import threading

_FORMAT = "[%(asctime)s] [%(levelname)s] [%(name)s] %(message)s"
_DATE = "%Y-%m-%d %H:%M:%S"
_lock = threading.Lock()
_loggers: dict[str, logging.Logger] = {}


def _level_of(word: str) -> int:
    level = getattr(logging, word.upper(), None)
    return level if isinstance(level, int) else logging.INFO


_LEVEL = _level_of(os.environ.get("VLLM_FL_LOG_LEVEL", "INFO"))


def get_logger(name: str = "vllm_fl.dispatch") -> logging.Logger:
    """The logger of that name; one without handlers gets one that writes to standard error."""
    with _lock:
        logger = _loggers.get(name)
        if logger is not None:
            return logger
        logger = logging.getLogger(name)
        if not logger.handlers:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter(_FORMAT, _DATE))
            logger.addHandler(handler)
            logger.propagate = False
            logger.setLevel(_LEVEL)
        _loggers[name] = logger
        return logger


def set_log_level(level: str, name: str | None = None) -> None:
    """Of all loggers that were got, or of one of these; a word that is no level means INFO."""
    number = _level_of(level)
    with _lock:
        for logger in _loggers.values() if name is None else filter(None, [_loggers.get(name)]):
            logger.setLevel(number)
    _tell_host_level()


def _tell_host_level() -> None:
    """What nobody would see the host's logger need not make."""
    logging.getLogger("flhost").setLevel(
        min(logging.getLogger("vllm_fl.dispatch.manager").getEffectiveLevel(), logging.INFO)
    )


class _FromHost(logging.Handler):
    """Hands the host's lines on."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = logging.getLogger("vllm_fl.dispatch.manager")
        if record.getMessage().startswith("OpManager initialized"):
            return  # the manager says it, with what Python registered
        if logger.isEnabledFor(record.levelno):
            logger.handle(
                logging.LogRecord(
                    logger.name, record.levelno, record.pathname, record.lineno, record.getMessage(), None, None
                )
            )


def take_over_host_log() -> None:
    """Once: the host's lines go where the dispatcher's go, and nowhere else."""
    get_logger()
    host = logging.getLogger("flhost")
    if not any(isinstance(handler, _FromHost) for handler in host.handlers):
        host.addHandler(_FromHost())
        host.propagate = False
        _tell_host_level()
