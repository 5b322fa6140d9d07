"""What the weights of the overall score decide: other weight sets, all weights, weights fitted to people's ratings."""
