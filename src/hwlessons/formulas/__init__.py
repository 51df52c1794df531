"""What is derived: parameters, model states, activations, peak memory. Pure functions; needs no torch."""
