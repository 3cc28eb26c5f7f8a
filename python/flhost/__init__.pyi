"""flhost: operators for machine learning, by the plugins of whoever has the fastest."""

from . import ops as ops
from ._core import (
    AlreadyExists as AlreadyExists,
    ConfigError as ConfigError,
    DeviceError as DeviceError,
    Error as Error,
    InternalError as InternalError,
    InvalidArgument as InvalidArgument,
    NoImplementation as NoImplementation,
    NotFound as NotFound,
    NotSupported as NotSupported,
    Op as Op,
    OutOfMemory as OutOfMemory,
    PluginError as PluginError,
    Policy as Policy,
    Prepared as Prepared,
    StateError as StateError,
    WrongType as WrongType,
    __version__ as __version__,
)
from ._host import (
    Host as Host,
    Scope as Scope,
    allow_vendors as allow_vendors,
    default_host as default_host,
    deny_vendors as deny_vendors,
    op_order as op_order,
    policy as policy,
    prefer as prefer,
    prepare as prepare,
    strict as strict,
)
