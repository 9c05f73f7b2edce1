"""`python -m npgpt.describe`: see `command.py`."""
