"""What a reader sees: claims, tables, figures, progress, exercises. Needs no torch."""
