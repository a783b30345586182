"""The authorization rules of the APIs: which permissions a request needs. They run before the handlers on a node with
an authorizer. A module is imported when a rule of it is first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.requests import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__)
