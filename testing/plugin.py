"""The pytest plugin: fixtures `kafka`, `kafka_cluster` and `kafka_faults`, and the marker `moldau`.

pytest loads this module in every project of the environment, so it imports nothing but pytest. `moldau.testing` is
imported when a fixture is first used. Under pytest-xdist each worker is a process, and has brokers of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from moldau.testing.cluster import Cluster
    from moldau.testing.faults import Faults
    from moldau.testing.namespace import Namespace

MARKER: Final = "moldau"
MARKER_HELP: Final = (
    "moldau(nodes, settings, secure, users): how many nodes the fixture kafka or kafka_cluster of this test has, their"
    " settings, whether clients log in under TLS and ACLs are in force, and the users of these"
)
CLUSTER_NODES: Final = 3
LOG_LINES: Final = 30
"""The number of lines of each node's log in the report of a test that failed."""

_SEEN: Final = pytest.StashKey["list[tuple[Cluster, list[int]]]"]()
"""The key of a test's clusters in its stash, each with the size of every node's log when the test began."""


_FAULTS: Final = pytest.StashKey["Faults"]()
"""The key of a test's faults in its stash."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker `moldau`."""
    config.addinivalue_line("markers", MARKER_HELP)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the nodes logged during a test to its report if it failed."""
    report = yield
    if report.failed:
        for cluster, begins in item.stash.get(_SEEN, []):
            for node, begin in zip(cluster.nodes, begins, strict=False):
                text = node.log_since(begin, LOG_LINES)
                if text:
                    report.sections.append((f"Log of node {node.id} of Moldau", text))
        faults = item.stash.get(_FAULTS, None)
        if faults is not None:
            report.sections.append(("Timeline of the clients and faults of Moldau", _timeline(faults)))
    return report


def _timeline(faults: Faults) -> str:
    """The last events of the timeline as text. If it cannot be read, because a node is held or has ended, the
    reason.
    """
    from moldau.testing.faults import FaultRefused

    try:
        events = faults.timeline()
    except FaultRefused as refusal:
        return str(refusal)
    return "\n".join(f"{each.at_ms} node {each.node}: {each.what}: {each.text}" for each in events[-LOG_LINES:])


class SharedClusters:
    """The clusters that tests of a session share: one for each combination of nodes and settings, with or without
    faults. Each is started when a test first needs it.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._clusters: dict[object, Cluster] = {}

    def cluster(
        self, nodes: int, settings: Mapping[str, object], secure: bool, users: Sequence[str] | None, *, control: bool
    ) -> Cluster:
        """The shared cluster for these arguments. If a test has ended a node of it, or moved its clock, a new cluster
        is started.
        """
        from moldau.testing.cluster import Cluster
        from moldau.testing.settings import texts_of, users_of

        key = (nodes, users_of(users, secure=secure), control, *sorted(texts_of(settings).items()))
        cluster = self._clusters.get(key)
        if cluster is None or not cluster.is_as_started:
            if cluster is not None:
                cluster.stop()
            cluster = self._clusters[key] = self._stack.enter_context(
                Cluster(nodes, settings=settings, secure=secure, users=users, control=control)
            )
        return cluster


@pytest.fixture(scope="session")
def moldau_shared_clusters() -> Iterator[SharedClusters]:
    """The clusters that the fixture `kafka` uses, for the whole session."""
    with ExitStack() as stack:
        yield SharedClusters(stack)


@pytest.fixture
def kafka(request: pytest.FixtureRequest, moldau_shared_clusters: SharedClusters) -> Iterator[Namespace]:
    """A broker that all tests of the session share, with topics and groups of this test's own: `kafka.topic()`,
    `kafka.group()`, `kafka.bootstrap_servers`. Its topics and the permissions that it gives end with the test.
    """
    from moldau.testing.namespace import Namespace

    cluster = moldau_shared_clusters.cluster(**_marked(request, 1), control=_takes_faults(request))
    _note(request, cluster)
    namespace = Namespace(cluster, request.node.name)
    yield namespace
    if cluster.is_as_started:  # Otherwise it is not used again.
        _resume(cluster)
        namespace.close()


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for this test alone, with three nodes unless the marker gives another number. The test may end
    nodes.
    """
    from moldau.testing.cluster import Cluster

    with Cluster(**_marked(request, CLUSTER_NODES), control=_takes_faults(request)) as cluster:
        _note(request, cluster)
        yield cluster


@pytest.fixture
def kafka_faults(request: pytest.FixtureRequest) -> Iterator[Faults]:
    """Faults on demand in the broker of `kafka`, or in `kafka_cluster` if the test uses that fixture. They end with the
    test. If the test fails, their timeline is in its report.
    """
    is_shared = "kafka_cluster" not in request.fixturenames
    cluster: Cluster = (
        request.getfixturevalue("kafka").cluster if is_shared else request.getfixturevalue("kafka_cluster")
    )
    faults = request.node.stash[_FAULTS] = cluster.faults
    yield faults
    if is_shared:  # The other cluster ends with the test, and its nodes may be held and answer nothing.
        _resume(cluster)
        faults.end_all()


def _resume(cluster: Cluster) -> None:
    """Let the nodes continue that a test has paused, because the next test uses them too."""
    for node in cluster.nodes:
        if node.is_running:
            node.resume()


def _takes_faults(request: pytest.FixtureRequest) -> bool:
    return "kafka_faults" in request.fixturenames


def _marked(request: pytest.FixtureRequest, nodes: int) -> dict[str, Any]:
    """The arguments of a cluster from the test's nearest marker, with defaults for those that it does not give."""
    marker = request.node.get_closest_marker(MARKER)
    without = {"nodes": nodes, "settings": {}, "secure": False, "users": None}
    given = without | (marker.kwargs if marker is not None else {})
    if given.keys() != without.keys() or (marker is not None and marker.args):
        raise pytest.UsageError(
            f"the marker {MARKER} takes nodes=..., settings=..., secure=... and users=...: {MARKER_HELP}"
        )
    return given


def _note(request: pytest.FixtureRequest, cluster: Cluster) -> None:
    request.node.stash.setdefault(_SEEN, []).append((cluster, [node.log_size for node in cluster.nodes]))
