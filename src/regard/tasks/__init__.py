"""Tasks: each joins data, model, loss and scores into something that can be trained and used."""
