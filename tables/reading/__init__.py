"""Reading a topic in this process: the arguments of a call, its filter, the threads that decode, and the rows."""
