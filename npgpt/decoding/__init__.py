"""From logits to text: sampling, the KV cache, one token after the other, beams."""
