"""BERT, encoder-only: embeddings, post-norm layers, and the heads that read them."""
