"""The disk errors that pass: what is refused now may be taken later. All others end a log directory."""

from __future__ import annotations

import errno
from typing import Final

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The process, or the machine, has as many files open as it may."""
PASSING: Final = NO_SPACE | NO_DESCRIPTOR
