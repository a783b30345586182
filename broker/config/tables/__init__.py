"""The tables of the catalogue, as text. `moldau.broker.config.setting` describes the format of a row."""
