"""The runtime that all coordinators share: the contract of a machine, its effects, writes that wait for their commit,
timers, uncommitted changes, and the reading of a log. It does not depend on any kind of coordinator."""
