"""The asyncio side of the coordinators: it loads, appends to and watches the internal topics, sets timers, and sends
replies for the state machines of `moldau.coordinator`.
"""
