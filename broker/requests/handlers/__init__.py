"""One module per API: `handle(services, context, request)` answers it. A module is imported at the first request of its
API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.requests import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__)
