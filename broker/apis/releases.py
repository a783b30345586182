"""Earlier releases of Apache Kafka whose API versions a node can serve instead of its own, for tests of clients
(`moldau.emulated.release`).

Source: the message declarations in kafka-clients of each release (2.4.1, 2.5.1, 2.6.3, 2.7.2, 2.8.2, 3.0.2, 3.1.2,
3.2.3, 3.3.2, 3.4.1, 3.5.2, 3.6.2, 3.7.2, 3.8.1, 3.9.1, 4.0.0, 4.1.0, 4.2.0), without versions marked as unstable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.broker.network.route import Route
from moldau.kraft.features import (
    ELIGIBLE_LEADER_REPLICAS,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
)

CHANGES: Final = {
    "2.4": "0:8 1:11 2:5 3:9 4:4 5:2 6:6 7:3 8:8 9:6 10:3 11:6 12:4 13:4 14:4 15:5 16:3 17:1 18:3 19:5 20:4 21:1 22:2"
    " 23:3 24:1 25:1 26:1 27:0 28:2 29:1 30:1 31:1 32:2 33:1 34:1 35:1 36:1 37:1 38:2 39:1 40:1 41:1 42:2 43:2 44:1"
    " 45:0 46:0 47:0",
    "2.5": "9:7 11:7 14:5 22:3 28:3 29:2 30:2 31:2 36:2 37:2 39:2 40:2 41:2",
    "2.6": "5:3 16:4 21:2 32:3 35:2 48:0 49:0",
    "2.7": "1:12 19:6 20:5 22:4 24:2 25:2 26:2 37:3 50:0 51:0 56:0 57:0",
    "2.8": "0:9 2:6 3:11 4:5 6:7 19:7 20:6 23:4 24:3 25:3 26:3 27:1 32:4 33:2 34:2 48:1 49:1 60:0 61:0",
    "3.0": "2:7 9:8 10:4 65:0 66:0 67:0",
    "3.1": "1:13 3:12",
    "3.2": "4:6 11:9 13:5 35:3 56:1",
    "3.3": "29:3 30:3 31:3 35:4 38:3 41:3 55:1 56:2 57:1 64:0",
    "3.4": "4:7 5:4 6:8 58:0",
    "3.5": "1:15 2:8 56:3",
    "3.6": "24:4",
    "3.7": "0:10 1:16 8:9 9:9 60:1 68:0 71:0 72:0 74:0",
    "3.8": "0:11 10:5 16:5 22:5 24:5 25:4 26:4 28:4 66:1 69:0 75:0",
    "3.9": "1:17 2:9 10:6 18:4 55:2 80:0 81:0",
    "4.0": "0:12 2:10 3:13 15:6 26:5 28:5 57:2 60:2 68:1 69:1",
    "4.1": "0:13 1:18 45:1 66:2 74:1 76:1 77:1 78:1 79:1 83:0 84:0 85:0 86:0 87:0 90:0 91:0 92:0",
    "4.2": "2:11 8:10 9:10 27:2 78:2 79:2 80:1 85:1 87:1 88:0 89:0 90:1",
}
"""For each release, the last version of each API key that it changed, as KEY:VERSION."""
FEATURES: Final = {
    "3.3": (METADATA_VERSION,),
    "3.9": (KRAFT_VERSION,),
    "4.0": (TRANSACTION_VERSION, GROUP_VERSION, ELIGIBLE_LEADER_REPLICAS),
    "4.1": (SHARE_VERSION,),
    "4.2": ("streams.version",),
}
"""The features that ApiVersions lists, by the first release that has them."""


def sort_key(release: str) -> tuple[int, ...]:
    """The numbers of a release, as a sort key."""
    return tuple(map(int, release.split(".")))


def versions_of(release: str) -> dict[int, int]:
    """The last version of each API that a release serves, by API key."""
    versions: dict[int, int] = {}
    for each, changes in CHANGES.items():
        if sort_key(each) <= sort_key(release):
            versions.update((int(key), int(last)) for key, _, last in (one.partition(":") for one in changes.split()))
    return versions


def features_of(release: str) -> frozenset[str]:
    """The features that ApiVersions of a release lists."""
    return frozenset(
        name for first, names in FEATURES.items() if sort_key(first) <= sort_key(release) for name in names
    )


def limit_routes(routes: Mapping[int, Route], release: str) -> dict[int, Route]:
    """The routes of the APIs that a release has. The last version of each route is lowered to that of the release."""
    versions, limited = versions_of(release), {}
    for key, route in routes.items():
        last = min(route.last_version, versions.get(key, -1))
        if last >= route.first_version:
            route.last_version = last
            limited[key] = route
    return limited
