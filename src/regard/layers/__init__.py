"""The parts that every model is made of. One idea, one file."""
