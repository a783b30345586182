"""What every coordinator shares: the contract of a machine, its effects, writes that wait for their commit, timers,
pairs of committed and pending, and the reading of a log. It knows no kind of coordinator."""
