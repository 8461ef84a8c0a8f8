"""Where the time goes: `profile` records each op forward and each node backward, fused groups with their
parts.

Nothing here costs anything while no profile is active.
"""

from __future__ import annotations

from .events import Event as Event
from .events import EventList as EventList
from .events import Summary as Summary
from .profile import profile as profile
from .profile import record_function as record_function
from .profile import supported_activities as supported_activities
from .schedule import ProfilerAction as ProfilerAction
from .schedule import ProfilerActivity as ProfilerActivity
from .schedule import schedule as schedule
from .schedule import tensorboard_trace_handler as tensorboard_trace_handler
