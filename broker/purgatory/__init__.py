"""Requests that wait for something to happen, and the timer wheel that ends their waits."""
