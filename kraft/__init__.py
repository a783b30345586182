"""The controller quorum: Raft over the metadata log, the metadata image, and the controller that writes it."""
