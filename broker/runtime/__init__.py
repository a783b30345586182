"""Interfaces to the process and its event loop: clocks, executor threads, sockets, tasks, group commit."""
