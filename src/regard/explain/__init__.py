"""Looking inside: what a model computed, recomputed from its formulas and drawn."""
