"""What claims share: what a claim is, how it is run and kept, drawn and reported."""
