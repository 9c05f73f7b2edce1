"""`python -m npgpt.trace`: see `command.py`."""
