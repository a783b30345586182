"""Transient disk errors: the same operation may succeed later. All others take a log directory offline."""

from __future__ import annotations

import errno
from typing import Final

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The errors for too many open files, in the process or in the machine."""
PASSING: Final = NO_SPACE | NO_DESCRIPTOR
