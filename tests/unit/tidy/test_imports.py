"""Few modules of the product import one another in a circle, type imports and lazy imports counted."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.unit.tidy.import_graph import Graph, cycles, import_graph, product_graph, reachable

CYCLE_MODULES_MAX = 5

TOY = {
    Path("shop/__init__.py"): "",
    Path("shop/till.py"): "from shop.goods import price\nimport shop.receipt",
    Path("shop/goods.py"): "import json\ndef price():\n    from shop import shelf",
    Path("shop/shelf.py"): "if TYPE_CHECKING:\n    from .till import Till",
    Path("shop/receipt.py"): "from shop.paper import A4",
    Path("shop/paper.py"): "",
}


def toy(**changed: str) -> Graph:
    texts = TOY | {Path(f"shop/{name}.py"): text for name, text in changed.items()}
    return import_graph({path: ast.parse(text) for path, text in texts.items()})


def test_imports_of_every_kind_are_seen() -> None:
    assert toy() == {
        "shop": frozenset(),
        "shop.till": {"shop.goods", "shop.receipt"},
        "shop.goods": {"shop.shelf"},
        "shop.shelf": {"shop.till"},
        "shop.receipt": {"shop.paper"},
        "shop.paper": frozenset(),
    }


def test_what_only_a_type_checker_imports_is_left_out_on_demand() -> None:
    graph = import_graph({path: ast.parse(text) for path, text in TOY.items()}, types=False)
    assert graph["shop.shelf"] == frozenset()
    assert graph["shop.goods"] == {"shop.shelf"}
    assert reachable(graph, ["shop.goods", "shop.paper"]) == {"shop.goods", "shop.shelf", "shop.paper"}


def test_a_cycle_through_a_lazy_import_and_a_type_import_is_found() -> None:
    assert cycles(toy()) == [["shop.goods", "shop.shelf", "shop.till"]]
    assert cycles(toy(shelf="")) == []


def test_cycles_that_touch_are_one_and_cycles_apart_are_two() -> None:
    assert cycles(toy(paper="from shop.till import A5")) == [
        ["shop.goods", "shop.paper", "shop.receipt", "shop.shelf", "shop.till"]
    ]
    assert cycles(toy(paper="from shop.receipt import A5")) == [
        ["shop.goods", "shop.shelf", "shop.till"],
        ["shop.paper", "shop.receipt"],
    ]


def test_the_largest_import_cycle_is_small() -> None:
    found = cycles(product_graph())
    for cycle in found:
        print(f"a cycle of {len(cycle)} modules: {', '.join(cycle)}")
    largest = len(found[0]) if found else 0
    print(f"the largest import cycle has {largest} modules")
    assert largest <= CYCLE_MODULES_MAX
