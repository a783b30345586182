"""The process and its event loop behind ports: clocks, executor threads, sockets, tasks, group commit."""
