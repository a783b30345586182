"""`python -m building`: compile the hot path of this checkout beside its sources, if the machine has a C compiler.

The compiled modules behave like the sources, and use about half of the CPU time. Without a
C compiler, or without mypyc, the sources run as they are.
"""

from __future__ import annotations

import argparse
import sys

from building.aside import PLAIN_PYTHON, BackgroundBuild
from building.extensions import remove_compiled, remove_stale


def main(arguments: list[str] | None = None) -> str:
    """Carry out the command that the arguments name. Returns the line to print; empty to print nothing."""
    parser = argparse.ArgumentParser(prog="python -m building", description=__doc__)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--begin", action="store_true", help="install what is ready, else compile in the background")
    ways.add_argument("--aside", action="store_true", help="what --begin starts: compile for a later start")
    ways.add_argument("--remove", action="store_true", help="remove the extension modules")
    ways.add_argument("--remove-stale", action="store_true", help="remove them where one is older than its source")
    asked = parser.parse_args(arguments)
    if asked.remove:
        remove_compiled()
        return PLAIN_PYTHON
    if asked.remove_stale:
        return remove_stale()
    if asked.begin:
        return BackgroundBuild().begin()
    return BackgroundBuild().compile_aside() if asked.aside else BackgroundBuild().compile_now()


if __name__ == "__main__":
    said = main()
    if said:
        sys.stdout.write(said + "\n")
