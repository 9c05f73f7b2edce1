"""`python -m npgpt.train`: the loop and what it stands on; see `command.py`."""
