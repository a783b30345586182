"""Requests that wait for something, and the timers that end their waits."""
