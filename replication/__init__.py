"""The state of a broker's replica of a partition: its role, in-sync set, high watermark, and the fetches from it and by
it."""
