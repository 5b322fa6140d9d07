"""Several judges over the same cases: who they are, how their scores become one, and whom a cascade asks."""
