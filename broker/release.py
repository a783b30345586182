"""Which Apache Kafka this stands for."""

from __future__ import annotations

from typing import Final

KAFKA_VERSION: Final = "4.3.1"
"""The release whose APIs, formats and features these are."""
