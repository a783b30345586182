"""`python -m tests.chaos`: faults under load on one node or three; then nothing is lost, twice or out of order."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from moldau.testing.ports import free_ports
from tests.chaos.campaign import Campaign, Result
from tests.chaos.cluster import Cluster
from tests.chaos.cluster_campaign import ClusterCampaign, ClusterResult
from tests.chaos.cluster_faults import KILLS, KINDS, TRANSACTION_KILLS, UPGRADES, Deed, Role, cluster_rounds
from tests.chaos.faults import rounds
from tests.chaos.java_load import JavaLoad
from tests.chaos.load import Load
from tests.chaos.processes import Node
from tests.chaos.transaction_campaign import Transactions
from tests.conformance.toolchain import Missing, Toolchain


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument("--rounds", type=int, default=26, help="of three nodes: 13 kinds in turn (26)")
    parser.add_argument("--only-kills", action="store_true", help="of three nodes: kill -9 in every round")
    parser.add_argument(
        "--upgrade-from", metavar="RELEASE", help="of three nodes: format for 4.0, say, and upgrade level by level"
    )
    parser.add_argument("--java", action="store_true", help="of three nodes: a Java producer beside, where Java is")
    parser.add_argument(
        "--transactions", action="store_true", help="of three nodes: transactional producers and copiers; kill -9"
    )
    parser.add_argument("--kills", type=int, default=25, help="rounds of kill -9 (25)")
    parser.add_argument("--terms", type=int, default=25, help="rounds of SIGTERM (25)")
    parser.add_argument("--producers", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=int, default=3000, help="records a second, all producers together (3000)")
    parser.add_argument("--transaction-rate", type=float, default=30, help="transactions a second (30)")
    parser.add_argument("--stop-bound", type=float, default=10.0, metavar="S", help="for a stop by SIGTERM (10)")
    parser.add_argument("--seed", type=int, default=1, help="of the order and the moments of the faults")
    parser.add_argument("--port", type=int, help="and the next ones; free ones are found otherwise")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the summary")
    parser.add_argument("--keep", action="store_true", help="keep the node's data and log; done anyway after a problem")
    return parser.parse_args()


def say(line: str) -> None:
    print(line, flush=True)


def run(options: argparse.Namespace, directory: Path) -> Result:
    port, controller_port = (options.port, options.port + 1) if options.port else free_ports(2)
    node = Node(directory, port, controller_port)
    campaign = Campaign(node, options.partitions, options.stop_bound, say)
    load = Load(node.bootstrap, "chaos", options.partitions, options.producers, options.rate, options.seed)
    try:
        return campaign.run(rounds(options.kills, options.terms, options.seed), load)
    finally:
        node.close()


def run_three(options: argparse.Namespace, directory: Path) -> ClusterResult:
    cluster = Cluster(directory, options.port or free_ports(15)[0], options.upgrade_from)
    java = java_load(cluster, directory, is_transactional=options.transactions) if options.java else None
    transactions = None
    if options.transactions:
        transactions = Transactions(cluster.bootstrap, options.partitions, options.transaction_rate, options.seed)
    campaign = ClusterCampaign(cluster, options.partitions, options.stop_bound, java, transactions, say)
    load = Load(cluster.bootstrap, "chaos", options.partitions, options.producers, options.rate, options.seed)
    try:
        return campaign.run(cluster_rounds(options.rounds, options.seed, kinds_of(options)), load)
    finally:
        cluster.close()


def kinds_of(options: argparse.Namespace) -> Sequence[tuple[Deed, Role]]:
    """What three nodes suffer in turn."""
    if options.upgrade_from:
        return UPGRADES
    if options.transactions:
        return TRANSACTION_KILLS
    return KILLS if options.only_kills else KINDS


def java_load(cluster: Cluster, directory: Path, *, is_transactional: bool) -> JavaLoad | None:
    toolchain = Toolchain(fetch=False)
    try:
        return JavaLoad(cluster.bootstrap, toolchain, directory / "java.log", is_transactional=is_transactional)
    except Missing as missing:
        say(f"no Java producer: {missing}")
        return None


def main() -> int:
    options = arguments()
    directory = Path(tempfile.mkdtemp(prefix="moldau-chaos-"))
    result = run(options, directory) if options.nodes == 1 else run_three(options, directory)
    say(json.dumps(result.summary(), indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(result.summary(), indent=1) + "\n")
    if options.keep or result.problems:
        say(f"kept: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
