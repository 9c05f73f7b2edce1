"""Llama, decoder-only: GPT-2's page with four parts exchanged."""
