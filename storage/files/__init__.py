"""The interface to files, its implementations on the machine's disk and in memory, and the files that a process keeps
open."""
