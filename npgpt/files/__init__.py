"""What is on disk and on the hub: safetensors, GGUF, JSON. Knows no architecture."""
