"""The names of files on a simulated disk: the names that processes see, and the names that are durable.

A change of names (create, rename, unlink, make a directory) is pending until one of its directories is synced. Of the
pending changes a crash keeps a prefix of their order.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from moldau.testing.simulation.pages import Inode


@dataclass(slots=True, eq=False)
class Directory:
    entries: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)


@dataclass(slots=True)
class _NameChange:
    """An atomic change of names, such as a rename. An entry with None removes the name."""

    entries: list[tuple[Directory, str, Inode | Directory | None]]

    def touches(self, directories: list[Directory]) -> bool:
        return any(directory is other for directory, _, _ in self.entries for other in directories)

    def apply(self) -> None:
        for directory, name, node in self.entries:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node


class DiskNames:
    """Finds files by their paths, and keeps the changes of names that are not durable yet."""

    def __init__(self) -> None:
        self.root = Directory()
        self._changes: list[_NameChange] = []

    def find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory = self.root
        for name in names_of(path):
            if not isinstance(node, Directory) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def durable(self, path: str) -> Inode | Directory | None:
        """The file or directory that durably has this path; None if there is none."""
        node: Inode | Directory | None = self.root
        for name in names_of(path):
            node = node.durable.get(name) if isinstance(node, Directory) else None
        return node

    def directory(self, path: str) -> Directory:
        """The directory with this path. Raises `FileNotFoundError` and `NotADirectoryError`."""
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def inode(self, path: str) -> Inode:
        """The file with this path. Raises `FileNotFoundError` and `IsADirectoryError`."""
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def place(self, path: str) -> tuple[Directory, str]:
        """The parent directory of a path, and the last name in the path. Raises `FileNotFoundError` and
        `NotADirectoryError`.
        """
        names = names_of(path)
        return self.directory("/".join(names[:-1])), names[-1]

    def files(self) -> Iterator[tuple[str, Inode]]:
        """All files with their paths, in the order of their names."""
        yield from self._files(self.root, "")

    def _files(self, directory: Directory, path: str) -> Iterator[tuple[str, Inode]]:
        for name in sorted(directory.entries):
            node = directory.entries[name]
            if isinstance(node, Directory):
                yield from self._files(node, f"{path}/{name}")
            else:
                yield f"{path}/{name}", node

    def change(self, *entries: tuple[Directory, str, Inode | Directory | None]) -> None:
        """Change names in one atomic step, which processes see at once. The change becomes durable at a sync, or by
        chance at a crash.
        """
        for directory, name, node in entries:
            if node is None:
                del directory.entries[name]
            else:
                directory.entries[name] = node
        self._changes.append(_NameChange(list(entries)))

    def sync(self, directory: Directory) -> None:
        """Make the changes in a directory durable, and with them earlier changes in other directories on which a move
        depends.
        """
        directories = [directory]
        kept: list[_NameChange] = []
        due: list[_NameChange] = []
        for change in reversed(self._changes):
            if change.touches(directories):
                directories.extend(directory for directory, _, _ in change.entries)
                due.append(change)
            else:
                kept.append(change)
        for change in reversed(due):
            change.apply()
        self._changes = kept[::-1]

    @property
    def pending_count(self) -> int:
        """The number of changes that are not durable yet."""
        return len(self._changes)

    def crash(self, kept: int) -> None:
        """Make the first `kept` pending changes durable, drop the others, and let processes see only durable names."""
        for change in self._changes[:kept]:
            change.apply()
        self._changes.clear()
        self._restore(self.root)

    def _restore(self, directory: Directory) -> None:
        directory.entries = dict(directory.durable)
        for node in directory.entries.values():
            if isinstance(node, Directory):
                self._restore(node)
            else:
                node.linked = True


def names_of(path: str) -> list[str]:
    """The names of the directories and the file along a path."""
    return [name for name in path.split("/") if name not in ("", ".")]
