"""Topics as tables of Arrow: the engine that plans a read of segments and decodes them, also for Spark's source."""
