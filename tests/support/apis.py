"""All APIs, with their modules, for tests that look at each."""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.catalogue import apis

APIS: Final = apis()
