"""Group coordination as state machines that produce records and never store them."""
