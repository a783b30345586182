"""The catalogue as text tables; broker.config.setting says how a row reads."""
