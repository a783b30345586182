"""Disk errors that may pass: the operation failed, and may succeed later. All others take a log directory offline."""

from __future__ import annotations

import errno
from typing import Final

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The process, or the machine, has as many files open as its limit allows."""
PASSING: Final = NO_SPACE | NO_DESCRIPTOR
