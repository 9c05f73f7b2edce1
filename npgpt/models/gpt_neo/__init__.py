"""GPT-Neo, decoder-only: GPT-2 with other attention (`model.py`), its sizes, its files."""
