"""The small files of a log directory: checkpoints, properties, markers."""
