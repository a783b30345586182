"""What every coordinator shares: effects, timers, the reading of a log."""
