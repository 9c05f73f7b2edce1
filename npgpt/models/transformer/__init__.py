"""The encoder-decoder of 2017, which BART and Marian are, too."""
