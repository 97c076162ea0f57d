"""Small corpora that Regard can write by itself, with no download."""
