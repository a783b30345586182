"""The APIs of this server: the catalogue, the declaration of an API, and the modules of the APIs by subject."""
