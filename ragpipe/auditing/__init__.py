"""What an audit tries on a judge: attacks from a data file, probes for bias, and the figures over what scores made of them."""
