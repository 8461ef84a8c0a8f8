"""Arrays on devices: dtypes, devices, backends and versions."""

from .backend import Backend as Backend
from .backend import backend_of as backend_of
from .device import Device as Device
from .storage import Storage as Storage
from .storage import ViewStorage as ViewStorage
