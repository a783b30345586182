"""Hatchling's build hook, which determines the files of a wheel. Hatchling loads this module by its path, which
pyproject.toml names.

With `MOLDAU_WHEEL=compiled` the wheel is for this platform and this Python, and its hot path is compiled. It has the
extension modules of the checkout if they are current, otherwise modules that this build compiles. Without the variable,
or with `pure`, the wheel runs everywhere.
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
    """Puts a copy of the sources into the wheel, and the extension modules if the wheel is a compiled one."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """The packages that the build needs besides Hatchling."""
        sys.path.insert(0, self.root)
        from building.extensions import is_current

        return ["mypy>=1.14", "setuptools"] if self._is_compiled and not is_current(Path(self.root)) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the tree that Hatchling puts into the wheel. An editable install uses the folders of the checkout
        instead.
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
