"""What every lesson must be: each check takes a notebook as dictionaries and returns its problems."""
