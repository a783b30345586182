"""Moves the bullets of docs/changes/ into CHANGELOG.md at a release: `python docs/join_changes.py 0.2.0`.

They become the newest section of the page, in the order of their files' names; the files are removed.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def join_changes(root: Path, release: str) -> int:
    """The number of the bullets that are joined. Raises ValueError if there are none, or the release is there."""
    page, folder = root / "CHANGELOG.md", root / "docs" / "changes"
    files = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    head, mark, earlier = page.read_text("utf-8").partition("\n## ")
    if not files:
        raise ValueError("docs/changes/ has no change")
    if f"\n## {release}" in f"{mark}{earlier}":
        raise ValueError(f"CHANGELOG.md has the release {release}")
    bullets = [" ".join(path.read_text("utf-8").split()) for path in files]
    page.write_text("\n".join([head, f"## {release}", "", *bullets, ""]) + mark + earlier, "utf-8")
    for path in files:
        path.unlink()
    return len(bullets)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/join_changes.py RELEASE")
    try:
        sys.stdout.write(f"{join_changes(ROOT, sys.argv[1])} changes are in CHANGELOG.md\n")
    except ValueError as problem:
        sys.exit(str(problem))
