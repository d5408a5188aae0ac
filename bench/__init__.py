"""The benchmark: cases, timing, records and what follows from them."""
