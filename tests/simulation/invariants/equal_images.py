"""I4: metadata images are equal at equal offsets, whoever has them and however they came to be."""

from __future__ import annotations

from moldau.kraft.image.metadata_image import MetadataImage
from tests.simulation.invariants.observation import Observation, Violation


class EqualImages:
    def __init__(self) -> None:
        self._summaries: dict[int, tuple[object, int]] = {}
        self._seen: dict[tuple[int, int], int] = {}

    def check(self, seen: Observation) -> None:
        for node in seen.nodes:
            image = node.broker.quorum.image
            offset = image.provenance.end_offset
            if self._seen.get((node.id, node.life)) == offset:
                continue
            if offset < self._seen.get((node.id, node.life), 0):
                raise Violation(f"node {node.id}: its image went back to offset {offset}")
            self._seen[node.id, node.life] = offset
            mine = summary(image)
            known, node_id = self._summaries.setdefault(offset, (mine, node.id))
            if mine != known:
                raise Violation(f"nodes {node_id} and {node.id} have different images at offset {offset}")


def summary(image: MetadataImage) -> object:
    """Everything in it, in an order of its own."""
    partitions = sorted((topic.id, index, assigned) for topic, index, assigned in image.topics.partitions())
    brokers = sorted((broker.id, repr(broker)) for broker in image.cluster.brokers.values())
    controllers = sorted((node.id, repr(node)) for node in image.cluster.controllers.values())
    configs = sorted((resource, sorted(settings.items())) for resource, settings in image.configs.by_resource.items())
    levels, security = sorted(image.features.levels.items()), security_of(image)
    said = image.provenance.epoch, image.next_producer_id
    return partitions, sorted(image.topics.ids.items()), brokers, controllers, configs, levels, security, said


def security_of(image: MetadataImage) -> object:
    """ACLs, credentials, quotas and tokens. A credential is compared as a tuple: its `repr` hides the keys."""
    credentials = sorted((key, tuple(credential)) for key, credential in image.scram.credentials.items())
    quotas = sorted((repr(entity), sorted(values.items())) for entity, values in image.quotas.by_entity.items())
    return sorted(image.acls.by_id.items()), credentials, quotas, sorted(image.tokens.by_id.items())
