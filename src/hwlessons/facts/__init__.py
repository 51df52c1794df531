"""What is looked up: number formats, accelerators, model shapes. Needs no torch."""
