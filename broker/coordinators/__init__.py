"""Runs the state machines of `moldau.coordinator` on the event loop: loads them from the internal topics, appends their
records, watches for commits, sets timers and sends replies.
"""
