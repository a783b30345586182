"""The receipts of erase orders, which each broker with a replica gives to DescribeConfigs of the topic, as read-only
settings: `moldau.erase.PARTITION.ORDER.PAGE`.

    moldau.erase.0.0a1b….0    the first 30,000 characters of the receipt, JSON; an empty value behind its end

DIVERGES: Apache Kafka has no such settings. As `moldau.history` of a group they are given only to a request that names
them. A receipt comes in pages because Java clients read no string of 32 KiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from moldau.broker.config.describing import ConfigEntry, told_entry
from moldau.protocol.erase_orders import RECEIPT_PAGES_MAX
from moldau.storage.erasure.receipts import receipt_path

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services

PAGE_SIZE: Final = 30_000
DOCUMENTATION: Final = "What an erase order removed from the replica of this broker: JSON, for `moldau erase`."
_NAME: Final = re.compile(r"moldau\.erase\.(\d{1,10})\.([0-9a-f]{32})\.(\d{1,6})")


def receipt_entries(services: Services, topic: str, names: Iterable[str]) -> list[ConfigEntry]:
    """The pages of receipts among these settings; none for a partition without a replica on this broker."""
    receipt = cache(partial(_receipt, services))
    entries = []
    for match in [found for name in names if (found := _NAME.fullmatch(name))][:RECEIPT_PAGES_MAX]:
        partition = services.replicas.get(topic, int(match[1]))
        if partition is not None:
            begin = int(match[3]) * PAGE_SIZE
            page = receipt(partition.log.directory, match[2])[begin : begin + PAGE_SIZE]
            entries.append(told_entry(match[0], page.decode(), DOCUMENTATION))
    return entries


def _receipt(services: Services, directory: str, order_id: str) -> bytes:
    """A whole receipt; empty if the order was not begun here."""
    try:
        return bytes(services.environment.fs.read(receipt_path(directory, order_id)))
    except OSError:
        return b""
