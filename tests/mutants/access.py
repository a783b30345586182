"""Planted in the decisions about access, and in how the principal of a client reaches the controller."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

ACCESS_MUTANTS: Final = (
    Mutant(
        340,
        "an ACL that was removed still allows",
        "security/acl/index.py",
        "        patterns[name].entries.remove((binding.operation, binding.permission))\n"
        "        self._changed(patterns, name)\n",
        "        patterns[name].entries.remove((binding.operation, binding.permission))\n",
        Hunt.STORIES,
    ),
    Mutant(
        341,
        "a DENY beside an ALLOW is overlooked",
        "security/acl/index.py",
        "    if bits >> (DENIED_FROM + operation) & 1:\n        return False\n",
        "    if bits >> (DENIED_FROM + operation) & 1 and not bits >> operation & 1:\n        return False\n",
        Hunt.STORIES,
    ),
    Mutant(
        342,
        "the principal of a client is lost where its broker forwards the request",
        "broker/apis/forwarding.py",
        "client = ForwardedClient(access.principal, context.client_host, context.client_id)",
        "client = ForwardedClient(ANONYMOUS, context.client_host, context.client_id)",
        Hunt.STORIES,
    ),
    Mutant(
        343,
        "a client of the leader's own process needs no permission",
        "broker/metadata/controller_channel.py",
        "if self._clients is not None and attempt.client is not None and self._leadership.is_active:",
        "if False:",
        Hunt.STORIES,
    ),
    Mutant(
        344,
        "what a producer was once allowed is allowed for ever",
        "broker/apis/records/produce_hook.py",
        "if not access.allows(AclOperation.WRITE, ResourceKind.TOPIC, topic, logs_denied=False):",
        "if False:",
        Hunt.STORIES,
    ),
    Mutant(
        345,
        "a client that says it is a follower is one",
        "broker/apis/records/fetch.py",
        "self.replicates = is_follower and on_cluster(AclOperation.CLUSTER_ACTION).is_met(access)",
        "self.replicates = is_follower",
        Hunt.STORIES,
    ),
    Mutant(
        346,
        "a controller that does not lead decides by its ACLs",
        "broker/apis/needs.py",
        "if is_for_leader and type(request) in CONTROLLER_APIS and services.quorum.active_controller is None:",
        "if False:",
        Hunt.METADATA,
    ),
    Mutant(
        347,
        "the ACLs of the broker that forwards a request decide, though it may be fenced",
        "broker/apis/api.py",
        "        if role is ListenerRole.CONTROLLER:\n"
        "            return self.needs\n"
        "        if self.broker_needs is not None:\n"
        "            return self.broker_needs\n"
        "        return controller_asks if self.listeners.is_forwardable else self.needs\n",
        "        if role is ListenerRole.CONTROLLER:\n"
        "            return controller_asks if self.listeners.is_forwardable else self.needs\n"
        "        return self.needs if self.broker_needs is None else self.broker_needs\n",
        Hunt.METADATA,
    ),
)
