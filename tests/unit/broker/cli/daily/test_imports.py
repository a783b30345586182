"""What a start of a daily command imports, and that a node imports nothing of it."""

from __future__ import annotations

import subprocess
import sys
from ast import literal_eval

from tests.unit.tidy.import_graph import product_graph, reachable

DAILY = "moldau.broker.cli.daily"


def imported_by(program: str) -> set[str]:
    """The modules that a program has imported, a fresh interpreter in which it ran."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint(sorted(sys.modules), file=sys.stderr)"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return set(literal_eval(done.stderr.splitlines()[-1]))


def test_help_imports_neither_the_protocol_nor_a_client() -> None:
    found = imported_by(
        "from moldau.broker.cli.command import parser\nparser(None, 'topic').format_help()",
    )
    assert f"{DAILY}.topic" in found
    assert [
        name for name in found if name.startswith(("moldau.protocol", "moldau.tables", "moldau.broker.config"))
    ] == []
    assert not found & {"asyncio", "ssl", "json", "socket", f"{DAILY}.client"}


def test_an_action_imports_no_loop_and_no_settings_of_a_node() -> None:
    found = imported_by(
        "from moldau.broker.cli.command import main\nassert main(['topic', 'list', '-b', '127.0.0.1:1']) == 5"
    )
    assert f"{DAILY}.client" in found
    assert not found & {"asyncio", "uvloop", "cryptography", f"{DAILY}.topic_changes", "moldau.broker.config.loading"}


def test_a_node_imports_nothing_of_the_daily_commands() -> None:
    graph = {name.removeprefix("moldau."): imports for name, imports in product_graph().items()}
    assert any(name.startswith("broker.cli.daily") for name in graph)
    found = reachable(product_graph(), [name for name in product_graph() if name.endswith("broker.node.main")])
    assert found and [name for name in found if "cli.daily" in name] == []


WITHOUT_EXTRAS = """
import importlib, pkgutil, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(name)
EXTRAS = (
    "pyarrow", "numpy", "confluent_kafka", "kafka", "aiokafka", "duckdb", "pyspark", "pandas", "obstore", "pyiceberg"
)
sys.meta_path.insert(0, Missing())
"""
EVERY_MODULE = """
import moldau.broker.cli.daily as daily
for each in pkgutil.walk_packages(daily.__path__, daily.__name__ + "."):
    importlib.import_module(each.name)
import moldau.tables.origins.broker_batches
"""


def test_every_module_is_imported_without_extras() -> None:
    found = imported_by(WITHOUT_EXTRAS + EVERY_MODULE)
    assert len([name for name in found if name.startswith(DAILY)]) > 30
