"""What a run would ask, what that would cost, and what its gates could tell, before anything is asked."""
