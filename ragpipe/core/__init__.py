"""What every room may import: errors, hashes, strict JSON, safe text, YAML checks, validation, secret detection."""
