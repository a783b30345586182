"""The catalogue as text tables; broker.config.setting describes the format of a row."""
