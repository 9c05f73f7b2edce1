"""GPT-2, decoder-only: the page (`model.py`), its sizes (`config.py`), its files."""
