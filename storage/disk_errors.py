"""The disk errors that pass: what a full disk refuses now it may take later."""

from __future__ import annotations

import errno

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
