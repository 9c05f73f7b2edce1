"""Vocabularies: text to ids and back, and texts to train on."""
