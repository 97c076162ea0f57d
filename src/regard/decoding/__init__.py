"""From logits to tokens: beam search, greedy, sampling."""
