"""Cases changed in known directions: the mutations, the draw of mutants, and what scores make of them."""
