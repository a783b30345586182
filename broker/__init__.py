"""The server: sockets, threads, clocks and configuration around the state machines."""
