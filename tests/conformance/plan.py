"""What one run of the matrix covers: its columns, and the scenarios of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.conformance.clients import CLIENTS, ClientKind
from tests.conformance.scenario import Scenario
from tests.conformance.scenarios import configs, groups, offsets, produce, topics, transactions
from tests.conformance.scenarios.acls import ACL_SCENARIOS
from tests.conformance.scenarios.applications import APPLICATION_SCENARIOS
from tests.conformance.scenarios.cluster import CLUSTER_SCENARIOS
from tests.conformance.scenarios.compacted_directories import COMPACTED_DIRECTORY_SCENARIOS
from tests.conformance.scenarios.compacted_tiers import COMPACTED_TIER_SCENARIOS
from tests.conformance.scenarios.daily import DAILY_DIRECTORY_SCENARIOS, DAILY_TOOL_SCENARIOS
from tests.conformance.scenarios.daily_walk import DAILY_WALK_SCENARIOS
from tests.conformance.scenarios.directories import DIRECTORY_SCENARIOS, DirectoryScenario
from tests.conformance.scenarios.live_groups import LIVE_GROUP_SCENARIOS
from tests.conformance.scenarios.logins import LOGIN_SCENARIOS
from tests.conformance.scenarios.migration import MIGRATION_SCENARIOS
from tests.conformance.scenarios.mixed import MIXED_SCENARIOS
from tests.conformance.scenarios.odd_shapes import ODD_SHAPE_SCENARIOS
from tests.conformance.scenarios.reasons import REASON_SCENARIOS
from tests.conformance.scenarios.release_directories import RELEASE_DIRECTORY_SCENARIOS
from tests.conformance.scenarios.restored_directories import RESTORED_DIRECTORY_SCENARIOS
from tests.conformance.scenarios.secured_applications import SECURED_APPLICATION_SCENARIOS
from tests.conformance.scenarios.secured_changes import SECURED_CHANGE_SCENARIOS
from tests.conformance.scenarios.secured_clusters import SECURED_CLUSTER_SCENARIOS
from tests.conformance.scenarios.share_groups import SHARE_GROUP_SCENARIOS
from tests.conformance.scenarios.spark_connector import SPARK_SCENARIOS
from tests.conformance.scenarios.tiered_directories import TIERED_DIRECTORY_SCENARIOS
from tests.conformance.scenarios.tools import TOOL_SCENARIOS, ToolScenario
from tests.conformance.scenarios.transaction_directories import TRANSACTION_DIRECTORY_SCENARIOS
from tests.conformance.scenarios.transaction_tools import TRANSACTION_TOOL_SCENARIOS
from tests.conformance.scenarios.voters import VOTER_SCENARIOS

TOOLS = "kafka-tools"
DIRECTORIES = "directories"
COLUMNS = (*(kind.name for kind in CLIENTS), TOOLS, DIRECTORIES)
CLIENT_SCENARIOS: tuple[Scenario, ...] = (
    *produce.SCENARIOS,
    *groups.SCENARIOS,
    *offsets.SCENARIOS,
    *transactions.SCENARIOS,
    *topics.SCENARIOS,
    *configs.SCENARIOS,
)
ALL_TOOL_SCENARIOS: tuple[ToolScenario, ...] = (*TOOL_SCENARIOS, *TRANSACTION_TOOL_SCENARIOS, *DAILY_TOOL_SCENARIOS)
ALL_DIRECTORY_SCENARIOS: tuple[DirectoryScenario, ...] = (
    *DIRECTORY_SCENARIOS,
    *RELEASE_DIRECTORY_SCENARIOS,
    *TRANSACTION_DIRECTORY_SCENARIOS,
    *RESTORED_DIRECTORY_SCENARIOS,
    *COMPACTED_DIRECTORY_SCENARIOS,
    *TIERED_DIRECTORY_SCENARIOS,
    *COMPACTED_TIER_SCENARIOS,
    *CLUSTER_SCENARIOS,
    *VOTER_SCENARIOS,
    *MIGRATION_SCENARIOS,
    *LIVE_GROUP_SCENARIOS,
    *SHARE_GROUP_SCENARIOS,
    *REASON_SCENARIOS,
    *MIXED_SCENARIOS,
    *LOGIN_SCENARIOS,
    *DAILY_DIRECTORY_SCENARIOS,
    *DAILY_WALK_SCENARIOS,
    *SECURED_CLUSTER_SCENARIOS,
    *SECURED_APPLICATION_SCENARIOS,
    *SECURED_CHANGE_SCENARIOS,
    *ACL_SCENARIOS,
    *ODD_SHAPE_SCENARIOS,
    *APPLICATION_SCENARIOS,
    *SPARK_SCENARIOS,
)


@dataclass(frozen=True, slots=True)
class Plan:
    clients: tuple[ClientKind, ...]
    scenarios: tuple[Scenario, ...]
    tools: tuple[ToolScenario, ...]
    directories: tuple[DirectoryScenario, ...]

    @classmethod
    def of(
        cls, columns: Sequence[str] | None, prefixes: Sequence[str] | None, *, bounded: bool, nodes: int = 1
    ) -> Plan:
        """`bounded` leaves out what needs Apache Kafka's jars or more than a few seconds.

        Directories are of one node, or start as many nodes as they want: they are not asked twice.
        """
        begins = tuple(prefixes or ("",))
        wanted = set(columns or COLUMNS) - ({TOOLS, DIRECTORIES} if bounded else set() if nodes == 1 else {DIRECTORIES})
        return cls(
            clients=tuple(kind for kind in CLIENTS if kind.name in wanted),
            scenarios=tuple(
                each for each in CLIENT_SCENARIOS if each.name.startswith(begins) and (each.in_bounded or not bounded)
            ),
            tools=tuple(each for each in ALL_TOOL_SCENARIOS if TOOLS in wanted and each.name.startswith(begins)),
            directories=tuple(
                each for each in ALL_DIRECTORY_SCENARIOS if DIRECTORIES in wanted and each.name.startswith(begins)
            ),
        )

    def names(self) -> list[str]:
        return [each.name for group in (self.scenarios, self.tools, self.directories) for each in group]

    def lines(self) -> Iterator[str]:
        for group in (self.scenarios, self.tools, self.directories):
            for scenario in group:
                yield f"{scenario.name:26} {scenario.demands}"
