"""The producer state of a log: sequences, epochs, open transactions and their verification."""
