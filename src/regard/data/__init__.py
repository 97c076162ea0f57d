"""From files to batches: reading, tokenising, packing."""
