"""What a data set says of itself: its card, its Croissant file and its provenance."""
