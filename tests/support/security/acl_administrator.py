"""An administrator of ACLs in a simulated cluster: what was acknowledged is in every image at the end.

Each ACL is a register with two values, there and removed. If nothing was answered, the change may still come, late:
nothing is promised of such an ACL any more, though it is still created and removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from random import Random
from typing import Final

from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from moldau.security.access import AclOperation as Op
from moldau.security.access import ResourceKind as Kind
from moldau.security.acl.bindings import AclBinding, AclFilter, PatternType, PermissionType
from tests.support.cluster_clients import Bootstrap, NotAsked, Told, believed
from tests.support.node import Closed

TOPIC: Final = "guarded"
GROUP: Final = "guests"
USERS: Final = ("alice", "bob")
PRINCIPALS: Final = tuple(f"User:{user}" for user in USERS)
PATTERNS: Final = (
    (Kind.TOPIC, TOPIC, PatternType.LITERAL),
    (Kind.TOPIC, "*", PatternType.LITERAL),
    (Kind.TOPIC, TOPIC[:4], PatternType.PREFIXED),
    (Kind.TOPIC, TOPIC[:1], PatternType.PREFIXED),
    (Kind.GROUP, GROUP, PatternType.LITERAL),
    (Kind.GROUP, GROUP[:2], PatternType.PREFIXED),
)
"""They overlap, so that several ACLs speak of one resource."""
OPERATIONS: Final = (Op.READ, Op.WRITE, Op.DESCRIBE, Op.CREATE, Op.ALL)
POOL: Final = tuple(
    AclBinding(kind, name, pattern, principal, "*", operation, permission)
    for (kind, name, pattern), principal, operation, permission in product(
        PATTERNS, PRINCIPALS, OPERATIONS, (PermissionType.ALLOW, PermissionType.DENY)
    )
)
PRESENT_MAX: Final = 14
ALLOWED_SHARE: Final = 0.85
BROAD_SHARE: Final = 0.2
"""The share of removals by a filter that may select several ACLs."""
PAUSE_S: Final = 0.4


class AclAdministrator:
    def __init__(
        self, bootstrap: Bootstrap, complaints: list[str], *, told: Told = believed, pause_s: float = PAUSE_S
    ) -> None:
        """`pause_s`: at most, between two changes."""
        self._bootstrap = bootstrap
        self._complaints = complaints
        self._told = told
        self._pause_s = pause_s
        self._present: dict[AclBinding, None] = {}
        """The ACLs that the administrator believes to be there."""
        self._promised: dict[AclBinding, bool] = {}
        """Whether an ACL is there, if that is certain."""
        self._doubtful: set[AclBinding] = set()
        self.acknowledged_count = 0

    async def work(self, is_ended: Callable[[], bool]) -> None:
        random = self._bootstrap.random
        while not is_ended():
            is_removal = random.random() < len(self._present) / PRESENT_MAX
            try:
                await (self._remove(random) if is_removal else self._create(random))
            except NotAsked:
                await self._bootstrap.back_off()
            await asyncio.sleep(random.random() * self._pause_s)

    def verify(self, node_id: int, image: MetadataImage) -> None:
        """At the end, of the image of each node of a whole cluster."""
        found = set(image.acls.by_id.values())
        for binding, is_there in self._promised.items():
            if (binding in found) != is_there:
                words = "has gone" if is_there else "was removed and is there"
                self._complaints.append(f"{binding} {words} on node {node_id}")

    async def _create(self, random: Random) -> None:
        permission = PermissionType.ALLOW if random.random() < ALLOWED_SHARE else PermissionType.DENY
        choices = [each for each in POOL if each.permission == permission and each not in self._present]
        wanted = random.sample(choices, random.randint(1, 3))
        request = CreateAclsRequest(creations=[creation_of(each) for each in wanted])
        try:
            reply = await self._bootstrap.ask_any(request, 3)
        except NotAsked:
            raise
        except Closed:
            self._doubt(wanted, is_there=True)
            return
        for binding, answer in zip(wanted, reply.results, strict=True):
            if answer.error_code == ErrorCode.NONE:
                self._promise(binding, is_there=True)
            else:
                self._doubt([binding], is_there=True)

    async def _remove(self, random: Random) -> None:
        one = random.choice([*self._present])
        wanted = AclFilter(*one)
        if random.random() < BROAD_SHARE:
            wanted = AclFilter(one.kind, TOPIC if one.kind == Kind.TOPIC else GROUP, PatternType.MATCH, one.principal)
        meant = [each for each in POOL if wanted.matches(each)]
        request = DeleteAclsRequest(filters=[filter_of(wanted)])
        try:
            reply = await self._bootstrap.ask_any(request, 3)
        except NotAsked:
            raise
        except Closed:
            self._doubt(meant, is_there=False)
            return
        if reply.filter_results[0].error_code != ErrorCode.NONE:
            self._doubt(meant, is_there=False)
            return
        for binding in meant:
            if binding in self._present or binding in self._promised:
                self._promise(binding, is_there=False)

    def _promise(self, binding: AclBinding, *, is_there: bool) -> None:
        self._believe(binding, is_there=is_there)
        if binding in self._doubtful:
            return
        self.acknowledged_count += 1
        self._promised[binding] = is_there
        what = f"{binding} {'created' if is_there else 'removed'}"
        self._told(self._bootstrap, what, lambda image: (binding in set(image.acls.by_id.values())) == is_there)

    def _doubt(self, bindings: list[AclBinding], *, is_there: bool) -> None:
        """Nothing tells what became of the change, nor what will."""
        for binding in bindings:
            if is_there or binding in self._present:
                self._believe(binding, is_there=is_there)
            self._doubtful.add(binding)
            self._promised.pop(binding, None)

    def _believe(self, binding: AclBinding, *, is_there: bool) -> None:
        if is_there:
            self._present[binding] = None
        else:
            self._present.pop(binding, None)


def creation_of(binding: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=binding.kind,
        resource_name=binding.name,
        resource_pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def filter_of(wanted: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=wanted.kind,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
