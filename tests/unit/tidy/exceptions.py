"""Every exception from the bounds of `test_sizes.py`, each with its reason in one sentence.

An entry that is not needed any more fails the test; `MOLDAU_REWRITE=1` removes it.
"""

from __future__ import annotations

from typing import Final

CLASSES: Final = {
    "moldau.testing.simulation.connection.Connection": "It has the methods of an asyncio transport.",
    "moldau.testing.simulation.disk.SimulatedDisk": "It has the methods of the file port, and the faults of a disk.",
    "moldau.testing.simulation.loop.SimulatedLoop": "It has the methods of an asyncio loop.",
}
"""Classes of more than 30 methods."""

MODULES: Final = {"testing/simulation/disk.py": "The file port and the faults of a disk are read together."}
"""Modules of more than 600 lines."""

FOLDERS: Final = {
    "broker/requests/handlers": "One file answers one API.",
    "protocol/messages": "One file declares one API.",
}
"""Folders of more than 25 modules; these two grow with the number of APIs, and each file is found by its API's name."""

EXCEPTIONS_MAX: Final = {"classes": 3, "modules": 3, "folders": 2}
