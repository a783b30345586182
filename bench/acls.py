"""The cost of 10,000 ACLs for a small produce: the same load with an authorizer that has to find its ACL, and without
one.

The connections are plain, so that nothing else hides the cost. Every request is allowed by a prefixed ACL of its own
principal, among ACLs of other principals on the same and on all topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from bench.client import Unanswered, connect_with_retries
from bench.contenders import Contender, run_in_turns
from bench.figures import Figure
from bench.groups import RunForm
from bench.subjects import Bench, RunningBroker, remove_server
from bench.workloads import SMALL
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.bindings import PatternType, PermissionType

NAME: Final = "authorizer with 10,000 ACLs, produce 200 B"
ACLS_COUNT: Final = 10_000
ACLS_ON_ALL_TOPICS: Final = 100
ACLS_PER_REQUEST: Final = 1_000
SETTINGS: Final = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The node itself comes over a plain listener, and no ACL is about the cluster.
    "allow.everyone.if.no.acl.found=true",
)
WARM_UP_SHARE: Final = 5
WARM_UP_DIVISOR: Final = 3
"""The warm-up is shortened by this divisor, because the load that follows warms the broker, too."""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    print(f"  {NAME}", flush=True)
    requests = SMALL.requests_quick if form.is_quick else SMALL.requests
    times: dict[str, list[float]] = {}
    spent_us: dict[str, list[float]] = {}
    for name in bench.names:
        with ExitStack() as stack:
            brokers = {}
            for what, settings in (("without", ()), ("with", SETTINGS)):
                server = bench.new_server(name, extra=settings)
                server.format()
                stack.callback(remove_server, server)
                contender = brokers[what] = Contender(stack.enter_context(RunningBroker(server)))
                contender.name = f"{name}-{what}"
            create_acls(brokers["with"], name)
            for contender in brokers.values():
                contender.warm_up(form.warm_up_s / WARM_UP_DIVISOR)
                contender.run_load(SMALL, requests // WARM_UP_SHARE)
            cost = run_in_turns(
                list(brokers.values()),
                form.rounds,
                lambda contender: contender.run_load(SMALL, requests).spent.cpu.total_s / requests * 1e6,
                lambda cost_us: f"{cost_us:.2f} us of CPU a request",
            )
        without, spent_us[name] = cost[f"{name}-without"], cost[f"{name}-with"]
        times[name] = [each / before for each, before in zip(spent_us[name], without, strict=True)]
    return [
        Figure(f"{NAME}: user + system CPU, times that without", "x", times),
        Figure(f"{NAME}: user + system CPU", "us", spent_us),
    ]


def create_acls(contender: Contender, prefix: str) -> None:
    """Create all ACLs through the plain listener. Raises `Unanswered` if the broker refuses one."""
    creations = list(acl_creations(prefix))
    client = connect_with_retries(contender.port)
    try:
        # The controller's records come one request after the other: the topic shows that all of them are there.
        for start in range(0, ACLS_COUNT, ACLS_PER_REQUEST):
            request = CreateAclsRequest(creations=creations[start : start + ACLS_PER_REQUEST])
            refused = [each for each in client.ask(request, CreateAclsResponse, 3).results if each.error_code]
            if refused:
                raise Unanswered(f"an ACL is refused: {ErrorCode(refused[0].error_code).name}")
        client.create_topic(f"{prefix}-allowed")
        client.delete_topic(f"{prefix}-allowed")
    finally:
        client.close()


def acl_creations(prefix: str) -> Iterator[AclCreation]:
    """Return `ACLS_COUNT` ACLs to create: the ACL of the load, and ACLs of other principals on all topics and on topics
    of their own.
    """
    yield _allowed("User:ANONYMOUS", prefix, PatternType.PREFIXED, AclOperation.ALL)
    for number in range(1, ACLS_COUNT):
        user = f"User:user-{number}"
        if number <= ACLS_ON_ALL_TOPICS:
            yield _allowed(user, "*", PatternType.LITERAL, AclOperation.READ)
        elif number % 2:
            yield _allowed(user, f"topic-{number}", PatternType.LITERAL, AclOperation.WRITE)
        else:
            yield _allowed(user, f"team-{number}-", PatternType.PREFIXED, AclOperation.WRITE)


def _allowed(principal: str, name: str, pattern_type: PatternType, operation: AclOperation) -> AclCreation:
    return AclCreation(
        resource_type=ResourceKind.TOPIC,
        resource_name=name,
        resource_pattern_type=pattern_type,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=PermissionType.ALLOW,
    )
