"""Hatchling's hook, which determines the files of a wheel. Hatchling loads this module by its path, which
pyproject.toml names.

`MOLDAU_WHEEL=compiled` makes a wheel for this platform and this Python whose hot path is compiled: with the extension
modules of the checkout if they are current, else with those that this build compiles. Without it, or with `pure`, the
wheel runs everywhere.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "MOLDAU_WHEEL"
KINDS = ("pure", "compiled")


class MoldauWheel(BuildHookInterface[Any]):  # type: ignore[misc] # mypy runs without Hatchling
    """Puts a copy of the tree into the wheel, with its extension modules for a compiled wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """The packages that the build needs besides Hatchling."""
        sys.path.insert(0, self.root)
        from building.extensions import is_current

        return ["mypy>=1.14", "setuptools"] if self._is_compiled and not is_current(Path(self.root)) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Prepare the tree before Hatchling collects the files. An editable install refers to the folders of the
        checkout.
        """
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from building.wheel_tree import BESIDE, TARGET, compile_wheel, copy_tree

        self._directory = tempfile.TemporaryDirectory(prefix="moldau-wheel-")  # removed when the build ends
        tree = Path(self._directory.name)
        copy_tree(Path(self.root), tree)
        if self._is_compiled:
            compile_wheel(Path(self.root), tree)
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
        for top in (TARGET, *BESIDE):
            build_data["force_include"][str(tree / top)] = top

    @property
    def _is_compiled(self) -> bool:
        kind = os.environ.get(VARIABLE, KINDS[0])
        if kind not in KINDS:
            raise ValueError(f"{VARIABLE}={kind}: it is one of {', '.join(KINDS)}")
        return kind == "compiled"
