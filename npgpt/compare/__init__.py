"""`python -m npgpt.compare`: see `command.py`."""
