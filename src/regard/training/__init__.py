"""Training: the loop, its loss, optimizer, schedule and checkpoints. Knows nothing of tasks."""
