"""How the book is made: run the lessons, collect their evidence, build the site. Needs no torch."""
