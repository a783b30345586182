"""The catalogue as text tables; moldau.broker.config.setting describes the format of a row."""
