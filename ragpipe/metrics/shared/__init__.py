"""What several metrics lean on: ranking arrays, gold labels and anchors, chains, quotes, flags."""
