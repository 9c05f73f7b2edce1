"""`python -m npgpt.vectors`: see `command.py`."""
