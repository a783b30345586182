"""The command `moldau config`: shows and changes the settings that are stored in the cluster."""
