"""Looking inside: what a model computed, recomputed in the open and drawn."""
