"""The APIs of the controller that have no module here: their rows in `kraft/controller/apis.py` say everything."""

from __future__ import annotations

from typing import Any

from moldau.broker.apis.api import Api
from moldau.broker.apis.forwarding import OPEN_MAX, decide, forward
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.parts import ListPath, Parts
from moldau.kraft.controller.apis import ControllerApi


def decided(row: ControllerApi) -> Api[Any]:
    """The API of a row: listeners of controllers pass it to the controller, brokers forward the requests of clients."""
    lists = tuple(ListPath(*paths) for paths in row.cut)
    return Api(
        row.request,
        broker=forward if row.is_for_clients else None,
        controller=decide,
        needs=needs_cluster(row.operation),
        parts=Parts(lists, open_max=OPEN_MAX) if lists else None,
        bounds=row.bounds,
    )
