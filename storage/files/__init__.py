"""The file port, its implementation on the machine's disk, and the files that a process keeps open."""
