"""The purgatory: requests that wait for an event, and the timer wheel that ends waits at their timeouts."""
